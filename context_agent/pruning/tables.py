"""Tables in tool results. A table has a header and rows.

A table has one of three forms. It is delimited, such as CSV. Its cells have bars between them, as in Markdown and in
the output of databases. Or its columns are aligned by spaces, as in the output of `ps`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from context_agent.pruning.blocks import is_log_entry

FEWEST_ROWS = 3
FEWEST_NAMES = 3
"""The fewest words of a header in capitals."""
LONGEST_HEADER = 60
"""The most characters of a cell in the header of a delimited table."""
LONGEST_TITLE = 120
"""The most characters of a title above a table."""
DELIMITERS = "\t,;|"
_BAR = re.compile(r"[|│┃║┆]")
"""A mark between cells. Programs draw tables with the last four."""
_SEPARATOR = re.compile(
    r"^[ \t]*+[|+:├╞┡┠╟╠-](?=[^\n]{0,2000}[-─═━])(?=[^\n]{0,2000}[|+┼╪╇╋┿╂╫╬])"
    r"[-|+: \t─═━├┤┼╞╡╪┡┩╇┠┨╂┣┫╋┿╟╢╫╠╣╬]{1,2000}+\r?$",
    re.M,
)
"""The separator line below the header of a table with bars."""
_RULER = re.compile(
    r"^(?:[ \t]*+(?:-{2,}+[ \t]++){1,99}+-{2,}+|\+{3}-(?:=++-){1,20}+=++)[ \t]*+\r?$",
    re.M,
)
"""The line of dashes below the header of aligned columns, or the one that `dpkg -l` writes."""
_CODE_MARK = re.compile(r"[=\"{};]")
"""A mark that names of columns do not have."""
_GAP = "  "
"""The fewest spaces between some cells of aligned columns."""
_WORDS = re.compile(r"\S++(?: \S++)*+")
"""A cell of aligned columns."""
_BLOCK = re.compile(r"(?:^[ \t\r]*+[^\s][^\n]*+\n?)++", re.M)


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a text.

    Attributes:
        first: The offset where it begins with its title, which is a short line above the header.
        start: The offset where its header begins.
        form: `cell` for a delimited table, `row` for a table with bars, `text` for aligned columns.
        labels: The names of its columns.
        rows: The spans of its rows.
        cells: The number of cells in a row.
        delimiter: The delimiter between cells. For a table with bars it is the bar at the start of a row, or empty.
    """

    first: int
    start: int
    form: Literal["cell", "row", "text"]
    labels: str
    rows: tuple[tuple[int, int], ...]
    cells: int
    delimiter: str


def inherited_cells(text: str, table: Table) -> list[str]:
    """Return what each row leaves out at its start because the rows above say it, such as the name of a group.

    Only the first row of a group may have its name. The cells of the other rows are empty there.
    """
    said: list[str] = []
    above: dict[int, tuple[int, str]] = {}
    for first, last in table.rows:
        cells = _cells(text[first:last], table)
        start = next(iter(cells), 0)
        # Numbers of unequal length are aligned at their ends, so a shorter one does not begin below an empty cell.
        above = {at: cell for at, cell in above.items() if cell[0] < start}
        said.append(" ".join(cell for _, cell in above.values()))
        above |= cells
    return said


def _cells(row: str, table: Table) -> dict[int, tuple[int, str]]:
    """Return the end and the text of each cell that is not empty, by its start. Positions count columns."""
    if table.form == "text":
        return {match.start(): (match.end(), match[0]) for match in _WORDS.finditer(row)}
    cells = _BAR.split(row) if table.form == "row" else next(csv.reader([row], delimiter=table.delimiter), [])
    return {number: (number, said) for number, cell in enumerate(cells) if (said := cell.strip())}


def tables(text: str, start: int, end: int) -> Iterator[Table]:
    """Yield the tables in a part of a text, in order."""
    for block in _BLOCK.finditer(text, start, end):
        first, last = block.span()
        finders = (_barred_table, _aligned_table, _delimited_table)
        if found := next(filter(None, (find(text, first, last) for find in finders)), None):
            title = text.rfind("\n", first, max(first, found.start - 1)) + 1 or first
            has_title = 0 < found.start - title <= LONGEST_TITLE
            yield replace(found, first=title) if has_title else found


def _lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the lines, without their line ends."""
    lines = []
    # `splitlines` would also split at characters such as U+2028, which cells may contain.
    for line in text[start:end].removesuffix("\n").split("\n"):
        lines.append((start, start + len(line.rstrip("\r"))))
        start += len(line) + 1
    return lines


def _barred_table(text: str, start: int, end: int) -> Table | None:
    separator = _SEPARATOR.search(text, start, end)
    if separator is not None and separator.start() == start:
        separator = _SEPARATOR.search(text, separator.end(), end)
    if separator is None:
        return None
    header_start = text.rfind("\n", start, max(start, separator.start() - 1)) + 1 or start
    header = text[header_start : separator.start()].strip()
    if _BAR.search(header) is None:
        return None
    rows = []
    for first, last in _lines(text, min(separator.end() + 1, end), end):
        if _BAR.search(text, first, last) is None or _SEPARATOR.match(text, first, last):
            break
        rows.append((first, last))
    if len(rows) < FEWEST_ROWS:
        return None
    cells = _BAR.split(header)
    names = cells[not cells[0] : len(cells) - (not cells[-1])]
    bar = _BAR.match(text[slice(*rows[0])].lstrip()) if not cells[0] else None
    labels = " ".join(cell.strip() for cell in names).strip()
    return Table(header_start, header_start, "row", labels, tuple(rows), len(names), bar[0] if bar else "")


def _aligned_table(text: str, start: int, end: int) -> Table | None:
    """Return the table in a block whose columns are aligned by spaces.

    Its header is above a line of dashes, or it is the first line and all of its words are in capitals.
    """
    if (ruler := _RULER.search(text, start, end)) is not None and ruler.start() > start:
        header_start = text.rfind("\n", start, ruler.start() - 1) + 1 or start
        header = text[header_start : ruler.start()].split()
        rows = _lines(text, min(ruler.end() + 1, end), end)
    else:
        (header_start, header_end), *rows = _lines(text, start, end)
        first = text[header_start:header_end]
        header = first.split()
        is_header = first == first.upper() and _GAP in first.strip() and all(map(_is_name, header))
        if not is_header or len(header) < FEWEST_NAMES or is_log_entry(first):
            return None
    aligned = sum(_GAP in text[first:last].strip() for first, last in rows)
    if len(rows) < FEWEST_ROWS or 2 * aligned < len(rows) or not any(map(_is_name, header)):
        return None
    return Table(header_start, header_start, "text", " ".join(header), tuple(rows), 1, "")


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
    return Table(rows[0][0], rows[0][0], "cell", " ".join(header), tuple(rows[1:]), len(header), delimiter)


def _is_name(cell: str) -> bool:
    """Return True if a header cell looks like the name of a column."""
    return 0 < len(cell) <= LONGEST_HEADER and any(map(str.isalpha, cell)) and not _CODE_MARK.search(cell)
