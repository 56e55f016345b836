"""One hybrid search over any set of retrievers: over-ask, drop what was seen, fuse, rerank. Shared by all corpora."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.bm25 import Bm25Index, whole_characters
from context_agent.retrieval.fusion import Retriever, reciprocal_rank_fusion
from context_agent.retrieval.protocol import CANDIDATES, PER_RETRIEVER, Where
from context_agent.types import Chunk, Hit

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.rerankers import Reranker

DENSE, SPARSE = "dense", "bm25"
QUERY_VECTORS = 512
"""Query vectors remembered by a corpus: an episode asks for the same query's similarity again and again."""
_SMALL_SET = 1_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fused id, with the score each retriever gave it."""

    id: str
    score: float
    dense: float | None
    sparse: float | None


class QueryVectors:
    """An embedder's query vectors, the latest of them remembered. Thread-safe."""

    def __init__(self, embedder: Embedder, size: int = QUERY_VECTORS) -> None:
        self.embedder = embedder
        self._size = size
        self._known: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, query: str) -> NDArray[np.float32]:
        """The vector of a query, shape (d,)."""
        query = whole_characters(query)
        with self._lock:
            if (known := self._known.get(query)) is not None:
                self._known.move_to_end(query)
                return known
        vector = np.asarray(self.embedder.embed_query(query), dtype=np.float32)
        with self._lock:
            self._known[query] = vector
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return vector


class Bm25Retriever:
    """BM25 as a retriever. `matching` gives the indexed ids that a metadata filter lets through.

    `chunk_of` says which chunk an indexed id stands for, where that is not the chunk's own id.
    """

    name = SPARSE

    def __init__(
        self,
        index: Bm25Index,
        matching: Callable[[Where], AbstractSet[str]],
        chunk_of: Mapping[str, str] | None = None,
    ) -> None:
        self._index, self._matching, self._chunk_of = index, matching, chunk_of

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`."""
        hits = self._search(query, k, where)
        return hits if self._chunk_of is None else [(self._chunk_of[item], score) for item, score in hits]

    def _search(self, query: str, k: int, where: Where | None) -> list[tuple[str, float]]:
        if where is None:
            return self._index.search(query, k)
        allowed = self._matching(where)
        if len(allowed) <= _SMALL_SET:
            return self._index.search(query, k, only=allowed) if allowed else []
        ask, total = k, self._index.count()
        while True:
            hits = self._index.search(query, ask)
            kept = [hit for hit in hits if hit[0] in allowed]
            if len(kept) >= k or len(hits) < ask or ask >= total:
                return kept[:k]
            ask *= 4


def gather(
    retrievers: Sequence[Retriever],
    weights: Mapping[str, float],
    query: str,
    *,
    exclude: AbstractSet[str] = frozenset(),
    where: Where | None = None,
    limit: int = CANDIDATES,
    per_retriever: int = PER_RETRIEVER,
) -> list[Candidate]:
    """The best `limit` fused candidates of a query, best first; a retriever of weight 0 is not asked.

    Each retriever gives `per_retriever` chunks that are not in `exclude`. It is asked for so many more as there are ids
    to drop: excluding them by a filter would make a dense query linear in the collection.
    """
    if not query.strip() or limit <= 0:
        return []
    query = whole_characters(query)
    active = [retriever for retriever in retrievers if weights.get(retriever.name, 1.0) > 0]
    wanted = max(per_retriever, -(-limit // max(1, len(active))))
    found: dict[str, dict[str, float]] = {}
    for retriever in active:
        hits = retriever.search(query, wanted + len(exclude), where)
        found[retriever.name] = dict([hit for hit in hits if hit[0] not in exclude][:wanted])
    fused = reciprocal_rank_fusion(
        [list(scores) for scores in found.values()], weights=[weights.get(name, 1.0) for name in found]
    )
    dense, sparse = found.get(DENSE, {}), found.get(SPARSE, {})
    return [Candidate(item, score, dense.get(item), sparse.get(item)) for item, score in fused[:limit]]


def hits_of(
    query: str, candidates: Sequence[Candidate], chunks: Mapping[str, Chunk], reranker: Reranker | None, limit: int
) -> list[Hit]:
    """Candidates with their chunks, reranked where there is a reranker; ids without a chunk are dropped."""
    pairs = [(candidate, chunks[candidate.id]) for candidate in candidates if candidate.id in chunks]
    scores = [candidate.score for candidate, _ in pairs]
    if reranker is not None and pairs:
        scores = [float(score) for score in reranker.score(query, [chunk.indexed_text for _, chunk in pairs])]
    order = sorted(range(len(pairs)), key=lambda place: -scores[place])[:limit]
    return [
        Hit(pairs[place][1], scores[place], rank, pairs[place][0].dense, pairs[place][0].sparse)
        for rank, place in enumerate(order, start=1)
    ]
