"""Office files, EPUB, reStructuredText and email: a sample of each, made by its library, and hostile ones."""

from __future__ import annotations

import datetime as dt
import io
import sys
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from context_agent.retrieval.loaders import LoadOptions, LoadReport, load, zipped_xml
from context_agent.retrieval.loaders.html_text import MOST_REPEATED
from context_agent.retrieval.loaders.mail import DEEPEST_PART
from context_agent.testing.hostile_files import archive
from context_agent.testing.hostile_files import book as book_of
from context_agent.testing.hostile_files import workbook as workbook_of
from context_agent.types import Caption, Document

pytest.importorskip("docx")
pytest.importorskip("pptx")
pytest.importorskip("openpyxl")

MB = 2**20


def read(path: Path, **options: Any) -> tuple[list[Document], list[str]]:
    report = LoadReport()
    documents = list(load(path, options=LoadOptions(**options), report=report))
    return documents, [notice.reason for notice in report.notices]


def only(path: Path) -> Document:
    (document,), reasons = read(path)
    assert reasons == []
    return document


def word(path: Path) -> Path:
    import docx

    file = docx.Document()
    file.core_properties.author, file.core_properties.title = "Ada", "The Weir"
    file.add_heading("History", 1)
    file.add_paragraph("It was built in 1901.")
    table = file.add_table(2, 2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), ("Year", "Height", "1901", "4 m"), strict=True
    ):
        cell.text = text
    file.add_paragraph("After the table.")
    file.save(str(path))
    return path


def slides(path: Path) -> Path:
    from pptx import Presentation
    from pptx.util import Inches

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "The Weir", "Built in 1901"
    box = slide.shapes.add_table(1, 2, Inches(1), Inches(1), Inches(2), Inches(1)).table
    box.cell(0, 0).text, box.cell(0, 1).text = "Height", "4 m"
    slide.notes_slide.notes_text_frame.text = "Speak slowly."
    deck.save(str(path))
    return path


def workbook(path: Path) -> Path:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    sheet.title = "Weirs"
    for row in (["Name", "Built", "Day"], ["Brasko", 1901, dt.date(1901, 5, 2)], [], [None, 4.5]):
        sheet.append(row)
    book.create_sheet("Empty")
    book.save(path)
    return path


CONTAINER = '<container><rootfiles><rootfile full-path="book/content.opf"/></rootfiles></container>'
PACKAGE = (
    '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The Weir</dc:title><dc:creator>Ada'
    '</dc:creator></metadata><manifest><item id="b" href="two%20b.xhtml" media-type="application/xhtml+xml"/>'
    '<item id="a" href="one.xhtml" media-type="application/xhtml+xml"/>'
    '<item id="c" href="c.css" media-type="text/css"/>'
    "</manifest>"
    '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="none"/></spine></package>'
)


def book(path: Path, package: str = PACKAGE) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("book/content.opf", package)
        archive.writestr("book/one.xhtml", "<!DOCTYPE html><html><body><h1>One</h1><p>First.</p></body></html>")
        archive.writestr("book/two b.xhtml", "<html><body><h1>Two</h1><p>Second.</p></body></html>")
    return path


def mail(path: Path) -> Path:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ada <ada@example.org>", "bo@example.org", "The weir"
    message["Date"] = dt.datetime(2024, 5, 2, 10, tzinfo=dt.UTC)
    message.set_content("It holds.\n\n> Does it hold?\n")
    path.write_bytes(bytes(message))
    return path


def test_a_word_file_gives_paragraphs_and_tables_in_order(tmp_path: Path) -> None:
    document = only(word(tmp_path / "a.docx"))
    assert document.text == "# History\n\nIt was built in 1901.\n\nYear | Height\n1901 | 4 m\n\nAfter the table."
    assert (document.title, document.metadata["author"], document.metadata["path"]) == ("The Weir", "Ada", "a.docx")


def test_shapes_with_an_alternative_are_read_once(tmp_path: Path) -> None:
    path, part = slides(tmp_path / "a.pptx"), "ppt/slides/slide1.xml"
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).decode("utf-8", "surrogateescape") for name in archive.namelist()}
    first, *rest = files[part].split("<p:sp>")
    shape, after = rest.pop().split("</p:sp>")
    two = "".join(f"<m:{form}><p:sp>{shape}</p:sp></m:{form}>" for form in ("Choice", "Fallback"))
    files[part] = "<p:sp>".join([first, *rest]) + f'<m:AlternateContent xmlns:m="m">{two}</m:AlternateContent>{after}'
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text.encode("utf-8", "surrogateescape"))
    assert only(path).text.count("Built in 1901") == 1


def test_a_presentation_gives_titles_texts_tables_and_notes(tmp_path: Path) -> None:
    document = only(slides(tmp_path / "a.pptx"))
    assert document.text == "## The Weir\n\nBuilt in 1901\n\nHeight | 4 m\n\nSpeak slowly."


def test_the_words_of_a_diagram_follow_the_texts_of_its_slide(tmp_path: Path) -> None:
    with zipfile.ZipFile(slides(tmp_path / "a.pptx")) as before, zipfile.ZipFile(tmp_path / "b.pptx", "w") as after:
        for name in before.namelist():
            data = before.read(name)
            if name == "ppt/slides/_rels/slide1.xml.rels":
                link = b'<Relationship Id="d" Type="http://x/diagramData" Target="../diagrams/data1.xml"/>'
                data = data.replace(b"</Relationships>", link + b"</Relationships>")
            after.writestr(name, data)
        points = "".join(
            f"<d:pt><d:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></d:t></d:pt>" for text in ("Dig", "Build")
        )
        model = f'<d:dataModel xmlns:d="d" xmlns:a="a"><d:ptLst>{points}</d:ptLst></d:dataModel>'
        after.writestr("ppt/diagrams/data1.xml", model)
    assert "Dig\nBuild\n\nSpeak slowly." in only(tmp_path / "b.pptx").text


def test_a_workbook_gives_its_sheets_row_by_row(tmp_path: Path) -> None:
    document = only(workbook(tmp_path / "a.xlsx"))
    assert document.text == "## Weirs\n\nName | Built | Day\nBrasko | 1901 | 1901-05-02\n | 4.5"
    assert document.title == "a"


def test_the_comments_of_a_workbook_follow_their_sheet(tmp_path: Path) -> None:
    import openpyxl
    from openpyxl.comments import Comment

    book = openpyxl.Workbook()
    book.active.append(["Boat", "Built"])
    book.active["A1"].comment = Comment("all of\nthem", "Ann")
    told = "[Threaded comment]\n\nYour version of Excel reads it.\n\nComment:\n    a new keel"
    book.create_sheet("Notes")["B7"].comment = Comment(told, "Bob")
    book.save(tmp_path / "a.xlsx")
    assert only(tmp_path / "a.xlsx").text == "## Sheet\n\nBoat | Built\n\nA1: all of them\n\n## Notes\n\nB7: a new keel"


@pytest.mark.parametrize(
    ("rows", "title"),
    [
        ([["Sales of mills"], [], ["name", "qty"], ["Osterby", 3]], "Sales of mills"),
        ([["name", "qty"], ["Osterby", 3]], "a"),
        ([["name"], ["Osterby"]], "a"),
    ],
)
def test_a_row_above_the_first_table_of_a_workbook_is_its_title(
    tmp_path: Path, rows: list[list[object]], title: str
) -> None:
    import openpyxl

    new_workbook = openpyxl.Workbook()
    for row in rows:
        new_workbook.active.append(row)
    new_workbook.create_sheet("More").append(["a", "b"])
    new_workbook.save(tmp_path / "a.xlsx")
    assert only(tmp_path / "a.xlsx").title == title


def test_a_book_gives_its_chapters_in_reading_order(tmp_path: Path) -> None:
    assert only(book(tmp_path / "a.epub")) == Document(
        "a.epub",
        "# One\n\nFirst.\n\n# Two\n\nSecond.",
        "The Weir",
        {"creator": "Ada", "path": "a.epub"},
        captions=(Caption(0, 15, "One"), Caption(15, 29, "Two")),
    )


@pytest.mark.parametrize("damage", ["no text", "damaged"])
def test_the_other_chapters_of_a_damaged_book_are_read(tmp_path: Path, damage: str) -> None:
    whole = book(tmp_path / "whole.zip")
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(tmp_path / "a.epub", "w") as new:
        for name in old.namelist():
            if name != "book/two b.xhtml":
                new.writestr(name, old.read(name))
            else:
                new.writestr(name, bytes(99) if damage == "no text" else old.read(name))
    if damage == "damaged":
        data = (tmp_path / "a.epub").read_bytes()
        (tmp_path / "a.epub").write_bytes(data.replace(b"Second.", b"Sekond."))
    documents, (reason,) = read(tmp_path / "a.epub")
    assert [document.text for document in documents] == ["# One\n\nFirst."]
    assert reason.startswith("the page book/two b.xhtml ")


@pytest.mark.parametrize(
    ("make", "part"), [("slides", "ppt/slides/slide2.xml"), ("workbook", "xl/worksheets/sheet2.xml")]
)
def test_the_other_sheets_and_slides_of_a_damaged_file_are_read(tmp_path: Path, make: str, part: str) -> None:
    import openpyxl
    import pptx

    stream = io.BytesIO()
    if make == "slides":
        presentation = pptx.Presentation()
        for title in ("One", "Two", "Three"):
            presentation.slides.add_slide(presentation.slide_layouts[5]).shapes.title.text = title
        presentation.save(stream)
    else:
        table = openpyxl.Workbook()
        table.active["A1"] = "One"
        for title in ("Two", "Three"):
            table.create_sheet()["A1"] = title
        table.save(stream)
    file = tmp_path / ("a.pptx" if make == "slides" else "a.xlsx")
    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"<a>" if name == part else old.read(name))
    (document,), (reason,) = read(file)
    assert "One" in document.text
    assert "Two" not in document.text
    assert "Three" in document.text
    assert f"{part} cannot be read (ExpatError" in reason


def test_a_message_gives_its_own_text_and_header(tmp_path: Path) -> None:
    assert only(mail(tmp_path / "a.eml")) == Document(
        "a.eml",
        "From: Ada <ada@example.org>\nTo: bo@example.org\nDate: 2024-05-02T10:00:00+00:00\n"
        "Subject: The weir\n\nIt holds.",
        "The weir",
        {
            "from": "Ada <ada@example.org>",
            "participants": "Ada <ada@example.org>; bo@example.org",
            "date": "2024-05-02T10:00:00+00:00",
            "day": 20240502,
            "path": "a.eml",
        },
    )


def forwarding(inner: EmailMessage, subject: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["Subject"] = "bo@example.org", subject
    message.set_content("See below.\n")
    message.add_attachment(inner)
    return message


def test_attached_messages_are_read_with_their_headers(tmp_path: Path) -> None:
    first = EmailMessage()
    first["From"], first["Subject"] = "Ada <ada@example.org>", "The weir"
    first.set_content("It holds.\n")
    first.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="plan.pdf")
    (tmp_path / "a.eml").write_bytes(bytes(forwarding(forwarding(first, "Fwd: The weir"), "Fwd: Fwd: The weir")))
    assert only(tmp_path / "a.eml").text == (
        "From: bo@example.org\nSubject: Fwd: Fwd: The weir\n\nSee below.\n\n"
        "Attached message:\nFrom: bo@example.org\nSubject: Fwd: The weir\n\nSee below.\n\n"
        "Attached message:\nFrom: Ada <ada@example.org>\nSubject: The weir\nAttachments: plan.pdf\n\nIt holds."
    )


def page_message(file: Path, page: str, subject: str = "The weir") -> str:
    """Return the text that is read of a message whose only part is a page, without its header."""
    file.write_text(f"From: a@b\nSubject: {subject}\nContent-Type: text/html\n\n{page}")
    return only(file).text.partition("\n\n")[2]


def test_the_text_of_a_page_stays_if_it_is_forwarded_indented_or_all_of_the_message(tmp_path: Path) -> None:
    file, quoted = tmp_path / "a.eml", '<blockquote type="cite">It holds.</blockquote>'
    assert page_message(file, f"See below.{quoted}") == "See below."
    assert page_message(file, quoted) == "It holds."
    assert page_message(file, f"See below.{quoted}", "Fwd: The weir") == "See below.\n\nIt holds."
    indented = '<blockquote style="margin:0 0 0 40px;border:none">It holds.</blockquote>'
    assert page_message(file, f"I found:{indented}{quoted}End.") == "I found:\n\nIt holds.\n\nEnd."
    nested = f'<blockquote class="gmail_quote">Old.{indented}Older.</blockquote>'
    assert page_message(file, f"Yes.{nested}Ada") == "Yes.\n\nAda"
    assert page_message(file, "It holds.</blockquote> So far.") == "It holds.\n\nSo far."


def test_a_forwarded_text_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.eml"
    for subject, kept in (("WG: Wehr", True), ("Re: Wehr", False)):
        file.write_text(
            f"From: a@b\nSubject: {subject}\n\nSee below.\n\nFrom: b@c\nSent: Monday\nTo: a@b\n\nIt holds.\n"
        )
        assert ("It holds." in only(file).text) == kept


def test_a_plain_text_that_only_names_the_page_is_left_out(tmp_path: Path) -> None:
    message = EmailMessage()
    message["From"], message["Subject"] = "a@b", "News"
    message.set_content("Your program cannot show this message.\n")
    message.add_alternative(f"<p>{'The weir holds. ' * 20}</p>", subtype="html")
    (tmp_path / "a.eml").write_bytes(bytes(message))
    assert "cannot show" not in only(tmp_path / "a.eml").text
    assert only(tmp_path / "a.eml").text.count("The weir holds.") == 20
    message.get_payload()[0].set_content("The weir holds, says Ada, and it will hold for another year.\n")
    message.get_payload()[1].set_content("<p>The weir holds, <b>says</b> Ada.</p>", subtype="html")
    (tmp_path / "a.eml").write_bytes(bytes(message))
    assert "for another year" in only(tmp_path / "a.eml").text


@pytest.mark.parametrize("boundary", ["", '; boundary="other"'])
def test_a_message_without_the_parts_that_it_states_is_a_text(tmp_path: Path, boundary: str) -> None:
    (tmp_path / "a.eml").write_text(f"From: a@b\nContent-Type: multipart/mixed{boundary}\n\nIt holds.\n")
    assert only(tmp_path / "a.eml").text == "From: a@b\n\nIt holds."


def test_a_file_inside_the_text_of_an_old_message_is_only_named(tmp_path: Path) -> None:
    encoded = f'begin 644 plan of it.gif\n{"M" + "9V5N97)A" * 7 + "=&EO"}\n*50+"`\n`\nend\n'
    (tmp_path / "a.eml").write_text(f"From: a@b\n\nSee the plan.\n\n{encoded}\nbegin 644 the talk\nwith it, and end\n")
    assert only(tmp_path / "a.eml").text == (
        "From: a@b\nAttachments: plan of it.gif\n\nSee the plan.\n\nbegin 644 the talk\nwith it, and end"
    )


def test_attached_messages_that_are_encoded_or_too_deep_are_named(tmp_path: Path) -> None:
    data = b"From: a@b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nRnJvbTogYUBi\n"
    (tmp_path / "a.eml").write_bytes(data)
    assert only(tmp_path / "a.eml").text == "From: a@b\nAttachments: a message (message/rfc822)"
    (tmp_path / "a.eml").write_bytes(b"From: a@b\nContent-Type: message/rfc822\n\n" * (DEEPEST_PART + 2))
    text = only(tmp_path / "a.eml").text
    assert text.count("From: a@b") == DEEPEST_PART + 1
    assert text.endswith("Attachments: a message (message/rfc822)")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("========\nThe Weir\n========\n\nText.", "The Weir"),
        (".. note: x\n\nThe Weir\n--------\n\nText.\n\nMore\n====\n", "The Weir"),
        (":mod:`!weir` --- The gates\n=========================\n\nText.\n", "weir --- The gates"),
        ("``WEIR`` of :py:class:`~gates.Gate`\n===================================\n", "WEIR of gates.Gate"),
        (":date: 2024\n\nText.\n", "a"),
        ("Only text.\n", "a"),
    ],
)
def test_restructured_text_is_read_unchanged_and_titled_by_its_heading(tmp_path: Path, text: str, title: str) -> None:
    (tmp_path / "a.rst").write_text(text)
    document = only(tmp_path / "a.rst")
    assert (document.title, document.text) == (title, text)


MAKERS: dict[str, Callable[[Path], Path]] = {"docx": word, "pptx": slides, "xlsx": workbook, "epub": book}
LIBRARIES = {"docx": "docx", "pptx": "pptx", "xlsx": "openpyxl"}


@pytest.mark.parametrize("kind", LIBRARIES)
def test_zipped_documents_are_read_without_the_libraries_that_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = MAKERS[kind](tmp_path / f"a.{kind}")
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)
    assert "1901" in only(file).text


@pytest.mark.parametrize("kind", MAKERS)
def test_damaged_and_encrypted_files_are_reported(tmp_path: Path, kind: str) -> None:
    content = MAKERS[kind](tmp_path / f"a.{kind}").read_bytes()
    for number, data in enumerate(
        (b"PK\3\4 no archive", content[: len(content) // 2], content.replace(b"xml", b"xyz"))
    ):
        (tmp_path / f"a.{kind}").write_bytes(data)
        documents, reasons = read(tmp_path)
        assert documents == [], number
        assert reasons[0].startswith(f"the {kind} file cannot be read"), number


def rewritten(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The archive with changed parts. A part for which `change` returns None is left out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if (data := change(name, old.read(name))) is not None:
                new.writestr(name, data)
    return target


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_link_may_say_that_it_stays_in_the_file(tmp_path: Path, kind: str) -> None:
    source = MAKERS[kind](tmp_path / f"source.{kind}")

    def stated(name: str, data: bytes) -> bytes:
        return data.replace(b"<Relationship ", b'<Relationship TargetMode="Internal" ') if ".rels" in name else data

    assert only(rewritten(source, tmp_path / f"a.{kind}", stated)).text == only(source).text


@pytest.mark.parametrize(
    ("kind", "part", "noun"),
    [
        ("pptx", "ppt/slides/slide2.xml", "slide"),
        ("xlsx", "xl/worksheets/sheet2.xml", "sheet"),
        ("epub", "book/two b.xhtml", "page"),
    ],
)
def test_a_part_that_is_missing_costs_no_other_part(tmp_path: Path, kind: str, part: str, noun: str) -> None:
    source = MAKERS[kind](tmp_path / f"source.{kind}")
    if kind == "pptx":
        from pptx import Presentation

        deck = Presentation(str(source))
        deck.slides.add_slide(deck.slide_layouts[1])
        deck.save(str(source))
    lacking = rewritten(source, tmp_path / f"a.{kind}", lambda name, data: None if name == part else data)
    (document,), reasons = read(lacking)
    assert document.text == only(source).text.removesuffix("\n\n# Two\n\nSecond.")
    assert reasons == [f"the {noun} {part} is missing in the file"]


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_an_office_file_with_a_password_is_reported(tmp_path: Path, kind: str) -> None:
    name = "EncryptedPackage".encode("utf-16-le")
    (tmp_path / f"a.{kind}").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1024) + name + bytes(1024))
    documents, reasons = read(tmp_path)
    assert documents == []
    assert "encrypted" in reasons[0]
    assert "without a password" in reasons[0]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = MAKERS[kind](tmp_path / f"a.{kind}")
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/more.xml", b"<a>" + b" " * 2 * MB)
    assert (
        "the unpacked XML of the file is larger than 1 MB. Raise the limit with --max-mb"
        in read(tmp_path, max_mb=1)[1][0]
    )
    monkeypatch.setattr(zipped_xml, "LARGEST_FILE", MB)
    assert read(tmp_path)[1][0].startswith("the file unpacks to more than 1 MB")
    monkeypatch.setattr(zipped_xml, "MOST_MEMBERS", 2)
    assert "members, more than 2" in read(tmp_path)[1][0]


PARTS = {
    "docx": "word/document.xml",
    "pptx": "ppt/slides/slide1.xml",
    "xlsx": "xl/worksheets/sheet1.xml",
    "epub": "book/content.opf",
}
ENTITIES = {
    "file": '<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}">]>',
    "laughs": '<!DOCTYPE x [<!ENTITY a "haha"><!ENTITY b "'
    + "&a;" * 100
    + '"><!ENTITY c "'
    + "&b;" * 100
    + '"><!ENTITY e "'
    + "&c;" * 100
    + '">]>',
}


@pytest.mark.parametrize("attack", ENTITIES)
@pytest.mark.parametrize("kind", MAKERS)
def test_no_entity_is_resolved(tmp_path: Path, kind: str, attack: str) -> None:
    (tmp_path / "secret").write_text("root:x:0:0")
    source, file = MAKERS[kind](tmp_path / "source"), tmp_path / "n" / f"a.{kind}"
    file.parent.mkdir()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == PARTS[kind]:
                declaration = ENTITIES[attack].replace("{secret}", str(tmp_path / "secret")).encode()
                head, xml, rest = data.partition(b"?>") if data.startswith(b"<?xml") else (b"", b"", data)
                for text in (b"1901", b"The Weir"):
                    rest = rest.replace(text, b"&e;")
                data = head + xml + declaration + rest
            new.writestr(name, data)
    documents, reasons = read(file)
    assert len(documents) + len(reasons) >= 1
    assert not any("root:x" in document.text or "haha" in document.text for document in documents)


def test_a_sheet_with_many_cells_far_out_is_refused(tmp_path: Path) -> None:
    from openpyxl import Workbook

    new_workbook = Workbook()
    for number in range(1, 70):
        new_workbook.active.cell(number, 16_384, "far")
    new_workbook.save(tmp_path / "columns.xlsx")
    documents, (reason,) = read(tmp_path)
    assert documents == []
    assert reason.startswith("a sheet, empty cells included, is larger than 16 MB")


def test_empty_rows_and_formatted_cells_far_out_do_not_count(tmp_path: Path) -> None:
    far = b'<row r="%d"><c r="XFD%d" s="1"/></row>'
    rows = b'<row r="1"><c r="A1"><v>7</v></c></row>' + b"".join(far % (row, row) for row in range(2, 200))
    last = b'<row r="1048575"><c r="B1048575"><v>8</v></c></row><row r="1048576" ht="12.8"/>'
    (tmp_path / "a.xlsx").write_bytes(workbook_of(rows + last))
    (document,), reasons = read(tmp_path)
    assert document.text.splitlines()[2:] == ["7", " | 8"]
    assert reasons == []


def test_formulas_without_stored_values_are_reported(tmp_path: Path) -> None:
    from openpyxl import Workbook

    new_workbook = Workbook()
    for row in (["north gate", 3], ["both gates", "=B1*2"], ["all gates", "=B1*3"]):
        new_workbook.active.append(row)
    new_workbook.save(tmp_path / "made.xlsx")
    cells = b'<c><f>1+1</f><v>2</v></c><c t="str"><f>""</f><v></v></c><c t="str"><f>""</f></c><c s="1"/>'
    (tmp_path / "saved.xlsx").write_bytes(workbook_of(b"<row>" + cells + b"</row>"))
    documents, (reason,) = read(tmp_path)
    assert [document.text.splitlines()[-1] for document in documents] == ["all gates", "2"]
    assert reason.startswith("some formulas have no stored values, so their cells are read as empty.")


def test_a_book_without_a_reading_order_has_its_pages_in_the_order_of_the_list(tmp_path: Path) -> None:
    page = b'<item id="%b" href="%b.xhtml" media-type="application/xhtml+xml"/>'
    listed = b"".join(page % (name, name) for name in (b"b", b"a"))
    pages = {f"{name}.xhtml": f"<p>Page {name}</p>".encode() for name in "ab"}
    for name, spine in (("none", b""), ("wrong", b'<spine><itemref idref="c"/></spine>')):
        package = b'<package xmlns="http://www.idpf.org/2007/opf"><manifest>%b</manifest>%b</package>'
        (tmp_path / f"{name}.epub").write_bytes(book_of(package % (listed, spine), pages))
    documents, reasons = read(tmp_path)
    assert [document.text for document in documents] == ["Page b\n\nPage a"] * 2
    assert reasons == []


@pytest.mark.parametrize("member", ["content.xml", "encrypted-package"])
def test_an_opendocument_file_with_a_password_is_named_as_encrypted(tmp_path: Path, member: str) -> None:
    manifest = f'<manifest><file-entry full-path="{member}"><encryption-data/></file-entry></manifest>'
    kind = b"application/vnd.oasis.opendocument.text"
    members = {"mimetype": kind, member: bytes(range(256)), "META-INF/manifest.xml": manifest.encode()}
    (tmp_path / "a.odt").write_bytes(archive(members))
    assert read(tmp_path) == ([], ["the file is encrypted. Save it without a password."])


def test_a_book_whose_pages_are_encrypted_is_named_as_protected_and_one_with_encrypted_fonts_is_read(
    tmp_path: Path,
) -> None:
    """Of a book with encrypted fonts and a damaged page, the other pages are read."""
    item = "<item id='%s' href='%s page.xhtml' media-type='text/html'/>"
    package = f"<package><manifest>{item % ('a', 'a')}{item % ('b', 'b')}</manifest></package>".encode()
    encryption = (
        "<encryption><EncryptedData><CipherData><CipherReference URI='%s'/></CipherData></EncryptedData></encryption>"
    )
    for name, encrypted in (("drm", "a%20page.xhtml"), ("fonts", "a.otf")):
        pages = {"a page.xhtml": bytes(range(256)), "b page.xhtml": b"<p>Page</p>"}
        members = pages | {"META-INF/encryption.xml": (encryption % encrypted).encode()}
        (tmp_path / f"{name}.epub").write_bytes(book_of(package, members))
    (document,), reasons = read(tmp_path)
    assert document.text == "Page"
    protected, damaged = reasons
    assert protected == "the book is protected against copying. Pass a copy without protection."
    assert damaged.startswith("the page a page.xhtml cannot be read")


def test_a_merged_cell_of_a_word_file_is_written_once_and_the_columns_stay(tmp_path: Path) -> None:
    import docx

    file = docx.Document()
    table = file.add_table(3, 3)
    for number, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"c{number}"
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "tall"
    file.save(str(tmp_path / "a.docx"))
    assert only(tmp_path / "a.docx").text == "wide |  | c2\ntall | c4 | c5\n | c7 | c8"


def test_a_paragraph_of_a_word_file_keeps_its_tabs_and_lines(tmp_path: Path) -> None:
    import docx

    file = docx.Document()
    file.add_paragraph("a\tb\nc")
    file.add_paragraph("Sub", style="Heading 3")
    file.add_paragraph("Whole", style="Title")
    file.save(str(tmp_path / "a.docx"))
    assert only(tmp_path / "a.docx").text == "a\tb\nc\n\n### Sub\n\n# Whole"


CELLS: list[tuple[Any, str, str]] = [
    (1, "General", "1"),
    (-3, "General", "-3"),
    (1.5, "0.00", "1.5"),
    (1e300, "General", "1e+300"),
    (0.1 + 0.2, "General", "0.3"),
    (0.15, "0%", "15%"),
    (0.075, "0.00%", "7.5%"),
    (3, '0" of 100 %"', "3"),
    (15, r"0.0\%", "15"),
    (True, "General", "True"),
    ("text", "General", "text"),
    ("two\nlines", "General", "two lines"),
    (dt.datetime.fromisoformat("2024-02-29T12:30"), "yyyy-mm-dd hh:mm", "2024-02-29T12:30:00"),
    (dt.date(1900, 1, 15), "d/m/yy", "1900-01-15"),
    (dt.time(6, 45), "h:mm", "06:45:00"),
    (dt.timedelta(hours=30), "[h]:mm", "1 day, 6:00:00"),
    (41_000, '"days" 0', "41000"),
    (41_000, "[Red]0", "41000"),
    (41_000, "[$-409]mmm yyyy", "2012-04-01"),
]


@pytest.mark.parametrize("epoch", [1900, 1904])
def test_the_values_of_cells_are_shown_by_their_formats(tmp_path: Path, epoch: int) -> None:
    from openpyxl import Workbook
    from openpyxl.utils.datetime import CALENDAR_MAC_1904

    new_workbook = Workbook()
    if epoch == 1904:
        new_workbook.epoch = CALENDAR_MAC_1904
    shown = []
    for value, code, text in CELLS:
        if epoch == 1904 and (text.startswith("1900") or value == 41_000):
            continue
        row = len(shown) + 1
        new_workbook.active.cell(row, 1, value).number_format = code
        shown.append(text)
    new_workbook.save(tmp_path / "a.xlsx")
    assert only(tmp_path / "a.xlsx").text.splitlines()[2:] == shown


SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRINGS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/sharedStrings"


def _workbook_with(path: Path, *cells: str, shared: str = "") -> Path:
    """A workbook with these cells as XML in its first row, and with one shared string."""
    from openpyxl import Workbook

    saved = path.with_suffix(".saved")
    Workbook().save(saved)
    with zipfile.ZipFile(saved) as before, zipfile.ZipFile(path, "w") as after:
        for name in before.namelist():
            xml = before.read(name).decode()
            if name == "xl/worksheets/sheet1.xml":
                xml = xml.replace("</sheetData>", f'<row r="1">{"".join(cells)}</row></sheetData>')
            elif name == "xl/_rels/workbook.xml.rels":
                link = f'<Relationship Id="strings" Type="{STRINGS}" Target="sharedStrings.xml"/>'
                xml = xml.replace("</Relationships>", f"{link}</Relationships>")
            after.writestr(name, xml)
        after.writestr("xl/sharedStrings.xml", f'<sst xmlns="{SHEETS}"><si><t>{shared}</t></si></sst>')
    saved.unlink()
    return path


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a_x000D_b", "a b"),
        ("_x005F_x000D_", "_x000D_"),
        ("box005F_y", "box005F_y"),
        ("_x0000_ _xD83D_", "_x0000_ _xD83D_"),
        ("caf_x00e9_", "caf\u00e9"),
    ],
)
def test_escaped_characters_of_a_workbook_are_read(tmp_path: Path, written: str, text: str) -> None:
    cells = ('<c t="s"><v>0</v></c>', f'<c t="inlineStr"><is><t>{written}</t></is></c>')
    file = _workbook_with(tmp_path / "a.xlsx", *cells, shared=written)
    assert only(file).text.splitlines()[2] == f"{text} | {text}"


def test_a_cell_with_a_negative_string_number_is_refused(tmp_path: Path) -> None:
    file = _workbook_with(tmp_path / "a.xlsx", '<c t="s"><v>-1</v></c>', shared="last")
    documents, reasons = read(file)
    assert documents == []
    assert reasons[0].startswith("the xlsx file cannot be read")


def test_a_sheet_with_an_unknown_string_costs_no_other_sheet(tmp_path: Path) -> None:
    def damaged(name: str, data: bytes) -> bytes:
        cell = b'<row r="9"><c t="s"><v>99</v></c></row></sheetData>'
        return data.replace(b"</sheetData>", cell) if name == "xl/worksheets/sheet2.xml" else data

    (document,), reasons = read(rewritten(workbook(tmp_path / "source.xlsx"), tmp_path / "a.xlsx", damaged))
    assert document.text.startswith("## ")
    assert reasons[0].startswith("the sheet xl/worksheets/sheet2.xml cannot be read (ValueError: the number of a")


@pytest.mark.parametrize(
    ("written", "other"), [("workbook", "WorkBook"), ("sharedStrings", "SharedStrings"), ("/", "\\")]
)
def test_parts_are_found_in_any_letter_case_and_with_backslashes(tmp_path: Path, written: str, other: str) -> None:
    source = _workbook_with(tmp_path / "source.xlsx", '<c t="s"><v>0</v></c>', shared="north")
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as after:
        for name in before.namelist():
            after.writestr(name.replace(written, other), before.read(name))
    assert only(tmp_path / "a.xlsx").text == only(source).text == "## Sheet\n\nnorth"


def test_rich_text_and_gaps_of_a_workbook_are_kept(tmp_path: Path) -> None:
    from openpyxl import Workbook
    from openpyxl.cell.rich_text import CellRichText, TextBlock
    from openpyxl.cell.text import InlineFont

    new_workbook = Workbook()
    new_workbook.active["C2"] = CellRichText("a ", TextBlock(InlineFont(b=True), "bold"), " word")
    new_workbook.active["E5"] = "far"
    new_workbook.save(tmp_path / "a.xlsx")
    assert only(tmp_path / "a.xlsx").text == "## Sheet\n\n |  | a bold word\n |  |  |  | far"


def test_the_text_of_an_invitation_is_its_page_and_not_its_calendar(tmp_path: Path) -> None:
    message = EmailMessage()
    message["From"] = "ann@example.org"
    message.set_content("<p>Please bring the report.</p>", subtype="html")
    message.add_alternative("BEGIN:VCALENDAR\nEND:VCALENDAR\n", subtype="calendar")
    (tmp_path / "a.eml").write_bytes(bytes(message))
    assert only(tmp_path / "a.eml").text == "From: ann@example.org\n\nPlease bring the report."


def test_a_message_with_a_damaged_encoded_word_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_text("From: ann@example.org\nSubject: =?utf-8?b?A?= mill\n\nThe mill is closed.\n")
    (message,) = load(tmp_path)
    assert "mill" in message.title
    assert "The mill is closed." in message.text


def test_a_message_without_a_header_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_text("No header.")
    assert read(tmp_path)[1] == [
        "the file is not an email message, because it has none of the fields From, To, Date, Subject and Message-ID"
    ]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('<h1 align="center">\n <img src="a.png"> The <b>Weir</b>\n</h1>\n\n## Install\n', "The Weir"),
        ("# The Weir\n\n<h1>Other</h1>\n", "The Weir"),
        ('<h1><img src="a.png"></h1>\n\n# The Weir\n', "The Weir"),
        ("```html\n<h1>Example</h1>\n```\n\n# The Weir\n", "The Weir"),
    ],
)
def test_a_heading_in_html_titles_a_markdown_file(tmp_path: Path, text: str, title: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert [document.title for document in load(tmp_path)] == [title]


@pytest.mark.parametrize(
    ("ruby", "text"),
    [
        (
            "<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rp>(</rp><rt>じ</rt><rp>)</rp></ruby>を読む",
            "漢字(かんじ)を読む",
        ),
        ("<ruby>漢<rt>かん</rt>字<rt>じ</rt></ruby>を読む", "漢字(かんじ)を読む"),
        ("<ruby><rb>漢<rb>字<rt>かん<rt>じ</ruby>を読む", "漢字(かんじ)を読む"),
        ("<ruby>漢字<rt>かんじ<p>次", "漢字(かんじ)\n\n次"),
        ("<ruby>漢字<rt>かんじ", "漢字(かんじ)"),
        ("<ruby>漢字</ruby>を読む", "漢字を読む"),
    ],
)
def test_a_ruby_has_its_words_and_then_their_reading(tmp_path: Path, ruby: str, text: str) -> None:
    (tmp_path / "a.html").write_text(f"<p>{ruby}", "utf-8")
    assert [document.text for document in load(tmp_path)] == [text]


HEADER = "<tr><th><p>Name</p></th><th><p>Default</p></th></tr>"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (f"<table>{HEADER}<tr><td><p>timeout</p></td><td>30<br>seconds</td></tr></table>", "timeout | 30 seconds"),
        (f"<table>{HEADER}<tr><td>a</td><td></td></tr><tr><td></td><td>b</td></tr></table>", "a\n | b"),
        (f"<table>{HEADER}<tr><td>a</td><td></td></tr></table>after", "a\n\nafter"),
        (f"<table>{HEADER}<tr><td>a<td>b<tr><td>c<td>d</table>", "a | b\nc | d"),
    ],
)
def test_a_row_of_a_page_is_a_line_if_its_table_has_a_header(tmp_path: Path, page: str, text: str) -> None:
    (tmp_path / "a.html").write_text(page, "utf-8")
    assert [document.text for document in load(tmp_path)] == [f"Name | Default\n{text}"]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><td rowspan=2>Body &amp; lid</td><td>9</td></tr><tr><td>15</td></tr><tr><td>Cap</td><td>3</td></tr>",
         ["Body & lid | 9", "Body & lid | 15", "Cap | 3"]),
        ('<tr><th rowspan="2">Region<th colspan="2">2019<th>2020<tr><th>Spring<th>Autumn<th>Spring',
         ["Region | 2019 | | 2020", "Region | Spring | Autumn | Spring"]),
        ("<tr><td>a<td rowspan=3><p>Two<br>crews</p><tr><td>b<tr><td>c<tr><td>d<td>e",
         ["a | Two crews", "b | Two crews", "c | Two crews", "d | e"]),
        (f"<tr><td rowspan=2>{'w' * 201}<td>1<tr><td>2", [f"{'w' * 201} | 1", " | 2"]),
        ("<tr><td rowspan=0 colspan=0>a<td>b<tr><td colspan=99>c", ["a | b", "c"]),
    ],
)  # fmt: skip
def test_cells_of_several_rows_or_columns_leave_the_others_in_their_columns(
    tmp_path: Path, rows: str, lines: list[str]
) -> None:
    (tmp_path / "a.html").write_text(f"<table>{HEADER}{rows}</table>", "utf-8")
    assert [document.text for document in load(tmp_path)] == ["\n".join(["Name | Default", *lines])]


def test_cells_that_claim_many_rows_and_columns_add_a_limited_text(tmp_path: Path) -> None:
    cells = "".join(f"<td rowspan=9999 colspan=9>{'w' * 200}" for _ in range(100))
    (tmp_path / "a.html").write_text(f"<table>{HEADER}<tr>{cells}{'<tr><td>x' * 1_000}</table>", "utf-8")
    ((document),) = load(tmp_path)
    assert len(document.text) < 4 * MOST_REPEATED
    assert document.text.count("| x") + document.text.count("\nx") == 1_000


CELL = 'td class="c1" colspan="1" rowspan="1"'


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<table border=1><tr><td><p>Aare</p></td><td><p>288<br>km</p></td></tr>", "Aare | 288 km"),
        ("<table><caption>Rivers</caption><tr><td>Aare<td>288<tr><td><td>164", "Rivers\nAare | 288\n | 164"),
        ("<table><thead><tr><td>a<td>b</thead><tr><td>1<td>2", "a | b\n1 | 2"),
        (f"<table><tr><{CELL}><p>Aare</p></td><{CELL}><p>288</p></td></tr>", "Aare | 288"),
        ("<table border=1><tr><td><p>One.</p><p>Two.</p></td></tr>", "One.\n\nTwo."),
        ('<table border="0px"><tr><td><p>Menu</p><td>Text', "Menu\n\nText"),
        ("<table border=1><tr><td><h2>Menu</h2><td>Text", "## Menu\n\nText"),
    ],
)
def test_a_table_of_data_needs_no_header(tmp_path: Path, page: str, text: str) -> None:
    (tmp_path / "a.html").write_text(page, "utf-8")
    assert [document.text for document in load(tmp_path)] == [text]


def test_a_table_without_a_header_is_a_layout(tmp_path: Path) -> None:
    inner = f"<table>{HEADER}</table>"
    (tmp_path / "a.html").write_text(
        f"<table><tr><td><p>Menu</p></td><td>{inner}<p>Text</p></td></tr></table>", "utf-8"
    )
    assert [document.text for document in load(tmp_path)] == ["Menu\n\nName | Default\n\nText"]


def test_a_table_with_headings_or_tables_in_its_cells_is_a_layout(tmp_path: Path) -> None:
    cells = f"<th>Menu</th><td><h1>Title</h1><p>One.</p><p>Two.</p><table>{HEADER}</table></td><td>End</td>"
    (tmp_path / "a.html").write_text(f"<table><tr>{cells}</tr></table>", "utf-8")
    expected = ("Title", "Menu\n\n# Title\n\nOne.\n\nTwo.\n\nName | Default\n\nEnd")
    assert [(document.title, document.text) for document in load(tmp_path)] == [expected]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("It lowers pressure<sup>3</sup>.", "It lowers pressure 3."),
        ("It lowers pressure <sup>3</sup>.", "It lowers pressure 3."),
        ('It lowers pressure<sup><a href="#fn3">3</a></sup>.', "It lowers pressure 3."),
        ("10<sup>6</sup> and 10<sup>-6</sup>", "10^6 and 10^-6"),
        ("5 km<sup>2</sup> of CO<sub>2</sub>", "5 km2 of CO2"),
        ("the 21<sup>st</sup> of M<sup>me</sup> X", "the 21st of Mme X"),
    ],
)
def test_a_raised_number_joins_no_word_or_number(tmp_path: Path, page: str, text: str) -> None:
    (tmp_path / "a.html").write_text(f"<p>{page}", "utf-8")
    assert [document.text for document in load(tmp_path)] == [text]
