"""Bibliographies, directories, notes and bookmarks: each entry is a section with its title."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from context_agent.types import Document
from tests.support.loaded import only


def sections(document: Document) -> list[tuple[str, str]]:
    return [(section.title, document.text[section.start : section.end].strip()) for section in document.sections]


def titles(document: Document) -> list[str]:
    return [section.title for section in document.sections]


BIBTEX = r"""% A list of works
@string{acm = "ACM"}
@article{goedel31,
  author = {Kurt G{\"o}del},
  booktitle = {Not this one},
  title = {{\"U}ber formal
    unentscheidbare {S}{\"a}tze},
  year = 1931,
}

@Book(weir,
  title = "{Weirs} \& mills in {{\BibTeX}}",
  year = {1999}
)
@misc{plain, year = 2000}
"""
RIS = "TY  - JOUR\nID  - 7\nTI  - Weirs of the north\nAU  - Ann\nER  - \n\nTY  - BOOK\nT1  - Mills\nER  - \n"
PUBMED = "PMID- 1\nTI  - A long title that goes\n      on here.\nAB  - Words.\n\nPMID- 2\nTI  - Mills\n"
ENDNOTE = "%0 Journal Article\n%T Weirs of the north\n%A Ann\n\n%0 Book\n%A Bo\n"
LDIF = (
    "version: 1\n\ndn: cn=Ann Weir,dc=mill\ncn: Ann Weir\nmail: ann@mill.example\ndescription:: "
    + base64.b64encode("Müllerin\nam Wehr".encode()).decode()
    + "\njpegPhoto:: /9j/4AAQ\n AAAA\n\ndn: ou=Staff,\n dc=mill\nou: Staff\n"
)
INFO = (
    "This is works.info.\n\n\x1f\nFile: works.info,  Node: Top,  Next: Gates\n\nWorks\n\n"
    "\x1f\nFile: works.info,  Node: The gates,  Prev: Top\n\nGates open.\n\n\x1f\nTag Table:\nNode: Top\x7f24\n"
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "works.bib",
            BIBTEX,
            ["Über formal unentscheidbare Sätze (goedel31)", "Weirs & mills in BibTeX (weir)", "plain"],
        ),
        ("works.ris", RIS, ["Weirs of the north", "Mills"]),
        ("works.nbib", PUBMED, ["A long title that goes on here.", "Mills"]),
        ("works.enw", ENDNOTE, ["Weirs of the north", None]),
        ("works.info", INFO, ["Top", "The gates", None]),
        ("works.info-2", INFO, ["Top", "The gates", None]),
        ("works.ldif", LDIF, ["Ann Weir", "ou=Staff,dc=mill"]),
    ],
)
def test_each_entry_is_a_section_with_its_title(
    tmp_path: Path, name: str, text: str, expected: list[str | None]
) -> None:
    (tmp_path / name).write_text(text.replace("\n", "\r\n"), "utf-8-sig")
    document = only(tmp_path / name)
    assert document.title == "works"
    assert titles(document) == [f"works: {title}" if title else "works" for title in expected]
    assert document.sections[-1].end == len(document.text)


def test_the_text_of_an_entry_is_as_written(tmp_path: Path) -> None:
    (tmp_path / "works.bib").write_text(BIBTEX)
    assert sections(only(tmp_path / "works.bib"))[1][1] == BIBTEX[BIBTEX.index("@Book") : BIBTEX.index("@misc")].strip()


def test_encoded_values_of_a_directory_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.ldif").write_text(LDIF)
    text = only(tmp_path / "a.ldif").text
    assert "description: Müllerin am Wehr\njpegPhoto: (binary)\n" in text


@pytest.mark.parametrize("name", ["a.bib", "a.ris", "a.ldif"])
def test_a_file_without_entries_is_a_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("Only words.\n")
    document = only(tmp_path / name)
    assert (document.title, document.text, document.sections) == (name, "Only words.\n", ())


def test_each_note_of_anki_is_a_section(tmp_path: Path) -> None:
    head = "#separator:tab\n#html:true\n#tags column:3\n"
    text = head + '"Which <b>mill</b>?"\t"Osterby<br>&amp; Brasko"\tmills\nWeir\tA dam\t\n'
    (tmp_path / "deck.txt").write_text(text)
    assert sections(only(tmp_path / "deck.txt")) == [
        ("deck: Which mill?", "Which mill?\nOsterby\n& Brasko\nmills"),
        ("deck: Weir", "Weir\nA dam"),
    ]


def test_notes_of_anki_may_have_another_separator_and_no_markup(tmp_path: Path) -> None:
    (tmp_path / "deck.txt").write_text("#separator:Semicolon\n#html:false\na < b;yes\n")
    assert sections(only(tmp_path / "deck.txt")) == [("deck: a < b", "a < b\nyes")]


BOOKMARKS = """<!DOCTYPE NETSCAPE-Bookmark-file-1>
<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=UTF-8">
<TITLE>Bookmarks</TITLE>
<H1>Bookmarks Menu</H1>
<DL><p>
    <DT><H3 ADD_DATE="1">Mills</H3>
    <DL><p>
        <DT><A HREF="https://mill.example/?a=1&amp;b=2" ADD_DATE="1">Osterby &amp; Brasko</A>
        <DD>The one on the hill
        <DT><A HREF="https://weir.example/"></A>
    </DL><p>
</DL>
"""


def test_each_bookmark_is_a_section_with_its_address(tmp_path: Path) -> None:
    (tmp_path / "bookmarks.html").write_text(BOOKMARKS)
    assert sections(only(tmp_path / "bookmarks.html")) == [
        (
            "bookmarks: Osterby & Brasko",
            "Osterby & Brasko\nhttps://mill.example/?a=1&b=2\nFolder: Mills\nThe one on the hill",
        ),
        ("bookmarks: https://weir.example/", "https://weir.example/\nFolder: Mills"),
    ]


ALPHA = r"""[Script Info]
Title: The mill
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:05.00,0:00:06.00,Default,Bo,0,0,0,,{\i1}Since{\i0} May,\Nor June.
Dialogue: 0,0:00:01.00,0:00:03.00,Default,Ann,0,0,0,,Why does it stop?
Dialogue: 0,0:00:02.00,0:00:03.00,Default,,0,0,0,,{\p1}m 0 0 l 100 0{\p0}
Comment: 0,0:00:02.00,0:00:03.00,Default,,0,0,0,,unseen
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "a.ass",
            ALPHA,
            [("The mill: Ann, Bo, 0:00:01.00", "Why does it stop?\n\nBo (0:00:05.00):\nSince May,\nor June.")],
        ),
        (
            "a.lrc",
            "[ti:Mill song]\n[00:12.00]The wheel <00:13.00>turns\n[00:15.30][01:15.30]and turns\n[00:20.00]\n",
            [("Mill song: 00:12.00", "The wheel turns\nand turns")],
        ),
        (
            "a.sbv",
            "0:00:00.599,0:00:04.160\n>> ANN: Why does it stop?\n\n0:00:05.000,0:00:06.000\nBo: Since May.\n",
            [("a: ANN, Bo, 0:00:00.599", "Why does it stop?\n\nBo (0:00:05.000):\nSince May.")],
        ),
    ],
)
def test_the_cues_of_subtitles_and_lyrics_are_turns(
    tmp_path: Path, name: str, text: str, expected: list[tuple[str, str]]
) -> None:
    (tmp_path / name).write_text(text)
    found = sections(only(tmp_path / name))
    assert [(title, said.partition(":\n")[2]) for title, said in found] == expected


def test_the_cues_of_a_long_film_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    cues = "Dialogue: 10:00:01.00,Bo,Since May.\nDialogue: 9:59:59.00,Ann,Why does it stop?\n"
    (tmp_path / "a.ass").write_text(f"[Events]\nFormat: Start, Name, Text\n{cues}")
    text = only(tmp_path / "a.ass").text
    assert text == "Ann (9:59:59.00):\nWhy does it stop?\n\nBo (10:00:01.00):\nSince May.\n\n"
