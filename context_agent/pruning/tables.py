"""Tables in tool results. A table has a header and rows.

A table has one of three forms. It is delimited, such as CSV. Its cells have bars between them, as in Markdown and in
the output of databases. Or its columns are aligned by spaces, as in the output of `ps`.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from context_agent.pruning.blocks import is_log_entry
from context_agent.pruning.records import TRUNCATION

FEWEST_ROWS = 3
MOST_TRUNCATIONS = 5
"""Maximum number of lines in a table that say that a tool left out rows. These lines are not pruned."""
MOST_ROW_LINES = 3
"""Maximum number of lines of a row in a grid, on average."""
FEWEST_NAMES = 3
"""Minimum number of words of a header in capitals."""
LONGEST_HEADER = 60
"""Maximum number of characters of a cell in the header of a delimited table."""
MOST_PREAMBLE = 10
"""Maximum number of lines before the header of a delimited table, such as the account and the period of a statement."""
LONGEST_TITLE = 120
"""Maximum number of characters of a title above a table."""
DELIMITERS = "\t,;|"
_BAR = re.compile(r"[|│┃║┆]")
"""A mark between cells. Programs draw tables with the last four."""
_SEPARATOR = re.compile(
    r"^[ \t]*+[|+:├╞┡┠╟╠-](?=[^\n]{0,2000}[-=─═━])(?=[^\n]{0,2000}[|+┼╪╇╋┿╂╫╬])"
    r"[-=|+: \t─═━├┤┼╞╡╪┡┩╇┠┨╂┣┫╋┿╟╢╫╠╣╬]{1,2000}+\r?$",
    re.M,
)
"""The separator line below the header of a table with bars."""
_RULER = re.compile(
    r"^(?:[ \t]*+(?:-{2,}+[ \t]++){1,99}+-{2,}+|\+{3}-(?:=++-){1,20}+=++)[ \t]*+\r?$",
    re.M,
)
"""The line of dashes below the header of aligned columns, or the one that `dpkg -l` writes."""
_RULE = re.compile(r"[ \t]*+(?:-{3,}+|={3,}+|─{3,}+|━{3,}+)[ \t\r\n]*+\Z")
"""A line of dashes as wide as a table, such as those of `coverage report`."""
_CODE_MARK = re.compile(r"[=\"{};]")
"""A mark that names of columns do not have."""
_GAP = "  "
"""Minimum number of spaces between some cells of aligned columns."""
_DIGIT = re.compile(r"\d")
_NUMBERED_NAME = re.compile(r"\b[A-Za-z]{1,2}\d{1,2}\b")
"""A name of a column that ends with a number, such as that of a quarter or of a percentile."""
MOST_ALIGNED, WIDEST_ALIGNED = 50, 500
"""Maximum number of rows whose columns are read, and the maximum number of characters of each."""
ALIGNED_SHARE = 0.9
"""The share of the rows that have a space between two columns."""
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


def _is_truncation(text: str, start: int, end: int) -> bool:
    """Return True if a short line says that a tool left out rows of the table here."""
    return end - start <= LONGEST_TITLE and TRUNCATION.search(text, start, end) is not None


def _cells(row: str, table: Table) -> dict[int, tuple[int, str]]:
    """Return the end and the text of each cell that is not empty, by its start. Positions count columns."""
    if table.form == "text":
        return {match.start(): (match.end(), match[0]) for match in _WORDS.finditer(row)}
    cells = _BAR.split(row) if table.form == "row" else next(csv.reader([row], delimiter=table.delimiter), [])
    return {number: (number, said) for number, cell in enumerate(cells) if (said := cell.strip())}


def tables(text: str, start: int, end: int) -> Iterator[Table]:
    """Yield the tables in a part of a text, in order."""
    position = start
    # A quoted cell may have blank lines. A mark that nothing closes must not make each block read the whole text.
    patience = end - start
    while (block := _BLOCK.search(text, position, end)) is not None:
        first, position = block.span()
        found = _barred_table(text, first, position) or _aligned_table(text, first, position)
        if found is None:
            found, read = _delimited_table(text, first, position, min(end, position + patience))
            patience -= read
        if found is not None:
            position = max(position, found.rows[-1][1])
            title = text.rfind("\n", first, max(first, found.start - 1)) + 1 or first
            yield replace(found, first=title) if found.start - title <= LONGEST_TITLE else found


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
    rows = _barred_rows(text, _lines(text, min(separator.end() + 1, end), end))
    if len(rows) < FEWEST_ROWS:
        return None
    cells = _BAR.split(header)
    names = cells[not cells[0] : len(cells) - (not cells[-1])]
    bar = _BAR.match(text[slice(*rows[0])].lstrip()) if not cells[0] else None
    labels = " ".join(cell.strip() for cell in names).strip()
    return Table(header_start, header_start, "row", labels, tuple(rows), len(names), bar[0] if bar else "")


def _barred_rows(text: str, lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the rows of a table with bars, which are its lines up to the first separator.

    In a grid, a separator follows each row, and a row may have a few lines. Sections of a table have more.
    """
    groups: list[list[tuple[int, int]]] = [[]]
    truncations = 0
    for first, last in lines:
        if _SEPARATOR.match(text, first, last):
            if not groups[-1]:
                # The next table begins.
                break
            groups.append([])
        elif _BAR.search(text, first, last) is not None:
            groups[-1].append((first, last))
        else:
            truncations += 1
            if truncations > MOST_TRUNCATIONS or not _is_truncation(text, first, last):
                break
    rows = [(group[0][0], group[-1][1]) for group in groups if group]
    is_grid = len(rows) >= FEWEST_ROWS and sum(map(len, groups)) <= MOST_ROW_LINES * len(rows)
    return rows if is_grid else groups[0]


def _aligned_table(text: str, start: int, end: int) -> Table | None:
    """Return the table in a block whose columns are aligned by spaces.

    Its header is above a line of dashes, or it is one of the first two lines. Then all of its words are in capitals, or
    its names stand above columns, one of which has a number in each row.
    """
    if (ruler := _RULER.search(text, start, end)) is not None and ruler.start() > start:
        header_start = text.rfind("\n", start, ruler.start() - 1) + 1 or start
        names = text[header_start : ruler.start()].split()
        rows = _lines(text, min(ruler.end() + 1, end), end)
        return _aligned(text, header_start, names, rows)
    lines = _lines(text, start, end)
    for row in range(min(2, len(lines))):
        first, *others = (text[slice(*line)] for line in lines[row : row + 2 + MOST_ALIGNED])
        body = row + 1
        if others and (_names_rows(first, others[0]) or _RULE.match(others[0])):
            del others[0]
            body += 1
        others = [it for it in others[:MOST_ALIGNED] if _RULE.match(it) is None]
        names = first.split()
        if len(names) < FEWEST_NAMES or _GAP not in first.strip() or is_log_entry(first):
            continue
        is_header = (first == first.upper() and all(map(_is_name, names))) or _heads_columns(first, others)
        if is_header and (table := _aligned(text, lines[row][0], names, lines[body:])):
            return table
    return None


def _names_rows(header: str, line: str) -> bool:
    """Return True if a line below a header names the rows alone, as pandas writes the name of an index."""
    indent = len(header) - len(header.lstrip())
    return line[:1].isalpha() and len(line.rstrip()) <= indent


def _aligned(text: str, header_start: int, names: list[str], lines: list[tuple[int, int]]) -> Table | None:
    rows: list[tuple[int, int]] = []
    rule_start: int | None = None
    for first, last in lines:
        if _RULE.match(text[first:last]):
            # A rule is above a total, or at the end.
            rule_start = first if rule_start is None else rule_start
            continue
        rows.append((first if rule_start is None else rule_start, last))
        rule_start = None
    aligned = sum(_GAP in text[first:last].strip() for first, last in rows)
    if len(rows) < FEWEST_ROWS or 2 * aligned < len(rows) or not any(map(_is_name, names)):
        return None
    return Table(header_start, header_start, "text", " ".join(names), tuple(rows), 1, "")


def _heads_columns(header: str, rows: list[str]) -> bool:
    """Return True if a line has the names of the columns that are below it, such as the first line of `df`.

    The names have no digits, except those such as `Q3` or `p95`, and in some column each row has one. A few rows may be
    wider than their columns, and a row of dots stands for others.
    """
    rows = [row for row in rows if row.strip(" .")]
    if (
        len(rows) < FEWEST_ROWS
        or _DIGIT.search(_NUMBERED_NAME.sub("", header))
        or _CODE_MARK.search(header)
        or len(header) > WIDEST_ALIGNED
    ):
        return False
    texts = [row[:WIDEST_ALIGNED] for row in rows]
    width = max(map(len, [header, *texts]))
    blanks = [
        sum(marks.count(" ") for marks in column) for column in zip(*(row.ljust(width) for row in texts), strict=True)
    ]
    padded = header.ljust(width)
    is_gap = [padded[at] == " " and ALIGNED_SHARE * len(rows) <= blank for at, blank in enumerate(blanks)]
    columns = [at for at in range(width) if not is_gap[at] and (at == 0 or is_gap[at - 1])]
    spans = [*zip(columns, [*columns[1:], width], strict=True)]
    # All rows may have a space in one column, such as one between two words.
    named = sum(any(map(str.isalpha, header[first:last])) for first, last in spans)
    is_counted = any(all(_DIGIT.search(row, first, last) for row in texts) for first, last in spans)
    return named >= FEWEST_NAMES and is_counted


def _delimited_table(text: str, start: int, end: int, limit: int) -> tuple[Table | None, int]:
    """Return the table in a block whose rows have equally many cells. A few lines may precede it.

    More than one line may precede only the first line that has as many delimiters as most lines.

    Args:
        text: The text.
        start: The offset where the block begins.
        end: The offset where the block ends. A row with a quoted cell may end later.
        limit: The offset after the last character that may be read.

    Returns:
        The table, or None, and the number of characters after the block that were read.
    """
    lines = _lines(text, start, end)
    also_read = 0
    for skipped, delimiter in _possible_headers(text, lines):
        table, read = _delimited(text, lines[skipped:], delimiter, end, limit - also_read)
        also_read += read
        if table is not None:
            return table, also_read
    return None, also_read


def _possible_headers(text: str, lines: list[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """Yield the indices of the lines that may be the header of a delimited table, with the delimiter."""
    for skipped in range(min(2, len(lines))):
        yield from ((skipped, delimiter) for delimiter in DELIMITERS if text.find(delimiter, *lines[skipped]) != -1)
    for delimiter in DELIMITERS:
        counts = [text.count(delimiter, *line) for line in lines]
        for most, n_lines in Counter(filter(None, counts)).most_common(1):
            first = counts.index(most)
            if 2 <= first <= MOST_PREAMBLE and 2 * n_lines >= len(lines):
                yield first, delimiter


def _delimited(
    text: str, lines: list[tuple[int, int]], delimiter: str, end: int, limit: int
) -> tuple[Table | None, int]:
    if is_log_entry(text[slice(*lines[0])]):
        return None, 0
    n_lines = len(lines)
    # Many write a space after each comma. Prose does so, too, but not between the names of columns.
    is_spaced = f"{delimiter} " in text[slice(*lines[0])]
    reader = csv.reader(_read_lines(text, lines, end, limit), delimiter=delimiter, skipinitialspace=is_spaced)
    rows: list[tuple[int, int]] = []
    header: list[str] = []
    taken = spaced = truncations = 0
    # The reader refuses a cell that is larger than it accepts.
    with suppress(csv.Error):
        for cells in reader:
            row = lines[taken][0], lines[reader.line_num - 1][1]
            if not rows:
                header = cells
                if not _are_names(cells, delimiter, is_spaced=is_spaced):
                    break
            elif len(cells) != len(header) or (reader.line_num > taken + 1 and text.count('"', *row) % 2):
                # Nothing closes a cell whose row has an odd number of quotation marks.
                truncations += 1
                if truncations > MOST_TRUNCATIONS or not _is_truncation(text, *row):
                    break
                taken = reader.line_num
                continue
            spaced += sum(cell.startswith(" ") for cell in cells)
            rows.append(row)
            taken = reader.line_num
    read = max(0, lines[-1][1] - end)
    if len(rows) <= FEWEST_ROWS or 2 * min(taken, n_lines) < n_lines or 2 * spaced > len(rows) * (len(header) - 1):
        return None, read
    return Table(
        rows[0][0], rows[0][0], "cell", " ".join(map(str.strip, header)), tuple(rows[1:]), len(header), delimiter
    ), read


def _read_lines(text: str, lines: list[tuple[int, int]], position: int, limit: int) -> Iterator[str]:
    """Yield the lines of a block, then those after it, whose spans are added to the list."""
    for first, last in lines[:]:
        yield text[first:last] + "\n"
    while position < limit:
        after = text.find("\n", position, limit) + 1 or limit
        lines.append((position, position + len(text[position:after].rstrip("\r\n"))))
        yield text[slice(*lines[-1])] + "\n"
        position = after


def _are_names(cells: list[str], delimiter: str, *, is_spaced: bool) -> bool:
    """Return True if cells are different names of at least two columns, or of three with spaces between them.

    Prose has spaces after commas and semicolons, too. The names after these have one word each. A colon after the first
    cell follows the address of an instruction, or a key.
    """
    if cells and cells[0].rstrip().endswith(":"):
        return False
    fewest = FEWEST_NAMES if is_spaced else 2
    if len(set(cells)) != len(cells) or len(cells) < fewest or not all(map(_is_name, cells)):
        return False
    return not is_spaced or delimiter not in ",;" or all(len(cell.split()) == 1 for cell in cells)


def _is_name(cell: str) -> bool:
    """Return True if a header cell looks like the name of a column."""
    return len(cell) <= LONGEST_HEADER and any(map(str.isalpha, cell)) and not _CODE_MARK.search(cell)
