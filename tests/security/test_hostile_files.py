"""Files from a stranger cost time and memory in proportion to their size, whatever they hold."""

from __future__ import annotations

import gzip
import io
import os
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import DataError
from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.retrieval.loaders.csv_files import table_lines
from context_agent.retrieval.loaders.headings import MOST_CAPTIONS
from context_agent.retrieval.loaders.json_outline import json_sections
from context_agent.retrieval.loaders.mail import (
    DEEPEST_PART,
    LARGEST_HEADER,
    LONGEST_PARAMETERS,
    MOST_PARTS,
    parse_message,
)
from context_agent.retrieval.loaders.outlines import Lines, text_captions
from context_agent.retrieval.loaders.parquet_pages import page_sizes
from context_agent.testing.hostile_files import (
    HostileFile,
    book,
    hostile_files,
    pdf,
    repeated,
    stream,
    word_file,
    workbook,
)
from context_agent.testing.loading import LoadingCost, loading_cost
from context_agent.types import Document
from tests.support.growth import MOST_GROWTH, growth

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pypdf")

MB = 2**20
MOST_MEMORY = 200
"""Megabytes above the process at rest."""
KINDS = sorted({file.kind for file in hostile_files(1_000)})


@pytest.fixture
def little_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fonts of a PDF file are counted after a tenth of a second instead of one."""
    monkeypatch.setattr("context_agent.retrieval.loaders.pdf.FREE_FONT_OPERATIONS", 4_000_000)


def hostile(name: str, size: int) -> HostileFile:
    return next(file for file in hostile_files(size, kind=name.partition(".")[2]) if file.name == name)


def cost(folder: Path, file: HostileFile, max_seconds: float = 120) -> LoadingCost:
    path = folder / file.name
    path.write_bytes(file.data)
    return loading_cost(path, max_seconds=max_seconds)


def read(path: Path, data: bytes) -> tuple[list[Document], list[str]]:
    path.write_bytes(data)
    report = LoadReport()
    return list(load(path, report=report)), [notice.reason for notice in report.notices]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("little_is_free")
def test_every_hostile_file_becomes_documents_or_notices(tmp_path: Path, kind: str) -> None:
    # A byte of a PDF file takes ten times as long to read as one of most other files.
    for file in hostile_files(8_000 if kind == "pdf" else 20_000, kind=kind):
        documents, reasons = read(tmp_path / file.name, file.data)
        assert documents or reasons, file.name
        assert all(len(document.title) <= 1_000 for document in documents), file.name


def test_the_files_of_a_seed_are_the_same() -> None:
    assert list(hostile_files(1_000, seed=3)) == list(hostile_files(1_000, seed=3))
    assert len({file.name for file in hostile_files(1_000)}) > 200


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("string.xlsx", 2 * MB),
        ("columns.xlsx", MB),
        ("grid-span.docx", 1_000),
        ("grid-before.docx", 1_000),
        ("attributes.docx", MB),
        ("names.docx", MB),
        ("open.docx", 2 * MB),
        ("text.parquet", 4 * MB),
        ("metadata.parquet", 4 * MB),
        ("list.parquet", 2 * MB),
        ("nulls.parquet", 4 * MB),
        ("line.jsonl.gz", 15 * MB),
        ("uuencode.eml", 4 * MB),
        ("page-fonts.pdf", 300_000),
    ],
)
def test_a_small_file_takes_little_memory(tmp_path: Path, name: str, size: int) -> None:
    measured = cost(tmp_path, hostile(name, size))
    assert (measured.failure, measured.megabytes <= MOST_MEMORY) == ("", True), measured


def test_a_chat_is_not_in_memory_as_its_messages(tmp_path: Path) -> None:
    measured = cost(tmp_path, hostile("chat.txt", 2 * MB))
    assert (measured.failure, measured.megabytes <= 32) == ("", True), measured


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("styles.docx", 100_000),
        ("merged.docx", 60_000),
        ("notes.pptx", 60_000),
        ("sheets.xlsx", 60_000),
        ("format.xlsx", 100_000),
        ("type-quoted.eml", 15_000),
        ("type-parameters.eml", 100_000),
        ("file-name.eml", 100_000),
        ("first-words.eml", 100_000),
        ("to-angles.eml", 100_000),
        ("charset-punycode.eml", 50_000),
        ("charset-punycode.html", 50_000),
        ("links.rtf", 200_000),
        ("fonts.rtf", 200_000),
        ("pictures.rtf", 100_000),
        ("quotes.ics", 400_000),
        ("parameters.ics", 200_000),
        ("soft.vcf", 200_000),
        ("speaker.ass", 400_000),
        ("mentions.json", 100_000),
        ("tight.1", 200_000),
        ("name.csv", 25_000),
        ("bookmark-titles.pdf", 50_000),
        ("bookmark-places.pdf", 30_000),
        ("bookmark-colors.pdf", 30_000),
        ("page-maps.pdf", 10_000),
        ("page-fonts.pdf", 4_000),
        ("form-maps.pdf", 4_000),
    ],
)
@pytest.mark.usefixtures("little_is_free")
def test_four_times_the_size_takes_about_four_times_as_long(tmp_path: Path, name: str, size: int) -> None:
    def seconds(file: HostileFile) -> float:
        measured = cost(tmp_path, file)
        assert measured.failure == ""
        return measured.seconds

    small, large = hostile(name, size), hostile(name, 4 * size)
    assert any(seconds(large) <= 8 * seconds(small) + 0.2 for _ in range(2))


def test_a_long_key_around_many_values_of_json_is_not_copied_for_each() -> None:
    def nested_below(size: int) -> str:
        inner = ", ".join(f'"k{number}": ["{"x" * 400}"]' for number in range(size // 400))
        return f'{{"{"k" * size}": {{{inner}}}}}'

    assert growth(lambda text: json_sections(text, "a.json"), nested_below, 200_000) < MOST_GROWTH


def test_cells_of_a_table_that_never_end_are_not_searched_again_and_again() -> None:
    def read_lines(text: str) -> None:
        file = io.StringIO(text)
        deque(table_lines(file.readline, "\t", MB), maxlen=0)

    # Alone, each line ends inside of a cell, and below another one, too.
    assert growth(read_lines, lambda size: 'x"\t"\n' * size, 50_000) < MOST_GROWTH


@pytest.mark.parametrize("unit", ["a\n b\n", "a|\na|\na|\n\n"])
def test_the_names_of_a_great_many_small_parts_take_bounded_memory(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most = MOST_CAPTIONS // 4
    for module in ("headings", "outlines"):
        monkeypatch.setattr(f"context_agent.retrieval.loaders.{module}.MOST_CAPTIONS", most)
    text = unit * (100_000 // len(unit))
    text_captions(text[:1_000], Lines.CODE)
    tracemalloc.start()
    try:
        captions = text_captions(text, Lines.CODE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(captions) == most
    assert peak < 15 * len(text)


def test_what_a_file_yields_is_bounded_by_its_own_size(tmp_path: Path) -> None:
    packed = ("text.parquet", "metadata.parquet", "list.parquet", "rows.jsonl.gz", "string.xlsx")
    for name in (*packed, "folder.html", "names.1"):
        file = hostile(name, MB)
        measured = cost(tmp_path, file)
        assert not measured.failure, name
        assert measured.characters <= 200 * len(file.data) + MB, name


def test_rows_that_repeat_each_other_are_bounded_by_the_size_of_the_packed_file(tmp_path: Path) -> None:
    documents, reasons = read(tmp_path / "a.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 300_000))
    assert len(documents) <= 1
    assert "more than one row for every 2 bytes" in reasons[0]
    table = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["x"] * 300_000}), table)
    documents, reasons = read(tmp_path / "b.parquet", table.getvalue())
    assert documents == []
    assert "more than one row for every 2 bytes" in reasons[0]


def test_packed_rows_that_differ_are_read(tmp_path: Path) -> None:
    rows = b"".join(b'{"id": "%d", "text": "reading %d"}\n' % (number, 7 * number) for number in range(20_000))
    documents, reasons = read(tmp_path / "a.jsonl.gz", gzip.compress(rows))
    assert len(documents) == 20_000
    assert not reasons


def test_a_page_that_is_named_a_thousand_times_is_counted_each_time(tmp_path: Path) -> None:
    tree = b"<</Type/Pages/Kids[%b]/Count 1000>>" % (b"3 0 R " * 1_000)
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>"
    file = pdf([b"<</Type/Catalog/Pages 2 0 R>>", tree, page, stream(repeated(b"q Q ", 2 * MB))])
    documents, reasons = read(tmp_path / "a.pdf", file)
    assert documents == []
    assert reasons[-1].startswith("the file unpacks to more than 200 times its size")


def test_a_sparse_document_of_two_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    for name in ("a.pdf", "a.docx"):
        path = tmp_path / name
        with path.open("wb") as file:
            file.write(b"%PDF-1.7\n")
            file.truncate(2 << 30)
        measured = loading_cost(path, max_seconds=60)
        assert not measured.failure, name
        assert measured.megabytes < MOST_MEMORY


def test_the_warnings_of_a_library_stay_off_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    measured = cost(tmp_path, hostile("start.pdf", 20_000))
    assert not measured.failure
    assert capfd.readouterr().err == ""


# Mail --------------------------------------------------------------------------------------------------------------


def nested(depth: int, lines: int) -> bytes:
    """A message whose parts are inside each other, with lines that begin like a boundary in the innermost."""
    heads = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(depth))
    return b"From: a@example.org\n" + heads + b"\nText.\n" + b"--\n" * lines


def test_a_part_beyond_the_depth_is_left_out_with_a_notice() -> None:
    assert parse_message(nested(DEEPEST_PART, 0)).text == "Text."
    mail = parse_message(nested(DEEPEST_PART + 1, 0))
    assert mail.text == ""
    assert mail.notices == ("parts are nested in more than 10 levels, so the deeper ones are left out",)


def test_depth_does_not_multiply_the_time(tmp_path: Path) -> None:
    def seconds(depth: int) -> float:
        return cost(tmp_path, HostileFile("a.eml", nested(depth, 100_000), "depth")).seconds

    bound = 3 * min(seconds(5) for _ in range(2)) + 0.1
    assert any(seconds(80) <= bound for _ in range(2))


def test_of_too_many_parts_the_first_are_read() -> None:
    parts = b"".join(b"--b\n\npart %d\n" % number for number in range(MOST_PARTS + 5))
    mail = parse_message(b"From: a@example.org\nContent-Type: multipart/mixed; boundary=b\n\n" + parts)
    assert mail.text.split("\n\n")[-1] == f"part {MOST_PARTS - 1}"
    assert mail.notices == (f"the message has more than {MOST_PARTS:,} parts, so the others are left out",)


def test_a_field_that_is_cut_is_named(tmp_path: Path) -> None:
    long = b"From: a@example.org\nContent-Type: text/plain; name=%b\n\nText." % (b"a" * LONGEST_PARAMETERS)
    ((document,), reasons) = read(tmp_path / "a.eml", long)
    assert document.text.endswith("Text.")
    assert reasons == [f"field Content-Type has more than {LONGEST_PARAMETERS:,} bytes, so its rest is left out"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"From: a@b\n\nplain", "plain"),
        (b"From: a@b\r\n\r\nwindows\r\nlines", "windows\nlines"),
        (b"From: a@b\nno field\n", "no field"),
        (b"From: a@b\nContent-Transfer-Encoding: base64\n\nSGVs\nbG8=\n", "Hello"),
        (b"From: a@b\nContent-Transfer-Encoding: base64\n\nSGVsbG8", "Hello"),
        (b"From: a@b\nContent-Transfer-Encoding: Quoted-Printable\n\na=\nb=3D\n", "ab="),
        (b"From: a@b\nContent-Type: text/plain; charset=punycode\n\nabc-def", "abc-def"),
        (b"From: a@b\nContent-Type: multipart/mixed; boundary=b\n\npreamble\n--b\n\nA\n--b\n\nB\n--b--\nend", "A\n\nB"),
        (b"From: a@b\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nA\n--bc\n--b  \n\nB", "A\n--bc\n\nB"),
        (
            b"To: a@b\nContent-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/html\n\nH\n--b\n\nP",
            "P",
        ),
    ],
)
def test_the_text_of_a_message_is_found(message: bytes, text: str) -> None:
    assert parse_message(message).text == text


# Zipped XML --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<w:x>" * 1_001, "the XML is nested more than 1,000 levels deep"),
        (b"<w:tbl><w:tr><w:tc>" * 400, "the XML is nested more than 1,000 levels deep"),
        (b"".join(b"<x%d/>" % number for number in range(20_000)), "the XML has more than 10,000 different names"),
        (b'<w:p x="%b"/>' % (b"a" * (MB // 2)), "the XML has a tag of more than 262,144 bytes"),
    ],
)
def test_xml_that_would_fill_the_parser_is_refused(tmp_path: Path, body: bytes, reason: str) -> None:
    documents, reasons = read(tmp_path / "a.docx", word_file(body))
    assert documents == []
    assert reasons[0].startswith(reason)


def test_default_attributes_do_not_multiply_the_size_of_xml(tmp_path: Path) -> None:
    defaults = b" ".join(b'a%d CDATA "%b"' % (number, b"x" * 100) for number in range(100))
    xml = b"<!DOCTYPE document [<!ATTLIST p %b>]><document><body>%b</body></document>" % (defaults, b"<p/>" * 9_000)
    documents, reasons = read(tmp_path / "a.docx", word_file(b"", more={"word/document.xml": xml}))
    assert documents == []
    assert reasons == ["the XML declares an entity or a default attribute, so the file is not a document"]


def test_a_sheet_a_slide_or_a_page_that_is_named_often_is_read_once(tmp_path: Path) -> None:
    names: dict[str, Callable[[str], int]] = {
        "sheets.xlsx": lambda text: text.count("## "),
        "slides.pptx": lambda text: len(text) // 50_000,
        "spine.epub": lambda text: text.count("Text."),
    }
    for name, count in names.items():
        ((document,), _) = read(tmp_path / name, hostile(name, 20_000).data)
        assert count(document.text) <= 1, name


def test_cells_that_repeat_a_shared_string_are_counted_as_they_are_produced(tmp_path: Path) -> None:
    cells = b"<row>%b</row>" % (b'<c t="s"><v>0</v></c>' * 3)
    strings = b"<si><t>%b</t></si>" % (b"a" * 400_000)
    path = tmp_path / "a.xlsx"
    path.write_bytes(workbook(cells, strings=strings))
    report = LoadReport()
    assert list(load(path, report=report, options=LoadOptions(max_mb=1))) == []
    assert report.notices[0].reason.startswith("the text of the file is larger than 1 MB")
    _, reasons = read(path, path.read_bytes())
    assert reasons[0].startswith("the file unpacks to more than 200 times its size")
    few = workbook(cells, strings=b"<si><t>%b</t></si>" % (b"a" * 300_000))
    ((document,), _) = read(path, few)
    assert len(document.text) > 3 * 300_000


# Rows --------------------------------------------------------------------------------------------------------------


def test_the_metadata_of_a_row_is_bounded_as_a_whole(tmp_path: Path) -> None:
    fields = ",".join(f'"k{number}":"{"v" * 9_000}"' for number in range(10))
    ((document,), reasons) = read(tmp_path / "a.jsonl", b'{"text":"a",%b}' % fields.encode())
    assert list(document.metadata) == ["k0", "k1", "k2"]
    assert "32,768 characters" in reasons[0]


def test_a_source_without_a_row_in_its_first_lines_is_left(tmp_path: Path) -> None:
    documents, reasons = read(tmp_path / "a.jsonl", b"x\n" * 20_000 + b'{"text": "a"}')
    assert documents == []
    assert len(reasons) == 10_000 or reasons[-1].startswith("the first 10,000 lines")


def test_a_footer_that_is_too_large_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    footer = b"\0" * (5 * MB)
    _, reasons = read(tmp_path / "a.parquet", b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert reasons == ["the footer of the file is larger than 4 MB. Write the file with fewer groups of rows."]


@pytest.mark.parametrize("compression", ["zstd", "gzip", "brotli"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_the_pages_of_a_parquet_file_count_and_not_what_its_footer_states(
    tmp_path: Path, compression: str, use_dictionary: bool
) -> None:
    options = {"compression": compression, "use_dictionary": use_dictionary, "write_statistics": False}
    table = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a" * 20 * MB]}), table, dictionary_pagesize_limit=64 * MB, **options)
    group = parquet.ParquetFile(table).metadata.row_group(0)
    data, forged = table.getvalue(), 0
    for stated in {group.total_byte_size, group.column(0).total_uncompressed_size}:
        # Thrift writes the doubled number in groups of seven bits. The last group is made 0.
        number = bytes((2 * stated >> shift) & 127 | 128 for shift in (0, 7, 14)) + bytes([2 * stated >> 21])
        assert (2 * stated) >> 28 == 0
        forged += data.count(number)
        data = data.replace(number, number[:3] + b"\0")
    assert forged == 2
    documents, reasons = read(tmp_path / "a.parquet", data)
    assert documents == []
    assert "more than 200 times its size" in reasons[0]


def test_columns_of_a_parquet_file_that_share_their_pages_are_refused(tmp_path: Path) -> None:
    table = io.BytesIO()
    texts = ["".join(chr(97 + (number * number) % 23) for number in range(length)) for length in range(100)]
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(pyarrow.table({"text": texts, "same": texts}), table, **options)
    first, second = (parquet.ParquetFile(table).metadata.row_group(0).column(index) for index in (0, 1))
    start, end = second.data_page_offset, second.data_page_offset + second.total_compressed_size
    number, same = (bytes([2 * offset & 127 | 128, offset >> 6]) for offset in (start, first.data_page_offset))
    data = table.getvalue()
    assert data[end:].count(number)
    documents, reasons = read(tmp_path / "a.parquet", data[:start] + data[end:].replace(number, same))
    assert documents == []
    assert reasons == ["the columns of the file overlap, so it is damaged. Write it again."]


def test_the_sizes_of_pages_are_those_that_pyarrow_writes() -> None:
    columns = {
        "text": [f"text {number % 7}" for number in range(5_000)],
        "numbers": [[number] * (number % 3) for number in range(5_000)],
        "record": [{"a": number, "b": [True, None]} for number in range(5_000)],
    }
    for version in ("1.0", "2.0"):
        table = io.BytesIO()
        parquet.write_table(
            pyarrow.table(columns), table, data_page_version=version, data_page_size=1_000, compression="none"
        )
        group = parquet.ParquetFile(table).metadata.row_group(0)
        for index in range(group.num_columns):
            column = group.column(index)
            size = sum(page_sizes(table, column))
            # What the footer states includes the headers of the pages.
            assert 0.5 * column.total_uncompressed_size < size < column.total_uncompressed_size


@pytest.mark.parametrize(
    "data",
    [b"\x1c" * MB, b"\x19" * MB, b"\x19\xf1" + b"\xff" * 9, b"\x15" + b"\xff" * 99, b"\x1b\x7f\xcc" + b"\0" * 999, b""],
)
def test_a_header_of_a_page_that_cannot_be_read_ends_the_column(data: bytes) -> None:
    table = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a", "b"]}), table)
    column = parquet.ParquetFile(table).metadata.row_group(0).column(0)
    stream = io.BytesIO(b"PAR1" + data)
    assert not list(page_sizes(stream, column))
    # Many columns of few bytes could otherwise share a header of 16 MB, and each would read all of it.
    assert stream.tell() <= 4 + column.total_compressed_size


def test_equal_texts_of_a_parquet_file_are_read_while_they_are_few(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = {"text": [f"Text {number}" for number in range(50)], "tag": ["same"] * 50, "tags": [["a", "b"]] * 50}
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    documents = list(load(tmp_path / "a.parquet"))
    assert [document.text for document in documents] == table["text"]
    assert documents[7].metadata == {"tag": "same", "tags": '["a", "b"]'}


def test_texts_of_a_parquet_file_that_repeat_each_other_in_a_delta_encoding_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, delta = "word " * 200_000, {"text": "DELTA_BYTE_ARRAY"}
    table = pyarrow.table({"text": [f"{text}{number}" for number in range(16)]})
    options: dict[str, Any] = {"use_dictionary": False, "compression": "none", "column_encoding": delta}
    parquet.write_table(table, tmp_path / "a.parquet", **options)
    monkeypatch.setattr("context_agent.retrieval.loaders.parquet.LARGEST_REPEATED", 4 * MB)
    usual = pyarrow.default_memory_pool()
    counted = pyarrow.proxy_memory_pool(usual)
    pyarrow.set_memory_pool(counted)
    try:
        documents = sum(1 for _ in load(tmp_path / "a.parquet"))
    finally:
        pyarrow.set_memory_pool(usual)
    assert documents == 16
    assert counted.max_memory() < 12 * MB, "sixteen rows, as in a batch of short texts, take 16 MB"


def test_a_value_that_python_cannot_hold_loses_one_row(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    days = pa.array([0, 2**62, 1], pa.timestamp("us"))
    parquet.write_table(pa.table({"text": ["a", "b", "c"], "day": days}), tmp_path / "a.parquet")
    report = LoadReport()
    assert [document.text for document in load(tmp_path / "a.parquet", report=report)] == ["a", "c"]
    assert [notice.line for notice in report.notices] == [2]


def test_the_maps_of_a_parquet_file_become_metadata(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    maps = pa.array([[("k", "v")], None, [("a", "b"), ("c", "d")]], pa.map_(pa.string(), pa.string()))
    parquet.write_table(pa.table({"text": ["a", "b", "c"], "m": maps}), tmp_path / "a.parquet")
    assert [document.metadata.get("m") for document in load(tmp_path / "a.parquet")] == [
        '[["k", "v"]]',
        None,
        '[["a", "b"], ["c", "d"]]',
    ]


def test_a_message_that_is_not_one_is_refused() -> None:
    with pytest.raises(DataError, match="not an email message"):
        parse_message(b"\n" * 1_000)


def test_a_part_of_any_name_counts_as_unpacked_xml(tmp_path: Path) -> None:
    package = (
        b'<package><manifest><item id="a" href="p.dat" media-type="text/html"/></manifest>'
        b'<spine><itemref idref="a"/></spine></package>'
    )
    page = repeated(b"<p>text ", 17 * MB)
    documents, reasons = read(tmp_path / "a.epub", book(package, {"p.dat": page, "p.jpg": os.urandom(MB)}))
    assert documents == []
    assert reasons[0].startswith("the unpacked XML of the file is larger")


def test_repeated_fields_of_a_message_are_bounded_together() -> None:
    mail = parse_message(b"From: a@example.org\n" + b"To: b@example.org\n" * LARGEST_HEADER + b"\nText.")
    assert mail.text == "Text."
    assert mail.notices == (f"a header has more than {LARGEST_HEADER:,} bytes, so its last fields are left out",)


def test_front_matter_of_a_great_many_values_stays_in_the_text(tmp_path: Path) -> None:
    ((document,), reasons) = read(tmp_path / "a.md", b"---\na: [" + b"a," * 4_000 + b"]\n---\nText.")
    assert document.text.startswith("---")
    assert "the front matter has more than 1,500 values" in reasons[0]


@pytest.mark.parametrize("kind", ["json", "view"])
def test_texts_of_every_arrow_type_are_counted(tmp_path: Path, kind: str) -> None:
    texts = pyarrow.array(['"' + "y" * MB + '"'] * 40)
    column = pyarrow.ExtensionArray.from_storage(pyarrow.json_(), texts) if kind == "json" else None
    table = pyarrow.table({"text": column or texts.cast(pyarrow.string_view())})
    parquet.write_table(table, tmp_path / "a.parquet")
    report = LoadReport()
    assert sum(len(document.text) for document in load(tmp_path / "a.parquet", report=report)) <= 20 * MB
    assert "unpacks to more than 200 times its size" in report.notices[-1].reason


def test_the_title_above_a_table_is_shortened_because_every_row_repeats_it(tmp_path: Path) -> None:
    rows = b"".join(b"%d,2\n" % number for number in range(2_000))
    documents, _ = read(tmp_path / "a.csv", b"x" * 999 + b"\n\na,b\n" + rows)
    assert len(documents) == 2_000
    assert sum(len(document.title) for document in documents) <= 64 * len(rows)
