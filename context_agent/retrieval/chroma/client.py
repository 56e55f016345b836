"""How a corpus reads a collection: a local folder from snapshots, anything else through Chroma's client.

A `Source` says what the collection is and gets a snapshot of it; a `Reader` answers from one state. `LocalSource` never
opens Chroma's own files with Chroma. It opens a private copy, and that only where no valid snapshot was published: for
a collection that its owner made, and for an index of an older version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.chroma.database import (
    StoredCollection,
)
from context_agent.retrieval.chroma.layouts import ForeignLayout, Layout, LayoutOf, build, publish_state
from context_agent.retrieval.chroma.records import KEY, Manifest
from context_agent.retrieval.chroma.snapshot import (
    Snapshot,
    one_maker,
)
from context_agent.retrieval.chroma.store import (
    PAGE,
    Place,
    connect,
    dimension_of,
    find,
    first_vectors,
    own_folder,
    readable,
    space_of,
)
from context_agent.retrieval.chroma.stored_embedder import sparse_functions, stored_embedder
from context_agent.retrieval.corpus import PER_RETRIEVER, Where, cached_by_filter
from context_agent.retrieval.fusion import DENSE, RRF_K, Candidate, QueryVectors
from context_agent.types import Chunk

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from chromadb.api.types import SparseEmbeddingFunction
    from chromadb.base_types import SparseVector
    from chromadb.execution.expression.plan import Search

    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.fusion import Retriever

_TIE_MARGIN = 8
"""Asked for in addition, so that equal scores at the cut are mostly told apart by id and not by Chroma's order."""
_LOCAL_SPARSE = "chroma_bm25"
"""The one sparse embedding function of Chroma's that needs neither a network nor a model."""
_NUMBERS = ("k", "b", "avg_doc_length", "token_max_length")
_STOPWORDS = 10_000


class ClientSource:
    """A collection on a server, in memory, or held open by the caller: read through Chroma's client."""

    def __init__(self, place: Place, name: str, cache: str | Path | None) -> None:
        self._place, self._name, self._cache = place, name, cache
        self._client: ClientAPI | None = None if place.live is not None else connect(place)

    def describe(self) -> StoredCollection:
        """See `Source`."""
        with self.guarded():
            return _described(self._collection())

    def embedder(self, stored: StoredCollection, manifest: Manifest | None) -> Embedder:
        """See `Source`; a caller who holds a collection open may have given Chroma a function."""
        with self.guarded():
            return embedder_of(self._collection(), manifest)

    def snapshot(self, layout_of: LayoutOf, *, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """See `Source`. In the local folder of a live collection it is a whole one, else the lexical half."""
        lexical = self._place.path is None
        collection = self._collection()
        stored = _described(collection)
        layout = layout_of(stored)
        with one_maker(own_folder(self._place, stored.id, self._cache)) as root, self.guarded():
            base = None if rebuild else self._last(layout, root, stored, lexical)
            if base is not None and isinstance(layout, ForeignLayout):
                if layout.same(collection, base):
                    return stored, base
                base = base if layout.same_texts(collection, base) else None
            elif base is not None:
                return stored, base
            fresh = build(layout, collection, root, base=base, lexical=lexical)
            return stored, publish_state(fresh, layout, root, stored)

    def changed(self, stored: StoredCollection, snapshot: Snapshot, layout_of: LayoutOf) -> bool:
        """See `Source`; see `layouts` for what tells of a change."""
        with self.guarded():
            collection = self._collection()
            present = _described(collection)
            layout = layout_of(present)
            differs = present.id != stored.id or layout.state(present) != layout_of(stored).state(stored)
            return differs or (isinstance(layout, ForeignLayout) and not layout.same(collection, snapshot))

    def reader(self, snapshot: Snapshot, layout: Layout) -> ClientReader:
        """See `Source`."""
        return ClientReader(self._collection(), snapshot, layout)

    def guarded(self) -> AbstractContextManager[None]:
        """See `Source`."""
        return readable(self._place)

    def close(self) -> None:
        """See `Source`; a collection that the caller holds open stays open."""
        client, self._client = self._client, None
        if client is not None:
            cast("Any", client).close()

    def _collection(self) -> Collection:
        return find(self._client, self._place, self._name)

    def _last(self, layout: Layout, root: Path, stored: StoredCollection, lexical: bool) -> Snapshot | None:
        if isinstance(layout, ForeignLayout):
            return layout.latest(root, lexical=lexical)[0]
        return layout.current(root, layout.state(stored), lexical=lexical)


def _described(collection: Collection) -> StoredCollection:
    metadata = dict(collection.metadata or {})
    return StoredCollection(
        id=str(collection.id),
        name=collection.name,
        metadata=metadata,
        configuration=None,
        schema=None,
        dimension=dimension_of(collection),
        empty=KEY not in metadata and collection.count() == 0,
        sequence=-1,
    )


class ClientReader:
    """Reads texts, metadata and vectors through Chroma's client; the snapshot says which records form the state."""

    def __init__(self, collection: Collection, snapshot: Snapshot, layout: Layout) -> None:
        self._collection, self._snapshot, self._layout = collection, snapshot, layout
        self._sparse_index = sparse_index(collection)
        self._matching = cached_by_filter(self._records)

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


class ChromaDense:
    """Approximate nearest neighbours by Chroma's index, ids only.

    Scores are cosines where they follow from the collection's distance: for `cosine`, and for `l2` and `ip` when the
    vectors have length 1 (three are looked at); elsewhere the negative distance, which orders alike.
    """

    name = DENSE

    def __init__(self, collection: Collection, embed_query: QueryVectors, chunk_of: Mapping[str, str]) -> None:
        """`chunk_of` maps the records that belong to the state being read to their chunk ids; others are dropped."""
        self._collection, self._embed_query, self._chunk_of = collection, embed_query, chunk_of
        self._offset, self._factor = _cosine_of_distance(collection)

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`; a query whose vector is zero (no known word) finds nothing."""
        vector = self._embed_query(query)
        if k <= 0 or not vector.any():
            return []
        ask = k + _TIE_MARGIN
        while True:
            found = self._nearest(vector, ask, where)
            kept = [(self._chunk_of[record], score) for record, score in found if record in self._chunk_of]
            if len(kept) >= k or len(found) < ask:
                return sorted(kept, key=lambda hit: (-hit[1], hit[0]))[:k]
            # Records of an unfinished run are in the way.
            ask *= 4

    def _nearest(self, vector: NDArray[np.float32], k: int, where: Where | None) -> list[tuple[str, float]]:
        answer: dict[str, Any] = dict(
            self._collection.query(
                query_embeddings=cast("Any", [vector]), n_results=k, where=where, include=["distances"]
            )
        )
        distances = answer["distances"][0]
        return [
            (record, self._offset - self._factor * d) for record, d in zip(answer["ids"][0], distances, strict=True)
        ]


def embedder_of(collection: Collection, manifest: Manifest | None) -> Embedder:
    """The embedder of an open collection: the function its caller passed, else what `stored_embedder` allows.

    A manifest decides first where there is one. Raises `ConfigError`.
    """
    from context_agent.retrieval.embedders.chroma import ChromaEmbedder

    if manifest is None and (held := ChromaEmbedder.of_collection(collection)) is not None:
        return held
    return stored_embedder(
        collection.name,
        manifest,
        collection.configuration_json,
        collection.get_model().serialized_schema,
        dimension=dimension_of(collection),
    )


def stored_vectors(collection: Collection, records: Mapping[str, str]) -> dict[str, NDArray[np.float32]]:
    """Chunk id to vector, for a mapping of record ids to chunk ids."""
    vectors: dict[str, NDArray[np.float32]] = {}
    ids = list(records)
    for start in range(0, len(ids), PAGE):
        page: dict[str, Any] = dict(collection.get(ids=ids[start : start + PAGE], include=["embeddings"]))
        for record, vector in zip(page["ids"], page["embeddings"], strict=True):
            vectors[records[record]] = np.asarray(vector, dtype=np.float32)
    return vectors


def _cosine_of_distance(collection: Collection) -> tuple[float, float]:
    """(a, b) such that a - b * distance is the cosine; (0, 1) where it is not to be had."""
    space = space_of(collection)
    if space == "cosine":
        return 1.0, 1.0
    if not np.allclose(np.linalg.norm(first_vectors(collection, 3), axis=-1), 1.0, atol=1e-3):
        return 0.0, 1.0
    return 1.0, 0.5 if space == "l2" else 1.0


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """An enabled sparse index: the metadata key, and what embeds a query for it on this machine."""

    key: str
    function: SparseEmbeddingFunction[Any]

    def embed(self, query: str) -> SparseVector:
        """The query's sparse vector; Chroma's `Knn` takes it in place of a text."""
        return self.function.embed_query([query])[0]


def sparse_index(collection: Collection) -> SparseIndex | None:
    """The first sparse index whose stored function runs on this machine; None without one."""
    for key, stored in sparse_functions(collection.get_model().serialized_schema).items():
        if stored.get("name") == _LOCAL_SPARSE and (function := _bm25(stored.get("config"))) is not None:
            return SparseIndex(key, function)
    return None


def hybrid_request(
    query: str,
    vector: NDArray[np.float32],
    index: SparseIndex,
    *,
    limit: int,
    depth: int,
    weights: Sequence[float] = (1.0, 1.0),
    where: Where | None = None,
) -> Search:
    """One request for the best `limit` records of a dense and a sparse ranking of `depth` each, fused on the server."""
    from chromadb import K, Knn, Rrf, Search

    dense = Knn(query=vector, limit=depth, return_rank=True, default=float(depth))
    sparse = Knn(query=index.embed(query), key=index.key, limit=depth, return_rank=True, default=float(depth))
    ranked = Search().rank(Rrf([dense, sparse], k=RRF_K, weights=list(weights)))
    limited = ranked.limit(limit).select(K.DOCUMENT, K.METADATA, K.SCORE)
    return limited.where(where) if where is not None else limited


def hybrid_rows(collection: Collection, request: Search) -> list[dict[str, Any]]:
    """Runs a request; rows with `id`, `document`, `metadata` and `score` (higher is better), best first."""
    rows: list[dict[str, Any]] = [dict(row) for row in collection.search(request).rows()[0]]
    for row in rows:
        # Chroma ranks ascending, so its fused scores are negative.
        row["score"] = -float(row.get("score") or 0.0)
    return sorted(rows, key=lambda row: (-row["score"], row["id"]))


def _bm25(config: object) -> SparseEmbeddingFunction[Any] | None:
    """Chroma's BM25 function with the stored settings; None where they are not plausible or a library is missing."""
    from chromadb.utils.embedding_functions import ChromaBm25EmbeddingFunction

    settings = config if isinstance(config, Mapping) else {}
    numbers = {key: settings[key] for key in _NUMBERS if key in settings}
    stopwords = settings.get("stopwords")
    if not all(type(number) in (int, float) and 0 < number < 1e6 for number in numbers.values()):
        return None
    if not (stopwords is None or (isinstance(stopwords, list) and len(stopwords) <= _STOPWORDS)):
        return None
    function = ChromaBm25EmbeddingFunction(**numbers, stopwords=stopwords)
    try:
        function.embed_query(["query"])
    except (ImportError, ValueError):  # Chroma raises the latter where its stemmer is not installed
        return None
    return function
