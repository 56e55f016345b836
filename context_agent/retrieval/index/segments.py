"""The rows of a snapshot in memory-mapped files. All processes that read a file share its pages.

A segment never changes. Only the numbers of its *removed* rows (tombstones) are kept outside, in a file of the same
name with the suffix `.removed`. `rows.SegmentRows` presents the remaining rows of several segments as one table. A
row's number in that table is its *position*. The segments have sorted tables of hashed ids, which find rows by record,
chunk and document. So no process needs a dictionary of the whole corpus in memory.

A segment is one file: a header, then the columns. The columns are texts, ids and metadata with the offsets of each row,
vectors with their lengths, and a table of hashed ids. Opening a segment reads the header and the offsets. The header
states the size of the file, so a truncated file is noticed. An index may come from someone else, so if the rows do not
fill their columns exactly, the file is refused. A large segment has a second file, the graph of its vectors (see
`vector_graph`).

Adding rows writes one new segment, and `segment_writer.merge_start` decides which segments at the end become one. A
segment is merged with those after it in two cases: if it is less than four times as large as all that follow it, or if
more than a fifth of it is removed. So the number of segments grows with the logarithm of the corpus. An added row is
copied a limited number of times on average for each of these sizes. This is the logarithmic method of Bentley and Saxe,
"Decomposable searching problems I", Journal of Algorithms, 1980.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from context_agent._support.small_files import is_hollow, parse_json, read_bytes
from context_agent.errors import CorpusCorruptError, reason_of
from context_agent.retrieval.index.text_table import TextTable, encode
from context_agent.retrieval.index.vector_graph import VectorGraph, graph_file

T = TypeVar("T")
IdKind = Literal["record", "chunk", "document"]
NO_ROWS: NDArray[np.int32] = np.zeros(0, dtype="<i4")
"""An empty list of row numbers."""
MAX_COLLISIONS = 16
"""The maximum number of other ids with the same hash as an id.

If there are more, the ids are forged, and each lookup would read the whole segment.
"""
MAX_ROWS = 2**31 - 1
"""The maximum number of rows, which is limited by the type of a row's number."""
MAX_DIMENSION = 100_000
"""The maximum length of a vector."""
SEGMENT_MAGIC, SEGMENT_VERSION = b"ctx1seg", 1
SEGMENT_HEADER = struct.Struct("<7sB5Q16x")
ALIGNMENT = 64
BLOCK_BYTES = 1 << 20
"""The number of bytes that are copied at once."""
TEXT_COLUMNS = ("texts", "ids", "metadata")
ID_KINDS: tuple[IdKind, ...] = ("record", "chunk", "document")


class SnapshotRow(NamedTuple):
    """The ids of one chunk in a snapshot."""

    record: str
    chunk: str
    document: str


@dataclass(frozen=True, slots=True)
class Segment:
    """An open segment file.

    `removed` has the numbers of the rows that no longer belong to the snapshot, ascending. If the bytes of a row are
    damaged, reading it raises `CorpusCorruptError`.
    """

    path: Path
    texts: TextTable
    ids: TextTable
    metadata: TextTable | None
    vectors: NDArray[np.float32]
    lengths: NDArray[np.float32]
    hashes: memoryview
    hashed_rows: memoryview
    removed: NDArray[np.int32]
    graph: VectorGraph | None

    def __len__(self) -> int:
        """Return the number of remaining rows."""
        return len(self.texts) - len(self.removed)

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    def row(self, number: int) -> SnapshotRow:
        """Return the ids of a row."""
        return self._read(self.ids, number, lambda raw: SnapshotRow(*parse_json(raw)))

    def text(self, number: int) -> str:
        """Return the text of a row."""
        return self._read(self.texts, number, bytes.decode)

    def metadata_of(self, number: int) -> dict[str, Any]:
        """Return the metadata of a row. The segment must have metadata."""
        assert self.metadata is not None
        return self._read(self.metadata, number, lambda raw: dict(parse_json(raw)))

    def _read(self, column: TextTable, number: int, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(column.raw(number))
        except (ValueError, TypeError, IndexError) as error:
            raise CorpusCorruptError.of(self.path, error) from error

    def find(self, kind: IdKind, value: str, key: int) -> Iterator[tuple[int, SnapshotRow]]:
        """Yield the remaining rows with this id, ascending. `key` is `id_hash(kind, value)`.

        If too many other ids have the same hash, raise `CorpusCorruptError`.
        """
        collisions = 0
        for index in range(bisect_left(self.hashes, key), bisect_right(self.hashes, key)):
            row = self.row(number := self.hashed_rows[index])
            if getattr(row, kind) != value:
                collisions += 1
                if collisions > MAX_COLLISIONS:
                    raise CorpusCorruptError.of(self.path, ValueError("its table of ids has wrong hashes"))
            elif not self.is_removed(number):
                yield number, row

    def is_removed(self, number: int) -> bool:
        """Return True if a row is removed."""
        index = bisect_left(self.removed.data, number)
        return index < len(self.removed) and int(self.removed[index]) == number

    def position(self, number: int) -> int:
        """Return the number of remaining rows before this one."""
        return number - bisect_left(self.removed.data, number)

    def number(self, position: int) -> int:
        """Return the number of the row that has this many remaining rows before it."""
        if not len(self.removed):
            return position
        return position + bisect_right(range(len(self.removed)), position, key=lambda at: int(self.removed[at]) - at)

    def with_removed(self, numbers: Sequence[int]) -> Segment:
        """Return the same segment with more rows removed."""
        return replace(self, removed=np.union1d(self.removed, numbers).astype("<i4"))

    def remaining(self) -> NDArray[np.int64]:
        """Return the numbers of the remaining rows, ascending."""
        return np.delete(np.arange(len(self.texts)), self.removed)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the remaining rows as ranges (first, end)."""
        borders = [-1, *self.removed.tolist(), len(self.texts)]
        ranges = ((before + 1, after) for before, after in pairwise(borders))
        return (rows for rows in ranges if rows[0] < rows[1])


def id_hash(kind: IdKind, value: str) -> int:
    """Return the key of an id in a segment's table. Its 64 bits make accidental collisions very rare."""
    return int.from_bytes(blake2b(kind[:1].encode() + encode(value), digest_size=8).digest(), "little")


class SegmentSizes(NamedTuple):
    """The sizes in the header: the number of rows, the length of the vectors, and the bytes of the text columns.

    If `dimension` is 0, the segment has neither vectors nor metadata.
    """

    rows: int
    dimension: int
    texts: int
    ids: int
    metadata: int

    def columns(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the name, the type, the offset and the number of items of each column.

        The last column is `end`. Its offset is the size of the file.
        """
        rows, vectors = self.rows, bool(self.dimension)
        counts = {
            "texts": ("<u1", self.texts),
            "ids": ("<u1", self.ids),
            "metadata": ("<u1", self.metadata),
            "vectors": ("<f4", rows * self.dimension),
            "lengths": ("<f4", rows * vectors),
            "text_starts": ("<i8", rows + 1),
            "id_starts": ("<i8", rows + 1),
            "metadata_starts": ("<i8", (rows + 1) * vectors),
            "hashes": ("<u8", 3 * rows),
            "hashed_rows": ("<i4", 3 * rows),
            "end": ("<u1", 0),
        }
        offset = SEGMENT_HEADER.size
        for name, (dtype, count) in counts.items():
            yield name, dtype, offset, count
            offset += -(-count * int(dtype[-1]) // ALIGNMENT) * ALIGNMENT


def load_segment(folder: Path, name: str, dimension: int) -> Segment:
    """Open a segment.

    Args:
        folder: The folder of the snapshot.
        name: The name of the file.
        dimension: The length of the vectors that the snapshot states.

    Raises:
        CorpusCorruptError: If the file is truncated or damaged, is of another version, or has vectors of another
            length.
    """
    path = folder / name
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = file.read(SEGMENT_HEADER.size)
        if len(header) < SEGMENT_HEADER.size or header[:7] != SEGMENT_MAGIC:
            raise CorpusCorruptError(f"{path} is not a segment of an index. Index the documents again.")
        version, sizes = header[7], SegmentSizes(*SEGMENT_HEADER.unpack(header)[2:])
        if version != SEGMENT_VERSION:
            raise CorpusCorruptError(
                f"{path} has format {version}, but this version of context-agent reads format {SEGMENT_VERSION}. "
                "Install a newer version, or index the documents again."
            )
        columns = list(sizes.columns())
        plausible = sizes.rows <= MAX_ROWS and sizes.dimension == dimension <= MAX_DIMENSION
        if size != columns[-1][2] or not plausible or is_hollow(path, os.fstat(file.fileno())):
            raise CorpusCorruptError(f"{path} is truncated, or belongs to another index. Index the documents again.")
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {column: np.frombuffer(buffer, dtype, count, offset) for column, dtype, offset, count in columns}
    _check_columns(path, arrays, {column: offset for column, _, offset, _ in columns}, sizes)
    graph = graph_file(path)
    return Segment(
        path,
        TextTable(buffer, arrays["text_starts"]),
        TextTable(buffer, arrays["id_starts"]),
        TextTable(buffer, arrays["metadata_starts"]) if dimension else None,
        arrays["vectors"].reshape(sizes.rows, dimension),
        arrays["lengths"],
        arrays["hashes"].data,
        arrays["hashed_rows"].data,
        _load_removed(removed_file(path), sizes.rows),
        VectorGraph(graph, sizes.rows, dimension) if graph.exists() else None,
    )


def _check_columns(
    path: Path, arrays: Mapping[str, NDArray[Any]], offsets: Mapping[str, int], sizes: SegmentSizes
) -> None:
    """If rows lie outside of their column or overlap, raise `CorpusCorruptError`.

    Otherwise, a small file could claim to have endless texts.
    """
    for starts, column in (("text_starts", "texts"), ("id_starts", "ids"), ("metadata_starts", "metadata")):
        if len(array := arrays[starts]):
            first, last = offsets[column], offsets[column] + getattr(sizes, column)
            blocks = (array[at : at + BLOCK_BYTES + 1] for at in range(0, len(array), BLOCK_BYTES))
            if array[0] != first or array[-1] != last or any((block[1:] <= block[:-1]).any() for block in blocks):
                raise CorpusCorruptError.of(path, ValueError(f"the rows do not cover the column {column}"))
    numbers = arrays["hashed_rows"]
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < sizes.rows):
        raise CorpusCorruptError.of(path, ValueError("its table of ids refers to rows that the segment does not have"))


def _load_removed(file: Path, rows: int) -> NDArray[np.int32]:
    try:
        removed = np.frombuffer(read_bytes(file, 4 * rows), "<i4")
    except FileNotFoundError:
        return NO_ROWS
    except (OSError, ValueError) as error:
        raise CorpusCorruptError(f"{file} cannot be read ({reason_of(error)}). Index the documents again.") from error
    if len(removed) and not (removed[0] >= 0 and removed[-1] < rows and (np.diff(removed) > 0).all()):
        raise CorpusCorruptError(f"{file} does not belong to its segment. Index the documents again.")
    return removed


def removed_file(segment: Path) -> Path:
    """Return the file that lists the removed rows of a segment."""
    return segment.with_suffix(".removed")
