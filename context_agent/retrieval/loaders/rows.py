"""Readers of formats in which a row is a document: JSONL, CSV, parquet.

A row's fields except id, title and text become metadata: strings, numbers and booleans as they are, dates and decimals
as strings, lists and objects as JSON; null, NaN and empty values are left out. A value above 10,000 characters, or of
bytes, is left out with a notice, because metadata is stored with every chunk.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import count, islice
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from context_agent._support.question_files import json_type
from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.document_checks import MOST_ENTRIES
from context_agent.retrieval.loaders.files import (
    BLOCK,
    LARGEST_FIELD,
    marked,
    metadata_value,
    one_line,
    storable,
    stream_encoding,
)
from context_agent.retrieval.loaders.sources import LoadOptions, Reading
from context_agent.retrieval.loaders.unpacking import check_rows, check_unpacked
from context_agent.types import Document, MetadataValue

if TYPE_CHECKING:
    import _csv

    from pyarrow import Array, RecordBatch
    from pyarrow.parquet import FileMetaData

ID_KEYS = ("id", "_id", "doc_id")
TITLE_KEYS = ("title",)
TEXT_KEYS = ("text", "content", "body", "contents")
LONGEST_ID = 256
"""Characters of an id: it is shown to the model with every chunk."""
MOST_COLUMNS = 10_000
BATCH = 16
"""Rows of a parquet file held at once."""
LARGEST_BATCH = 2**20
"""Characters of a batch that become Python objects at once; the rows of a larger one do so one at a time."""
MOST_LIST_VALUES = 1_000
"""Values per row in a column of lists that are always read."""
TEXT_PER_VALUE = 16
"""Characters of the size limit per JSON value or cell of a row: a parsed value takes about 100 bytes."""
LARGEST_METADATA = 32_768
"""Characters of all metadata values of a row: they are stored with every chunk."""
LARGEST_FOOTER = 4 * 2**20
"""Bytes of the footer of a parquet file: the library takes some thirty times as many to hold it."""
MOST_BAD_ROWS = 10_000
"""Rows at the beginning of a source that may be unreadable, all of them, before the rest is left out."""
_UNDECODED = re.compile("[\udc80-\udcff]")
_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def read_jsonl(reading: Reading) -> Iterator[Document]:
    """One JSON object per line; empty lines are skipped."""
    yield from _from_lines(reading, reading.stream)


def read_zipped_jsonl(reading: Reading) -> Iterator[Document]:
    """JSONL compressed by gzip; of a damaged file, the part before the damage."""
    with _Unzipped(fileobj=reading.stream) as stream:
        yield from _from_lines(reading, cast("BinaryIO", stream))


class _Unzipped(gzip.GzipFile):
    """A gzip file that raises `DataError` if it unpacks to far more than its size, in bytes or in lines."""

    lines = 0

    def read1(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = super().read1(size)
        self.lines += data.count(b"\n")
        packed = cast("BinaryIO", self.fileobj).tell()
        check_unpacked(self.tell(), packed)
        check_rows(self.lines, packed)
        return data


def read_csv(reading: Reading) -> Iterator[Document]:
    """Yield a table whose first row holds the column names. All values stay strings; empty cells are left out."""
    csv.field_size_limit(max(csv.field_size_limit(), reading.options.max_size))
    encoding, note = stream_encoding(reading.stream, reading.options.encoding)
    if note:
        reading.note_once(note)
    text = io.TextIOWrapper(reading.stream, _signed(encoding), errors="replace", newline="")
    try:
        delimiter = reading.options.delimiter or _delimiter(text)
        bounded = _RowLines(text, reading.options, delimiter)
        yield from _from_table(reading, csv.reader(bounded, delimiter=delimiter, strict=True), bounded)
    finally:
        text.detach()  # or the wrapper would close the caller's stream


def read_parquet(reading: Reading) -> Iterator[Document]:
    """Yield the rows of a parquet file, a few at a time. Needs the extra `docs`."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "docs") from error
    number = 0
    try:
        _check_footer(reading.stream)
        table = parquet.ParquetFile(reading.stream)
        _check_columns(table.schema_arrow.names, reading.options)
        _check_groups(table.metadata, reading.options)
        check_rows(table.metadata.num_rows, reading.stream.seek(0, io.SEEK_END))
        columns = _bounded_columns(reading, table.metadata)
        # A text that a dictionary holds once is decoded once, however many rows name it.
        texts = [path for path, is_text in columns.items() if is_text]
        table = parquet.ParquetFile(reading.stream, read_dictionary=texts)
        size = _Unpacked(reading)
        for batch in table.iter_batches(batch_size=BATCH, columns=list(columns)):
            for rows in _in_parts(batch, size):
                for row in _python_rows(rows):
                    number += 1
                    if isinstance(row, Exception):
                        reading.skip(f"has a value that Python cannot hold: {row}", number)
                    else:
                        yield from from_row(reading, number, row)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DataError(f"damaged parquet after {number} rows: {error}") from error


def _check_footer(stream: BinaryIO) -> None:
    """Raise `DataError` for a footer that is too large. The last eight bytes state its length."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, end - 8))
    if int.from_bytes(stream.read(4), "little") > LARGEST_FOOTER and end > LARGEST_FOOTER:
        raise DataError(f"its footer is larger than {LARGEST_FOOTER // 2**20} MB: write it with fewer groups of rows")
    stream.seek(0)


def _check_groups(metadata: FileMetaData, options: LoadOptions) -> None:
    """Raise `DataError` for a row group that is a decompression bomb, by the sizes that the file states."""
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
        columns = [group.column(index) for index in range(group.num_columns)]
        check_unpacked(group.total_byte_size, sum(column.total_compressed_size for column in columns))
        if group.total_byte_size > group.num_rows * options.max_size:
            raise DataError(options.too_large("a row"))


def _bounded_columns(reading: Reading, metadata: FileMetaData) -> dict[str, bool]:
    """Return the path of each column that is read, and whether it holds text or bytes.

    A column of lists is left out if a row of it may have more values than the options allow.
    """
    most = reading.options.max_size // TEXT_PER_VALUE
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        values = [(group.column(index).num_values, group.num_rows) for group in groups]
        if any(number > max(most, MOST_LIST_VALUES * rows) for number, rows in values):
            reading.note_once(f"column {column.path[:50]!r} has more than {most:,} values in a row: left out")
        else:
            columns[column.path] = column.physical_type == "BYTE_ARRAY"
    return columns


class _Unpacked:
    """Counts the characters of a source's rows before they are produced."""

    def __init__(self, reading: Reading) -> None:
        self._packed = reading.stream.seek(0, io.SEEK_END)
        self._options = reading.options
        self._total = 0
        reading.stream.seek(0)

    def add(self, size: int) -> None:
        """Count them. Raise `DataError` for too many."""
        self._total += size
        check_unpacked(self._total, self._packed)

    def check_row(self, size: int) -> None:
        """Raise `DataError` for a row that is too large."""
        if size > self._options.max_size:
            raise DataError(self._options.too_large("a row") + "; the rest of the file was not read")


def _in_parts(batch: RecordBatch, unpacked: _Unpacked) -> Iterator[RecordBatch]:
    """Yield the batch, or its rows one at a time if they are large."""
    size = sum(_produced(column) for column in batch.columns)
    if size <= LARGEST_BATCH:
        unpacked.add(size)
        yield batch
        return
    for row in (batch.slice(index, 1) for index in range(batch.num_rows)):
        size = sum(_produced(column) for column in row.columns)
        unpacked.check_row(size)
        unpacked.add(size)
        yield row


def _python_rows(rows: RecordBatch) -> list[dict[str, Any] | Exception]:
    """Return the rows as Python objects; for a row with a value out of Python's range, such as a date, the error."""
    try:
        return list(rows.to_pylist())
    except (OverflowError, ValueError) as error:
        if rows.num_rows == 1:
            return [error]
        return [row for index in range(rows.num_rows) for row in _python_rows(rows.slice(index, 1))]


def _produced(array: Array) -> int:
    """Return the characters of an Arrow array's values, and `TEXT_PER_VALUE` more for each value."""
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    if isinstance(array, pa.DictionaryArray):
        lengths = compute.binary_length(array.dictionary) if _has_length(array.dictionary) else None
        if lengths is None:
            return _produced(array.dictionary) * len(array)
        return (compute.sum(lengths.take(array.indices)).as_py() or 0) + TEXT_PER_VALUE * len(array)
    if isinstance(array, pa.StructArray):
        return TEXT_PER_VALUE * len(array) + sum(map(_produced, array.flatten()))
    if isinstance(array, pa.MapArray):
        entries = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        inner = [part.slice(entries[0], entries[1] - entries[0]) for part in (array.keys, array.items)]
        return TEXT_PER_VALUE * len(array) + sum(map(_produced, inner))
    if isinstance(
        array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray | pa.ListViewArray | pa.LargeListViewArray
    ):
        return TEXT_PER_VALUE * len(array) + _produced(array.flatten())
    characters = compute.sum(compute.binary_length(array)).as_py() if _has_length(array) else 0
    return (characters or 0) + TEXT_PER_VALUE * len(array)


def _has_length(array: Array) -> bool:
    """Return whether the values are texts or bytes."""
    from pyarrow import types

    kind = array.type
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def lines(stream: BinaryIO, encoding: str | None, longest: int) -> Generator[tuple[int, str | None], None, None]:
    """Numbered lines of a seekable stream, None for one of more than `longest` characters.

    Bytes that do not decode are left as lone surrogates. Raises `DataError`.
    """
    head = stream.read(4096)
    stream.seek(0)
    encoding = _signed(encoding or _encoding_of(head))
    text = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="\n")
    try:
        for number in count(1):
            line = text.readline(longest + 1)
            if not line:
                return
            yield number, None if _pass_rest(text, line, longest) else line
    except UnicodeError as error:
        raise DataError(f"not text: no valid {encoding} ({error})") from error
    finally:
        text.detach()


def _pass_rest(text: io.TextIOWrapper, line: str, longest: int) -> bool:
    """Return whether the line is longer than `longest`; if so, reads the rest of it and drops it."""
    if len(line) <= longest:
        return False
    while line and not line.endswith("\n"):
        line = text.readline(BLOCK)
    return True


class _RowLines:
    """The lines of a table, bounded for the `csv` module, which joins the lines of a row without limit."""

    def __init__(self, text: io.TextIOWrapper, options: LoadOptions, delimiter: str) -> None:
        self._text, self._options, self._delimiter = text, options, delimiter
        self._characters = self._cells = 0

    def begin_row(self) -> None:
        """Resets the counts of characters and cells."""
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
            raise DataError(self._options.too_large("a row") + "; the rest of the file was not read")
        return line


def _encoding_of(head: bytes) -> str:
    encoding = marked(head)
    if encoding is None and b"\0" in head:
        raise DataError("not text: contains NUL bytes")
    return encoding or "utf-8"


def _signed(encoding: str) -> str:
    """For UTF-8 the codec that accepts a byte order mark; any other encoding unchanged."""
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding


def _from_lines(reading: Reading, stream: BinaryIO) -> Iterator[Document]:
    found, before = False, reading.report.skipped
    for number, line in lines(stream, reading.options.encoding, reading.options.max_size):
        if line is None:
            reading.skip(reading.options.too_large("the line"), number)
        elif line.strip():
            for document in _from_line(reading, number, line):
                found = True
                yield document
        if not found and reading.report.skipped - before >= MOST_BAD_ROWS:
            raise DataError(f"the first {MOST_BAD_ROWS:,} lines with text are not rows; the rest was not read")


def _from_line(reading: Reading, number: int, line: str) -> Iterator[Document]:
    if _UNDECODED.search(line):
        reading.skip(f"not valid {reading.options.encoding or 'UTF-8'}", number)
        return
    most = reading.options.max_size // TEXT_PER_VALUE
    if len(line) > most and sum(map(line.count, ",[{")) > most:
        reading.skip(f"more than {most:,} JSON values in one line: split it, or raise the limit with --max-mb", number)
        return
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        reading.skip(f"not valid JSON at character {error.pos + 1}: {error.msg.removesuffix(' at')}", number)
    except RecursionError:
        reading.skip("not readable JSON: nested too deeply", number)
    except ValueError as error:
        reading.skip(f"not readable JSON: {error}", number)
    else:
        yield from from_row(reading, number, row)


def _delimiter(text: io.TextIOWrapper) -> str:
    """Return the delimiter that is most frequent in the header."""
    header = text.readline(2**16)
    text.seek(0)
    return max(",;\t|", key=header.count)


def _from_table(reading: Reading, table: _csv.Reader, bounded: _RowLines) -> Iterator[Document]:
    """Yield the rows below the header; `line` of a notice is the one where the row begins."""
    names = _column_names(_header(table))
    _check_columns(names, reading.options)
    while True:
        line = table.line_num + 1
        bounded.begin_row()
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            reading.skip(f"not valid CSV: {error}", line)
            continue
        if any(cells[len(names) :]):
            reading.skip(f"{len(cells)} cells where the header names {len(names)}", line)
        elif any(cells):
            yield from from_row(reading, line, dict(zip(names, cells, strict=False)))


def _header(table: _csv.Reader) -> list[str]:
    try:
        return next(table, [])
    except csv.Error as error:
        raise DataError(f"its header is not valid CSV: {error}") from error


def _column_names(header: Iterable[str]) -> list[str]:
    """Return the header's names; an empty or repeated name gets the column's number."""
    header = list(islice(header, MOST_COLUMNS + 1))
    if len(header) > MOST_COLUMNS:
        raise DataError(f"its header names more than {MOST_COLUMNS:,} columns: check the delimiter")
    names: dict[str, None] = {}
    for number, cell in enumerate(header, 1):
        name = cell.strip() or "column"
        names[name if cell.strip() and name not in names else f"{name}_{number}"] = None
    return list(names)


def _check_columns(names: Iterable[str], options: LoadOptions) -> None:
    """Raises `DataError` if the table has no text column, or lacks a column that the options name."""
    present = set(names)
    for key in (options.text_key, options.id_key, options.title_key):
        if key is not None and key not in present:
            raise DataError(f"no column {key!r}; there are {_listed(present)}")
    if options.text_key is None and not present.intersection(TEXT_KEYS):
        raise DataError(f"no column {_alternatives(TEXT_KEYS)}; there are {_listed(present)}: pass --text-key")


def from_row(reading: Reading, number: int, row: object) -> Iterator[Document]:
    """Yield the row's document, or a notice about what it lacks."""
    if not isinstance(row, dict):
        reading.skip(f"{json_type(row)}, not an object with fields", number)
        return
    try:
        document = _document(reading, row)
    except DataError as error:
        reading.skip(str(error), number)
    except RecursionError:
        reading.skip("a field is nested too deeply", number)
    else:
        yield document


def _document(reading: Reading, row: Mapping[str, Any]) -> Document:
    """Return the row's document; its id is empty if the row has none. Raises `DataError` for a row without text."""
    options = reading.options
    text_key, text = _text(row, (options.text_key,) if options.text_key else TEXT_KEYS)
    id_key, identifier = _identifier(row, (options.id_key,) if options.id_key else ID_KEYS)
    title_key, title = _title(row, (options.title_key,) if options.title_key else TITLE_KEYS)
    if options.id_key and not identifier:
        reading.note_once(f"rows without field {options.id_key!r} get a digest of their content as id")
    metadata: dict[str, MetadataValue] = {}
    used = {key for key in (text_key, id_key, title_key) if key}
    room = LARGEST_METADATA
    for key, value in row.items():
        if len(metadata) > MOST_ENTRIES:  # One more than can be stored, so that it is reported.
            break
        if key not in used and (entry := metadata_value(reading, key, value)) is not None:
            room -= len(entry) if isinstance(entry, str) else 1
            if room < 0:
                reading.note_once(
                    f"rows with more than {LARGEST_METADATA:,} characters of metadata: only the first fields are kept"
                )
                break
            metadata[storable(key)] = entry
    if id_key and (source_id := str(row[id_key])) != identifier:
        metadata.setdefault("source_id", storable(source_id)[:LARGEST_FIELD])
    return Document(identifier, storable(text), title, metadata)


def _text(row: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, str]:
    reason = ""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return key, value
        if key in row:
            kind = "empty" if value is None or isinstance(value, str) else f"{json_type(value)}, not a string"
            reason = f"field {key!r} is {kind}"
    raise DataError(reason or f"no field {_alternatives(keys)}; there are {_listed(row)}")


def _identifier(row: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, str]:
    """Return the key and the id, shortened and on one line; ("", "") if there is none. Raises `DataError`."""
    for key in keys:
        value = row.get(key)
        if value is None or value != value:  # noqa: PLR0124 - NaN, an empty cell of a table
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(f"field {key!r} is {json_type(value)}, not a string or a number")
        text = storable(str(value))
        name = _BREAKING.sub("_", text).strip()
        if len(name) > LONGEST_ID:
            name = f"{name[:200]}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        if name:
            return key, name
    return "", ""


def _title(row: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, str]:
    """Return the key and the title on one line; ("", "") if there is none. A title that is not a string stays
    metadata.
    """
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return key, one_line(storable(value))
    return "", ""


def _alternatives(keys: Iterable[str]) -> str:
    *rest, last = keys
    return f"{', '.join(rest)} or {last}" if rest else repr(last)


def _listed(names: Iterable[str]) -> str:
    """At most 12 names, for a message."""
    quoted = sorted(repr(storable(name))[:50] for name in names)
    return ", ".join(quoted[:12]) + (" ..." if len(quoted) > 12 else "") if quoted else "none"
