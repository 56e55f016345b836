"""Loading real files: every format, what is reported, and that nothing is lost in silence."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import ConfigError, DataError
from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.retrieval.loaders.decoding import NUL_REASON, WESTERN_NOTE, decode
from context_agent.retrieval.loaders.html_text import page_text
from context_agent.retrieval.loaders.reading import SAVE_AGAIN
from context_agent.retrieval.loaders.rows import LONGEST_NAME
from context_agent.types import Document
from tests.support.growth import MOST_GROWTH, growth
from tests.support.loaded import drawn, only, said


def rows(path: Path, *values: object) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
    return path


def pdf(path: Path, *pages: str, title: str = "") -> Path:
    """A PDF written by hand: a page a text."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        drawing = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
        resources = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R {resources} /Contents {5 + 2 * n} 0 R >>".encode())
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawing), drawing))
    objects.append(f"<< /Title ({title}) >>".encode())
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>".encode()
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n%s\nstartxref\n%d\n%%%%EOF\n"
    path.write_bytes(data + end % (len(objects) + 1, table, trailer, len(data)))
    return path


# Files that are one document.


def test_plain_text_is_titled_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "My notes.txt"
    file.write_bytes("\ufeffOne\r\ntwo\rthree".encode())
    assert only(file) == Document("My%20notes.txt", "One\ntwo\nthree", "My notes", {"path": "My notes.txt"})


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("intro\n\n## The *first* ##\ntext\n# later", "The *first*"),
        ('---\ntags: [a]\ntitle: "From the front"\n---\n# Heading\n', "From the front"),
        ("---\ntags: [a]\n---\n# Heading\n", "Heading"),
        ("```\n# a comment\n```\n# Real", "Real"),
        ("#hashtag and text", "page"),
        ("  # Indented\n", "Indented"),
        ("Storms\n======\n\ntext\n# later", "Storms"),
        ("# First\n\nStorms\n======\n", "First"),
        ("a | b\n--- | ---\n| =\n===\n", "page"),
    ],
)
def test_markdown_is_titled_by_front_matter_or_heading(tmp_path: Path, text: str, title: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(text)
    document = only(file)
    assert document.title == title
    assert text.endswith(document.text)
    assert not document.text.startswith("---")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n\n<table>\n<tr><th>Zone</th><th>Line</th></tr>\n<tr><td>EU</td><td>17</td></tr>\n</table>\n\nb",
         "a\n\nZone | Line\nEU | 17\n\nb"),
        ("<TABLE border=1><tr><td>1<td>2</TABLE>\n```\n<table><tr><th>x</table>\n```\n<table><tr><th>y</table>",
         "1 | 2\n```\n<table><tr><th>x</table>\n```\ny"),
        ("```\n<table>\n```\n<tr></table>", "```\n<table>\n```\n<tr></table>"),
        ("<table><tr><th>never closed", "<table><tr><th>never closed"),
        ("<table><tr><td><img src=a></td></tr></table>", "<table><tr><td><img src=a></td></tr></table>"),
        ("Use `<table>` and\n  `</table>`", "Use `<table>` and\n  `</table>`"),
    ],
)  # fmt: skip
def test_a_table_of_html_in_markdown_has_a_line_for_each_row(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert only(tmp_path / "a.md").text == expected


def test_html_gives_its_text_and_title(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(
        "<!doctype html><html><head><title>A &amp; B</title><style>p {}</style></head><body><h1>Big <b>one</b></h1>"
        "<!-- no > --><p>First\n <i>para</i>graph.</p><script>if (a < b) {}</script><ul><li>x</li><li>y</li></ul>"
        "<pre>  a\n   b</pre><table><tr><td>1</td><td>2</td></tr></table><a title='a > b' href=u>link</a></body>"
    )
    document = only(file)
    assert document.title == "A & B"
    assert document.text == "# Big one\n\nFirst paragraph.\n\nx\ny\n\n  a\n   b\n\n1 2\n\nlink"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<h1>Only <i>heading</i></h1>text", ("Only heading", "# Only heading\n\ntext")),
        ("a<br>b<br><br>c", ("", "a\nb\n\nc")),
        ("if a < b and c > d", ("", "if a < b and c > d")),
        ("caf&eacute; &#233; &#99999999999; &unknown;", ("", "café é \ufffd &unknown;")),
        ("kept <!-- never closed", ("", "kept")),
        ("kept <script>never closed", ("", "kept")),
        ("a <svg/> b <svg><text>c</text></svg> d", ("", "a b d")),
        ("", ("", "")),
    ],
)
def test_html_as_a_browser_reads_it(page: str, expected: tuple[str, str]) -> None:
    assert page_text(page) == expected


def test_what_follows_a_list_of_options_is_a_line_of_its_own() -> None:
    assert page_text("<select><option>mill<option>weir</select><a>link</a>")[1] == "mill\nweir\nlink"


def test_html_in_the_encoding_it_declares(tmp_path: Path) -> None:
    file = tmp_path / "page.htm"
    file.write_bytes('<meta charset="windows-1251"><p>Привет, мир'.encode("cp1251"))
    assert only(file).text == "Привет, мир"


def test_pdf_gives_the_text_of_its_pages_and_its_title(tmp_path: Path) -> None:
    pytest.importorskip("pypdf", reason="needs the extra docs")
    document = only(pdf(tmp_path / "paper.pdf", "First page.", "Second page.", title="The Paper"))
    assert document == Document(
        "paper.pdf", "First page.\n\nSecond page.", "The Paper", {"path": "paper.pdf", "pages": 2}, pages=(0, 13)
    )
    assert only(pdf(tmp_path / "plain.pdf", "Text")).title == "plain"


def test_words_of_a_pdf_that_are_divided_at_a_line_end_are_joined_if_they_occur_undivided(tmp_path: Path) -> None:
    pytest.importorskip("pypdf", reason="needs the extra docs")
    page = "The wa-) Tj 0 -14 Td (terwheel and the well-) Tj 0 -14 Td (known waterwheel, wa-) Tj 0 -14 Td (ter-"
    document = only(pdf(tmp_path / "a.pdf", page))
    assert document.text == "The waterwheel and the well-\nknown waterwheel, wa-\nter-"


def test_broken_empty_and_locked_pdfs_are_reported(tmp_path: Path) -> None:
    from pypdf import PdfWriter

    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing")
    pdf(tmp_path / "scan.pdf", "")
    writer = PdfWriter(clone_from=pdf(tmp_path / "fine.pdf", "Fine."))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    documents, report = drawn(tmp_path)
    assert [d.text for d in documents] == ["Fine."]
    reasons = {source: reason for source, _, reason in said(report)}
    assert reasons["broken.pdf"].startswith("the PDF cannot be read")
    assert reasons["broken.pdf"].endswith(SAVE_AGAIN)
    assert reasons["scan.pdf"].startswith("none of the 1 pages has text")
    assert reasons["locked.pdf"] == "the file is encrypted. Save it without a password."


@pytest.mark.parametrize(("name", "package"), [("a.pdf", "pypdf"), ("a.parquet", "pyarrow")])
def test_a_missing_extra_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(b"%PDF-")
    (tmp_path / "b.txt").write_text("text")
    documents, report = drawn(tmp_path)
    assert [d.id for d in documents] == ["b.txt"]
    assert said(report) == [(name, None, f'{package} is not installed. Run `pip install "context-agent[docs]"`.')]


# Bytes and encodings.


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_encodings_that_are_recognised(tmp_path: Path, encoding: str) -> None:
    text = "Ein Bär, “zwei” Löwen und 5 € für die Überfahrt."
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    assert only(tmp_path / "a.txt").text == text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "Ein Bär, “zwei” Löwen und 5 € für die Überfahrt. 😀"),
        ("a.log", "12:00 Шлюз открыт.\r\n12:01 Шлюз закрыт.\r\n"),
        ("a.ini", "[weir]\nheight = 2\n" * 1_000),
        ("a.csv", "id,text\n1,Das Wehr war schmal.\n"),
        ("a.jsonl", '{"id": "1", "text": "Das Wehr war schmal."}\n'),
    ],
)
def test_utf16_without_a_byte_order_mark_is_recognized(tmp_path: Path, name: str, text: str, encoding: str) -> None:
    (tmp_path / name).write_bytes(text.encode(encoding))
    (document,), report = drawn(tmp_path)
    is_row = name in {"a.csv", "a.jsonl"}
    assert document.text == ("Das Wehr war schmal." if is_row else text.replace("\r\n", "\n"))
    assert said(report) == []


@pytest.mark.parametrize(
    "data",
    [
        b"".join(number.to_bytes(2, "little") for number in range(300)),
        b"\0\1\0\2" * 50,
        b"a\0\0\0b\0\0\0" * 50,
        b"a\0b\0\0\xd8" * 50,
        b"abcdefghijklmnop" * 3 + b"\0",
        b"abcdefghijklmnop\xff" * 50 + b"\0",
    ],
)
def test_other_bytes_with_nul_are_no_utf16(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    documents, report = drawn(tmp_path)
    assert documents == []
    assert said(report)[0][2] == NUL_REASON


@pytest.mark.parametrize("name", ["a.log", "a.txt", "a.info.gz", "a.csv", "a.md"])
def test_a_few_nul_bytes_do_not_lose_a_text(tmp_path: Path, name: str) -> None:
    text = "text\n" + "".join(f"In the year {n} the keeper wrote the höhe of the tide.\n" for n in range(5))
    data = (text + "\0\x08[index\0\x08]\n" + text.replace("year", "month")).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    documents, report = drawn(tmp_path)
    whole = "\n".join(document.text for document in documents)
    assert whole.count("höhe of the tide") == 10
    assert "\ufffd\x08[index\ufffd\x08]" in whole
    assert said(report) == []


def test_a_few_nul_bytes_in_rows_lose_only_their_rows(tmp_path: Path) -> None:
    rows = [json.dumps({"id": str(number), "text": f"The keeper wrote down tide {number}."}) for number in range(9)]
    rows[1] = rows[1].replace("tide", "ti\0de")
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    documents, report = drawn(tmp_path)
    assert [document.id for document in documents] == list("02345678")
    ((_, line, reason),) = said(report)
    assert (line, reason.partition(" at ")[0]) == (2, "the line is not valid JSON")


def test_a_table_in_japanese_mail_encoding_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["水門の北側のゲートは夜明けに開かれます。", "管理人は毎朝六時に水位を測ります。"] * 20
    rows = "".join(f"{number},{text}\n" for number, text in enumerate(texts))
    monkeypatch.setattr("context_agent.retrieval.loaders.decoding.BLOCK_BYTES", 1_002)
    (tmp_path / "a.csv").write_bytes(f"id,text\n{rows}".encode("iso2022_jp"))
    documents, report = drawn(tmp_path)
    assert [document.text for document in documents] == texts
    assert said(report) == []


def test_one_damaged_character_does_not_turn_utf8_into_gibberish(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Löwen, Bären, Störche, Käfer, Mäuse".encode() + b"\xc3 end")
    documents, report = drawn(tmp_path)
    assert documents[0].text == "Löwen, Bären, Störche, Käfer, Mäuse\ufffd end"
    assert said(report) == [("a.txt", None, "1 damaged character replaced")]
    assert report.skipped == 0


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", bytes(range(1, 256)) * 4, "Привет, мир".encode("cp1251"), b"\x01\x02" * 9],
)
def test_bytes_that_are_no_text_are_reported(tmp_path: Path, data: bytes) -> None:
    for name in ("a.txt", "b.md", "c.html"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "z.txt").write_text("text")
    documents, report = drawn(tmp_path)
    assert [d.id for d in documents] == ["z.txt"]
    assert report.skipped == 3
    assert all("not text" in reason or "neither UTF-8" in reason for _, _, reason in said(report))


def test_the_encoding_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Привет".encode("cp1251"))
    assert only(tmp_path / "a.txt", encoding="cp1251").text == "Привет"
    _, report = drawn(tmp_path / "a.txt", encoding="ascii")
    assert said(report)[0][2].startswith("the file is not valid ascii text")


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_load_or_are_reported(data: bytes) -> None:
    documents, report = drawn(io.BytesIO(data))
    assert len(documents) + report.skipped >= 1
    for document in documents:
        assert document.text.strip()
        document.text.encode()
        assert "\0" not in document.text


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_utf8_is_always_read_as_such(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    if b"\0" not in data and sum(byte < 32 or byte == 127 for byte in data) == 0 and not text.startswith("\ufeff"):
        assert decode(data).text.encode() == data


@pytest.mark.parametrize("content", ["", " \n\t\n", "\ufeff"])
def test_documents_without_text_are_reported(tmp_path: Path, content: str) -> None:
    for name in ("a.txt", "b.md", "c.html"):
        (tmp_path / name).write_text(content, "utf-8")
    documents, report = drawn(tmp_path)
    assert documents == []
    assert [reason for _, _, reason in said(report)] == ["the file is empty: it contains no text"] * 3


# Rows.

ROW = {"id": "q", "title": "T", "text": "Some text."}


def test_jsonl_rows_with_the_usual_names_and_metadata(tmp_path: Path) -> None:
    file = rows(
        tmp_path / "a.jsonl",
        {"_id": 7, "title": " A\nB ", "content": "one", "year": 1990, "ok": True, "x": 0.5, "none": None, "empty": ""},
        {"doc_id": "d/3", "body": "two", "tags": ["ä", {"k": 1}], "big": 2**70},
        {"id": "c", "contents": "three", "title": {"no": "string"}, "_id": "other"},
    )
    documents, report = drawn(file)
    assert documents == [
        Document("7", "one", "A B", {"year": 1990, "ok": True, "x": 0.5}),
        Document("d/3", "two", "", {"tags": '["ä", {"k": 1}]', "big": str(2**70)}),
        Document("c", "three", "", {"title": '{"no": "string"}', "_id": "other"}),
    ]
    assert (report.files, report.documents, report.skipped, said(report)) == (1, 3, 0, [])


def test_zipped_jsonl_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROW).encode("utf-8-sig")))
    (tmp_path / "b.jsonl").write_bytes(json.dumps({**ROW, "id": "w"}).encode("utf-16"))
    documents, _ = drawn(tmp_path)
    assert [d.id for d in documents] == ["q", "w"]


def test_a_cut_gzip_file_gives_what_comes_before_the_cut(tmp_path: Path) -> None:
    content = "".join(json.dumps({"id": n, "text": os.urandom(300).hex()}) + "\n" for n in range(300))
    packed = gzip.compress(content.encode())
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    documents, report = drawn(tmp_path)
    assert 50 < len(documents) < 250
    assert report.skipped == 1
    assert f"Its first {len(documents)} documents were read." in said(report)[0][2]


def test_bad_rows_are_reported_with_line_and_reason_and_the_rest_is_kept(tmp_path: Path) -> None:
    lines = [
        b'{"id": 1, "text": "good"}',
        b"",
        b'{"id": 2, "text": ',
        b"[1, 2]",
        b'{"id": 3, "title": "no text"}',
        b'{"id": 4, "text": "  "}',
        b'{"id": 5, "text": ["a", "b"]}',
        b'{"id": [6], "text": "x"}',
        b'{"id": 7, "text": "caf\xe9"}',
        b"[" * 100_000,
        b'{"id": 8, "text": "good too"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    documents, report = drawn(tmp_path)
    assert [d.id for d in documents] == ["1", "7", "8"]
    assert documents[1].text == "café"
    assert [(line, reason.partition(" (")[0]) for _, line, reason in said(report)] == [
        (3, "the line is not valid JSON at character 20"),
        (4, "the row must be an object with fields; got a list"),
        (5, "the row has no field text, content, body or contents. Its fields are 'id', 'title'."),
        (6, "field 'text' is empty"),
        (7, "field 'text' is a list, not a string"),
        (8, "field 'id' must be a string or a number; got a list"),
        (None, WESTERN_NOTE),
        (10, "the JSON is nested too deeply to be read"),
    ]
    assert said(report)[-1][2] == "the JSON is nested too deeply to be read"
    assert str(report.notices[0]).startswith(f"{tmp_path / 'a.jsonl'}:3: the line is not valid JSON")
    assert (report.files, report.skipped) == (1, 7)


def test_a_row_in_another_encoding_than_the_named_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"text": "灯台守は波止場を歩いた"}\n{"text": "mill"}\n'.encode("shift_jis"))
    documents, report = drawn(tmp_path)
    assert [document.text for document in documents] == ["mill"]
    assert said(report)[0][1:] == (1, "the text is neither UTF-8, UTF-16 nor Windows-1252. Pass its --encoding.")
    documents, report = drawn(tmp_path, encoding="shift_jis")
    assert ([document.text for document in documents], said(report)) == (["灯台守は波止場を歩いた", "mill"], [])
    reasons = [reason for _, _, reason in said(drawn(tmp_path, encoding="ascii")[1])]
    assert reasons == ["the line is not valid ascii. Pass another --encoding."]


def test_keys_can_be_named(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.jsonl", {"key": "k", "name": "N", "passage": "p", "text": "t", "id": "i", "title": "T"})
    keys = {"id_key": "key", "title_key": "name", "text_key": "passage"}
    assert only(file, **keys) == Document("k", "p", "N", {"text": "t", "id": "i", "title": "T"})
    documents, report = drawn(file, id_key="kye")
    assert len(documents) == 1
    assert "'kye'" in said(report)[0][2]


def test_the_id_of_a_row_without_id_names_its_file_and_an_equal_row_of_another_file_is_dropped(tmp_path: Path) -> None:
    for name in ("a b.csv", "sub/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text,year\nmill,1901\n" + "weir,1902\n" * (name != "a b.csv"))
    documents, report = drawn(tmp_path)
    assert [document.id.partition("#")[0] for document in documents] == ["a%20b.csv", "sub/c.csv"]
    assert report.duplicates == 1


def test_a_row_without_id_gets_a_digest_of_its_content(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.jsonl", {"text": "a"}, {"text": "b"}, {"text": "a"}, {"text": "a", "title": "t"})
    first, report = drawn(file)
    assert [d.text for d in first] == ["a", "b", "a"]
    assert len({d.id for d in first}) == 3
    assert (report.duplicates, said(report)) == (1, [])
    rows(file, {"text": "b"}, {"text": "a"})
    assert [d.id for d in drawn(file)[0]] == [first[1].id, first[0].id]


def test_ids_fit_on_a_line_and_the_given_one_is_kept_as_metadata(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.jsonl", {"id": "a\n# DOCUMENT ID: b", "text": "x"}, {"id": "k" * 5000, "text": "y"})
    (forged, long), _ = drawn(file)
    assert (forged.id, forged.metadata) == ("a_# DOCUMENT ID: b", {"source_id": "a\n# DOCUMENT ID: b"})
    assert len(long.id) <= 256


def test_characters_that_no_store_takes_are_replaced_one_for_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "x\\u0000y\\ud800z \\ud83d\\ude00", "k": "\\udfff"}\n')
    assert only(tmp_path / "a.jsonl") == Document("a", "x\ufffdy\ufffdz \U0001f600", "", {"k": "\ufffd"})


def test_values_too_large_for_metadata_are_left_out_with_one_notice(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.jsonl", *({"id": n, "text": f"t{n}", "vector": [0.5] * 5000} for n in range(3)))
    documents, report = drawn(file)
    assert [d.metadata for d in documents] == [{}] * 3
    assert len(said(report)) == 1
    assert "'vector'" in said(report)[0][2]
    assert report.skipped == 0


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_with_its_delimiter_recognised(tmp_path: Path, delimiter: str) -> None:
    file = tmp_path / "a.csv"
    lines = ["id,title,text,year,", '1,One,"a ""quoted"", text\nof two lines",1990,x', "2,Two,b,,"]
    file.write_text("\ufeff" + "\r\n".join(lines).replace(",", delimiter), "utf-8", newline="")
    documents, report = drawn(file)
    assert documents == [
        Document("1", f'a "quoted"{delimiter} text\nof two lines', "One", {"year": "1990", "column_5": "x"}),
        Document("2", "b", "Two"),
    ]
    assert said(report) == []


def test_bad_csv_rows_are_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,good\n\n2,"a"b\n3\n4,x,y,z\n5,fine\n6,"never closed\n7,lost')
    documents, report = drawn(tmp_path)
    assert [d.id for d in documents] == ["1", "5"]
    assert [(line, reason.partition(" (")[0]) for _, line, reason in said(report)] == [
        (4, "the row is not valid CSV"),
        (5, "the row has no field text, content, body or contents. Its fields are 'id'."),
        (6, "the row has 4 cells, but the header names 2"),
        (8, "the row is not valid CSV"),
    ]
    assert said(report)[-1][2].endswith("The lines up to 9 are left out with it. Check its quotation marks.")


def test_without_a_text_column_all_columns_of_a_row_are_its_text(tmp_path: Path) -> None:
    rows = 'id;name;price\n17;"Sluice\ngate";2,50\n18;;3,20\n;;\n'
    (tmp_path / "a.csv").write_text(rows)
    documents, report = drawn(tmp_path)
    assert documents == [
        Document("17", "id: 17\nname: Sluice\ngate\nprice: 2,50", "", {"name": "Sluice\ngate", "price": "2,50"}),
        Document("18", "id: 18\nprice: 3,20", "", {"price": "3,20"}),
    ]
    assert report.skipped == 0
    (reason,) = [reason for _, _, reason in said(report)]
    assert "all columns of a row are its text" in reason
    assert "--text-key" in reason
    (tmp_path / "a.csv").write_text(f"{'x' * 1_000}\ny\n")
    assert [len(document.text) for document in drawn(tmp_path)[0]] == [LONGEST_NAME + len(": y")]
    _, report = drawn(tmp_path, text_key="word")
    assert said(report)[0][2].startswith("there is no column 'word'.")


def test_a_csv_cell_may_hold_megabytes_and_its_encoding_is_found_behind_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,text\n1," + b"word " * 500_000 + b"\n2,caf\xe9\n")
    documents, report = drawn(tmp_path)
    assert [len(d.text) for d in documents] == [2_500_000, 4]
    assert documents[1].text == "café"
    assert report.skipped == 0


def test_parquet_rows(tmp_path: Path) -> None:
    import datetime as dt

    import pyarrow as pa
    from pyarrow import parquet

    table = {
        "id": list(range(600)),
        "text": [f"text {n}" if n != 5 else None for n in range(600)],
        "day": [dt.date(2020, 1, 2)] * 600,
        "tags": [["a", "b"]] * 600,
        "blob": [b"\x00"] * 600,
        "score": [float("nan") if n else 0.5 for n in range(600)],
    }
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    documents, report = drawn(tmp_path)
    assert len(documents) == 599
    assert documents[0] == Document("0", "text 0", "", {"day": "2020-01-02", "tags": '["a", "b"]', "score": 0.5})
    assert "score" not in documents[1].metadata
    assert [(line, reason[:20]) for _, line, reason in said(report)] == [
        (None, "field 'blob' contain"),
        (6, "field 'text' is empt"),
    ]
    with (tmp_path / "a.parquet").open("rb") as stream:
        assert len(drawn(io.BytesIO(stream.read()))[0]) == 599
        assert len(drawn(stream)[0]) == 599
        assert not stream.closed


def test_groups_of_parquet_rows_may_be_empty_or_end_anywhere(tmp_path: Path) -> None:
    """Sets on Hugging Face have structures of texts, such as answers, in groups of 1,000 rows."""
    import pyarrow as pa
    from pyarrow import parquet

    answers = [{"text": [f"answer {n}"], "kind": "short"} for n in range(100)]
    table = pa.table({"text": [f"text {n}" for n in range(100)], "answers": answers})
    with parquet.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 30), table.slice(30)):
            writer.write_table(part)
    documents, report = drawn(tmp_path)
    assert (len(documents), said(report)) == (100, [])
    assert documents[30].text == "text 30"
    assert "answer 30" in documents[30].metadata["answers"]


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_parquet_texts_in_a_delta_encoding_are_read_and_lists_of_them_named(tmp_path: Path, encoding: str) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    texts = [f"Gate {number}" for number in range(40)]
    table = {"text": texts, "place": [{"name": text} for text in texts], "tags": [[text] for text in texts]}
    encodings = dict.fromkeys(("text", "place.name", "tags.list.element"), encoding)
    parquet.write_table(pa.table(table), tmp_path / "a.parquet", use_dictionary=False, column_encoding=encodings)
    documents, report = drawn(tmp_path / "a.parquet")
    assert [document.text for document in documents] == texts
    assert documents[7].metadata == {"place": '{"name": "Gate 7"}'}
    ((_, _, reason),) = said(report)
    assert "'tags.list.element' has lists of texts in a delta encoding" in reason


def test_a_parquet_row_without_a_text_column_has_a_line_for_each_filled_field(tmp_path: Path) -> None:
    import datetime as dt

    import pyarrow as pa
    from pyarrow import parquet

    table = {
        "name": ["North", None],
        "day": [dt.date(2020, 1, 2)] * 2,
        "height": [float("nan"), 3.5],
        "blob": [b"\x00"] * 2,
        "tags": [["a", "b"], ["c"]],
        "seen": [{"on": dt.date(2020, 1, 2), "raw": b"x"}] * 2,
    }
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    documents, report = drawn(tmp_path)
    assert [(document.title, document.text) for document in documents] == [
        ("North", 'name: North\nday: 2020-01-02\ntags: [\n"a",\n"b"\n]\nseen: {\n"on": "2020-01-02",\n"raw": ""\n}'),
        ("", 'day: 2020-01-02\nheight: 3.5\ntags: [\n"c"\n]\nseen: {\n"on": "2020-01-02",\n"raw": ""\n}'),
    ]
    assert [reason[:28] for _, _, reason in said(report)] == ["there is no column text, con"]


def test_damaged_and_empty_tables_are_reported_once(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"key": [1, 2], "words": ["x", "y"]}), tmp_path / "a.parquet")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "c.parquet").write_bytes(b"PAR1 is not enough PAR1")
    (tmp_path / "c" / "d.jsonl").write_text("\n\n")
    (tmp_path / "c" / "e.csv").write_bytes(b"\x00\x01")
    documents, report = drawn(tmp_path / "c")
    assert documents == []
    reasons = [reason for _, _, reason in said(report)]
    assert reasons[0].startswith("the file is damaged after 0 rows")
    assert reasons[1:] == ["the file contains no rows", NUL_REASON]
    assert [d.id for d in drawn(tmp_path / "a.parquet", text_key="words", id_key="key")[0]] == ["1", "2"]
    assert (
        said(drawn(tmp_path / "a.parquet", text_key="word")[1])[0][2]
        == "there is no column 'word'. The columns are 'key', 'words'."
    )


# Duplicates.


def test_a_repeated_document_is_dropped_and_counted(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.jsonl", ROW, ROW)
    documents, report = drawn(file, file)
    assert len(documents) == 1
    assert (report.duplicates, report.documents, report.files, said(report)) == (3, 1, 2, [])


def test_an_id_used_twice_keeps_both_texts_and_says_so(tmp_path: Path) -> None:
    values = [
        ROW,
        {**ROW, "text": "Other."},
        {**ROW, "text": "Third."},
        {**ROW, "text": "Other."},
        {**ROW, "id": "q~2"},
    ]
    documents, report = drawn(rows(tmp_path / "a.jsonl", *values))
    assert [(d.id, d.text) for d in documents] == [
        ("q", "Some text."),
        ("q~2", "Other."),
        ("q~3", "Third."),
        ("q~2~2", "Some text."),
    ]
    assert report.duplicates == 1
    assert report.skipped == 0
    assert len(said(report)) == 1
    assert said(report)[0][2] == (
        "the id 'q' belongs to another document, so this one is renamed to 'q~2'. Other repeated ids of "
        "this source are changed likewise."
    )


def test_a_constant_id_is_no_quadratic_search(tmp_path: Path) -> None:
    def file(number: int) -> Path:
        return rows(tmp_path / f"{number}.jsonl", *({"id": "same", "text": f"text {n}"} for n in range(number)))

    documents, report = drawn(file(20_000))
    assert len({d.id for d in documents}) == 20_000
    assert (len(report.notices), report.unlisted) == (1, 0)
    assert growth(drawn, file, 2_000) < MOST_GROWTH


def test_the_notices_of_a_damaged_file_are_listed_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(ROW) + "\nx" * 10_050)
    documents, report = drawn(tmp_path)
    assert (len(documents), report.skipped) == (1, 10_050)
    assert (len(report.notices), report.unlisted) == (10_000, 50)


# Sources.


def test_folders_are_read_in_sorted_order_with_relative_ids(tmp_path: Path) -> None:
    for name in (
        "b.txt",
        "a.md",
        "sub/c.txt",
        "sub/deep/ü & é?.txt",
        ".hidden.txt",
        ".git/x.txt",
        "image.png",
        "README",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}", "utf-8")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    documents, report = drawn(tmp_path)
    assert [d.id for d in documents] == ["README", "a.md", "b.txt", "sub/c.txt", "sub/deep/ü%20%26%20é%3F.txt"]
    assert documents[4].metadata == {"path": "sub/deep/ü & é?.txt"}
    assert [(source, reason) for source, _, reason in said(report)] == [("image.png", "not text but an image")]
    assert (report.files, report.documents) == (5, 5)
    assert report.kinds == {".png": {"not text but an image": 1}}
    assert report.files_read == {"extensionless": 1, ".md": 1, ".txt": 3}
    assert report.files_left_out == {".png": 1}


def test_paths_that_lead_nowhere_are_reported(tmp_path: Path) -> None:
    (tmp_path / "fine.txt").write_text("fine")
    (tmp_path / "broken.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    documents, report = drawn(tmp_path / "none.txt", tmp_path)
    assert [d.id for d in documents] == ["fine.txt"]
    assert said(report) == [
        ("none.txt", None, "the file cannot be read (No such file or directory)"),
        ("loop", None, "a link to a folder is not followed"),
        ("broken.txt", None, "the file cannot be read (No such file or directory)"),
        ("pipe.txt", None, "the path is neither a file nor a folder"),
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_and_folders_without_permission_are_reported(tmp_path: Path) -> None:
    (tmp_path / "closed.txt").write_text("secret")
    (tmp_path / "closed.txt").chmod(0)
    (tmp_path / "folder").mkdir(mode=0)
    documents, report = drawn(tmp_path)
    assert documents == []
    assert {reason for _, _, reason in said(report)} == {"the file cannot be read (Permission denied)"}


def test_a_single_source_needs_no_list(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    for source in (str(tmp_path), tmp_path, tmp_path / "a.txt", io.StringIO("text"), io.BytesIO(b"text")):
        assert [d.text for d in load(source)] == ["text"]


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        ('{"id": "a", "text": "x"}\n{"id": "b", "text": "y"}\n', ["a", "b"]),
        ('not json\n\n{"id": "b", "text": "y"}\n', ["b"]),
        ("Just a text.\nOf two lines.", ["stdin"]),
        ('"a quoted line"\n[1]\n3', ["stdin"]),
    ],
)
def test_standard_input_is_jsonl_or_text(monkeypatch: pytest.MonkeyPatch, content: str, ids: list[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode()), "ascii"))
    assert [d.id for d in drawn("-")[0]] == ids


def test_a_pipe_is_read_as_well(tmp_path: Path) -> None:
    def feed() -> None:
        with os.fdopen(writing, "wb") as stream:
            stream.write(b"".join(json.dumps({"id": n, "text": "x" * 100}).encode() + b"\n" for n in range(5000)))

    reading, writing = os.pipe()
    threading.Thread(target=feed).start()
    with os.fdopen(reading, "rb") as stream:
        assert len(drawn(stream)[0]) == 5000


def test_a_stream_is_read_by_its_name_and_left_open(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>Hello</p>")
    with (tmp_path / "page.html").open() as stream:
        assert [(d.id, d.text) for d in drawn(stream)[0]] == [("page.html", "Hello")]
        assert not stream.closed
    rows_ = io.BytesIO(json.dumps(ROW).encode())
    assert [d.id for d in drawn(rows_)[0]] == ["q"]
    assert not rows_.closed


def test_a_source_without_a_name_is_quoted() -> None:
    with pytest.raises(DataError, match=r"^'', none do not exist"):
        list(load(["", "none"]))


def test_documents_come_one_at_a_time(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.jsonl", *({"id": n, "text": "x"} for n in range(1000)))
    report = LoadReport()
    stream = load(file, report=report)
    assert next(stream).id == "0"
    assert report.documents == 1
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options",
    [{"encoding": "utf-9"}, {"encoding": "rot13"}, {"encoding": "hex"}, {"delimiter": ";;"}, {"delimiter": '"'}],
)
def test_impossible_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options.values()))):
        LoadOptions(**options)


@pytest.mark.parametrize("piece", ["<!-- ", '<a b="<', "<script ", "<script>", "<", "</", "<p>x", "&#", "<h1>", "=' "])
def test_malformed_pages_take_linear_time(piece: str) -> None:
    assert growth(page_text, lambda size: piece * (size // len(piece)), 250_000) < MOST_GROWTH


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.jsonl", "a.csv"])
def test_ten_megabytes_in_one_document(tmp_path: Path, name: str) -> None:
    text = "The quick brown fox. " * 500_000
    if name == "a.jsonl":
        rows(tmp_path / name, {"text": text})
    else:
        (tmp_path / name).write_text(f"text\n{text}" if name == "a.csv" else text)
    assert len(only(tmp_path / name).text.strip()) == len(text) - 1


@pytest.mark.parametrize("many", [False, True])
def test_sources_that_do_not_exist_are_an_error_unless_another_one_does(tmp_path: Path, many: bool) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(DataError, match=r"missing.*not exist"):
        list(load([str(missing), tmp_path / "gone.txt"] if many else missing))
    (tmp_path / "there.txt").write_text("A text.")
    report = LoadReport()
    assert len(list(load([missing, tmp_path / "there.txt"], report=report))) == 1
    assert report.notices[0].source == str(missing)
