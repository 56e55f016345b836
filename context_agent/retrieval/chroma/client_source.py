"""A collection read through Chroma's client: on a server, in Chroma Cloud, in memory, or held open by the caller.

Texts, metadata and vectors come from Chroma. A snapshot in the user's cache folder holds the BM25 index and the texts
for grep. It also defines the records of the state that is read.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from functools import cache as cached
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.chroma.client import chroma_errors, connect, find
from context_agent.retrieval.chroma.collection import CollectionRecords
from context_agent.retrieval.chroma.location import Location, own_folder
from context_agent.retrieval.chroma.server_search import hybrid_request, hybrid_rows, sparse_index
from context_agent.retrieval.chroma.stored_embedder import stored_embedder
from context_agent.retrieval.corpus import PER_RETRIEVER
from context_agent.retrieval.filters import Where, cached_by_filter
from context_agent.retrieval.fusion import FusedCandidate
from context_agent.retrieval.index.layouts import (
    ForeignLayout,
    Layout,
    LayoutOf,
    build,
    current_snapshot,
    publish_state,
)
from context_agent.retrieval.index.manifest import MANIFEST_KEY, Manifest
from context_agent.retrieval.index.metadata_keys import SAMPLED_RECORDS, usual_keys
from context_agent.retrieval.index.publication import StoredCollection, one_maker
from context_agent.retrieval.index.snapshot import Snapshot
from context_agent.retrieval.retriever import DENSE, QueryVectors, knows_every_language
from context_agent.types import Chunk

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.retriever import Retriever

_TIE_MARGIN = 8
"""Additional results to request. With them, equal scores at the end are mostly ordered by id and not by Chroma."""


class ClientSource:
    """See `LocalSource`."""

    def __init__(self, location: Location, name: str, cache: str | Path | None, layout_of: LayoutOf) -> None:
        self._location, self._name, self._cache, self._layout_of = location, name, cache, layout_of
        self._client: ClientAPI | None = None if location.live is not None else connect(location)

    def describe(self) -> StoredCollection:
        """See `LocalSource`."""
        with self.guarded():
            return _described(self._collection())

    def embedder(self, stored: StoredCollection, manifest: Manifest | None) -> Embedder:
        """See `LocalSource`. If the caller passed an embedding function to Chroma, use this function."""
        from context_agent.retrieval.embedders.chroma import ChromaEmbedder

        with self.guarded():
            collection = self._collection()
            if manifest is None and (passed := ChromaEmbedder.of_collection(collection)) is not None:
                return passed
            configuration, schema = collection.configuration_json, collection.get_model().serialized_schema
            return stored_embedder(collection.name, manifest, configuration, schema, dimension=stored.dimension)

    def snapshot(self, *, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """See `LocalSource`. A live collection in a local folder gets a full snapshot. Others get a lexical one."""
        lexical = self._location.path is None
        collection = self._collection()
        stored = _described(collection)
        layout = self._layout_of(stored)
        folder = own_folder(self._location, stored.id, self._cache)
        if self._location.in_memory and self._cache is None:
            _delete_at_exit(folder)
        with one_maker(folder) as root, self.guarded():
            base = None if rebuild else _last_snapshot(layout, root, lexical)
            if base is not None:
                if not isinstance(layout, ForeignLayout) or layout.same(CollectionRecords(collection), base):
                    return stored, base
                base = base if layout.same_texts(CollectionRecords(collection), base) else None
            fresh = build(layout, CollectionRecords(collection), root, base=base, lexical=lexical)
            return stored, publish_state(fresh, layout, root, stored)

    def changed(self, stored: StoredCollection, snapshot: Snapshot) -> bool:
        """See `LocalSource`. `index.layouts` describes how a change is detected."""
        with self.guarded():
            collection = self._collection()
            present = _described(collection)
            layout = self._layout_of(present)
            differs = present.id != stored.id or layout.state != self._layout_of(stored).state
            return differs or (
                isinstance(layout, ForeignLayout) and not layout.same(CollectionRecords(collection), snapshot)
            )

    def reader(self, snapshot: Snapshot, layout: Layout) -> ClientReader:
        """See `LocalSource`."""
        return ClientReader(self._collection(), snapshot, layout)

    def guarded(self) -> AbstractContextManager[None]:
        """See `LocalSource`."""
        return chroma_errors(self._location)

    def close(self) -> None:
        """See `LocalSource`. A collection that the caller holds open stays open."""
        client, self._client = self._client, None
        if client is not None:
            cast("Any", client).close()

    def _collection(self) -> Collection:
        return find(self._client, self._location, self._name)


class ClientReader:
    """See `SnapshotReader`. The snapshot defines which records form the state."""

    def __init__(self, collection: Collection, snapshot: Snapshot, layout: Layout) -> None:
        self._collection, self._snapshot, self._layout = collection, snapshot, layout
        self._sparse_index = sparse_index(collection)
        self.matching = cached_by_filter(self._records)

    def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """See `SnapshotReader`."""
        records = CollectionRecords(self._collection).contents(list(self._record_ids(chunk_ids)))
        chunks = (self._layout.chunk(*record) for record in records)
        return {chunk.id: chunk for chunk in chunks if chunk is not None}

    def vectors(self, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """See `SnapshotReader`."""
        records, vectors = self._record_ids(chunk_ids), dict[str, NDArray[np.float32]]()
        for page in CollectionRecords(self._collection).pages(["embeddings"], list(records)):
            for record, vector in zip(page["ids"], np.asarray(page["embeddings"], dtype=np.float32), strict=True):
                vectors[records[record]] = vector / (float(np.linalg.norm(vector)) or 1.0)
        return vectors

    def dense(
        self, embed_query: QueryVectors, *, knows_language: Callable[[str], bool] = knows_every_language
    ) -> Retriever:
        """See `SnapshotReader`. The search is approximate, by Chroma's index."""
        records = self._snapshot.chunk_of_record
        return ChromaDense(self._collection, embed_query, records, knows_language=knows_language)

    def hybrid(
        self, query: str, embed_query: QueryVectors, limit: int, exclude: AbstractSet[str], where: Where | None
    ) -> tuple[list[FusedCandidate], dict[str, Chunk]] | None:
        """Search with the server's hybrid search, in one request.

        The candidates have no scores of the single retrievers. If the server has no sparse index, return None.
        """
        if self._sparse_index is None:
            return None
        if not query.strip() or limit <= 0:
            return [], {}
        depth = max(limit, PER_RETRIEVER) + len(exclude)
        request = hybrid_request(
            query, embed_query(query), self._sparse_index, limit=depth, depth=2 * depth, where=where
        )
        candidates: list[FusedCandidate] = []
        chunks: dict[str, Chunk] = {}
        for row in hybrid_rows(self._collection, request):
            chunk = self._layout.chunk(row["id"], row.get("document"), row.get("metadata"))
            if chunk is not None and chunk.id not in exclude and row["id"] in self._snapshot.chunk_of_record:
                chunks[chunk.id] = chunk
                candidates.append(FusedCandidate(chunk.id, row["score"], None, None))
        return candidates[:limit], chunks

    def _record_ids(self, chunk_ids: Sequence[str]) -> dict[str, str]:
        """Return a mapping from record id to chunk id, for the chunks that exist."""
        rows, row_of = self._snapshot.rows, self._snapshot.row_of_chunk
        return {rows[row_of[chunk_id]].record: chunk_id for chunk_id in chunk_ids if chunk_id in row_of}

    def _records(self, where: Where) -> AbstractSet[str]:
        from chromadb.errors import InvalidArgumentError

        try:
            pages = CollectionRecords(self._collection).pages([], where=where)
            records = frozenset(record for page in pages for record in page["ids"])
        except (ValueError, InvalidArgumentError) as error:
            raise ConfigError(
                f"Chroma refuses the metadata filter ({shorten(str(error), 500)}). Correct the filter."
            ) from error
        return records & self._snapshot.chunk_of_record.keys()


class ChromaDense:
    """A dense retriever that finds approximate nearest neighbors in Chroma's index.

    If the collection's distance allows it, scores are cosines. This is always so for `cosine`. For `l2` and `ip`, the
    vectors must have length 1, which is checked on three of them. Otherwise, scores are negative distances, which give
    the same order.
    """

    name = DENSE

    def __init__(
        self,
        collection: Collection,
        embed_query: QueryVectors,
        chunk_of: Mapping[str, str],
        *,
        knows_language: Callable[[str], bool] = knows_every_language,
    ) -> None:
        """Wrap a collection.

        Args:
            collection: The collection.
            embed_query: A function that returns the vector of a query.
            chunk_of: The chunk id of each record in the state that is read. Other records are dropped.
            knows_language: See `KnowsLanguage`.
        """
        self.knows_language = knows_language
        self._collection, self._embed_query, self._chunk_of = collection, embed_query, chunk_of
        self._offset, self._factor = _cosine_of_distance(collection)

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`. If the query's vector is zero because no word is known, return nothing."""
        vector = self._embed_query(query)
        if k <= 0 or not vector.any():
            return []
        depth = k + _TIE_MARGIN
        while True:
            nearest = self._nearest(vector, depth, where)
            hits = [(self._chunk_of[record], score) for record, score in nearest if record in self._chunk_of]
            if len(hits) >= k or len(nearest) < depth:
                return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]
            # Records of an unfinished run are in the way.
            depth *= 4

    def _nearest(self, vector: NDArray[np.float32], k: int, where: Where | None) -> list[tuple[str, float]]:
        query = cast("Any", [vector])
        answer: Any = self._collection.query(query_embeddings=query, n_results=k, where=where, include=["distances"])
        distances = zip(answer["ids"][0], answer["distances"][0], strict=True)
        return [(record, self._offset - self._factor * distance) for record, distance in distances]


@cached
def _delete_at_exit(root: Path) -> None:
    """Delete the snapshots of a collection in memory when the process ends. No other process can open them."""
    process = os.getpid()

    def delete() -> None:
        # A forked process calls this function, too.
        if os.getpid() == process:
            shutil.rmtree(root, ignore_errors=True)

    atexit.register(delete)


def _described(collection: Collection) -> StoredCollection:
    metadata = dict(collection.metadata or {})
    count = 0 if MANIFEST_KEY in metadata else collection.count()
    return StoredCollection(
        id=str(collection.id),
        name=collection.name,
        metadata=metadata,
        dimension=CollectionRecords(collection).dimension(),
        empty=MANIFEST_KEY not in metadata and count == 0,
        usual_keys=usual_keys(_sampled_metadata(collection, count)),
    )


def _sampled_metadata(collection: Collection, count: int) -> list[Mapping[str, Any]]:
    """Return the metadata of records from four places of the collection.

    The first records alone could all belong to one document.
    """
    size = SAMPLED_RECORDS // 4
    offsets = sorted({max(0, place * (count - size) // 3) for place in range(4)}) if count else []
    samples = (collection.get(limit=size, offset=offset, include=["metadatas"])["metadatas"] for offset in offsets)
    return [metadata or {} for sample in samples for metadata in sample or ()]


def _last_snapshot(layout: Layout, root: Path, lexical: bool) -> Snapshot | None:
    if isinstance(layout, ForeignLayout):
        return layout.latest(root, lexical=lexical)[0]
    return current_snapshot(layout, root, lexical=lexical)


def _cosine_of_distance(collection: Collection) -> tuple[float, float]:
    """Return (a, b) such that a - b * distance is the cosine. If no such numbers exist, return (0, 1)."""
    records = CollectionRecords(collection)
    space = records.space()
    if space == "cosine":
        return 1.0, 1.0
    if not np.allclose(np.linalg.norm(records.first_vectors(3), axis=-1), 1.0, atol=1e-3):
        return 0.0, 1.0
    return 1.0, 0.5 if space == "l2" else 1.0
