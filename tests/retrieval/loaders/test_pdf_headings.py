"""The headings of PDF files name the parts of their texts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from context_agent.retrieval.chunker import chunk_document
from context_agent.retrieval.loaders import load, pdf_bookmarks
from context_agent.retrieval.loaders import pdf as pdf_reader
from context_agent.retrieval.loaders.pdf_headings import LARGEST_SIZE, PrintedSizes, pdf_headings
from context_agent.tokens import CharCounter
from context_agent.types import Document
from tests.support.growth import MOST_GROWTH, growth
from tests.support.loaded import only

pytest.importorskip("pypdf")

from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, DecodedStreamObject, DictionaryObject, NameObject, TextStringObject

BODY = "The crane lifts what the harbor master lists, and the log of the day names each load."

Bookmark = tuple[str, int, "list[Bookmark]"]


def pdf(path: Path, *pages: Sequence[tuple[float | str, str]], bookmarks: list[Bookmark] = [], title: str = "") -> Path:  # noqa: B006
    """Write a file whose pages have lines of a size each, and return its path."""
    writer = PdfWriter()
    font = DictionaryObject(
        {NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in FONT.items()},
    )
    fonts = DictionaryObject({NameObject("/F"): writer._add_object(font)})
    for lines in pages:
        page = writer.add_blank_page(600, 800)
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        drawn = "".join(
            f"BT /F {size} Tf 1 0 0 1 50 {750 - 30 * number} Tm ({words}) Tj ET\n"
            for number, (size, words) in enumerate(lines)
        )
        stream = DecodedStreamObject()
        stream.set_data(drawn.encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    add_bookmarks(writer, bookmarks, None)
    if title:
        writer.add_metadata({"/Title": title})
    writer.write(path)
    return path


FONT = {"Type": "Font", "Subtype": "Type1", "BaseFont": "Helvetica"}


def add_bookmarks(writer: PdfWriter, bookmarks: list[Bookmark], parent: object) -> None:
    for words, page, inner in bookmarks:
        item = writer.add_outline_item(title=words, page_number=page, parent=parent)  # type: ignore[arg-type]
        add_bookmarks(writer, inner, item)


def named(document: Document) -> list[tuple[str, str]]:
    """Return the name of each part, and the line that the part begins with."""
    return [(it.text, document.text[it.start : it.end].partition("\n")[0]) for it in document.captions]


def body(lines: int = 4) -> list[tuple[float, str]]:
    return [(10, BODY)] * lines


def test_lines_in_larger_letters_are_headings(tmp_path: Path) -> None:
    pages = [
        [(24, "Harbor Handbook"), *body(), (16, "2 Cranes"), *body(), (13, "2.1 Loads"), *body()],
        [*body(), (13, "2.2 Wind"), *body(), (16, "3 Tugs"), *body()],
    ]
    document = only(pdf(tmp_path / "h.pdf", *pages))
    assert document.title == "Harbor Handbook"
    assert named(document) == [(words, words) for words in ("2 Cranes", "2.1 Loads", "2.2 Wind", "3 Tugs")]
    cranes, loads, wind, tugs = document.captions
    assert (cranes.start, cranes.end) == (document.text.index("2 Cranes"), tugs.start)
    assert (loads.end, wind.end) == (wind.start, tugs.start)
    titles = [chunk.title for chunk in chunk_document(document, size=100, counter=CharCounter())]
    assert "Harbor Handbook: 2 Cranes > 2.2 Wind (p. 2)" in titles


def test_chunks_name_their_pages(tmp_path: Path) -> None:
    document = only(pdf(tmp_path / "h.pdf", body(1), [], body(1), body(1), title="Log"))
    assert document.pages == (0, len(BODY) + 2, len(BODY) + 2, 2 * len(BODY) + 4)
    titles = [chunk.title for chunk in chunk_document(document, size=45, counter=CharCounter())]
    assert titles == ["Log (pp. 1-3)", "Log (p. 4)"]
    assert [chunk.title for chunk in chunk_document(document, size=400, counter=CharCounter())] == ["Log"]
    assert only(pdf(tmp_path / "h.pdf", body(1))).pages == ()


def test_bookmarks_name_the_parts_and_take_the_number_from_the_page(tmp_path: Path) -> None:
    pages = [[(10, "2 Cranes"), *body(), (10, "2.1 Loads"), *body()], [*body(), (12, "lift_load"), *body()], body()]
    bookmarks: list[Bookmark] = [("Cranes", 0, [("Loads", 0, [])]), ("Index", 2, [])]
    document = only(pdf(tmp_path / "h.pdf", *pages, bookmarks=bookmarks, title="Handbook"))
    assert named(document) == [
        ("2 Cranes", "2 Cranes"),
        ("2.1 Loads", "2.1 Loads"),
        ("lift_load", "lift_load"),
        ("Index", BODY),
    ]
    assert [it.end for it in document.captions[:3]] == [document.captions[3].start] * 3


def test_a_heading_of_two_lines_and_two_equal_headings_are_found(tmp_path: Path) -> None:
    page = [
        *body(1),
        (10, "Lifting in a"),
        (10, "strong wind"),
        *body(),
        (10, "Limits"),
        *body(),
        (10, "Limits"),
        *body(),
    ]
    bookmarks: list[Bookmark] = [("Lifting in a strong wind", 0, [("Limits", 0, [])]), ("Limits", 0, [])]
    document = only(pdf(tmp_path / "h.pdf", page, bookmarks=bookmarks))
    text = document.text
    places = [text.index("Lifting in a"), text.index("Limits"), text.rindex("Limits")]
    assert [it.start for it in document.captions] == places
    assert document.captions[0].text == "Lifting in a strong wind"


def test_entries_of_a_table_of_contents_are_no_headings(tmp_path: Path) -> None:
    page = [(14, "1 Cranes . . . . . 3"), (14, "2 Tugs........... 9"), *body(8), (14, "1 Cranes"), *body(8)]
    assert [it.text for it in only(pdf(tmp_path / "h.pdf", page, title="T")).captions] == ["1 Cranes"]


def test_letters_of_many_sizes_are_no_headings(tmp_path: Path) -> None:
    page = [(10, BODY), (14, BODY[:60]), (10, BODY), (18, BODY[:70]), (12, BODY[:40])]
    document = only(pdf(tmp_path / "poster.pdf", page))
    assert (document.captions, document.title) == ((), "poster")


@pytest.mark.parametrize("outline", ["cycle", "text", "no page", "text as page"])
def test_broken_bookmarks_are_left_out(tmp_path: Path, outline: str) -> None:
    path = pdf(tmp_path / "h.pdf", body(), bookmarks=[("Cranes", 0, []), ("Tugs", 0, [])])
    writer = PdfWriter(clone_from=path)
    first = writer.root_object["/Outlines"]["/First"]  # type: ignore[index]
    left = {"Tugs"}
    if outline == "cycle":
        first[NameObject("/First")] = first.indirect_reference
        left = {"Cranes", "Tugs"}
    elif outline == "text":
        writer.root_object[NameObject("/Outlines")] = NameObject("/None")
        left = set()
    else:
        del first["/A"]
        if outline == "text as page":
            first[NameObject("/Dest")] = ArrayObject([TextStringObject("one"), NameObject("/Fit")])
    writer.write(path)
    document = only(path)
    assert document.text.startswith(BODY)
    assert {it.text for it in document.captions} == left


def test_a_bookmark_of_a_page_without_text_names_the_pages_after_it(tmp_path: Path) -> None:
    bookmarks: list[Bookmark] = [("Cranes", 0, []), ("Tugs", 1, []), ("Index", 3, [])]
    document = only(pdf(tmp_path / "h.pdf", body(1), [], body(1), [], bookmarks=bookmarks))
    assert [(it.text, it.start, it.end) for it in document.captions] == [
        ("Cranes", 0, len(BODY) + 2),
        ("Tugs", len(BODY) + 2, len(document.text)),
    ]


def test_large_letters_of_a_page_that_is_left_out_are_no_headings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf_reader, "MOST_OPERATIONS", 30)
    pages = [[(20, "Cranes"), *body()], [(20, "Tugs"), *body(9)], body()]
    (document,) = load(pdf(tmp_path / "h.pdf", *pages, title="Harbor"))
    assert [it.text for it in document.captions] == ["Cranes"]
    assert "Tugs" not in document.text


def test_of_many_bookmarks_the_first_ones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_bookmarks, "MOST_CAPTIONS", 2)
    page = [line for name in ("Cranes", "Tugs", "Index") for line in ((10, name), *body(1))]
    bookmarks: list[Bookmark] = [("Cranes", 0, []), ("Tugs", 0, []), ("Index", 0, [])]
    document = only(pdf(tmp_path / "h.pdf", page, bookmarks=bookmarks))
    assert [it.text for it in document.captions] == ["Cranes", "Tugs"]


@pytest.mark.parametrize("size", ["9" * 20, "-" + "9" * 20, "0"])
def test_letters_of_impossible_sizes_are_read_and_are_no_headings(tmp_path: Path, size: str) -> None:
    document = only(pdf(tmp_path / "h.pdf", [(size, "Impossible"), *body()]))
    assert (document.captions, document.title) == ((), "h")
    assert BODY in document.text
    assert "Impossible" in document.text


def test_a_file_whose_letters_all_have_impossible_sizes_has_no_headings(tmp_path: Path) -> None:
    document = only(pdf(tmp_path / "h.pdf", [("9" * 20, "Impossible")]))
    assert (document.captions, document.title, document.text) == ((), "h", "Impossible")


UNIT = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def test_a_file_without_text_has_no_headings(tmp_path: Path) -> None:
    reader = PdfReader(pdf(tmp_path / "a.pdf", [], [], bookmarks=[("Cranes", 0, [])]))
    assert pdf_headings(reader, ["", ""], PrintedSizes()) == []


@pytest.mark.parametrize(
    ("matrix", "text_matrix", "size"),
    [
        ((2.0, 0.0, 0.0, 2.0, 0.0, 0.0), UNIT, 10),
        (UNIT, (20.0, 0.0, 0.0, 20.0, 0.0, 0.0), 1),
        (UNIT, (0.0, 20.0, -20.0, 0.0, 0.0, 0.0), 1),
        ((0.0, 2.0, -2.0, 0.0, 0.0, 0.0), UNIT, 10),
        (UNIT, (1.0, 0.0, 0.0, -1.0, 0.0, 0.0), -20),
    ],
    ids=["larger page", "larger text", "turned text", "turned page", "mirrored text"],
)
def test_the_size_of_letters_is_that_on_the_page(
    matrix: Sequence[float], text_matrix: Sequence[float], size: float
) -> None:
    sizes = PrintedSizes()
    sizes("Cranes", matrix, text_matrix, None, size)
    sizes(BODY, UNIT, UNIT, None, 10)
    sizes("2 Tugs", UNIT, UNIT, None, 15)
    assert list(sizes.large_lines()) == [(0, 1, "Cranes"), (0, 2, "2 Tugs")]
    assert sizes.title() == "Cranes"


def test_a_heading_may_be_drawn_in_pieces() -> None:
    sizes = PrintedSizes()
    for text, size in [("Harbor", 20), (" ", 10), (" Hand", 20), ("book", 20), (BODY, 10)]:
        sizes(text, UNIT, UNIT, None, size)
    assert list(sizes.large_lines()) == [(0, 1, "Harbor Handbook")]


def test_of_bookmarks_with_the_same_place_the_last_one_names_it(tmp_path: Path) -> None:
    document = only(pdf(tmp_path / "h.pdf", body(), bookmarks=[("Tugs", 0, []), ("Cranes", 0, [])]))
    assert [it.text for it in document.captions if it.end > it.start] == ["Cranes"]


def test_sizes_of_all_kinds_take_bounded_memory() -> None:
    sizes = PrintedSizes()
    for size in (10**400, float("nan"), float("inf"), *(1.0001**number for number in range(150_000))):
        sizes("letters", UNIT, UNIT, None, size)
    assert len(sizes._letters) <= 10 * LARGEST_SIZE


def test_many_equal_headings_take_linear_time(tmp_path: Path) -> None:
    def write(size: int) -> Path:
        lines = [line for _ in range(size) for line in ((14.0, "Limits"), (10.0, BODY))]
        return pdf(tmp_path / f"{size}.pdf", lines, bookmarks=[("Limits", 0, [])] * (size // 4))

    assert growth(only, write, 400) < MOST_GROWTH


def test_the_warnings_of_pypdf_are_silent_while_any_thread_reads_and_come_back() -> None:
    logger = logging.getLogger("test_of_silence")
    silent = pdf_reader._Silence(logger.name)
    logger.setLevel(logging.INFO)
    first, second = ExitStack(), ExitStack()
    first.enter_context(silent)
    second.enter_context(silent)
    first.close()
    assert not logger.isEnabledFor(logging.CRITICAL)
    second.close()
    assert logger.level == logging.INFO
