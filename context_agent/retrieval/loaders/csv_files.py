"""The reader of CSV files, and of tables with another delimiter."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from itertools import count, islice, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Self

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import codec_with_mark, stream_encoding
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.retrieval.loaders.reading import LeftOutError, Reading, one_line, storable
from context_agent.retrieval.loaders.rows import (
    ALL_COLUMNS_NOTE,
    LONGEST_NAME,
    TEXT_KEYS,
    TEXT_PER_VALUE,
    check_columns,
    from_row,
    has_text_column,
    without_tags,
)
from context_agent.types import Document

if TYPE_CHECKING:
    import _csv

_STATED_DELIMITER = re.compile(r"""['"]?sep=([^\r\n"'])['"]?\r?\n""")
DELIMITERS = ",;\t|"
_SPACED_HEADER = re.compile(r'(?:"[^"\r\n]*+" )++"[^"\r\n]*+"\r?\n')
"""A header of quoted names with spaces between them, as R writes it. Other spaces are part of the words."""
SAMPLE_LINES = 30
"""The number of first lines in which the delimiter and the header are searched."""
FIRST_YEAR, LAST_YEAR = 1_000, 2_999
"""The numbers that may name a column."""
LONGEST_TABLE_TITLE = 200
"""Maximum number of characters of the title above a table. The title is repeated in each row."""
MOST_COLUMNS = 10_000
"""Maximum number of columns of a table."""
NO_HEADER_NOTE = (
    "the first row is data, so the columns are called column_1, column_2 and so on. To read one of them as the text, "
    "pass --text-key, or write the names of the columns above the table."
)
_TAB = "\t"
_QUOTED_CELL = re.compile(r'"(?:[^"]++|"")*+"')
MOST_CELL_LINES = 1_000
"""Maximum number of lines of a cell in quotation marks, in a table with tabs."""
MOST_VAIN_LINES = 20_000
"""The number of lines that are read in search of the end of cells. Further cells then end with their line."""


def read_csv(reading: Reading) -> Iterator[Document]:
    """Yield the rows of a table below the row that names the columns.

    All values stay strings, and empty cells are left out. If no column is the text, the text of a row has a line for
    each cell. Lines above the names of the columns become the beginning of each row's title. If the first row is data,
    the columns are called by their numbers.
    """
    csv.field_size_limit(max(csv.field_size_limit(), reading.options.max_size))
    encoding, note = stream_encoding(reading.stream, reading.options.encoding)
    if note:
        reading.note_once(note)
    text = io.TextIOWrapper(reading.stream, codec_with_mark(encoding), errors="replace", newline="")
    try:
        start, stated = _stated_delimiter(text)
        delimiter, titles, first = _layout(text, reading.options.delimiter or stated, reading.options)
        text.seek(start)
        bounded = _RowLines(text, reading.options, delimiter)
        table = csv.reader(bounded, delimiter=delimiter, strict=True)
        above = list(islice(_parsed(bounded, table), titles))
        yield from _from_table(reading, table, bounded, above, lines_before=1 if stated else 0, first=first)
    finally:
        text.detach()  # or the wrapper would close the caller's stream


class _RowLines:
    """The lines of a table, with a limit on each row. The `csv` module joins the lines of a row without a limit."""

    def __init__(self, text: io.TextIOWrapper, options: LoadOptions, delimiter: str) -> None:
        self._options, self._delimiter = options, delimiter
        self._characters = self._cells = 0
        self._lines = table_lines(lambda: text.readline(options.max_size + 1), delimiter, options.max_size)

    def begin_row(self) -> None:
        """Reset the counts of characters and cells."""
        self._characters = self._cells = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._characters += len(line)
        self._cells += line.count(self._delimiter)
        if max(self._characters, self._cells * TEXT_PER_VALUE) > self._options.max_size:
            raise DataError(self._options.too_large("a row") + " The rest of the file was not read.")
        return line


def table_lines(read: Callable[[], str], delimiter: str, most: int) -> Iterator[str]:
    """Yield the lines of a table, with quotation marks doubled if they are part of a text.

    Most programs that write tabs between cells do not quote cells, so a text such as `"Yes" is an answer` may begin
    with a quotation mark. A cell is quoted only if a mark stands before the next tab or line break, and if a cell of
    several lines makes a row as long as one above it.

    Args:
        read: A function that returns the next line, and "" at the end.
        delimiter: The delimiter.
        most: Maximum number of characters of a row.
    """
    ahead: deque[str] = deque()
    widths = set[int]()
    vain = 0
    while line := ahead.popleft() if ahead else read():
        if delimiter != _TAB or not (line.startswith('"') or '\t"' in line):
            widths.add(line.count(delimiter) + 1)
            yield line
            continue
        if vain >= MOST_VAIN_LINES:
            yield _with_literal_quotes(line)
            continue
        row = _row_from(line, lambda: ahead.popleft() if ahead else read(), most)
        if row.cells and (len(row.lines) == 1 or not widths or row.cells in widths):
            widths.add(row.cells)
            yield from row.lines
        else:
            vain += len(row.lines)
            ahead.extendleft(reversed(row.lines[1:]))
            yield _with_literal_quotes(line)


class _Row(NamedTuple):
    """The lines of a row, and the number of its cells, which is 0 if its quotation marks do not end with a cell."""

    lines: list[str]
    cells: int


def _row_from(first: str, read: Callable[[], str], most: int) -> _Row:
    """Return the row that begins with a line. Further lines are read while a cell is open."""
    lines = [first]

    def following() -> Iterator[str]:
        yield first
        size = len(first)
        while len(lines) < MOST_CELL_LINES and size < most and (line := read()):
            lines.append(line)
            size += len(line)
            yield line

    try:
        return _Row(lines, len(next(csv.reader(following(), delimiter=_TAB, strict=True))))
    except csv.Error:
        return _Row(lines, 0)


def _with_literal_quotes(line: str) -> str:
    """Return a line whose cells end with it. A cell that only begins with a quotation mark is quoted."""
    words = line.rstrip("\r\n")
    cells = (
        f'"{cell.replace(chr(34), 2 * chr(34))}"' if cell.startswith('"') and not _QUOTED_CELL.fullmatch(cell) else cell
        for cell in words.split(_TAB)
    )
    return _TAB.join(cells) + line[len(words) :]


def _sample_rows(lines: list[str], delimiter: str) -> list[list[str]]:
    """Return the rows of the first lines of a table."""
    rest = iter(lines)
    return list(csv.reader(table_lines(lambda: next(rest, ""), delimiter, sum(map(len, lines))), delimiter=delimiter))


def _stated_delimiter(text: io.TextIOWrapper) -> tuple[int, str]:
    """Return where the table begins, and the delimiter that its first line states, as in `sep=;`.

    Excel reads such a line, and other programs write it. If there is none, return 0 and "".
    """
    stated = _STATED_DELIMITER.fullmatch(text.readline(2**16))
    if stated is None:
        text.seek(0)
        return 0, ""
    return text.tell(), stated[1]


class _First(Enum):
    """What the first row of a table is."""

    HEADER = "header"
    SHORT_HEADER = "a header that lacks the name of the first column"
    DATA = "data"


def _layout(text: io.TextIOWrapper, stated: str | None, options: LoadOptions) -> tuple[str, int, _First]:
    """Return the delimiter, the number of rows above the header, and what the first row below them is.

    The first lines of the table show all three.

    Without a stated delimiter, it is the one that is most frequent in the first line. If that line is a title, it is
    the one that divides the most rows alike.
    """
    lines = [line for _ in range(SAMPLE_LINES) if (line := text.readline(2**16))]
    if cut := [number for number, line in enumerate(lines) if not line.endswith(("\n", "\r"))]:
        lines = lines[: cut[0] + 1]
    first = next((line for line in lines if line.strip()), "")
    if not stated and _SPACED_HEADER.fullmatch(first):
        stated = " "
    guess = stated or max(DELIMITERS, key=first.count)
    titles, alike = _above_header(lines, guess, options)
    if not stated and (titles or not alike):
        others = {delimiter: _above_header(lines, delimiter, options) for delimiter in DELIMITERS}
        best = max(DELIMITERS, key=lambda delimiter: others[delimiter][1])
        guess, titles = (best, others[best][0]) if others[best][1] > alike else (guess, titles)
    return guess, titles, _first_row(lines, guess, titles, options)


def _first_row(lines: list[str], delimiter: str, titles: int, options: LoadOptions) -> _First:
    """Return what the first row below the titles is.

    If each row has one cell more than the header, this cell is the name of the row, as R writes it. If the last cells
    are empty, the rows end with a delimiter instead. If one begins with a space, it is the rest of a sentence with a
    comma.

    If the first column has only numbers, the first row has words, and none of these is a name that a reader knows, the
    row is data.
    """
    try:
        header, *rows = [row for row in _sample_rows(lines, delimiter)[titles:] if row]
    except (csv.Error, ValueError):
        return _First.HEADER
    last = [row[-1] for row in rows]
    is_longer = bool(rows) and len(header) > 1 and all(len(row) == len(header) + 1 for row in rows)
    if is_longer and any(last) and not any(cell.startswith(" ") for cell in last):
        return _First.SHORT_HEADER
    has_words = any(cell.strip() and not _is_number(cell, years=True) for cell in header)
    named = {*TEXT_KEYS, options.text_key, options.id_key, options.title_key}
    has_words = has_words and named.isdisjoint([*header, *map(str.lower, header)])
    is_data = not titles and has_words and all(_is_number(row[0]) for row in (header, *rows))
    return _First.DATA if rows and is_data else _First.HEADER


def _above_header(lines: list[str], delimiter: str, options: LoadOptions) -> tuple[int, int]:
    """Return the number of rows above the header, and how many rows have the usual number of filled cells.

    The header is the first row that is as long as most rows with several cells, and in which more than half of as many
    cells are filled. An empty line below a row shows that it is a title, unless it is the first row. If the first row
    names a column of text, or only it is shorter by one cell, it is the header. It also is the header if it is long
    enough and the row below it is data, because some tables name only their first columns.
    """
    try:
        rows = _sample_rows(lines, delimiter)
    except csv.Error:
        return 0, 0
    filled = [sum(map(bool, map(str.strip, row))) for row in rows]
    usual, alike = max(Counter(number for number in filled if number > 1).items(), key=itemgetter(1), default=(0, 0))
    first = next((at for at, number in enumerate(filled) if number), 0)
    names = [cell.strip() for cell in rows[first]] if rows else []
    names_text = options.text_key in names if options.text_key else has_text_column(names, options)
    lacks_one = 1 < len(names) == usual - 1 and all(len(row) == usual for row in rows[first + 1 :] if row)
    if names_text or lacks_one or alike < 2:
        return 0, alike
    for at, (row, number, below) in enumerate(zip(rows, filled, [*filled[1:], 1], strict=True)):
        if len(row) >= usual and number > max(1, usual // 2) and (below or at == first):
            names_some = at == first + 1 and len(rows[first]) >= usual and bool(names[0])
            return (first if names_some and _is_data(row, rows[at + 1 :]) else at), alike
    return 0, alike


def _is_data(row: list[str], below: list[list[str]]) -> bool:
    """Return True if a row has a number other than a year, or a word that occurs again below in the same column."""
    return any(
        cell.strip() and (_is_number(cell) or any(cell in other[at : at + 1] for other in below))
        for at, cell in enumerate(row)
    )


def _is_number(cell: str, *, years: bool = False) -> bool:
    """Return True if a cell is a number. A year counts only if `years` is True."""
    try:
        return not FIRST_YEAR <= float(cell) <= LAST_YEAR or years
    except ValueError:
        return False


def _parsed(bounded: _RowLines, table: _csv.Reader) -> Iterator[list[str]]:
    """Yield the rows of a table that can be parsed."""
    while True:
        bounded.begin_row()
        try:
            yield next(table)
        except StopIteration:
            return
        except csv.Error:
            continue


def _title(rows: Iterable[list[str]]) -> str:
    """Return the words above a header on one line, without the marks of comments."""
    cells = (words for row in rows for cell in row if (words := cell.strip().lstrip("#").strip()))
    return one_line(storable(", ".join(cells)))[:LONGEST_TABLE_TITLE]


def _from_table(
    reading: Reading,
    table: _csv.Reader,
    bounded: _RowLines,
    above: list[list[str]],
    *,
    lines_before: int,
    first: _First,
) -> Iterator[Document]:
    """Yield the rows from the header on. A notice names the line where its row begins."""
    header = _header(table)
    if not header:
        raise LeftOutError("the file is empty: it contains no text")
    header, above = _grouped(header, above)
    title = _title(above)
    unnamed = [""] * len(header)
    named = {_First.HEADER: header, _First.SHORT_HEADER: ["", *header], _First.DATA: unnamed}
    names = _column_names(named[first])
    check_columns(names, reading.options)
    pending = [header] if first is _First.DATA else []
    if pending:
        reading.note_once(NO_HEADER_NOTE)
    labels: list[str] = []
    if not has_text_column(names, reading.options):
        reading.note_once(ALL_COLUMNS_NOTE)
        labels = [f"{name[:LONGEST_NAME]}: " for name in names]
    while True:
        line = lines_before + table.line_num + (not pending)
        bounded.begin_row()
        try:
            cells = pending.pop() if pending else next(table)
        except StopIteration:
            return
        except csv.Error as error:
            end = lines_before + table.line_num
            more = f". The lines up to {end:,} are left out with it. Check its quotation marks." if end > line else ""
            reading.skip(f"the row is not valid CSV ({error}){more}", line)
            continue
        if any(cells[len(names) :]):
            reading.skip(f"the row has {len(cells)} cells, but the header names {len(names)}", line)
        elif any(cells):
            row = dict(zip(names, cells, strict=False))
            if labels:
                pairs = zip(labels, map(str.strip, cells), strict=False)
                row[TEXT_KEYS[0]] = "\n".join([label + without_tags(cell) for label, cell in pairs if cell])
            for document in from_row(reading, line, row):
                yield _titled(document, title) if title else document


def _grouped(header: list[str], above: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, with the names of their groups, and the other rows above.

    If names repeat, the row above them names groups of columns, such as years. A name of a group stands above the first
    of its columns.
    """
    names = Counter(map(str.strip, header))
    groups = above[-1] if above else []
    if sum(map(bool, map(str.strip, groups))) < 2 or all(count == 1 for name, count in names.items() if name):
        return header, above
    group, grouped = "", list[str]()
    for stated, name in zip_longest(groups[: len(header)], header, fillvalue=""):
        group = stated.strip() or group
        grouped.append(f"{group} {name}".strip() if names[name.strip()] > 1 else name)
    return grouped, above[:-1]


def _titled(document: Document, above: str) -> Document:
    """Return the document of a row with the words above the header before its title."""
    return replace(document, title=one_line(f"{above}: {document.title}" if document.title else above))


def _header(table: _csv.Reader) -> list[str]:
    """Return the first row that is not an empty line. If there is none, return an empty list."""
    try:
        return next((row for row in table if row), [])
    except csv.Error as error:
        raise DataError(f"the header is not valid CSV ({error})") from error


def _column_names(header: Iterable[str]) -> list[str]:
    """Return the header's names, which all differ. An empty or repeated name gets a number, by default the column's.

    The first name is without the mark of a comment, which some programs write before a header.
    """
    header = list(islice(header, MOST_COLUMNS + 1))
    if len(header) > MOST_COLUMNS:
        raise DataError(f"the header names more than {MOST_COLUMNS:,} columns. Check the delimiter.")
    taken, free = {cell.strip() for cell in header}, count(len(header) + 1)
    names: dict[str, None] = {}
    for number, cell in enumerate(header, 1):
        name = cell.strip().lstrip("#" if number == 1 else "").strip()
        if not name or name in names:
            base = name or "column"
            name = f"{base}_{number}"
            while name in taken:
                name = f"{base}_{next(free)}"
            taken.add(name)
        names[name] = None
    return list(names)
