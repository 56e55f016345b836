"""Hybrid search: BM25 and dense retrievers, fused by a weighted sum of their scores.

Each retriever's scores for a query are scaled to 0..1, and the sum is weighted by how good the retriever is in this
corpus. Unlike ranks, scores keep what a retriever says about this query: one that tells its first hit clearly from the
rest decides the order, one whose hits score alike has little influence (Bruch, Gai and Ingber, "An Analysis of Fusion
Functions for Hybrid Retrieval", ACM TOIS 2023). Rankings without comparable scores, such as those of several queries,
are fused by reciprocal rank.

Calibration measures the weights with queries made from the corpus, without a model.

*Does it work at all?* Known-item search: a chunk must come back for some consecutive words of its own text. A retriever
whose vectors belong to another model, or whose ranking is shuffled, finds a chunk no more often than the chunks that
other probes look for. It gets weight 0, because fusing it would only push good hits down.

*How good is it?* The words of a passage are the wrong test for that: an exact match is what BM25 does best, and a user
asks in other words. So calibration asks for related passages. Chunks that share a rare word (a name, a function, a
product) mostly deal with the same subject. The query is the sentence around that word in one of them; the others must
come back. It is asked twice. *With* the word it is the question of a user who names the subject. *Without* it, it is
the question of one who describes it: no retriever can match the word, each has to find the subject by what is said
about it.

A working retriever's weight is the geometric mean of its odds of finding a related chunk, s / (1 - s) for a share of
successes s, over both kinds of queries: a retriever counts by how far it moves the odds that a hit is relevant. Probes
still share more words with what they look for than a user's questions do, which favors BM25; so a working retriever
has at least `LEAST_WEIGHT` of the best one's.

These weights are those of an ordinary question. A question may use words that the corpus does not have: it names a
company whose filings are headed by a ticker. No probe made of the corpus's own words can be such a question, so each
question is judged when it is asked. If many of its words are unknown, and no passage stands out by the others, words
cannot tell which passage is meant. `query_weights` then gives vectors more weight.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.bm25 import Bm25Index
from context_agent.retrieval.corpus import CANDIDATES, PER_RETRIEVER, Where
from context_agent.tokens import well_formed
from context_agent.types import Chunk, Hit

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.rerankers import Reranker

DENSE, SPARSE = "dense", "bm25"
RRF_K = 60
"""Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009."""
QUERY_VECTORS = 512
"""Query vectors that a corpus caches: an episode needs the similarity to the same query many times."""
_SMALL_SET = 1_000
_UNIT_SAMPLE = 3
"""Vectors checked to decide whether all have length 1."""


@runtime_checkable
class Retriever(Protocol):
    """One way of ranking the chunks of a corpus for a query."""

    @property
    def name(self) -> str:
        """`dense` or `bm25` for the two that ship; the key of weights and calibration."""

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """At most `k` chunks as (chunk id, score), best first, in an order that does not change between calls."""


QueryVectors = Callable[[str], NDArray[np.float32]]
"""Returns the vector of a query, shape (d,)."""


def query_vectors(embedder: Embedder) -> QueryVectors:
    """Return an embedder's query vectors, the latest of them cached. Thread-safe."""

    @lru_cache(QUERY_VECTORS)
    def vector(query: str) -> NDArray[np.float32]:
        return np.asarray(embedder.embed_query(well_formed(query)), dtype=np.float32)

    return vector


@runtime_checkable
class KnowsWords(Protocol):
    """A retriever by words that can tell whether the corpus has the words of a query."""

    def unknown_share(self, query: str) -> float:
        """Return the share of the query's weight that lies on words which no chunk has, from 0 to 1."""


class Bm25Retriever:
    """BM25 as a retriever. `matching` returns the indexed ids that a metadata filter lets through.

    `chunk_of` maps an indexed id to its chunk's id, if they differ.
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
        hits = self._index.search(query, k) if where is None else self._search_where(query, k, where)
        if self._chunk_of is None:
            return hits
        with self._index.reading():  # An indexed id without a row is damage.
            return [(self._chunk_of[item], score) for item, score in hits]

    def unknown_share(self, query: str) -> float:
        """See `KnowsWords`. A word weighs as much as it does in BM25."""
        frequencies = self._index.term_frequencies(query)
        rarity = np.log1p((self._index.count() - frequencies + 0.5) / (frequencies + 0.5))
        return float(rarity[frequencies == 0].sum() / rarity.sum()) if len(rarity) else 0.0

    def _search_where(self, query: str, k: int, where: Where) -> list[tuple[str, float]]:
        allowed = self._matching(where)
        if len(allowed) <= _SMALL_SET:
            return self._index.search(query, k, only=allowed) if allowed else []
        depth, total = k, self._index.count()
        while True:
            hits = self._index.search(query, depth)
            allowed_hits = [hit for hit in hits if hit[0] in allowed]
            if len(allowed_hits) >= k or len(hits) < depth or depth >= total:
                return allowed_hits[:k]
            depth *= 4


class NearestRows(Protocol):
    """An approximate search of one part."""

    def nearest(self, query: NDArray[np.float32], k: int) -> NDArray[np.intp] | None:
        """About the `k` rows of the highest cosine to a query of shape (d,), in no order; None if it is not usable."""


class VectorPart(NamedTuple):
    """Vectors as stored: shape (n, d), float32, usually memory-mapped.

    `lengths` are their Euclidean norms, shape (n,). The rows in `removed`, ascending, do not count. `approximate`
    finds the best of them without reading all.
    """

    matrix: NDArray[np.float32]
    lengths: NDArray[np.float32]
    removed: NDArray[np.int32]
    approximate: NearestRows | None = None

    def nearest(self, query: NDArray[np.float32], k: int) -> NDArray[np.intp] | None:
        """About the `k` best of the rows that count, ascending; None if only an exact search tells them."""
        if self.approximate is None or 16 * k >= len(self.lengths):
            return None
        for request in (k, 4 * k, 16 * k):
            rows = self.approximate.nearest(query, request)
            if rows is None:
                return None
            rows = np.setdiff1d(rows[rows < len(self.lengths)], self.removed)
            if len(rows) >= k:
                return rows
        return None


@dataclass(frozen=True)
class VectorTable:
    """Vectors in corpus order, in one or more parts; `space` is Chroma's name of the distance: `cosine`, `l2`, `ip`."""

    parts: Sequence[VectorPart]
    space: str

    @classmethod
    def of(cls, matrix: NDArray[np.float32], lengths: NDArray[np.float32], space: str) -> VectorTable:
        """Return a table in one part."""
        return cls([VectorPart(matrix, lengths, np.zeros(0, dtype=np.int32))], space)

    def scores(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the score of each row for a query of shape (d,); higher is better, shape (n,).

        Cosines for `cosine`, and for `l2` and `ip` if the stored vectors have length 1; else negative distances.
        """
        return np.concatenate([np.zeros(0, np.float32), *(self._scores(part, query) for part in self.parts)])

    def best(self, query: NDArray[np.float32], k: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Rows and their scores, among them the `k` best, and all that tie with the last of them.

        A part with an approximate search contributes what that returns.
        """
        rows, scores, first = [np.zeros(0, np.intp)], [np.zeros(0, np.float32)], 0
        for part in self.parts:
            nearest = part.nearest(query, k)
            if nearest is None:
                part_rows, part_scores = _highest(self._scores(part, query), k)
            else:
                part_rows = nearest - np.searchsorted(part.removed, nearest)
                selected = VectorPart(part.matrix[nearest], part.lengths[nearest], part.removed[:0])
                part_scores = self._scores(selected, query)
            rows.append(first + part_rows)
            scores.append(part_scores)
            first += len(part.lengths) - len(part.removed)
        all_rows, all_scores = np.concatenate(rows), np.concatenate(scores)
        highest, highest_scores = _highest(all_scores, k)
        return all_rows[highest], highest_scores

    def _scores(self, part: VectorPart, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores of the rows of a part that count."""
        # Not `@`: BLAS spreads one such product over all cores, which many episodes at once then fight for.
        products: NDArray[np.float32] = np.einsum("ij,j->i", part.matrix, query)
        if self.space == "cosine":
            scale = part.lengths * np.float32(np.linalg.norm(query))
            scores = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
        elif self.space == "ip":
            scores = products if self._unit else products - 1
        else:
            distances = np.square(part.lengths) + np.float32(np.dot(query, query)) - 2 * products
            scores = 1 - distances / 2 if self._unit else -distances
        return np.delete(scores, part.removed) if len(part.removed) else np.asarray(scores)

    @cached_property
    def _unit(self) -> bool:
        sample = np.concatenate([part.lengths[:_UNIT_SAMPLE] for part in self.parts])[:_UNIT_SAMPLE]
        return bool(np.allclose(sample, 1.0, atol=1e-3))


class DenseRetriever:
    """Dense search over a `VectorTable`, equal scores ordered by id.

    It is exact where a part has no approximate search, and with a metadata filter: one pass over the matrix, on one
    core, 11 ms for 100,000 vectors of 384 numbers, .5 ms for 10,000 of 256.
    """

    name = DENSE

    def __init__(
        self,
        table: VectorTable,
        embed_query: QueryVectors,
        id_of: Callable[[int], str],
        mask: Callable[[Where], NDArray[np.bool_]],
    ) -> None:
        """`id_of` returns the chunk id of a row; `mask` the rows that a metadata filter lets through."""
        self._table, self._embed_query, self._id_of, self._mask = table, embed_query, id_of, mask

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`; a query whose vector is zero (no known word) finds nothing."""
        vector = self._embed_query(query)
        if k <= 0 or not vector.any():
            return []
        if where is None:
            rows, scores = self._table.best(vector, k)
        else:
            allowed = np.flatnonzero(self._mask(where))
            highest, scores = _highest(self._table.scores(vector)[allowed], k)
            rows = allowed[highest]
        hits = ((self._id_of(row), score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True))
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]


def _highest(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the places of the `k` highest scores, ascending, and of all that tie with the last of them; and these
    scores.
    """
    if len(scores) <= k:
        return np.arange(len(scores)), scores
    places = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    return places, scores[places]


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, weights: Sequence[float] | None = None, k: int = RRF_K
) -> list[tuple[str, float]]:
    """Ids with their scores, the sum over rankings of weight / (k + rank), rank from 1; best first, equal ones by id.

    A ranking of weight 0 is ignored: ids that only it holds are left out. An id that a ranking repeats counts at its
    first rank. Raises `ConfigError` for a negative weight or another number of weights than of rankings.
    """
    weights = [1.0] * len(rankings) if weights is None else list(weights)
    if len(weights) != len(rankings) or any(weight < 0 for weight in weights):
        raise ConfigError(f"fusing {len(rankings)} rankings needs as many weights, none below 0: got {weights}")
    parts: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        if weight == 0:
            continue
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            parts.setdefault(item, []).append(weight / (k + rank))
    # An exact sum does not depend on the order of the rankings, and equal ids stay equal.
    scores = {item: math.fsum(terms) for item, terms in parts.items()}
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def score_fusion(
    hits_by_retriever: Mapping[str, Sequence[tuple[str, float]]], weights: Mapping[str, float]
) -> list[tuple[str, float]]:
    """Ids with their scores in 0..1, the mean over retrievers of the scaled scores, weighted; best first, ties by id.

    An id that a retriever did not return scores 0 there, like the last one that it returned. A retriever without a
    weight counts fully, one of weight 0 not at all.
    """
    active = {name: weights.get(name, 1.0) for name in hits_by_retriever if weights.get(name, 1.0) > 0}
    total = sum(active.values())
    scores: dict[str, float] = {}
    for name, weight in active.items():
        for item, score in scaled_scores(hits_by_retriever[name]).items():
            scores[item] = scores.get(item, 0.0) + weight / total * score
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def scaled_scores(hits: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return each id's score, scaled so that the lowest becomes 0 and the highest 1; equal scores all become 1.

    A score that is not finite, as a damaged vector gives, becomes 0.
    """
    finite = [score for _, score in hits if math.isfinite(score)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    spread = high - low
    return {
        item: ((score - low) / spread if spread > 0 else 1.0) if math.isfinite(score) else 0.0 for item, score in hits
    }


@dataclass(frozen=True, slots=True)
class FusedCandidate:
    """A fused id, with the score of each retriever."""

    id: str
    score: float
    dense: float | None
    sparse: float | None


def gather(
    retrievers: Sequence[Retriever],
    weights: Mapping[str, float],
    query: str,
    *,
    exclude: AbstractSet[str] = frozenset(),
    where: Where | None = None,
    limit: int = CANDIDATES,
    per_retriever: int = PER_RETRIEVER,
    executor: Executor | None = None,
) -> list[FusedCandidate]:
    """Return the best `limit` fused candidates of a query, best first; a retriever of weight 0 is not used.

    The weights of the others are adapted to the query by `query_weights`. With an `executor` the retrievers search at
    the same time.

    Each retriever contributes `per_retriever` chunks that are not in `exclude`. It returns as many more as there are
    excluded ids: excluding them by a filter would make a dense query linear in the collection.
    """
    if not query.strip() or limit <= 0:
        return []
    active = [retriever for retriever in retrievers if weights.get(retriever.name, 1.0) > 0]
    depth = max(per_retriever, -(-limit // max(1, len(active))))
    searches = [partial(retriever.search, query, depth + len(exclude), where) for retriever in active]
    if executor is None:
        rankings = [search() for search in searches]
    else:
        others = [executor.submit(search) for search in searches[1:]]
        rankings = [search() for search in searches[:1]] + [other.result() for other in others]
    hits = {
        retriever.name: [hit for hit in ranking if hit[0] not in exclude][:depth]
        for retriever, ranking in zip(active, rankings, strict=True)
    }
    fused = score_fusion(hits, query_weights(active, weights, query, hits))
    dense, sparse = dict(hits.get(DENSE, ())), dict(hits.get(SPARSE, ()))
    return [FusedCandidate(item, score, dense.get(item), sparse.get(item)) for item, score in fused[:limit]]


UNKNOWN_SHARE = 0.3
"""Share of a question's weight on unknown words up to which the weights of the corpus hold."""
UNKNOWN_EFFECT = 4.0
"""How fast the weight of vectors grows beyond that share: by a factor of e for each quarter."""
CLEAR_LEAD = 0.3
"""A first hit by words that is this much better than the fifth stands out, whatever is unknown.

The three values were chosen on 65 to 150 questions of each of twelve sets, with static and MiniLM vectors, and on the
notes of `benchmarks/coded_releases.py`. Dev questions stood in for three sets that have no train split. No set lost
more than .004 of recall@5. Without this value, questions in everyday words about schemas (spider-tables) lost .015.
"""


def query_weights(
    retrievers: Sequence[Retriever],
    weights: Mapping[str, float],
    query: str,
    hits: Mapping[str, Sequence[tuple[str, float]]],
) -> dict[str, float]:
    """Return the weight of each retriever for a query.

    Args:
        retrievers: The retrievers that searched.
        weights: Their weights in this corpus. One that is not named has weight 1.
        query: The query.
        hits: What each of them found, best first.

    Returns:
        The weights of the corpus. If words cannot tell which passage the query means, the other retrievers weigh more.
    """
    adapted = {retriever.name: weights.get(retriever.name, 1.0) for retriever in retrievers}
    for retriever in retrievers:
        if not isinstance(retriever, KnowsWords) or _lead(hits[retriever.name]) >= CLEAR_LEAD:
            continue
        excess = max(0.0, retriever.unknown_share(query) - UNKNOWN_SHARE)
        adapted[retriever.name] /= math.exp(UNKNOWN_EFFECT * excess)
    return adapted


def _lead(hits: Sequence[tuple[str, float]]) -> float:
    """Return how much better the first hit scores than the fifth, as a share of its score; 1 for a single hit, 0 for
    none.
    """
    if len(hits) < 2:
        return float(len(hits))
    first, fifth = hits[0][1], hits[:5][-1][1]
    return (first - fifth) / first if first > 0 else 0.0


def hits_of(
    query: str, candidates: Sequence[FusedCandidate], chunks: Mapping[str, Chunk], reranker: Reranker | None, limit: int
) -> list[Hit]:
    """Candidates with their chunks, reranked if there is a reranker; ids without a chunk are dropped."""
    candidates = [candidate for candidate in candidates if candidate.id in chunks]
    scores = [candidate.score for candidate in candidates]
    if reranker is not None and candidates:
        texts = [chunks[candidate.id].indexed_text for candidate in candidates]
        scores = [float(score) for score in reranker.score(query, texts)]
    ordered = sorted(zip(scores, candidates, strict=True), key=lambda pair: -pair[0])[:limit]
    return [
        Hit(chunks[candidate.id], score, rank, candidate.dense, candidate.sparse)
        for rank, (score, candidate) in enumerate(ordered, start=1)
    ]


# Calibration --------------------------------------------------------------------------------------------------------

CALIBRATION_VERSION = 2
"""Incremented when weights are measured in another way: a corpus then measures anew instead of using stored ones."""
KNOWN_ITEMS = 32
"""Chunks that calibration searches for by their own words."""
RELATED = 48
"""Chunks for which it searches for related ones, with and without the word that relates them."""
SAMPLE = 256
"""Chunks that it reads to make these probes."""
DEPTH = 25
"""A chunk below this rank counts as not found."""
RARE = 8
"""A word in at most this many chunks relates them."""
SMALLEST_CORPUS = 64
"""With fewer chunks even a random ranking finds many: all retrievers keep weight 1."""
LEAST_WEIGHT = 0.6
"""Weight of a working retriever at least, where the best has 1.

Without it, MiniLM had .19 on Debian's policy and found more alone than fused: recall@5 .500 against .344, now .469. On
train questions with static vectors one-shot search changes by at most .001 (`benchmarks/fusion.py` prints the weights).
"""
SURE = 3.0
"""Standard errors by which a working retriever's known-item score exceeds chance."""
WORDS = 16
LONGEST_SENTENCE = 40
SEED = 0
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*|\n\s*\n")
Fetch = Callable[[Sequence[str]], Mapping[str, Chunk]]
"""Returns chunks by id, those that exist."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A query made from the chunk `source`, and the ids of the chunks that it should find.

    A source that is not relevant itself is left out of the ranking.
    """

    query: str
    source: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class Probes:
    """Queries for a known chunk, and for related ones: with the word that relates them (`naming`) and without it."""

    known_items: Sequence[Probe] = ()
    naming: Sequence[Probe] = ()
    describing: Sequence[Probe] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """By retriever name: the mean reciprocal rank of related passages, and the weight, the best retriever's being 1."""

    mrr: Mapping[str, float]
    weights: Mapping[str, float]


def sample_rows(count: int) -> list[int]:
    """Positions of the chunks to make probes of, in random order; none for a corpus too small for calibration."""
    return [] if count < SMALLEST_CORPUS else random.Random(SEED).sample(range(count), min(count, SAMPLE))


def probes_of(
    sample: Sequence[str], index: Bm25Index, fetch: Fetch, chunk_of: Mapping[str, str] | None = None
) -> Probes:
    """Probes made of the chunks with these ids, those that still exist.

    `index` holds the corpus's words. `chunk_of` maps an indexed id to its chunk's id, if they differ.
    """
    generator = random.Random(SEED)
    chunks = list(fetch(sample).values())
    known_items = [Probe(_passage(chunk, generator), chunk.id, frozenset({chunk.id})) for chunk in chunks[:KNOWN_ITEMS]]
    drafts = (_draft(chunk, index, chunk_of, generator) for chunk in chunks)
    relations = _relations(list(islice(filter(None, drafts), RELATED)), fetch)
    naming = [Probe(relation.sentence, relation.source, relation.others) for relation in relations]
    describing = [Probe(relation.description, relation.source, relation.others) for relation in relations]
    return Probes(known_items, naming, describing)


def calibrate(retrievers: Sequence[Retriever], probes: Probes) -> Calibration:
    """Searches every probe with every retriever; without probes all weights are 1.

    If no retriever works, or no passages are related, the corpus does not tell which is better: weights are then equal.
    """
    ranks = {retriever.name: _ranks(retriever, probes) for retriever in retrievers}
    working = {retriever.name: _works(retriever, probes.known_items) for retriever in retrievers}
    if not any(working.values()):
        working = dict.fromkeys(working, True)
    worth = {name: _worth(kinds) for name, kinds in ranks.items() if working[name]}
    best = max(worth.values(), default=1.0)
    weights = {name: max(value / best, LEAST_WEIGHT) for name, value in worth.items()}
    mrr = {name: float(np.mean(kinds)) if kinds.size else 0.0 for name, kinds in ranks.items()}
    return Calibration(mrr, dict.fromkeys(ranks, 0.0) | weights)


def _ranks(retriever: Retriever, probes: Probes) -> NDArray[np.float64]:
    """Return the reciprocal ranks of both kinds of related probes, shape (2, n)."""
    return np.stack([reciprocal_ranks(retriever, kind) for kind in (probes.naming, probes.describing)])


def _worth(kinds: NDArray[np.float64]) -> float:
    """Return the geometric mean of the odds over the rows of an array of reciprocal ranks, shape (kinds, n)."""
    return math.exp(sum(math.log(success_odds(ranks)) for ranks in kinds) / len(kinds))


def success_odds(ranks: NDArray[np.float64]) -> float:
    """Return the odds of finding a relevant chunk, with half a success and half a failure added so that they stay
    finite.

    The correction is Haldane's and Anscombe's (Anscombe, "On estimating binomial response relations", 1956).
    """
    successes = float(np.count_nonzero(ranks))
    return (successes + 0.5) / (len(ranks) - successes + 0.5)


def reciprocal_ranks(retriever: Retriever, probes: Sequence[Probe]) -> NDArray[np.float64]:
    """1 / rank of the first relevant chunk for each probe, 0 below rank `DEPTH`, shape (n,)."""
    return np.array([_reciprocal_rank(_ranking(retriever, probe), probe.relevant) for probe in probes], np.float64)


def _works(retriever: Retriever, probes: Sequence[Probe]) -> bool:
    """Return whether the retriever finds chunks by their own words more often than chunks that other probes look
    for.
    """
    if len(probes) < 2:
        return True
    rankings = [_ranking(retriever, probe) for probe in probes]
    scores = np.array([[_reciprocal_rank(ranking, probe.relevant) for probe in probes] for ranking in rankings])
    gains = scores.diagonal() - (scores.sum(axis=1) - scores.diagonal()) / (len(probes) - 1)
    return bool(gains.mean() > SURE * gains.std() / math.sqrt(len(gains)))


def _ranking(retriever: Retriever, probe: Probe) -> list[str]:
    ids = (chunk_id for chunk_id, _ in retriever.search(probe.query, DEPTH + 1))
    return [chunk_id for chunk_id in ids if chunk_id != probe.source or chunk_id in probe.relevant][:DEPTH]


def _reciprocal_rank(ranking: Sequence[str], relevant: frozenset[str]) -> float:
    return next((1 / rank for rank, chunk_id in enumerate(ranking, start=1) if chunk_id in relevant), 0.0)


def _passage(chunk: Chunk, generator: random.Random) -> str:
    """16 consecutive words from a random position in the text."""
    words = chunk.text.split()
    start = generator.randrange(max(1, len(words) - WORDS + 1))
    # A script without spaces makes one endless word: a piece of it is enough.
    return " ".join(words[start : start + WORDS])[: 12 * WORDS]


@dataclass(frozen=True, slots=True)
class _Relation:
    """A sentence of the chunk `source`, the same without one of its rare words, and the other chunks with the word."""

    source: str
    sentence: str
    description: str
    others: frozenset[str]


def _draft(
    chunk: Chunk, index: Bm25Index, chunk_of: Mapping[str, str] | None, generator: random.Random
) -> _Relation | None:
    rare_words = _rare_words(chunk, index)
    if not rare_words:
        return None
    sentence, term = generator.choice(rare_words)
    indexed_ids = [indexed for indexed, _ in index.search(term, RARE)]
    ids = indexed_ids if chunk_of is None else [chunk_of[indexed] for indexed in indexed_ids if indexed in chunk_of]
    description = " ".join(_without(term, word, index) for word in sentence.split())
    return _Relation(chunk.id, sentence, _spaced(description), frozenset(ids) - {chunk.id})


def _relations(drafts: Sequence[_Relation], fetch: Fetch) -> list[_Relation]:
    """Without the chunks that repeat the sentence, for these can be found by its words."""
    others = fetch(sorted(frozenset[str]().union(*(draft.others for draft in drafts))))
    texts = {chunk_id: _spaced(chunk.text) for chunk_id, chunk in others.items()}
    relations = [
        replace(
            draft,
            others=frozenset(item for item in draft.others if draft.sentence not in texts.get(item, draft.sentence)),
        )
        for draft in drafts
    ]
    return [relation for relation in relations if relation.others and relation.description]


def _without(term: str, word: str, index: Bm25Index) -> str:
    """Return the word without the term: empty if it holds no other; in a script without spaces, a word holds many."""
    terms = index.analyze(word)
    if term not in terms:
        return word
    return re.sub(re.escape(term), " ", word, flags=re.IGNORECASE) if len(terms) > 1 else ""


def _rare_words(chunk: Chunk, index: Bm25Index) -> list[tuple[str, str]]:
    """(sentence, term) for each word of the chunk that a few other chunks hold too."""
    sentences = (_spaced(part, LONGEST_SENTENCE) for part in _SENTENCE_END.split(chunk.text))
    pairs = [(sentence, term) for sentence in sentences for term in index.analyze(sentence)]
    frequencies = index.document_frequency([term for _, term in pairs])
    return [pair for pair, frequency in zip(pairs, frequencies, strict=True) if 2 <= frequency <= RARE]


def _spaced(text: str, words: int | None = None) -> str:
    """Return the text, or its first words, with single spaces."""
    return " ".join(text.split()[:words])
