"""The readers of OpenDocument files.

Of a text or a presentation, the headings and paragraphs are read in order, including those of lists. A table has a line
for each row, and so has a spreadsheet.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from xml.parsers.expat import ExpatError

from context_agent.errors import DataError
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.xml_events import Event, Kind, attribute, grammar
from context_agent.retrieval.loaders.zipped_xml import (
    Package,
    first_heading,
    first_texts,
    opened_package,
    package_document,
    stated_properties,
    table,
    table_title,
)
from context_agent.types import Document, MetadataValue

_CHARACTERS = {"tab": "\t", "line-break": "\n"}
MAX_SPACES = 100
"""Maximum number of spaces that an element stands for. A file may state millions of them in a few bytes."""
_DELETED = frozenset({"tracked-changes", "alphabetical-index", "illustration-index", "table-index", "table-of-content"})
"""What was deleted, and what the program makes from the rest of the text."""
_PARAGRAPHS = frozenset({"p", "h"})
_BLOCKS = _PARAGRAPHS | {"note", "annotation"}
"""Paragraphs, and what has paragraphs of its own inside a paragraph. Its other text is numbers, names and dates."""
_META = grammar(
    root="document-meta",
    **{"document-meta": "meta", "meta": "title initial-creator creator creation-date date"},
)
_CELLS = frozenset({"table-cell", "covered-table-cell"})
_TABLE = _CELLS | {"table", "table-row"}
MOST_REPEATS = 10
"""Maximum number of times that an empty or a filled cell is repeated. A few bytes of a file may state millions."""


def read_odt(reading: Reading) -> Iterator[Document]:
    """Yield the text of an OpenDocument file. Headings begin with `#`."""
    with opened_package(reading) as package:
        text = package.joined(_blocks(package))
        properties = _properties(package)
    title = str(properties.pop("title", "")) or first_heading(text)
    yield package_document(reading, text, title, properties)


def _properties(package: Package) -> dict[str, MetadataValue]:
    """Return title, author and dates of a file. Properties that cannot be read are left out."""
    try:
        texts = first_texts(package.events("meta.xml", _META)) if "meta.xml" in package else {}
    except (DataError, ExpatError):
        texts = {}
    author = texts.get("initial-creator", "") or texts.get("creator", "")
    return stated_properties(texts.get("title", ""), author, texts.get("creation-date", ""), texts.get("date", ""))


def _blocks(package: Package) -> Iterator[str]:
    """Yield each paragraph and table. A table inside a cell becomes text of the cell."""
    tables, rows, row, cell = 0, list[str](), list[str](), list[str]()
    for part, mark, words in _paragraphs(package):
        if part == "paragraph":
            if tables:
                cell.append(words)
            else:
                yield mark + words
        elif part == "table":
            tables += 1
        elif part == "end of table":
            tables -= 1
            if not tables:
                yield "\n".join(line for line in rows if line)
                rows = []
        elif tables == 1 and part == "end of table-row":
            rows.append(table([row]))
            row = []
        elif tables == 1 and part.startswith("end of"):
            row.append("\n".join(cell))
            cell = []


def _paragraphs(package: Package) -> Iterator[tuple[str, str, str]]:
    """Yield each paragraph with its mark, and the beginnings and ends of tables, rows and cells outside of paragraphs.

    The notes, comments and text boxes inside a paragraph follow it, including the tables in a text box.
    """
    unfinished: list[tuple[str, list[str]]] = []
    """The mark and the text of each open paragraph or aside, the innermost one last."""
    following: list[tuple[str, str]] = []
    deleted = 0
    for event in package.events("content.xml", None):
        if event.kind is Kind.TEXT:
            if unfinished and not deleted:
                unfinished[-1][1].append(event.text)
        elif event.kind is Kind.START:
            deleted += event.name in _DELETED
            if event.name == "table" and not unfinished:
                yield "table", "", ""
            elif event.name in _BLOCKS:
                unfinished.append((_mark(event), []))
            elif unfinished:
                unfinished[-1][1].append(_characters(event))
        else:
            deleted -= event.name in _DELETED
            if event.name not in _BLOCKS:
                if event.name in _TABLE and not unfinished:
                    yield f"end of {event.name}", "", ""
                continue
            mark, text = unfinished.pop()
            words = "".join(text).strip() if event.name in _PARAGRAPHS else ""
            following.insert(0 if not unfinished else len(following), (mark if words else "", words))
            if not unfinished:
                yield from (("paragraph", *part) for part in following)
                following = []


def _mark(event: Event) -> str:
    """Return the mark of a heading. For anything else, return an empty string."""
    if event.name != "h":
        return "# " if attribute(event.attributes, "style-name") == "Title" else ""
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
        properties = _properties(package)
    title = str(properties.pop("title", ""))
    yield package_document(reading, text, table_title(text) or title, properties)


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
