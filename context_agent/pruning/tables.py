"""Tables in tool results. A table is delimited, such as CSV, or a Markdown table. It has a header and rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from context_agent.pruning.blocks import is_log_entry

FEWEST_ROWS = 3
LONGEST_HEADER = 60
"""The most characters of a cell in the header of a delimited table."""
DELIMITERS = "\t,;|"
_SEPARATOR = re.compile(r"^[ \t]*+[|+:-](?=[^\n]{0,2000}-)(?=[^\n]{0,2000}[|+])[-|+: \t]{1,2000}+\r?$", re.M)
"""The separator line below the header of a Markdown table."""
_BLOCK = re.compile(r"(?:^[ \t\r]*+[^\s][^\n]*+\n?)++", re.M)


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a text.

    Attributes:
        start: The offset where its header begins.
        form: `cell` for a delimited table, `row` for a Markdown table.
        labels: The names of its columns.
        rows: The spans of its rows.
        cells: The number of cells in a row.
        delimiter: The delimiter between cells. For a Markdown table it is the mark at the start of a row, or empty.
    """

    start: int
    form: Literal["cell", "row"]
    labels: str
    rows: tuple[tuple[int, int], ...]
    cells: int
    delimiter: str


def tables(text: str, start: int, end: int) -> Iterator[Table]:
    """Yield the tables in a part of a text, in order."""
    for block in _BLOCK.finditer(text, start, end):
        first, last = block.span()
        if found := _markdown_table(text, first, last) or _delimited_table(text, first, last):
            yield found


def _lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the lines, without their line ends."""
    lines = []
    for line in text[start:end].splitlines(keepends=True):
        lines.append((start, start + len(line.rstrip("\r\n"))))
        start += len(line)
    return lines


def _markdown_table(text: str, start: int, end: int) -> Table | None:
    separator = _SEPARATOR.search(text, start, end)
    if separator is not None and separator.start() == start:
        separator = _SEPARATOR.search(text, separator.end(), end)
    if separator is None:
        return None
    header_start = text.rfind("\n", start, max(start, separator.start() - 1)) + 1 or start
    header = text[header_start : separator.start()].strip()
    if "|" not in header:
        return None
    rows = []
    for first, last in _lines(text, min(separator.end() + 1, end), end):
        line = text[first:last]
        if "|" not in line or _SEPARATOR.match(text, first, last):
            break
        rows.append((first, last))
    if len(rows) < FEWEST_ROWS:
        return None
    labels = " ".join(cell.strip() for cell in header.split("|")).strip()
    cells = len(header.strip("|").split("|"))
    return Table(header_start, "row", labels, tuple(rows), cells, "|" if header.startswith("|") else "")


def _delimited_table(text: str, start: int, end: int) -> Table | None:
    """Return the table in a block whose lines have equally many cells. One line of text may precede it."""
    lines = _lines(text, start, end)
    for skipped in range(min(2, max(0, len(lines) - FEWEST_ROWS))):
        first, last = lines[skipped]
        header = text[first:last]
        for delimiter in DELIMITERS:
            if delimiter in header and (table := _delimited(text, lines[skipped:], delimiter)):
                return table
    return None


def _delimited(text: str, lines: list[tuple[int, int]], delimiter: str) -> Table | None:
    if is_log_entry(text[slice(*lines[0])]):
        return None
    reader = csv.reader((text[first:last] + "\n" for first, last in lines), delimiter=delimiter)
    rows: list[tuple[int, int]] = []
    header: list[str] = []
    taken = spaced = 0
    try:
        for cells in reader:
            if not rows:
                header = cells
                if len(set(cells)) != len(cells) or not all(_is_name(cell) for cell in cells):
                    return None
            elif len(cells) != len(header):
                break
            spaced += sum(cell.startswith(" ") for cell in cells)
            rows.append((lines[taken][0], lines[reader.line_num - 1][1]))
            taken = reader.line_num
    except csv.Error:
        return None
    if len(rows) <= FEWEST_ROWS or len(header) < 2 or 2 * len(rows) < len(lines):
        return None
    if 2 * spaced > len(rows) * (len(header) - 1):
        return None
    return Table(rows[0][0], "cell", " ".join(header), tuple(rows[1:]), len(header), delimiter)


def _is_name(cell: str) -> bool:
    """Return True if a header cell looks like the name of a column."""
    return 0 < len(cell) <= LONGEST_HEADER and any(map(str.isalpha, cell))
