"""The fonts of a PDF file count as at least the work that pypdf does, and usual fonts as little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_agent.retrieval.loaders import load
from context_agent.testing.hostile_files import pdf, pdf_page, stream

pytest.importorskip("pypdf")

from pypdf.generic import ArrayObject, DecodedStreamObject, DictionaryObject, NameObject, NumberObject

from context_agent.retrieval.loaders.pdf_fonts import FontCosts

RANGES = b"1 beginbfrange\n%b\nendbfrange"
WHOLE = 6_000_000
"""Fewer operations than a range of all 65,536 codes counts as."""


def map_operations(data: bytes) -> int:
    mapped = DecodedStreamObject()
    mapped.set_data(data)
    return FontCosts().operations(DictionaryObject({NameObject("/ToUnicode"): mapped}))


def width_operations(*widths: Any) -> int:
    descendant = DictionaryObject({NameObject("/W"): ArrayObject(widths)})
    return FontCosts().operations(DictionaryObject({NameObject("/DescendantFonts"): ArrayObject([descendant])}))


@pytest.mark.parametrize(
    "line",
    [
        b"<0000> <FFFF> <0001>",
        b"<0000><ffff><0001> <0002>",
        b"0 FFFF 1",
        b"0x0 0xFFFF 0",
        b"<00 00> <FF FF> <00 01>",
        b"<0000>\x0c<FFFF> <0001>",
        b"] <0000> <FFFF> <0001>",
        b"<< <0000> <FFFF> <0001>",
        b"<0000> <7FFF> <0001>\r<8000> <FFFF> <0001>",
    ],
)
def test_a_range_counts_its_codes_in_every_notation(line: bytes) -> None:
    assert map_operations(RANGES % line) > WHOLE
    assert map_operations(b"beginbfrange " + line) > WHOLE


@pytest.mark.parametrize(
    "line",
    [
        b"<0003> <0005> <0041>",
        b"<0000> <FFFF> [<0041> <0042>]",
        b"<0000> <FFFF>[<0041>\n<0042>\n<0043> <0044>]",
        b"<0000> <FFFF>",
        b"% from <0000> to <FFFF>, all",
        b"",
    ],
)
def test_a_line_of_few_characters_counts_little(line: bytes) -> None:
    assert map_operations(RANGES % line) < 3_000


def test_a_map_of_many_short_lines_counts_more_than_its_bytes() -> None:
    assert map_operations(b"beginbfchar" + b"\nx" * 1_000) > 100 * 1_000


def test_widths_count_as_ranges_and_lists() -> None:
    number, name = NumberObject, NameObject("/a")
    assert width_operations(number(0), number(60_000), number(500)) > 1_000_000
    assert width_operations(number(0), ArrayObject([number(500)] * 60_000)) > 1_000_000
    assert width_operations(name, number(0), number(60_000), number(500)) > 1_000_000
    assert width_operations(*[number(0), number(99), number(500)] * 1_000) > 1_000_000
    assert width_operations(number(3), ArrayObject([number(500)] * 90), number(200), number(300), number(600)) < 10_000
    assert width_operations(number(0), number(9)) < 2_000


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (b"<0000> <FFFF> <0000>", False),
        (b"<0000> <00ff> <0000>\n<0100> <01ff> <0100>\n", False),
        (b"<0000> <00FF> <0001>", True),
        (b"<00> <FF> <00>", True),
        (b"<0000> <00FF> <0000>\n0100 01FF", True),
        (b"<0000> <00FF> <0000>\nendbfrange\n1 beginbfchar\n<0041> <0042>\nendbfchar", True),
    ],
)
def test_a_map_of_each_code_to_itself_is_not_read_and_the_text_is_the_same(
    tmp_path: Path, lines: bytes, kept: bool
) -> None:
    font = b"<</Type/Font/Subtype/Type0/BaseFont/A/Encoding/Identity-H/DescendantFonts[6 0 R]/ToUnicode 7 0 R>>"
    data = pdf_page(
        b"BT /F 9 Tf <0041006C0066> Tj ET",
        filters=b" ",
        resources=b"/Font<</F 5 0 R>>",
        more=[font, b"<</Type/Font/Subtype/CIDFontType2/DW 500>>", stream(RANGES % lines, b" ")],
    )
    path = tmp_path / "gates.pdf"
    path.write_bytes(data)
    from pypdf import PdfReader

    page = PdfReader(path).pages[0]
    expected = page.extract_text()
    assert next(iter(load(path))).text == expected
    used = page["/Resources"]["/Font"]["/F"]  # type: ignore[index]
    FontCosts().operations(used)
    assert ("/ToUnicode" in used) == kept
    assert page.extract_text() == expected


def test_a_short_file_may_have_a_large_map_that_packs_well(tmp_path: Path) -> None:
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 5 0 R>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 3 0 R/Resources<</Font<</F 4 0 R>>>>>>"
    tree = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[6 0 R 7 0 R]/Count 2>>"]
    text, mapped = stream(b"BT /F 9 Tf (A) Tj ET", b" "), stream(RANGES % b"<0000> <FFFE> <0001>", b" ")
    path = tmp_path / "short.pdf"
    path.write_bytes(pdf([*tree, text, font, mapped, page, page]))
    assert [document.text for document in load(path)] == ["B\n\nB"]
