"""The readers of OpenDocument files.

Of a text or a presentation, the headings and paragraphs are read in order, including those of tables and lists. A
spreadsheet has a line for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from context_agent.retrieval.loaders.reading import Reading, document
from context_agent.retrieval.loaders.xml_events import Event, Kind, attribute
from context_agent.retrieval.loaders.zipped_xml import Package, first_heading, opened_package, table, table_title
from context_agent.types import Document

_CHARACTERS = {"tab": "\t", "line-break": "\n"}
MAX_SPACES = 100
"""The most spaces that an element stands for. A file may state millions of them in a few bytes."""
_DELETED = "tracked-changes"
_PARAGRAPHS = frozenset({"p", "h"})
_BLOCKS = _PARAGRAPHS | {"note", "annotation"}
"""Paragraphs, and what has paragraphs of its own inside a paragraph. Its other text is numbers, names and dates."""
_CELLS = frozenset({"table-cell", "covered-table-cell"})
MOST_REPEATS = 10
"""The most times that an empty or a filled cell is repeated. A file may state millions of them in a few bytes."""


def read_odt(reading: Reading) -> Iterator[Document]:
    """Yield the text of an OpenDocument file. Headings begin with `#`."""
    with opened_package(reading) as package:
        text = package.joined(_paragraphs(package))
    yield document(reading, text, first_heading(text))


def _paragraphs(package: Package) -> Iterator[str]:
    """Yield each paragraph. The notes, comments and text boxes inside a paragraph follow it."""
    unfinished: list[tuple[str, list[str]]] = []
    """The mark and the text of each open paragraph or aside, the innermost one last."""
    following: list[str] = []
    deleted = 0
    for event in package.events("content.xml", None):
        if event.kind is Kind.TEXT:
            if unfinished and not deleted:
                unfinished[-1][1].append(event.text)
        elif event.kind is Kind.START:
            deleted += event.name == _DELETED
            if event.name in _BLOCKS:
                unfinished.append((_mark(event), []))
            elif unfinished:
                unfinished[-1][1].append(_characters(event))
        else:
            deleted -= event.name == _DELETED
            if event.name not in _BLOCKS:
                continue
            mark, text = unfinished.pop()
            words = "".join(text).strip() if event.name in _PARAGRAPHS else ""
            following.insert(0 if not unfinished else len(following), mark + words if words else "")
            if not unfinished:
                yield from following
                following = []


def _mark(event: Event) -> str:
    """Return the mark of a heading. For anything else, return an empty string."""
    if event.name != "h":
        return ""
    level = attribute(event.attributes, "outline-level")
    return "#" * (min(int(level), 6) if len(level) == 1 and level in "123456789" else 1) + " "


def _characters(event: Event) -> str:
    """Return the spaces, the tab or the line break that an element stands for. For anything else, return ""."""
    if event.name != "s":
        return _CHARACTERS.get(event.name, "")
    count = attribute(event.attributes, "c")
    return " " * (min(int(count), MAX_SPACES) if count.isdecimal() and len(count) < 10 else 1)


def read_ods(reading: Reading) -> Iterator[Document]:
    """Yield the sheets of a spreadsheet as one document. Each begins with its name and has a line for each row."""
    with opened_package(reading) as package:
        text = package.joined(_sheets(package))
    yield document(reading, text, table_title(text))


def _sheets(package: Package) -> Iterator[str]:
    for name, rows in groupby(_rows(package), key=itemgetter(0)):
        if text := table(cells for _, cells in rows):
            yield f"## {name}\n\n{text}"


def _rows(package: Package) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each row with the name of its sheet. Cells at the end of a row that are empty are left out."""
    sheet, row, cell, inside = "", list[str](), list[str](), 0
    columns = gap = size = 0
    for event in package.events("content.xml", None):
        starts, is_cell = event.kind is Kind.START, event.name in _CELLS
        if event.kind is Kind.TEXT:
            cell.append(event.text if inside else "")
        elif event.name == "p":
            inside += 1 if starts else -1
            cell.append(" ")
        elif is_cell and starts:
            columns = _repeats(event)
            cell = []
        elif is_cell and (words := "".join(cell).strip()):
            empty, filled = min(gap, MOST_REPEATS), min(columns, MOST_REPEATS)
            size += filled * len(words) + (empty + filled) * len(" | ")
            package.check_size(size)
            row += [""] * empty + [words] * filled
            gap = 0
        elif is_cell:
            gap += columns
        elif event.name == "table" and starts:
            sheet = attribute(event.attributes, "name")
        elif event.name == "table-row" and not starts:
            yield sheet, row
            row, gap = [], 0
        elif inside and starts:
            cell.append(_characters(event))


def _repeats(cell: Event) -> int:
    """Return how many columns a cell takes."""
    stated = attribute(cell.attributes, "number-columns-repeated")
    return max(1, int(stated)) if stated.isdecimal() and len(stated) < 10 else 1
