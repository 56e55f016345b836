"""Answers from one state of a collection: from a snapshot alone, or from a snapshot and Chroma's client."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.dense import ChromaDense, stored_vectors
from context_agent.retrieval.exact import ExactDense
from context_agent.retrieval.grep import TextTable
from context_agent.retrieval.hybrid import Candidate, QueryVectors
from context_agent.retrieval.layouts import Layout
from context_agent.retrieval.native import hybrid_request, hybrid_rows, sparse_index
from context_agent.retrieval.protocol import PER_RETRIEVER, Where
from context_agent.retrieval.snapshot import Snapshot
from context_agent.retrieval.store import PAGE
from context_agent.retrieval.where import Column, check_where, matching_rows
from context_agent.types import Chunk

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.fusion import Retriever

T = TypeVar("T")
_KNOWN_FILTERS = 16
_KNOWN_COLUMNS = 32


class Reader(Protocol):
    """Answers from one state of a collection. Safe for several threads."""

    def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """The chunks by id, in any order; unknown ids are left out."""

    def vectors(self, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors by chunk id, each of shape (d,) and length 1; a zero vector stays one."""

    def matching(self, where: Where) -> AbstractSet[str]:
        """The records that a metadata filter lets through. Raises `ConfigError` for a malformed one."""

    def dense(self, embed_query: QueryVectors) -> Retriever:
        """Dense search in this state."""

    def hybrid(
        self, query: str, embed_query: QueryVectors, limit: int, exclude: AbstractSet[str], where: Where | None
    ) -> tuple[list[Candidate], dict[str, Chunk]] | None:
        """The store's own hybrid search; None where it has none."""


class SnapshotReader:
    """Reads a whole snapshot. Nothing is written and no other file is opened."""

    def __init__(self, snapshot: Snapshot, layout: Layout) -> None:
        assert snapshot.vectors is not None
        assert snapshot.metadata is not None
        self._snapshot, self._layout = snapshot, layout
        self._vectors, self._metadata = snapshot.vectors, snapshot.metadata
        column: Callable[[str], Column] = lru_cache(_KNOWN_COLUMNS)(lambda key: _column(self._metadata, key))
        self._mask = _by_content(lambda where: matching_rows(where, column))
        self._matching = _by_content(self._records)

    def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """See `Reader`."""
        row_of = self._snapshot.row_of_chunk
        chunks = (self._chunk(row_of[chunk_id]) for chunk_id in chunk_ids if chunk_id in row_of)
        return {chunk.id: chunk for chunk in chunks if chunk is not None}

    def vectors(self, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """See `Reader`."""
        row_of = self._snapshot.row_of_chunk
        return {one: self._vectors.unit_row(row_of[one]) for one in chunk_ids if one in row_of}

    def matching(self, where: Where) -> AbstractSet[str]:
        """See `Reader`."""
        return self._matching(where)

    def dense(self, embed_query: QueryVectors) -> Retriever:
        """See `Reader`; exact."""
        return ExactDense(self._vectors, embed_query, [row.chunk for row in self._snapshot.rows], self._mask)

    def hybrid(
        self, query: str, embed_query: QueryVectors, limit: int, exclude: AbstractSet[str], where: Where | None
    ) -> None:
        """See `Reader`."""
        return

    def _chunk(self, row: int) -> Chunk | None:
        text, metadata = self._snapshot.table.text(row), json.loads(self._metadata.raw(row))
        return self._layout.chunk(self._snapshot.rows[row].record, text, metadata)

    def _records(self, where: Where) -> frozenset[str]:
        rows = self._snapshot.rows
        return frozenset(rows[row].record for row in np.flatnonzero(self._mask(where)))


class ClientReader:
    """Reads texts, metadata and vectors through Chroma's client; the snapshot says which records form the state."""

    def __init__(self, collection: Collection, snapshot: Snapshot, layout: Layout) -> None:
        self._collection, self._snapshot, self._layout = collection, snapshot, layout
        self._sparse_index = sparse_index(collection)
        self._matching = _by_content(self._records)

    def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """See `Reader`."""
        records = list(self._record_ids(chunk_ids))
        chunks: dict[str, Chunk] = {}
        for start in range(0, len(records), PAGE):
            batch = records[start : start + PAGE]
            page: dict[str, Any] = dict(self._collection.get(ids=batch, include=["documents", "metadatas"]))
            for record, text, metadata in zip(page["ids"], page["documents"], page["metadatas"], strict=True):
                chunk = self._layout.chunk(record, text, metadata)
                if chunk is not None:
                    chunks[chunk.id] = chunk
        return chunks

    def vectors(self, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """See `Reader`."""
        stored = stored_vectors(self._collection, self._record_ids(chunk_ids))
        return {chunk_id: vector / (float(np.linalg.norm(vector)) or 1.0) for chunk_id, vector in stored.items()}

    def matching(self, where: Where) -> AbstractSet[str]:
        """See `Reader`."""
        return self._matching(where)

    def dense(self, embed_query: QueryVectors) -> Retriever:
        """See `Reader`; by Chroma's index, approximate."""
        return ChromaDense(self._collection, embed_query, self._snapshot.chunk_of_record)

    def hybrid(
        self, query: str, embed_query: QueryVectors, limit: int, exclude: AbstractSet[str], where: Where | None
    ) -> tuple[list[Candidate], dict[str, Chunk]] | None:
        """See `Reader`: one request to a server with a sparse index; the single retrievers' scores stay unknown."""
        if self._sparse_index is None:
            return None
        if not query.strip() or limit <= 0:
            return [], {}
        ask = max(limit, PER_RETRIEVER) + len(exclude)
        request = hybrid_request(query, embed_query(query), self._sparse_index, limit=ask, depth=2 * ask, where=where)
        candidates: list[Candidate] = []
        chunks: dict[str, Chunk] = {}
        for row in hybrid_rows(self._collection, request):
            chunk = self._layout.chunk(row["id"], row.get("document"), row.get("metadata"))
            if chunk is not None and chunk.id not in exclude and row["id"] in self._snapshot.chunk_of_record:
                chunks[chunk.id] = chunk
                candidates.append(Candidate(chunk.id, row["score"], None, None))
        return candidates[:limit], chunks

    def _record_ids(self, chunk_ids: Sequence[str]) -> dict[str, str]:
        """Record id to chunk id, for the chunks there are."""
        rows, row_of = self._snapshot.rows, self._snapshot.row_of_chunk
        return {rows[row_of[chunk_id]].record: chunk_id for chunk_id in chunk_ids if chunk_id in row_of}

    def _records(self, where: Where) -> AbstractSet[str]:
        from chromadb.errors import InvalidArgumentError

        try:
            records = self._collection.get(where=where, include=[])["ids"]
        except (ValueError, InvalidArgumentError) as error:
            raise ConfigError(f"Chroma refuses the metadata filter: {shorten(str(error), 500)}") from error
        return frozenset(records) & self._snapshot.chunk_of_record.keys()


def _by_content(function: Callable[[Where], T]) -> Callable[[Where], T]:
    """The function with its latest results remembered: a filter is a dict, which has no hash."""

    @lru_cache(maxsize=_KNOWN_FILTERS)
    def known(where: str) -> T:
        return function(json.loads(where))

    def checked(where: Where) -> T:
        check_where(where)
        return known(json.dumps(where, sort_keys=True))

    return checked


def _column(metadata: TextTable, key: str) -> Column:
    """A metadata key over all rows. Values of different types are different values."""
    positions = np.full(len(metadata), -1, dtype=np.int32)
    values: list[Any] = []
    known: dict[tuple[str, str], int] = {}
    for row in range(len(metadata)):
        entries: Mapping[str, Any] = json.loads(metadata.raw(row))
        if key in entries:
            value = entries[key]
            identity = (type(value).__name__, str(value))
            if (position := known.get(identity)) is None:
                position = known[identity] = len(values)
                values.append(value)
            positions[row] = position
    return positions, values
