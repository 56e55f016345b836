"""The reader of parquet files."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

from context_agent.errors import DataError, MissingExtraError, reason_of
from context_agent.retrieval.loaders.parquet_pages import page_sizes
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.rows import (
    ALL_COLUMNS_NOTE,
    TEXT_PER_VALUE,
    check_columns,
    from_row,
    has_text_column,
)
from context_agent.retrieval.loaders.unpacking import check_rows, check_unpacked
from context_agent.types import Document

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch
    from pyarrow.parquet import FileMetaData

BATCH_ROWS = 16
"""The number of rows in memory at a time."""
LARGEST_BATCH = 2**20
"""Maximum number of characters of a batch that is converted to Python objects at once.

A larger batch is converted row by row.
"""
MOST_LIST_VALUES = 1_000
"""The number of values per row, on average, up to which a column of lists is always read."""
LARGEST_REPEATED = 64 * 2**20
"""Maximum number of bytes that a batch may take if each of its texts were as long as the largest page of its column."""
_DELTAS = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})
"""The encodings of texts that pyarrow cannot read as a dictionary. In the first, a text may repeat the previous one."""
LARGEST_FOOTER = 4 * 2**20
"""Maximum number of bytes of the footer. In memory the library needs about thirty times as many."""


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
        check_columns(table.schema_arrow.names, reading.options)
        by_field = not has_text_column(table.schema_arrow.names, reading.options)
        if by_field:
            reading.note_once(ALL_COLUMNS_NOTE)
        _check_groups(reading, table.metadata)
        check_rows(table.metadata.num_rows, reading.stream.seek(0, io.SEEK_END))
        columns = _bounded_columns(reading, table.metadata)
        # A text in a dictionary is decoded once, however many rows refer to it.
        deltas = _delta_columns(table.metadata)
        texts = [path for path, is_text in columns.items() if is_text and path not in deltas]
        rows = _rows_at_a_time(reading.stream, table.metadata, deltas.intersection(columns))
        table = parquet.ParquetFile(reading.stream, read_dictionary=texts)
        size = _Unpacked(reading)
        # Of a batch with rows of two groups, pyarrow cannot make structures that have dictionaries.
        groups = range(table.num_row_groups)
        batches = (table.iter_batches(rows, row_groups=[group], columns=list(columns)) for group in groups)
        for batch in chain.from_iterable(batches):
            for part in _in_parts(batch, size):
                for row in _python_rows(part):
                    number += 1
                    if isinstance(row, Exception):
                        reading.skip(f"the row has a value that Python cannot hold: {row}", number)
                    elif by_field:
                        yield from from_row(reading, number, _filled(row), by_field=True)
                    else:
                        yield from from_row(reading, number, row)
    except pa.ArrowNotImplementedError as error:
        raise DataError(f"pyarrow cannot read the file ({error}). Write it in plain or dictionary encoding.") from error
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DataError(f"the file is damaged after {number} rows ({reason_of(error)})") from error


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that have a value which text can show. NaN is an empty cell."""
    return {key: value for key, value in row.items() if value == value and not isinstance(value, bytes | None)}  # noqa: PLR0124


def _check_footer(stream: BinaryIO) -> None:
    """Raise `DataError` if the footer is too large. The last eight bytes of the file state its length."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, end - 8))
    if int.from_bytes(stream.read(4), "little") > LARGEST_FOOTER and end > LARGEST_FOOTER:
        raise DataError(
            f"the footer of the file is larger than {LARGEST_FOOTER // 2**20} MB. Write the file with fewer groups of "
            "rows."
        )
    stream.seek(0)


def _check_groups(reading: Reading, metadata: FileMetaData) -> None:
    """Raise `DataError` if a row group is a decompression bomb by the sizes that the footer or its pages state."""
    rest = reading.stream.seek(0, io.SEEK_END)
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
        columns = [group.column(index) for index in range(group.num_columns)]
        packed = sum(column.total_compressed_size for column in columns)
        rest -= packed
        if rest < 0:
            raise DataError("the columns of the file overlap, so it is damaged. Write it again.")
        unpacked = max(group.total_byte_size, sum(sum(page_sizes(reading.stream, column)) for column in columns))
        check_unpacked(unpacked, packed)
        if unpacked > max(1, group.num_rows) * reading.options.max_size:
            raise DataError(reading.options.too_large("a row"))


def _bounded_columns(reading: Reading, metadata: FileMetaData) -> dict[str, bool]:
    """Return the path of each column to read, and True if the column has text or bytes.

    If a column of lists may have more values in a row than the options allow, the column is left out. So is a column of
    lists whose texts may repeat each other unseen.
    """
    most = reading.options.max_size // TEXT_PER_VALUE
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    deltas = _delta_columns(metadata)
    columns = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        values = [(group.column(index).num_values, group.num_rows) for group in groups]
        if any(number > max(most, MOST_LIST_VALUES * rows) for number, rows in values):
            reading.note_once(f"column {column.path[:50]!r} has more than {most:,} values in a row, so it is left out")
        elif column.path in deltas and column.max_repetition_level:
            reading.note_once(
                f"column {column.path[:50]!r} has lists of texts in a delta encoding, so it is left out. To read it, "
                "write the file with plain or dictionary encoding."
            )
        else:
            columns[column.path] = column.physical_type == "BYTE_ARRAY"
    return columns


def _delta_columns(metadata: FileMetaData) -> set[str]:
    """Return the paths of the columns of text that pyarrow cannot read as a dictionary."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    columns = (group.column(index) for group in groups for index in range(group.num_columns))
    return {column.path_in_schema for column in columns if not _DELTAS.isdisjoint(column.encodings)}


def _rows_at_a_time(stream: BinaryIO, metadata: FileMetaData, deltas: Collection[str]) -> int:
    """Return the number of rows of a batch.

    A text is not longer than the largest page of its column. A text that is not read as a dictionary may be that long
    in each row, whatever encoding the footer states.
    """
    longest = dict.fromkeys(deltas, 0)
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)) if deltas else ():
        for column in (group.column(index) for index in range(group.num_columns)):
            if (path := column.path_in_schema) in longest:
                longest[path] = max(longest[path], *page_sizes(stream, column), 0)
    return min(BATCH_ROWS, max(1, LARGEST_REPEATED // max(1, sum(longest.values()))))


class _Unpacked:
    """A counter of the characters in a source's rows, which counts them before they are produced."""

    def __init__(self, reading: Reading) -> None:
        self._packed = reading.stream.seek(0, io.SEEK_END)
        self._options = reading.options
        self._total = 0
        reading.stream.seek(0)

    def add(self, size: int) -> None:
        """Count the characters. If there are too many, raise `DataError`."""
        self._total += size
        check_unpacked(self._total, self._packed)

    def check_row(self, size: int) -> None:
        """Raise `DataError` if a row is too large."""
        if size > self._options.max_size:
            raise DataError(self._options.too_large("a row") + " The rest of the file was not read.")


def _in_parts(batch: RecordBatch, unpacked: _Unpacked) -> Iterator[RecordBatch]:
    """Yield the batch. If it is large, yield its rows one at a time."""
    size = sum(produced(column) for column in batch.columns)
    if size <= LARGEST_BATCH:
        unpacked.add(size)
        yield batch
        return
    for row in (batch.slice(index, 1) for index in range(batch.num_rows)):
        size = sum(produced(column) for column in row.columns)
        unpacked.check_row(size)
        unpacked.add(size)
        yield row


def _python_rows(rows: RecordBatch) -> list[dict[str, Any] | Exception]:
    """Return the rows as Python objects.

    If a row has a value outside Python's range, such as a date, return the error in its place.
    """
    try:
        return list(rows.to_pylist())
    except (OverflowError, ValueError) as error:
        if rows.num_rows == 1:
            return [error]
        return [row for index in range(rows.num_rows) for row in _python_rows(rows.slice(index, 1))]


def produced(array: Array) -> int:
    """Return the number of characters in an Arrow array's values, plus `TEXT_PER_VALUE` for each value."""
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    if isinstance(array, pa.DictionaryArray):
        lengths = compute.binary_length(array.dictionary) if _has_length(array.dictionary) else None
        if lengths is None:
            return produced(array.dictionary) * len(array)
        return (compute.sum(lengths.take(array.indices)).as_py() or 0) + TEXT_PER_VALUE * len(array)
    if isinstance(array, pa.StructArray):
        return TEXT_PER_VALUE * len(array) + sum(map(produced, array.flatten()))
    if isinstance(array, pa.MapArray):
        entries = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        inner = [part.slice(entries[0], entries[1] - entries[0]) for part in (array.keys, array.items)]
        return TEXT_PER_VALUE * len(array) + sum(map(produced, inner))
    if isinstance(
        array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray | pa.ListViewArray | pa.LargeListViewArray
    ):
        return TEXT_PER_VALUE * len(array) + produced(array.flatten())
    characters = compute.sum(compute.binary_length(array)).as_py() if _has_length(array) else 0
    return (characters or 0) + TEXT_PER_VALUE * len(array)


def _has_length(array: Array) -> bool:
    """Return True if the values are texts or bytes."""
    from pyarrow import types

    kind = array.type
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )
