"""A reader of one state of an index, from its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.filters import Column, Where, cached_by_filter, matching_rows
from context_agent.retrieval.index.dense import DenseRetriever
from context_agent.retrieval.index.layouts import Layout
from context_agent.retrieval.index.rows import SegmentRows
from context_agent.retrieval.index.snapshot import Snapshot
from context_agent.retrieval.retriever import QueryVectors, knows_every_language
from context_agent.types import Chunk

_CACHED_COLUMNS = 32


class SnapshotReader:
    """A reader of one state of a collection. It reads only the snapshot, and writes nothing. Thread-safe.

    `matching` returns the records that a metadata filter admits. If the filter is malformed, it raises `ConfigError`.
    """

    def __init__(self, snapshot: Snapshot, layout: Layout) -> None:
        assert snapshot.vectors is not None
        self._snapshot, self._layout, self._vectors = snapshot, layout, snapshot.vectors
        column: Callable[[str], Column] = lru_cache(_CACHED_COLUMNS)(lambda key: _column(snapshot.rows, key))
        self._mask = cached_by_filter(lambda where: matching_rows(where, column))
        self.matching = cached_by_filter(self._records)

    def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Return the chunks by id, in any order. Unknown ids are left out."""
        rows = map(self._snapshot.row_of_chunk.get, chunk_ids)
        chunks = (self._chunk(row) for row in rows if row is not None)
        return {chunk.id: chunk for chunk in chunks if chunk is not None}

    def vectors(self, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return the vectors by chunk id, each of shape (d,) and length 1. A zero vector stays zero."""
        rows = ((chunk_id, self._snapshot.row_of_chunk.get(chunk_id)) for chunk_id in chunk_ids)
        return {chunk_id: self._snapshot.rows.vector(row, unit=True) for chunk_id, row in rows if row is not None}

    def dense(
        self, embed_query: QueryVectors, *, knows_language: Callable[[str], bool] = knows_every_language
    ) -> DenseRetriever:
        """Return a dense search in this state. `knows_language` is that of `KnowsLanguage`."""
        chunk_of = self._snapshot.rows
        return DenseRetriever(
            self._vectors, embed_query, lambda row: chunk_of[row].chunk, self._mask, knows_language=knows_language
        )

    def hybrid(
        self, query: str, embed_query: QueryVectors, limit: int, exclude: AbstractSet[str], where: Where | None
    ) -> None:
        """Return None, because a snapshot has no hybrid search of its own."""
        return

    def _chunk(self, row: int) -> Chunk | None:
        rows = self._snapshot.rows
        return self._layout.chunk(rows[row].record, rows.text(row), rows.metadata(row))

    def _records(self, where: Where) -> AbstractSet[str]:
        rows = self._snapshot.rows
        return frozenset(rows[int(row)].record for row in np.flatnonzero(self._mask(where)))


def _column(rows: SegmentRows, key: str) -> Column:
    """Return the values of a metadata key in all rows. Values of different types are different values."""
    positions = np.full(len(rows), -1, dtype=np.int32)
    values: dict[tuple[str, str], tuple[int, Any]] = {}
    for row, entries in enumerate(rows.all_metadata()):
        if key in entries:
            value = entries[key]
            positions[row], _ = values.setdefault((type(value).__name__, str(value)), (len(values), value))
    return positions, [value for _, value in values.values()]
