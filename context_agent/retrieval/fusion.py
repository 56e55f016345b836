"""One hybrid search over any set of retrievers: over-ask, drop what was seen, fuse, rerank. Shared by all corpora."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.bm25 import Bm25Index, whole_characters
from context_agent.retrieval.corpus import CANDIDATES, PER_RETRIEVER, Where
from context_agent.types import Chunk, Hit

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.rerankers import Reranker

DENSE, SPARSE = "dense", "bm25"
QUERY_VECTORS = 512
"""Query vectors remembered by a corpus: an episode asks for the same query's similarity again and again."""
_SMALL_SET = 1_000
RRF_K = 60
"""Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009."""
_UNIT_SAMPLE = 3
"""Vectors looked at to tell whether all have length 1."""
PROBES = 32
"""Chunks searched for."""
DEPTH = 25
"""A chunk found below this rank counts as not found."""
USELESS = 0.35
"""A retriever whose mean reciprocal rank is under this share of the best one's gets weight 0.

Measured over the 2wiki, hotpotqa and musique sets: BM25 reaches 1.0 and a static embedding .92 to 1.0; a list of 25
in shuffled order gets about .15, a random list next to 0.
"""
SMALLEST_CORPUS = 64
"""Below this many chunks, even a random ranking finds much: all retrievers keep weight 1."""
WORDS = 16
SEED = 0


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


@runtime_checkable
class Retriever(Protocol):
    """One way of ranking the chunks of a corpus for a query."""

    @property
    def name(self) -> str:
        """`dense` or `bm25` for the two that ship; keys weights and calibration."""

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """At most `k` chunks as (chunk id, score), best first, in an order that does not change between calls."""


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, weights: Sequence[float] | None = None, k: int = RRF_K
) -> list[tuple[str, float]]:
    """Ids with their scores, the sum over rankings of weight / (k + rank), rank from 1; best first, equal ones by id.

    A ranking of weight 0 counts for nothing: ids that only it holds are left out. An id that a ranking repeats counts
    at its first place. Raises `ConfigError` for a negative weight or another number of weights than of rankings.
    """
    weights = [1.0] * len(rankings) if weights is None else list(weights)
    if len(weights) != len(rankings) or any(weight < 0 for weight in weights):
        raise ConfigError(f"fusing {len(rankings)} rankings needs as many weights, none below 0: got {weights}")
    scores: dict[str, float] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        if weight == 0:
            continue
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            scores[item] = scores.get(item, 0.0) + weight / (k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


@dataclass(frozen=True)
class VectorTable:
    """Vectors in corpus order, as stored: shape (n, d), float32, usually memory-mapped.

    `lengths` are their Euclidean norms, shape (n,). `space` is Chroma's name of the distance: `cosine`, `l2` or `ip`.
    """

    matrix: NDArray[np.float32]
    lengths: NDArray[np.float32]
    space: str

    def scores(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """The score of each row for a query of shape (d,); higher is better, shape (n,).

        Cosines for `cosine`, and for `l2` and `ip` where the stored vectors have length 1; else negative distances.
        """
        # Not `@`: BLAS spreads one such product over all cores, which many episodes at once then fight for.
        products: NDArray[np.float32] = np.einsum("ij,j->i", self.matrix, query)
        if self.space == "cosine":
            scale = self.lengths * np.float32(np.linalg.norm(query))
            return np.asarray(np.divide(products, scale, out=np.zeros_like(products), where=scale > 0))
        if self.space == "ip":
            return products if self._unit else np.asarray(products - 1)
        distances = np.square(self.lengths) + np.float32(np.dot(query, query)) - 2 * products
        return np.asarray(1 - distances / 2 if self._unit else -distances)

    def unit_row(self, row: int) -> NDArray[np.float32]:
        """One vector scaled to length 1, shape (d,); a zero vector stays one."""
        return np.asarray(self.matrix[row] / (self.lengths[row] or np.float32(1)))

    @cached_property
    def _unit(self) -> bool:
        return bool(np.allclose(self.lengths[:_UNIT_SAMPLE], 1.0, atol=1e-3))


class ExactDense:
    """A retriever over a `VectorTable`. Equal scores are ordered by id, as `ChromaDense` orders them."""

    name = DENSE

    def __init__(
        self,
        table: VectorTable,
        embed_query: QueryVectors,
        ids: Sequence[str],
        mask: Callable[[Where], NDArray[np.bool_]],
    ) -> None:
        """`ids` are the chunk ids of the rows; `mask` gives the rows that a metadata filter lets through."""
        self._table, self._embed_query, self._ids, self._mask = table, embed_query, ids, mask

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`; a query whose vector is zero (no known word) finds nothing."""
        vector = self._embed_query(query)
        if k <= 0 or not vector.any():
            return []
        scores = self._table.scores(vector)
        rows = np.arange(len(scores)) if where is None else np.flatnonzero(self._mask(where))
        best = rows[_at_least_kth(scores[rows], k)]
        return sorted(((self._ids[row], float(scores[row])) for row in best), key=lambda hit: (-hit[1], hit[0]))[:k]


def _at_least_kth(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """The positions of the `k` highest scores and of all that tie with the last of them."""
    if len(scores) <= k:
        return np.arange(len(scores))
    return np.flatnonzero(scores >= np.partition(scores, -k)[-k])


@dataclass(frozen=True, slots=True)
class Probe:
    """A query made of a chunk's own words, and the chunk."""

    query: str
    chunk_id: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """Mean reciprocal rank and the weight that follows from it, by retriever name."""

    mrr: Mapping[str, float]
    weights: Mapping[str, float]


def sample_rows(count: int, *, probes: int = PROBES, seed: int = SEED) -> list[int]:
    """Positions of the chunks to probe, ascending; none for a corpus too small to tell anything."""
    if count < SMALLEST_CORPUS:
        return []
    return sorted(random.Random(seed).sample(range(count), min(probes, count)))


def probes_of(chunks: Sequence[Chunk], *, seed: int = SEED) -> list[Probe]:
    """For each chunk its title and a run of 16 words from a random place in its text."""
    generator = random.Random(seed)
    return [Probe(_query(chunk, generator), chunk.id) for chunk in chunks]


def calibrate(retrievers: Sequence[Retriever], probes: Sequence[Probe], *, useless: float = USELESS) -> Calibration:
    """Searches every probe with every retriever; without probes all weights are 1."""
    mrr = {retriever.name: _mean_reciprocal_rank(retriever, probes) for retriever in retrievers}
    best = max(mrr.values(), default=0.0)
    return Calibration(mrr, {name: float(value >= useless * best) for name, value in mrr.items()})


def _mean_reciprocal_rank(retriever: Retriever, probes: Sequence[Probe]) -> float:
    total = 0.0
    for probe in probes:
        found = [chunk_id for chunk_id, _ in retriever.search(probe.query, DEPTH)]
        total += 1 / (found.index(probe.chunk_id) + 1) if probe.chunk_id in found else 0.0
    return total / len(probes) if probes else 0.0


def _query(chunk: Chunk, generator: random.Random) -> str:
    words = chunk.text.split()
    start = generator.randrange(max(1, len(words) - WORDS + 1))
    # A script without spaces makes one endless word: a piece of it is enough.
    return f"{chunk.title} {' '.join(words[start : start + WORDS])[: 12 * WORDS]}".strip()
