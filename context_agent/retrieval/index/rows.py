"""The remaining rows of several segments, as one table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.index.dense import VectorPart
from context_agent.retrieval.index.grep import Pattern, scan
from context_agent.retrieval.index.segments import IdKind, Segment, SnapshotRow, id_hash

CACHED_ROWS = 1 << 14
"""The number of rows whose ids a reader caches. One search needs the same rows several times."""


class SegmentRows:
    """The remaining rows of segments, by position in corpus order. Reads are thread-safe."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self._firsts = list(accumulate(map(len, self.segments), initial=0))
        # Partial functions, not methods: a cache that held this object would keep its files mapped.
        self._row = lru_cache(CACHED_ROWS)(partial(_row_at, self.segments, self._firsts))
        self._first = lru_cache(CACHED_ROWS)(partial(_first_row, self.segments, self._firsts))

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, position: int) -> SnapshotRow:
        return self._row(position)

    def __iter__(self) -> Iterator[SnapshotRow]:
        return (segment.row(number) for segment in self.segments for number in segment.remaining().tolist())

    def find(self, kind: IdKind, value: str) -> Iterator[tuple[int, SnapshotRow]]:
        """Yield the position and the ids of each row with this record, chunk or document id, ascending."""
        return _rows_with(self.segments, self._firsts, kind, value)

    def first(self, kind: IdKind, value: str) -> tuple[int, SnapshotRow]:
        """Return the position and the ids of the first row with this id. If there is none, raise `KeyError`."""
        return self._first(kind, value)

    def matching(self, pattern: Pattern) -> Iterator[int]:
        """Yield the positions of the texts that match, ascending. The search is lazy."""
        for first, segment in zip(self._firsts, self.segments, strict=False):
            numbers = scan(segment.texts, pattern)
            yield from (first + segment.position(number) for number in numbers if not segment.is_removed(number))

    def text_bytes(self) -> int:
        """Return the size of all texts in bytes. Removed rows are included."""
        return sum(int(segment.texts.starts[-1]) for segment in self.segments)

    def raw_text(self, position: int) -> bytes:
        """Return one text in UTF-8."""
        segment, number = self._located(position)
        return segment.texts.raw(number)

    def text(self, position: int) -> str:
        """Return one text."""
        segment, number = self._located(position)
        return segment.text(number)

    def metadata(self, position: int) -> dict[str, Any]:
        """Return the metadata of a row, as stored."""
        segment, number = self._located(position)
        return segment.metadata_of(number)

    def all_metadata(self) -> Iterator[dict[str, Any]]:
        """Yield the metadata of every row."""
        return (segment.metadata_of(number) for segment in self.segments for number in segment.remaining().tolist())

    def vector(self, position: int, *, unit: bool = False) -> NDArray[np.float32]:
        """Return one vector as stored, shape (d,). With `unit`, it is scaled to length 1. A zero vector stays zero."""
        segment, number = self._located(position)
        scale = (segment.lengths[number] or np.float32(1)) if unit else np.float32(1)
        return np.asarray(segment.vectors[number] / scale)

    def vector_parts(self) -> tuple[VectorPart, ...]:
        """Return the vectors for dense search. Their rows are positions."""
        return tuple(VectorPart(part.vectors, part.lengths, part.removed, part.graph) for part in self.segments)

    def _located(self, position: int) -> tuple[Segment, int]:
        return _located(self.segments, self._firsts, position)

    def without(self, records: AbstractSet[str]) -> list[Segment]:
        """Return the segments with these records removed as well. Unknown records are ignored."""
        keys = {record: id_hash("record", record) for record in records}
        segments = []
        for segment in self.segments:
            removed = [number for record, key in keys.items() for number, _ in segment.find("record", record, key)]
            segments.append(segment.with_removed(removed) if removed else segment)
        return segments


def _located(segments: Sequence[Segment], firsts: Sequence[int], position: int) -> tuple[Segment, int]:
    """Return the segment of a position, and the row's number in it.

    `firsts` has the position at which each segment begins, and the number of all rows at the end.
    """
    if not 0 <= position < firsts[-1]:
        raise IndexError(position)
    index = bisect_right(firsts, position) - 1
    return segments[index], segments[index].number(position - firsts[index])


def _row_at(segments: Sequence[Segment], firsts: Sequence[int], position: int) -> SnapshotRow:
    segment, number = _located(segments, firsts, position)
    return segment.row(number)


def _rows_with(
    segments: Sequence[Segment], firsts: Sequence[int], kind: IdKind, value: str
) -> Iterator[tuple[int, SnapshotRow]]:
    key = id_hash(kind, value)
    for first, segment in zip(firsts, segments, strict=False):
        for number, row in segment.find(kind, value, key):
            yield first + segment.position(number), row


def _first_row(segments: Sequence[Segment], firsts: Sequence[int], kind: IdKind, value: str) -> tuple[int, SnapshotRow]:
    row = next(_rows_with(segments, firsts, kind, value), None)
    if row is None:
        raise KeyError(value)
    return row


class PositionOf(Mapping[str, int]):
    """A mapping from a chunk or record id to the position of its row. Each lookup reads the segments."""

    def __init__(self, rows: SegmentRows, kind: IdKind) -> None:
        self._rows, self._kind = rows, kind

    def __getitem__(self, value: str) -> int:
        return self.find(value)[0]

    def find(self, value: str) -> tuple[int, SnapshotRow]:
        """Return the position and the ids of the first row with this id. If there is none, raise `KeyError`."""
        return self._rows.first(self._kind, value)

    def __iter__(self) -> Iterator[str]:
        return (getattr(row, self._kind) for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class ChunkOfRecord(Mapping[str, str]):
    """A mapping from a record id to its chunk's id. Each lookup reads the segments."""

    def __init__(self, position_of: PositionOf) -> None:
        self._position_of = position_of

    def __getitem__(self, record: str) -> str:
        return self._position_of.find(record)[1].chunk

    def __iter__(self) -> Iterator[str]:
        return iter(self._position_of)

    def __len__(self) -> int:
        return len(self._position_of)
