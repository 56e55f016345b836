"""The rows of a snapshot, read from memory-mapped segments, whose pages all processes that read them share.

A segment never changes (`segment_files` has its format). Only the numbers of its *removed* rows (tombstones) are kept
outside, by the snapshot. `SegmentRows` presents the remaining rows of some segments as one table; a row's number in it
is its *position*. Rows are found by record, chunk and document through sorted tables of hashed ids in the segments:
there is no dictionary of the corpus.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.fusion import VectorPart
from context_agent.retrieval.grep import Pattern, TextTable, encode, scan

T = TypeVar("T")
IdKind = Literal["record", "chunk", "document"]
NO_ROWS: NDArray[np.int32] = np.zeros(0, dtype="<i4")


class SnapshotRow(NamedTuple):
    """One chunk of a snapshot."""

    record: str
    chunk: str
    document: str


@dataclass(frozen=True, slots=True)
class Segment:
    """One file, open. `removed` are the rows that no longer belong to the snapshot, ascending.

    Reading a row raises `CorpusCorruptError` if its bytes are damaged.
    """

    path: Path
    texts: TextTable
    ids: TextTable
    metadata: TextTable | None
    vectors: NDArray[np.float32]
    lengths: NDArray[np.float32]
    hashes: memoryview
    hashed_rows: memoryview
    removed: NDArray[np.int32] = field(default_factory=lambda: NO_ROWS)

    def __len__(self) -> int:
        """The rows that remain."""
        return len(self.texts) - len(self.removed)

    @property
    def name(self) -> str:
        """The file's."""
        return self.path.name

    def row(self, number: int) -> SnapshotRow:
        """The ids of a row."""
        return self._read(self.ids, number, lambda raw: SnapshotRow(*json.loads(raw)))

    def text(self, number: int) -> str:
        """The text of a row."""
        return self._read(self.texts, number, bytes.decode)

    def metadata_of(self, number: int) -> dict[str, Any]:
        """The metadata of a row; only in a segment that has them."""
        assert self.metadata is not None
        return self._read(self.metadata, number, lambda raw: dict(json.loads(raw)))

    def _read(self, column: TextTable, number: int, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(column.raw(number))
        except (ValueError, TypeError, IndexError, RecursionError) as error:
            raise CorpusCorruptError.of(self.path, error) from error

    def find(self, kind: IdKind, value: str, key: int) -> Iterator[tuple[int, SnapshotRow]]:
        """The remaining rows with this id, ascending; `key` is `id_hash(kind, value)`."""
        index = bisect_left(self.hashes, key)
        while index < len(self.hashes) and self.hashes[index] == key:
            number, index = self.hashed_rows[index], index + 1
            row = self.row(number)
            if getattr(row, kind) == value and not self.is_removed(number):
                yield number, row

    def is_removed(self, number: int) -> bool:
        """Whether a row is removed."""
        index = bisect_left(self.removed.data, number)
        return index < len(self.removed) and int(self.removed[index]) == number

    def position(self, number: int) -> int:
        """The number of remaining rows before this one."""
        return number - bisect_left(self.removed.data, number)

    def number(self, position: int) -> int:
        """The row that has this many remaining rows before it."""
        if not len(self.removed):
            return position
        return position + bisect_right(range(len(self.removed)), position, key=lambda at: int(self.removed[at]) - at)

    def leaving_out(self, numbers: Sequence[int]) -> Segment:
        """The same segment with more rows removed."""
        return replace(self, removed=np.union1d(self.removed, numbers).astype("<i4"))

    def remaining(self) -> NDArray[np.int64]:
        """The remaining rows, ascending."""
        return np.delete(np.arange(len(self.texts)), self.removed)

    def runs(self) -> Iterator[tuple[int, int]]:
        """The remaining rows as ranges (first, end)."""
        borders = [-1, *self.removed.tolist(), len(self.texts)]
        ranges = ((before + 1, after) for before, after in pairwise(borders))
        return (rows for rows in ranges if rows[0] < rows[1])


class SegmentRows:
    """The remaining rows of segments, by position in corpus order. Reads are thread-safe."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self._firsts = list(accumulate(map(len, self.segments), initial=0))

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, position: int) -> SnapshotRow:
        segment, number = self._locate(position)
        return segment.row(number)

    def __iter__(self) -> Iterator[SnapshotRow]:
        return (segment.row(number) for segment in self.segments for number in segment.remaining().tolist())

    def find(self, kind: IdKind, value: str) -> Iterator[tuple[int, SnapshotRow]]:
        """Position and ids of the rows with this record, chunk or document id, ascending."""
        key = id_hash(kind, value)
        for first, segment in zip(self._firsts, self.segments, strict=False):
            for number, row in segment.find(kind, value, key):
                yield first + segment.position(number), row

    def matching(self, pattern: Pattern) -> Iterator[int]:
        """The positions of the texts that match, ascending, searched lazily."""
        for first, segment in zip(self._firsts, self.segments, strict=False):
            numbers = scan(segment.texts, pattern)
            yield from (first + segment.position(number) for number in numbers if not segment.is_removed(number))

    def raw_text(self, position: int) -> bytes:
        """One text in UTF-8."""
        segment, number = self._locate(position)
        return segment.texts.raw(number)

    def text(self, position: int) -> str:
        """One text."""
        segment, number = self._locate(position)
        return segment.text(number)

    def metadata(self, position: int) -> dict[str, Any]:
        """The metadata of a row, as in the store."""
        segment, number = self._locate(position)
        return segment.metadata_of(number)

    def all_metadata(self) -> Iterator[dict[str, Any]]:
        """The metadata of every row."""
        return (segment.metadata_of(number) for segment in self.segments for number in segment.remaining().tolist())

    def vector(self, position: int, *, unit: bool = False) -> NDArray[np.float32]:
        """One vector as stored, shape (d,); with `unit` scaled to length 1, but a zero vector stays zero."""
        segment, number = self._locate(position)
        scale = (segment.lengths[number] or np.float32(1)) if unit else np.float32(1)
        return np.asarray(segment.vectors[number] / scale)

    def vector_parts(self) -> tuple[VectorPart, ...]:
        """The vectors for dense search, whose rows are positions."""
        return tuple(VectorPart(part.vectors, part.lengths, part.removed) for part in self.segments)

    def _locate(self, position: int) -> tuple[Segment, int]:
        if not 0 <= position < len(self):
            raise IndexError(position)
        index = bisect_right(self._firsts, position) - 1
        segment = self.segments[index]
        return segment, segment.number(position - self._firsts[index])

    def without(self, records: AbstractSet[str]) -> list[Segment]:
        """The segments with these records removed as well; unknown ones are ignored."""
        keys = {record: id_hash("record", record) for record in records}
        segments = []
        for segment in self.segments:
            removed = [number for record, key in keys.items() for number, _ in segment.find("record", record, key)]
            segments.append(segment.leaving_out(removed) if removed else segment)
        return segments


class PositionOf(Mapping[str, int]):
    """The position of the row with a chunk or record id, looked up in the segments."""

    def __init__(self, rows: SegmentRows, kind: IdKind) -> None:
        self._rows, self._kind = rows, kind

    def __getitem__(self, value: str) -> int:
        return self.find(value)[0]

    def find(self, value: str) -> tuple[int, SnapshotRow]:
        """The first row with this id. Raises `KeyError`."""
        row = next(self._rows.find(self._kind, value), None)
        if row is None:
            raise KeyError(value)
        return row

    def __iter__(self) -> Iterator[str]:
        return (getattr(row, self._kind) for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class ChunkOfRecord(Mapping[str, str]):
    """The chunk id of a record, looked up in the segments."""

    def __init__(self, position_of: PositionOf) -> None:
        self._position_of = position_of

    def __getitem__(self, record: str) -> str:
        return self._position_of.find(record)[1].chunk

    def __iter__(self) -> Iterator[str]:
        return iter(self._position_of)

    def __len__(self) -> int:
        return len(self._position_of)


def id_hash(kind: IdKind, value: str) -> int:
    """The key of an id in a segment's table: 64 bits, so that nobody can choose ids that collide."""
    return int.from_bytes(blake2b(kind[:1].encode() + encode(value), digest_size=8).digest(), "little")
