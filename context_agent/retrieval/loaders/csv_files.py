"""The reader of CSV files, and of tables with another delimiter."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Self

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import codec_with_mark, stream_encoding
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.retrieval.loaders.reading import LeftOutError, Reading
from context_agent.retrieval.loaders.rows import (
    ALL_COLUMNS_NOTE,
    LONGEST_NAME,
    TEXT_KEYS,
    TEXT_PER_VALUE,
    check_columns,
    from_row,
    has_text_column,
)
from context_agent.types import Document

if TYPE_CHECKING:
    import _csv

_STATED_DELIMITER = re.compile(r"""['"]?sep=([^\r\n"'])['"]?\r?\n""")
MOST_COLUMNS = 10_000
"""The most columns of a table."""


def read_csv(reading: Reading) -> Iterator[Document]:
    """Yield the rows of a table whose first row names the columns.

    All values stay strings, and empty cells are left out. If no column is the text, the text of a row has a line for
    each cell.
    """
    csv.field_size_limit(max(csv.field_size_limit(), reading.options.max_size))
    encoding, note = stream_encoding(reading.stream, reading.options.encoding)
    if note:
        reading.note_once(note)
    text = io.TextIOWrapper(reading.stream, codec_with_mark(encoding), errors="replace", newline="")
    try:
        start, stated = _stated_delimiter(text)
        delimiter = reading.options.delimiter or stated or _delimiter(text)
        text.seek(start)
        bounded = _RowLines(text, reading.options, delimiter)
        table = csv.reader(bounded, delimiter=delimiter, strict=True)
        yield from _from_table(reading, table, bounded, lines_before=1 if stated else 0)
    finally:
        text.detach()  # or the wrapper would close the caller's stream


class _RowLines:
    """The lines of a table, with a limit on each row. The `csv` module joins the lines of a row without a limit."""

    def __init__(self, text: io.TextIOWrapper, options: LoadOptions, delimiter: str) -> None:
        self._text, self._options, self._delimiter = text, options, delimiter
        self._characters = self._cells = 0

    def begin_row(self) -> None:
        """Reset the counts of characters and cells."""
        self._characters = self._cells = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(self._options.max_size + 1)
        if not line:
            raise StopIteration
        self._characters += len(line)
        self._cells += line.count(self._delimiter)
        if max(self._characters, self._cells * TEXT_PER_VALUE) > self._options.max_size:
            raise DataError(self._options.too_large("a row") + " The rest of the file was not read.")
        return line


def _stated_delimiter(text: io.TextIOWrapper) -> tuple[int, str]:
    """Return where the table begins, and the delimiter that its first line states, as in `sep=;`.

    Excel reads such a line, and other programs write it. If there is none, return 0 and "".
    """
    stated = _STATED_DELIMITER.fullmatch(text.readline(2**16))
    if stated is None:
        text.seek(0)
        return 0, ""
    return text.tell(), stated[1]


def _delimiter(text: io.TextIOWrapper) -> str:
    """Return the delimiter that is most frequent in the header."""
    header = text.readline(2**16)
    return max(",;\t|", key=header.count)


def _from_table(reading: Reading, table: _csv.Reader, bounded: _RowLines, *, lines_before: int) -> Iterator[Document]:
    """Yield the rows below the header. A notice names the line where its row begins."""
    names = _column_names(_header(table))
    if not names:
        raise LeftOutError("the file is empty: it contains no text")
    check_columns(names, reading.options, needs_text=False)
    labels: list[str] = []
    if not has_text_column(names, reading.options):
        reading.note_once(ALL_COLUMNS_NOTE)
        labels = [f"{name[:LONGEST_NAME]}: " for name in names]
    while True:
        line = lines_before + table.line_num + 1
        bounded.begin_row()
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            reading.skip(f"the row is not valid CSV ({error})", line)
            continue
        if any(cells[len(names) :]):
            reading.skip(f"the row has {len(cells)} cells, but the header names {len(names)}", line)
        elif any(cells):
            row = dict(zip(names, cells, strict=False))
            if labels:
                pairs = zip(labels, map(str.strip, cells), strict=False)
                row[TEXT_KEYS[0]] = "\n".join([label + cell for label, cell in pairs if cell])
            yield from from_row(reading, line, row)


def _header(table: _csv.Reader) -> list[str]:
    """Return the first row that is not an empty line. If there is none, return an empty list."""
    try:
        return next((row for row in table if row), [])
    except csv.Error as error:
        raise DataError(f"the header is not valid CSV ({error})") from error


def _column_names(header: Iterable[str]) -> list[str]:
    """Return the header's names, which all differ. An empty or repeated name gets a number, by default the column's."""
    header = list(islice(header, MOST_COLUMNS + 1))
    if len(header) > MOST_COLUMNS:
        raise DataError(f"the header names more than {MOST_COLUMNS:,} columns. Check the delimiter.")
    taken, free = {cell.strip() for cell in header}, count(len(header) + 1)
    names: dict[str, None] = {}
    for number, cell in enumerate(header, 1):
        name = cell.strip()
        if not name or name in names:
            base = name or "column"
            name = f"{base}_{number}"
            while name in taken:
                name = f"{base}_{next(free)}"
            taken.add(name)
        names[name] = None
    return list(names)
