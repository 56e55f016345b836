"""The readers of OpenDocument files.

Of a text or a presentation, the headings and paragraphs are read in order, including those of tables and lists. A
spreadsheet has a line for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from context_agent.retrieval.loaders.packages import Package, first_heading, opened_package, table
from context_agent.retrieval.loaders.reading import Reading, document
from context_agent.retrieval.loaders.xml_events import Event, Kind, attribute
from context_agent.types import Document

_CHARACTERS = {"s": " ", "tab": "\t", "line-break": "\n"}
_DELETED = "tracked-changes"
_CELLS = frozenset({"table-cell", "covered-table-cell"})
MOST_REPEATS = 10
"""The most times that an empty or a filled cell is repeated. A file may state millions of them in a few bytes."""


def read_odt(reading: Reading) -> Iterator[Document]:
    """Yield the text of an OpenDocument file. Headings begin with `#`."""
    with opened_package(reading) as package:
        text = package.joined(_paragraphs(package))
    yield document(reading, text, first_heading(text))


def _paragraphs(package: Package) -> Iterator[str]:
    text: list[str] = []
    mark, inside, deleted = "", 0, 0
    for event in package.events("content.xml", None):
        is_paragraph = event.name in {"p", "h"}
        if event.kind is Kind.TEXT:
            if inside and not deleted:
                text.append(event.text)
        elif event.kind is Kind.START:
            inside += is_paragraph
            deleted += event.name == _DELETED
            if event.name == "h":
                level = attribute(event.attributes, "outline-level")
                mark = "#" * (min(int(level), 6) if len(level) == 1 and level in "123456789" else 1) + " "
            elif inside:
                text.append(_CHARACTERS.get(event.name, ""))
        else:
            inside -= is_paragraph
            deleted -= event.name == _DELETED
            if is_paragraph and not inside:
                words = "".join(text).strip()
                yield mark + words if words else ""
                text, mark = [], ""


def read_ods(reading: Reading) -> Iterator[Document]:
    """Yield the sheets of a spreadsheet as one document. Each begins with its name and has a line for each row."""
    with opened_package(reading) as package:
        text = package.joined(_sheets(package))
    yield document(reading, text)


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
            cell.append(_CHARACTERS.get(event.name, ""))


def _repeats(cell: Event) -> int:
    """Return how many columns a cell takes."""
    stated = attribute(cell.attributes, "number-columns-repeated")
    return max(1, int(stated)) if stated.isdecimal() and len(stated) < 10 else 1
