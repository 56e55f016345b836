"""Kinds of files under other names, and less common kinds: their text is read, not their markup."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from base64 import b64encode
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.types import Document

HEADER = "From: ann@example.com\nDate: Fri, 2 Jan 2026 03:04:05 +0000\nSubject: Storms\n"
PAGE = "<html><body><h1>Storms</h1><p>The <b>mill</b> stood.</p></body></html>"
MULTIPART = 'Content-Type: multipart/related; boundary="b"\n\n--b\nContent-Type: text/html\n\n{}\n--b--\n'

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def _office(part: str, text: str) -> dict[str, str]:
    link = f'<Relationship Id="a" Type="{OFFICE}/officeDocument" Target="{part}"/>'
    return {"[Content_Types].xml": "<Types/>", "_rels/.rels": f"<Relationships>{link}</Relationships>", part: text}


def _open_document(kind: str, body: str) -> dict[str, str]:
    content = f'<o:c xmlns:o="urn:o" xmlns:t="urn:t">{body}</o:c>'
    return {"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": content}


OFFICE_FILES = {
    "docx": _office("word/document.xml", "<document><body><p><r><t>The mill stood.</t></r></p></body></document>"),
    "xlsx": {
        **_office("xl/workbook.xml", f'<workbook xmlns:r="{OFFICE}"><sheets><sheet r:id="b"/></sheets></workbook>'),
        "xl/_rels/workbook.xml.rels": f'<Relationships><Relationship Id="b" Type="{OFFICE}/worksheet" Target="a.xml"/>'
        "</Relationships>",
        "xl/a.xml": '<worksheet><sheetData><row><c t="inlineStr"><is><t>The mill stood.</t></is></c></row></sheetData>'
        "</worksheet>",
    },
    "pptx": {
        **_office(
            "ppt/presentation.xml",
            f'<presentation xmlns:r="{OFFICE}"><sldIdLst><sldId r:id="b"/></sldIdLst></presentation>',
        ),
        "ppt/_rels/presentation.xml.rels": f'<Relationships><Relationship Id="b" Type="{OFFICE}/slide" Target="a.xml"/>'
        "</Relationships>",
        "ppt/a.xml": "<sld><cSld><spTree><sp><txBody><p><r><t>The mill stood.</t></r></p></txBody></sp></spTree></cSld>"
        "</sld>",
    },
    "odt": _open_document("text", "<t:p>The mill stood.</t:p>"),
    "odp": _open_document("presentation", "<t:p>The mill stood.</t:p>"),
    "ods": _open_document(
        "spreadsheet",
        '<t:table t:name="A"><t:table-row><t:table-cell><t:p>The mill stood.</t:p></t:table-cell></t:table-row>'
        "</t:table>",
    ),
    "epub": {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="a.opf"/></rootfiles></container>',
        "a.opf": '<package><manifest><item id="b" href="b.html" media-type="text/html"/></manifest>'
        '<spine><itemref idref="b"/></spine></package>',
        "b.html": "<p>The mill stood.",
    },
}
"""The parts of the smallest file of each kind, in the order in which programs write them."""


def read(folder: Path) -> tuple[list[Document], list[str]]:
    report = LoadReport()
    documents = list(load(folder, report=report))
    return documents, [notice.reason for notice in report.notices]


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("report.xls", PAGE, "# Storms\n\nThe mill stood."),
        ("letter.doc", f"\ufeff  <!DOCTYPE HTML>\n{PAGE}", "# Storms\n\nThe mill stood."),
        ("page.xhtml", f'<?xml version="1.0"?>{PAGE}', "# Storms\n\nThe mill stood."),
        ("old.doc", r"{\rtf1 The mill stood.}", "The mill stood."),
        ("saved.mht", HEADER + MULTIPART.format(PAGE), "# Storms\n\nThe mill stood."),
        ("page.txt", PAGE, "# Storms\n\nThe mill stood."),
        ("page.md", f"<!doctype html>{PAGE}", "# Storms\n\nThe mill stood."),
        ("old.txt", r"{\rtf1 The mill stood.}", "The mill stood."),
        ("15.txt", f"{HEADER}Message-ID: <1@a>\n\nThe mill stood.\n", "Storms\n\nThe mill stood."),
        ("page.docx", PAGE, "# Storms\n\nThe mill stood."),
        ("table.xlsx", "year,mill\n1901,Osterby\n", "year,mill\n1901,Osterby\n"),
        ("plain.pdf", "The mill stood.", "The mill stood."),
        ("plain.epub", "The mill stood.", "The mill stood."),
        ("12.emlx", f"{len(HEADER) + 17}\n{HEADER}\nThe mill stood.\n<?xml?><plist/>\n", "Storms\n\nThe mill stood."),
        ("13.emlx", f"{HEADER}\nThe mill stood.\n", "Storms\n\nThe mill stood."),
        ("14.nws", f"{HEADER}\nThe mill stood.\n", "Storms\n\nThe mill stood."),
        ("book.fb2", '<?xml version="1.0"?><FictionBook><p>The mill stood.</p></FictionBook>', "The mill stood."),
    ],
)
def test_the_content_decides_how_a_file_is_read(tmp_path: Path, name: str, data: str, text: str) -> None:
    (tmp_path / name).write_text(data, encoding="utf-8")
    (document,), reasons = read(tmp_path)
    assert document.text.endswith(text)
    assert "html" not in document.text
    assert "rtf" not in document.text
    assert reasons == []


@pytest.mark.parametrize("packed", [False, True])
def test_a_mailing_list_archive_named_as_text_is_its_messages(tmp_path: Path, packed: bool) -> None:
    sender = "From ann at example.com  Fri Jan  2 03:04:05 2026\n"
    data = "".join(f"{sender}{HEADER}Message-ID: <{number}@a>\n\nMill {number}.\n\n" for number in range(2)).encode()
    (tmp_path / f"2026-January.txt{'.gz' * packed}").write_bytes(gzip.compress(data) if packed else data)
    documents, reasons = read(tmp_path)
    assert [document.text.splitlines()[-1] for document in documents] == ["Mill 0.", "Mill 1."]
    assert reasons == []


def test_rows_named_as_text_are_rows_and_text_with_an_example_of_a_row_is_text(tmp_path: Path) -> None:
    row = '{"text": "The mill stood."}\n'
    (tmp_path / "a.txt").write_text(row + '{"text": "The mill fell."}\n')
    (tmp_path / "b.txt").write_text(row + "This is a row.\n")
    documents, _ = read(tmp_path)
    assert [document.text for document in documents] == ["The mill stood.", "The mill fell.", row + "This is a row.\n"]


def test_a_note_with_names_above_it_is_no_mail(tmp_path: Path) -> None:
    note = "From: Ann\nDate: today\nWeather: storms\n\nThe mill stood.\n"
    (tmp_path / "a.txt").write_text(note)
    assert [document.text for document in read(tmp_path)[0]] == [note]


@pytest.mark.parametrize("name", ["report.doc", "report", "report.zip", "report.bak"])
@pytest.mark.parametrize("kind", ["docx", "xlsx", "pptx", "odt", "odp", "ods", "epub"])
def test_an_office_file_or_book_of_any_name_is_read(tmp_path: Path, name: str, kind: str) -> None:
    parts = OFFICE_FILES[kind]
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        for part, text in parts.items():
            archive.writestr(part, text)
    (document,), reasons = read(tmp_path)
    assert "The mill stood." in document.text
    assert (document.id, document.title, reasons) == (name, Path(name).stem, [])


@pytest.mark.parametrize("name", ["guide.docbook", "guide.xsd", "guide", "weir_de.ts"])
@pytest.mark.parametrize("mark", ['<?xml version="1.0"?>', '\ufeff<?xml version="1.0" ?>\n'])
def test_xml_of_any_name_is_read_as_xml(tmp_path: Path, name: str, mark: str) -> None:
    (tmp_path / name).write_text(f"{mark}<book><title>Storms</title><para>The mill stood.</para></book>", "utf-8")
    (document,), reasons = read(tmp_path)
    assert (document.title, reasons) == ("Storms", [])
    assert "<" not in document.text


def test_translations_of_qt_without_a_mark_of_xml_are_xml_and_other_files_are_typescript(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text("<!DOCTYPE TS><TS><message><source>The mill</source></message></TS>")
    (tmp_path / "b.ts").write_text("const mill = <number>stood;\n")
    (first, second), _ = read(tmp_path)
    assert "<" not in first.text
    assert (second.text, second.metadata["language"]) == ("const mill = <number>stood;\n", "typescript")


def test_xml_that_is_a_page_is_read_as_a_page(tmp_path: Path) -> None:
    page = '<?xml version="1.0"?>\n<!DOCTYPE html>\n<html><body><h1>Storms</h1></body></html>'
    (tmp_path / "page.php3").write_text(page)
    (document,), _ = read(tmp_path)
    assert (document.title, document.text) == ("Storms", "# Storms")


@pytest.mark.parametrize(
    "redirect",
    [
        '<meta http-equiv="Refresh" content="0; url=b.html">',
        "<META HTTP-EQUIV=refresh content='0;b.html'>",
    ],
)
def test_a_page_that_leads_to_another_page_is_left_out_of_a_folder(tmp_path: Path, redirect: str) -> None:
    (tmp_path / "a.html").write_text(f"<head>{redirect}</head><p>The page you are looking for has moved.</p>")
    assert read(tmp_path) == ([], ["a page that leads to another page"])
    assert [document.title for document in load(tmp_path / "a.html")] == ["a"]


@pytest.mark.parametrize(
    "page",
    [
        '<meta http-equiv="refresh" content="60"><p>The level of the weir is 4 m.</p>',
        '<meta http-equiv="refresh" content="9; url=b.html">' + "<p>The level of the weir is 4 m.</p>" * 20,
    ],
)
def test_a_page_with_text_of_its_own_stays(tmp_path: Path, page: str) -> None:
    (tmp_path / "a.html").write_text(page)
    assert len(read(tmp_path)[0]) == 1


def test_an_archive_with_an_office_file_is_an_archive(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for part, text in OFFICE_FILES["docx"].items():
            archive.writestr(part, text)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.docx", stream.getvalue())
    documents, reasons = read(tmp_path)
    assert (documents, reasons) == ([], ["not text but an archive. To read its files, unpack it."])


@pytest.mark.parametrize("name", ["Mail/Inbox", "Mail/cur/1767323045.M1P1.host", "1767323045.M1P1.host:2,S"])
def test_mail_of_mail_programs_is_read_as_mail(tmp_path: Path, name: str) -> None:
    body = "MIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\nThe m=69ll.\n"
    boundary = "From - Fri Jan  2 03:04:05 2026\nX-Mozilla-Status: 0001\n" if name.endswith("Inbox") else ""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(2 * f"{boundary}{HEADER}{body}\n" if boundary else HEADER + body)
    documents, reasons = read(tmp_path)
    assert {document.title for document in documents} == {"Storms"}
    assert all(document.text.endswith("\n\nThe mill.") for document in documents)
    assert reasons == []


@pytest.mark.parametrize(("name", "first"), [("cur/1.host", ""), ("Inbox", "From ann Fri Jan  2 03:04:05 2026\n")])
def test_mail_is_known_below_the_long_fields_that_servers_add(tmp_path: Path, name: str, first: str) -> None:
    added = "".join(f"Received: from relay{number} by host\n\t{'k' * 70}\n" for number in range(200))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"{first}{added}{HEADER}\nThe mill.\n")
    (document,), _ = read(tmp_path)
    assert document.title == "Storms"
    assert "relay" not in document.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes", "From: the harbor\nTo: the mill\n\nFour miles."),
        ("minutes", "From Monday on, the mill is shut.\n"),
        ("fix.patch", f"From 0f3c Mon Sep 17 00:00:00 2001\n{HEADER}\n---\n+The mill.\n"),
    ],
)
def test_text_that_resembles_mail_stays_as_it_is(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (document,), _ = read(tmp_path)
    assert document.text == text
    assert document.id == name


def open_document(path: Path, content: str) -> None:
    names = ("office", "table", "text")
    with zipfile.ZipFile(path, "w") as archive:
        spaces = " ".join(f'xmlns:{name}="{name}"' for name in names)
        archive.writestr("content.xml", f"<office:document-content {spaces}>{content}</office:document-content>")


def cell(text: str = "", repeated: str = "") -> str:
    attribute = f' table:number-columns-repeated="{repeated}"' if repeated else ""
    return f"<table:table-cell{attribute}>{f'<text:p>{text}</text:p>' if text else ''}</table:table-cell>"


def test_a_spreadsheet_of_opendocument_gives_its_sheets_row_by_row(tmp_path: Path) -> None:
    rows = [
        cell("Weir") + cell("Built<text:s/>in") + cell(repeated="16382"),
        cell("Brasko") + cell() + cell("1901"),
        cell(repeated="16384"),
        cell("a<text:line-break/>b") + cell(repeated="999999999") + cell("far") + cell("next", repeated="x"),
    ]
    sheet = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    open_document(
        tmp_path / "a.ods",
        f'<table:table table:name="Weirs">{sheet}</table:table><table:table table:name="Empty"/>'
        f'<table:table table:name="Mills"><table:table-row>{cell("Osterby")}</table:table-row></table:table>',
    )
    (document,), reasons = read(tmp_path)
    assert document.text == (
        "## Weirs\n\nWeir | Built in\nBrasko |  | 1901\na b" + " | " * 11 + "far | next\n\n## Mills\n\nOsterby"
    )
    assert (document.title, reasons) == ("a", [])


def test_a_row_above_the_table_of_a_spreadsheet_is_its_title(tmp_path: Path) -> None:
    rows = (cell("Sales of mills"), cell("name") + cell("qty"))
    table_rows = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    open_document(tmp_path / "a.ods", f'<table:table table:name="S">{table_rows}</table:table>')
    assert [document.title for document in load(tmp_path)] == ["Sales of mills"]


def test_equal_cells_that_a_spreadsheet_stores_once_are_all_read(tmp_path: Path) -> None:
    row = cell(repeated="2") + cell("7", repeated="3") + cell("8") + cell("9", repeated="999999999")
    open_document(
        tmp_path / "a.ods", f'<table:table table:name="S"><table:table-row>{row}</table:table-row></table:table>'
    )
    assert read(tmp_path)[0][0].text == "## S\n\n |  | 7 | 7 | 7 | 8" + " | 9" * 10


def test_repeated_cells_of_one_row_do_not_grow_past_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.retrieval.loaders.opendocument.table", lambda rows: str(len(list(rows))))
    row = cell("1" * 100, repeated="10") * 2_000
    open_document(
        tmp_path / "a.ods", f'<table:table table:name="S"><table:table-row>{row}</table:table-row></table:table>'
    )
    report = LoadReport()
    assert list(load(tmp_path, options=LoadOptions(max_mb=1), report=report)) == []
    assert "the text of the file" in report.notices[0].reason


def test_the_number_signs_of_a_table_in_a_text_stay(tmp_path: Path) -> None:
    heading = '<table:table-cell><text:h text:outline-level="1">Weir</text:h></table:table-cell>'
    rows = (cell("# of gates") + heading, cell("#1") + cell("C#"))
    table_rows = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    open_document(tmp_path / "a.odt", f"<table:table>{table_rows}</table:table>")
    assert read(tmp_path)[0][0].text == "# of gates | Weir\n#1 | C#"


def test_a_presentation_of_opendocument_gives_its_paragraphs(tmp_path: Path) -> None:
    open_document(tmp_path / "a.odp", "<text:p>The weir</text:p><text:p>Speak slowly.</text:p>")
    assert read(tmp_path)[0][0].text == "The weir\n\nSpeak slowly."


@pytest.mark.parametrize(("name", "like"), [("a.docm", "a.docx"), ("a.xlsm", "a.xlsx"), ("a.pptm", "a.pptx")])
def test_office_files_with_macros_are_read_as_those_without(tmp_path: Path, name: str, like: str) -> None:
    reasons = []
    for file in (name, like):
        (tmp_path / file).write_bytes(b"PK\3\4 damaged")
        reasons += [reason.replace(file[2:], "") for reason in read(tmp_path / file)[1]]
    assert len(set(reasons)) == 1
    assert "cannot be read" in reasons[0]


def test_an_xml_file_is_decoded_as_it_declares(tmp_path: Path) -> None:
    text = '<?xml version="1.0" encoding="windows-1251"?>\n<FictionBook><p>Мельница на холме</p></FictionBook>'
    (tmp_path / "a.xsl").write_bytes(text.encode("cp1251"))
    (document,), reasons = read(tmp_path)
    assert document.text == text
    assert reasons == []


@pytest.mark.parametrize(
    ("name", "text", "encoding"),
    [
        ("a.py", "#!/usr/bin/python\n# -*- coding: koi8-r -*-\n# Мельница на холме", "koi8-r"),
        ("a.el", ";; -*- mode: lisp; coding: cp1251 -*-\n;; Мельница на холме", "cp1251"),
        ("a.tex", "% vim: set fileencoding=euc-jp :\n灯台守は波止場を歩いた。", "euc-jp"),
        ("a.css", '@charset "iso-8859-2";\n/* Młyn na wzgórzu, żółty */', "iso-8859-2"),
        ("a.po", 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=KOI8-R\\n"\n\n"Мельница"', "koi8-r"),
        ("a.txt", "灯台守は波止場を歩いた。", "iso-2022-jp"),
        ("a.html", "灯台守は波止場を歩いた。", "iso-2022-jp"),
    ],
)
def test_a_text_is_decoded_as_it_declares(tmp_path: Path, name: str, text: str, encoding: str) -> None:
    (tmp_path / name).write_bytes(text.encode(encoding))
    (document,), reasons = read(tmp_path)
    last, expected = (lines.splitlines()[-1].strip('"') for lines in (document.text, text))
    assert (last, [reason for reason in reasons if "text was" in reason]) == (expected, [])


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "The “mill” – 5 €"),
        ("gb2312", "gb18030", "朱镕基走过码头"),
        ("shift_jis", "cp932", "①髙橋は歩いた"),
        ("euc-kr", "cp949", "똠방각하"),
        ("x-sjis", "cp932", "①髙橋は歩いた"),
        ("iso-8859-8-i", "iso-8859-8", "הטחנה"),
        ("big5", "big5hkscs", "碁盤與麵包裏"),
        ("tis-620", "cp874", "“โรงสี”"),
        ("iso-8859-1", "latin-1", "Caf\u00e9 \x81"),
    ],
)
def test_an_encoding_means_what_browsers_take_it_for(tmp_path: Path, declared: str, encoding: str, text: str) -> None:
    (tmp_path / "a.html").write_bytes(f"<meta charset={declared}><p>{text} ".encode(encoding))
    mail = f"From: ann@example.com\nContent-Type: text/plain; charset={declared}\n\n{text} "
    (tmp_path / "a.eml").write_bytes(mail.encode(encoding))
    assert [document.text.rpartition("\n")[2].strip() for document in read(tmp_path)[0]] == [text, text]


def test_a_page_that_declares_utf_16_in_single_bytes_is_not_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes("<meta charset=utf-16><p>The mill’s café, ".encode("cp1252") + b" " * 9)
    (document,), _ = read(tmp_path)
    assert document.text == "The mill’s café,"


def test_an_encoded_subject_is_decoded_as_a_text_is(tmp_path: Path) -> None:
    def word(text: str, encoding: str, declared: str) -> str:
        return f"=?{declared}?b?{b64encode(text.encode(encoding)).decode()}?="

    subjects = {
        f"Re: {word('朱镕基', 'gb18030', 'gb2312')} today": "Re: 朱镕基 today",
        f"{word('“mill”', 'cp1252', 'iso-8859-1')} C:\\users": "“mill” C:\\users",
        f"{word('mill', 'ascii', 'x-unknown')} über": "mill über",
    }
    for number, subject in enumerate(subjects):
        (tmp_path / f"{number}.eml").write_text(f"From: ann@example.com\nSubject: {subject}\n\nThe mill.\n", "utf-8")
    assert [document.title for document in read(tmp_path)[0]] == list(subjects.values())


@pytest.mark.parametrize("first", ["sep=;\n", '"sep=;"\r\n'])
def test_a_line_that_states_the_delimiter_is_not_the_header(tmp_path: Path, first: str) -> None:
    (tmp_path / "a.csv").write_text(f"{first}id;text,with;note\n1;mill;x\n".replace("text,with", "text"), newline="")
    (document,), reasons = read(tmp_path)
    assert (document.id, document.text, document.metadata["note"], reasons) == ("1", "mill", "x", [])


def test_a_notice_counts_the_line_that_states_the_delimiter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sep=;\nid;text\n1;mill\n2;\n")
    report = LoadReport()
    assert len(list(load(tmp_path, report=report))) == 1
    assert [notice.line for notice in report.notices] == [4]


@pytest.mark.parametrize("header", ["x_3,x,x", "x,x,x_2", "column_2,,text", "x_2,x_3,x,x"])
def test_a_made_up_column_name_takes_no_other_name(tmp_path: Path, header: str) -> None:
    words = ["mill", "quarry", "harbor", "bridge"][: header.count(",") + 1]
    (tmp_path / "a.csv").write_text(f"{header}\n{','.join(words)}\n")
    (row,) = load(tmp_path)
    assert all(word in f"{row.id} {row.title} {row.text} {row.metadata}" for word in words)


def test_empty_lines_before_the_header_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n\nid,text\n1,mill\n2,\n")
    report = LoadReport()
    assert [document.text for document in load(tmp_path, report=report)] == ["mill"]
    assert [notice.line for notice in report.notices] == [5]


@pytest.mark.parametrize("text", ["", "\n\n", "sep=;\n"])
def test_an_empty_table_is_reported_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert read(tmp_path) == ([], ["the file is empty: it contains no text"])


def test_a_row_with_messages_is_a_conversation(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": "Which mill?"}, {"role": "assistant", "content": "Osterby."}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"text": "A plain row.", "messages": [{"role": "user", "content": "unread"}]},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    documents, reasons = read(tmp_path)
    assert [document.text.strip() for document in documents] == [
        "user:\nWhich mill?\n\nassistant:\nOsterby.",
        "A plain row.",
    ]
    assert documents[0].id == "a.jsonl#1"
    assert reasons == ["the conversation of the row has no text"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Sales of mills\nmill,note,price\nOsterby,old,4\nBrasko,new,6\n", "Sales of mills"),
        ("Sales of mills\nDate,2024-05-01\n\nmill,price\nOsterby,4\nBrasko,6\n", "Sales of mills, Date, 2024-05-01"),
        ("Sales, in euro;;\n;;\nmill;note;price\nOsterby;old, small;4,5\nBrasko;new;6\n", "Sales, in euro"),
        ("Sales of mills\t\t\nmill\tnote\tprice\nOsterby\told\t4\n", "Sales of mills"),
        ('"Sales\nof mills"\n\nmill|price\nOsterby|4\n', "Sales of mills"),
        ("Account,12\nOwner,Ann\nmill,note,price\nOsterby,old,4\nBrasko,new,6\n", "Account, 12, Owner, Ann"),
        ("\n,,\nmill,note,price\nOsterby,old,4\nBrasko,new,6\n", ""),
        ("mill,note\n\nOsterby,old\nBrasko,new\n", ""),
        ("mill,2023,,2024,\nOsterby,Q1,Q2,Q1,Q2\nBrasko,1,2,3,4\n", ""),
        (",note,price\nOsterby,old,4\nBrasko,new,6\n", ""),
        ("mill,note,price\nOsterby,,4\nBrasko,,6\nKade,,7\n", ""),
        ("mill\nOsterby\nBrasko\n", ""),
    ],
)
def test_lines_above_the_header_of_a_table_are_its_title(tmp_path: Path, text: str, title: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    documents, reasons = read(tmp_path)
    assert {document.title for document in documents} == {title}
    assert documents[0].text.splitlines()[0] == ("column_1" if text.startswith(",") else "mill") + ": Osterby"
    assert all("all columns of a row are its text" in reason for reason in reasons)


def test_a_header_shorter_by_two_cells_is_still_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,price\nOsterby,old,4,5\nBrasko,new,6,7\n")
    assert read(tmp_path)[1] == ["the row has 4 cells, but the header names 2"] * 2


@pytest.mark.parametrize(
    "text",
    [
        '"mpg"\t"cyl"\n"Mazda RX4"\t21\t6\n"Fiat 128"\t32.4\t4\n',
        "mpg,cyl\nMazda RX4,21,6\nFiat 128,32.4,4\n",
    ],
)
def test_rows_with_one_cell_more_than_the_header_begin_with_their_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "cars.tsv").write_text(text)
    documents, reasons = read(tmp_path)
    assert [document.text for document in documents] == [
        "column_1: Mazda RX4\nmpg: 21\ncyl: 6",
        "column_1: Fiat 128\nmpg: 32.4\ncyl: 4",
    ]
    assert all("all columns of a row are its text" in reason for reason in reasons)


def test_a_table_of_r_with_spaces_between_quoted_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"mill" "height"\n"1" "North mill" 3.2\n"2" "South mill" 4.1\n')
    documents, _ = read(tmp_path)
    assert [document.text for document in documents] == [
        "column_1: 1\nmill: North mill\nheight: 3.2",
        "column_1: 2\nmill: South mill\nheight: 4.1",
    ]


def test_the_rest_of_a_sentence_with_a_comma_makes_no_row_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,The mill stood, then burned.\n2,The weir broke, twice.\n")
    documents, reasons = read(tmp_path)
    assert not documents
    assert reasons == ["the row has 3 cells, but the header names 2"] * 2


@pytest.mark.parametrize(
    "rows",
    ["Ada,36,41,7\nBo,9,12,8\n", "Ada,red,x,y\nBo,red,u,v\n"],
)
def test_a_header_may_name_only_its_first_column(tmp_path: Path, rows: str) -> None:
    (tmp_path / "a.csv").write_text(f"name,,,\n{rows}")
    documents, _ = read(tmp_path)
    assert [document.text.split("\n")[0] for document in documents] == ["name: Ada", "name: Bo"]


def test_years_may_be_the_header_below_a_title(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Population,,\nCountry,2019,2020\nChile,18.9,19.1\nPeru,32.8,33.3\n")
    documents, _ = read(tmp_path)
    assert [(document.title, document.text) for document in documents] == [
        ("Population", "Country: Chile\n2019: 18.9\n2020: 19.1"),
        ("Population", "Country: Peru\n2019: 32.8\n2020: 33.3"),
    ]


def test_a_named_column_of_text_is_the_header_whatever_the_rows_have(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\nThe mill, the weir\nThe quarry, the bridge\nThe harbor\n")
    documents, reasons = read(tmp_path)
    assert [document.text for document in documents] == ["The harbor"]
    assert reasons == ["the row has 2 cells, but the header names 1"] * 2


def test_the_column_of_text_may_be_named_below_a_title(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Mills\nname,note\nOsterby,old\nBrasko,new\n")
    options = LoadOptions(text_key="note")
    titles = [(document.title, document.text) for document in load(tmp_path, options=options)]
    assert titles == [("Mills: Osterby", "old"), ("Mills: Brasko", "new")]


def test_a_row_above_names_that_repeat_names_the_groups_of_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Sales,,,,,\n,Q1,,Q2,,\nmill,units,price,units,price,note\nKade,1,2,3,4,new\n")
    (document,) = load(tmp_path)
    lines = ["mill: Kade", "Q1 units: 1", "Q1 price: 2", "Q2 units: 3", "Q2 price: 4", "note: new"]
    assert (document.title, document.text.splitlines()) == ("Sales", lines)


def test_a_notice_counts_the_lines_above_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Mills\n\nid,name\n1,Osterby\n2,Brasko,Weir\n3,Kade\n")
    report = LoadReport()
    assert [document.id for document in load(tmp_path, report=report)] == ["1", "3"]
    assert [notice.line for notice in report.notices if notice.lost] == [5]


ROWS = [{"id": "1", "text": "The mill."}, {"id": "2", "text": "The weir."}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson", "a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize(
    "text",
    [json.dumps(ROWS), json.dumps(ROWS, indent=1), "\n" + "\n\n".join(map(json.dumps, ROWS))],
    ids=["array", "array on many lines", "lines"],
)
def test_the_content_decides_whether_json_has_a_row_on_each_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    documents, reasons = read(tmp_path)
    assert [(document.id, document.text) for document in documents] == [("1", "The mill."), ("2", "The weir.")]
    assert reasons == []


def test_an_object_on_many_lines_is_one_document_under_any_name(tmp_path: Path) -> None:
    for name in ("a.json", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps({"name": "mill", "rooms": [1, 2]}, indent=2))
    documents, reasons = read(tmp_path)
    assert [json.loads(document.text)["name"] for document in documents] == ["mill", "mill"]
    assert reasons == []


def test_rows_of_a_json_file_are_not_limited_together(tmp_path: Path) -> None:
    rows = [{"id": number, "text": f"{number} " + "mill " * 1_000} for number in range(300)]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, rows)))
    assert len(list(load(tmp_path, options=LoadOptions(max_mb=1)))) == 300


def test_the_field_that_the_user_names_is_the_text_of_a_row_with_messages(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "Hello."}], "note": "About the mill."}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    assert [d.text for d in load(tmp_path, options=LoadOptions(text_key="note"))] == ["About the mill."]


def test_the_text_of_a_row_without_a_field_of_text_has_all_fields(tmp_path: Path) -> None:
    rows = [{"MESSAGE": "The mill started.", "unit": {"pid": 7}}, {"MESSAGE": "It ended."}, {"text": None}, {}]
    (tmp_path / "journal.jsonl").write_text("\n".join(map(json.dumps, rows)))
    documents, reasons = read(tmp_path)
    assert [document.text for document in documents] == [
        'MESSAGE: The mill started.\nunit: {\n"pid": 7\n}',
        "MESSAGE: It ended.",
    ]
    assert documents[0].metadata == {"MESSAGE": "The mill started.", "unit": '{"pid": 7}'}
    assert "no field text, content, body or contents, so all fields of a row are its text" in reasons[0]
    assert [reason.partition(",")[0] for reason in reasons[1:]] == [
        "field 'text' is empty",
        "the row has no field text",
    ]
    options, report = LoadOptions(text_key="MESSAGE"), LoadReport()
    assert [d.text for d in load(tmp_path, options=options, report=report)] == ["The mill started.", "It ended."]


MILLS = [{"name": "Osterby", "note": "The wheel turns slowly."}, {"name": "Brasko", "note": "The roof is new here."}]


@pytest.mark.parametrize(
    "value",
    [
        {"data": MILLS},
        {"items": MILLS, "total": 2, "next": None},
        {"took": 3, "response": {"numFound": 2, "docs": MILLS}},
        {"type": "Collection", "features": [{"properties": mill} for mill in MILLS]},
    ],
)
def test_each_record_inside_an_object_is_a_document(tmp_path: Path, value: object) -> None:
    (tmp_path / "mills.json").write_text(json.dumps(value, indent=1))
    documents, reasons = read(tmp_path)
    assert [document.title for document in documents] == ["Osterby", "Brasko"]
    assert "The wheel turns slowly." in documents[0].text
    assert not reasons


def test_the_words_around_records_are_a_document(tmp_path: Path) -> None:
    value = {"rows": MILLS * 5, "source": {"by": "the county archive"}}
    (tmp_path / "mills.json").write_text(json.dumps(value))
    documents, _ = read(tmp_path)
    assert len(documents) == 11
    assert "the county archive" in documents[-1].text


@pytest.mark.parametrize(
    "value",
    [
        {"name": "mill", "authors": [{"name": "Ann"}, {"name": "Bo"}], "about": "A long description of the mill." * 9},
        {"rows": MILLS[:1]},
        {"rows": [*MILLS, "The end"]},
        {"rows": {}},
    ],
)
def test_a_list_that_is_not_most_of_an_object_or_not_of_records_is_no_table(tmp_path: Path, value: object) -> None:
    (tmp_path / "mills.json").write_text(json.dumps(value, indent=1))
    (document,), _ = read(tmp_path)
    assert json.loads(document.text) == value


def test_conversations_inside_an_object_are_read_as_conversations(tmp_path: Path) -> None:
    value = {"data": [{"messages": [{"role": "user", "content": f"Which mill is {n}?"}]} for n in range(3)]}
    (tmp_path / "a.json").write_text(json.dumps(value))
    documents, _ = read(tmp_path)
    assert [document.text.strip() for document in documents] == [f"user:\nWhich mill is {n}?" for n in range(3)]
