"""Rich text: what a reader of the document sees, in any encoding, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadReport, load
from context_agent.types import Document

HEAD = (
    r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fswiss Helvetica;}{\f1\fcharset204 Arial Cyr;}}"
    r"{\colortbl;\red255\green0\blue0;}{\stylesheet{\s1 heading 1;}}"
    r"{\info{\title Report on the weir}{\author Lena}}{\*\generator Editor 7;}"
)


def read(folder: Path, body: str | bytes) -> Document:
    data = body if isinstance(body, bytes) else (HEAD + body + "}").encode("ascii")
    (folder / "letter.rtf").write_bytes(data)
    (document,) = load(folder)
    return document


def test_text_and_title_without_fonts_styles_and_data(tmp_path: Path) -> None:
    document = read(tmp_path, r"\pard\f0\b Brasko Weir\b0\par It was raised\line in {\i 1994}.")
    assert document.title == "Report on the weir"
    assert document.text == "Brasko Weir\nIt was raised\nin 1994."


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"caf\'e9", "café"),
        (r"\u8364?5", "€5"),
        (r"\uc2\u8364 EU5", "€5"),
        (r"{\uc0\u-10179\u-8704}", "\U0001f600"),
        (r"\f1\'c4\'e0", "Да"),
        (r"\f1\'c4\'e0\plain caf\'e9", "Даcafé"),
        (r"x\u8209\_y\u160\~z \u8212\emdash !\u8226?\tab a", "x\u2011y\u00a0z —!•\ta"),
        (r"It is {\deleted\revauthdel1 not }true\deleted , no\deleted0 .", "It is true."),
        (r"to {\upr{?a}{\*\ud{\u1044?a}}} end", "to Дa end"),
        (
            r"A{\shp{\*\shpinst{\sp{\sn a}{\sv 0}}{\shptxt Box\par}}{\shprslt{\dptxbxtext Box\par}}}\par B",
            "A\nBox\n\nB",
        ),
        (r"{\header{\shp{\*\shpinst{\shptxt Address\par}}}}Body", "Body"),
        (r"a\tab b\cell c\row d", "a\tb\tc\nd"),
        (r"\lquote a\rquote\emdash b\~c\_d\-e", "‘a’—b\u00a0c-de"),
        (r"\{a\}\\b", r"{a}\b"),
        (r"a{\pict\bin4 }}}}b}c", "ac"),
        (r'{\field{\*\fldinst HYPERLINK "http://example.com"}{\fldrslt a link}}', "a link"),
        (r"a{\footnote b}", "ab"),
        (r"a\unknownword12 b", "ab"),
        (r"a} b", "a b"),
    ],
)
def test_characters_and_groups(tmp_path: Path, body: str, text: str) -> None:
    assert read(tmp_path, body).text == text


def test_text_without_a_font_has_the_default_font(tmp_path: Path) -> None:
    fonts = rb"{\fonttbl{\f0 Arial;}{\f1\fcharset204 Arial Cyr;}}"
    assert read(tmp_path, rb"{\rtf1\ansi\deff1" + fonts + rb"\'c4\'e0}").text == "Да"


def test_a_title_in_two_encodings_is_read_once(tmp_path: Path) -> None:
    title = rb"{\info{\upr{\title ?}{\*\ud\uc0{\title \u1044\u1072}}}}"
    assert read(tmp_path, rb"{\rtf1\ansi" + title + rb"text}").title == "Да"


def test_a_code_page_of_two_bytes_is_decoded_as_a_whole(tmp_path: Path) -> None:
    assert read(tmp_path, rb"{\rtf1\ansi\ansicpg932 \'93\'fa\'96\'7b}").text == "日本"


def test_text_with_the_wrong_name_is_read_as_it_is(tmp_path: Path) -> None:
    assert read(tmp_path, b"Just a text.").text == "Just a text."


def test_headings_are_marked_and_name_the_parts(tmp_path: Path) -> None:
    body = (
        r"\pard\s1\outlinelevel0 Brasko {\b Weir}\par\pard Text.\par"
        r"{\pard\outlinelevel1 Gates\par}\pard\outlinelevel9 Four gates.\par"
    )
    document = read(tmp_path, body)
    assert document.text == "# Brasko Weir\nText.\n## Gates\nFour gates."
    assert [it.text for it in document.captions] == ["Brasko Weir", "Gates"]
    (tmp_path / "letter.rtf").write_text(r"{\rtf1 " + body + "}")
    (untitled,) = load(tmp_path)
    assert (untitled.title, [it.text for it in untitled.captions]) == ("Brasko Weir", ["Gates"])


@pytest.mark.parametrize("body", [b"{\\rtf1 }", b"{\\rtf1" + b"{" * 2_000, b"{\\rtf1{\\pict 00ff}}"])
def test_a_file_without_text_is_left_out_with_a_reason(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "letter.rtf").write_bytes(body)
    report = LoadReport()
    assert list(load(tmp_path, report=report)) == []
    assert len(report.notices) == 1
