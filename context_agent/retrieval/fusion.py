"""Hybrid search, which fuses the hits of BM25 and dense search by a weighted sum of their scores.

Each retriever's scores for a query are scaled to 0..1. The weight of a retriever depends on its quality in this corpus.
Unlike ranks, scores show how sure a retriever is for this query. If the first hit of a retriever stands out clearly,
this retriever decides the order. If all its hits have similar scores, it has little influence. The method is that of
Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS 2023. Rankings without
comparable scores, such as those of several queries, are fused by reciprocal rank.

The weights from `calibration` suit an ordinary question. But a question may use words that the corpus does not have.
For example, it names a company, and the corpus has only the company's ticker. A probe has only words of the corpus, so
calibration cannot measure this case. Each question is therefore judged when it is asked. If many of its words are
unknown, and no passage stands out by the known words, words cannot tell which passage is meant. `query_weights` then
gives vectors more weight. If the embedder does not know the language of the question, vectors get less weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.corpus import CANDIDATES, PER_RETRIEVER
from context_agent.retrieval.filters import Where
from context_agent.retrieval.retriever import DENSE, SPARSE, KnowsLanguage, KnowsWords, Retriever
from context_agent.types import Chunk, Hit

if TYPE_CHECKING:
    from context_agent.retrieval.rerankers import Reranker

RRF_K = 60
"""The constant of Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009."""


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, weights: Sequence[float] | None = None, k: int = RRF_K
) -> list[tuple[str, float]]:
    """Fuse rankings by the ranks of their ids.

    An id's score is the sum over rankings of weight / (k + rank), with ranks from 1. Without weights, this is the
    formula of Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009.

    Args:
        rankings: Ids, best first. If a ranking repeats an id, its first rank counts.
        weights: The weight of each ranking. Defaults to 1 for each. A ranking of weight 0 is ignored.
        k: The constant of the formula.

    Returns:
        Ids with their scores, best first. Equal scores are ordered by id.

    Raises:
        ConfigError: If a weight is negative or not finite, or the number of weights is not the number of rankings.
    """
    weights = [1.0] * len(rankings) if weights is None else list(weights)
    if len(weights) != len(rankings) or not all(0 <= weight < math.inf for weight in weights):
        raise ConfigError(
            f"{len(rankings)} rankings must have {len(rankings)} finite weights that are not negative; got {weights}"
        )
    parts: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        if weight == 0:
            continue
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            parts.setdefault(item, []).append(weight / (k + rank))
    # The exact sum does not depend on the order of the rankings, so ids with equal ranks have equal scores.
    scores = {item: math.fsum(terms) for item, terms in parts.items()}
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def score_fusion(
    hits_by_retriever: Mapping[str, Sequence[tuple[str, float]]], weights: Mapping[str, float]
) -> list[tuple[str, float]]:
    """Fuse the hits of retrievers by their scaled scores.

    Args:
        hits_by_retriever: The hits of each retriever as (id, score). If a retriever did not return an id, the id gets
            score 0 from it.
        weights: The weight of each retriever. A retriever that is not named has weight 1. One with weight 0 is ignored.

    Returns:
        Ids with the weighted mean of their scaled scores, from 0 to 1, best first. Equal scores are ordered by id.
    """
    active = {name: weight for name in hits_by_retriever if (weight := weights.get(name, 1.0)) > 0}
    total = sum(active.values())
    scores: dict[str, float] = {}
    for name, weight in active.items():
        for item, score in scaled_scores(hits_by_retriever[name]).items():
            scores[item] = scores.get(item, 0.0) + weight / total * score
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def scaled_scores(hits: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return each id's score, scaled so that the lowest becomes 0 and the highest 1. Equal scores all become 1.

    A score that is not finite, for example because a vector is damaged, becomes 0.
    """
    finite = [score for _, score in hits if math.isfinite(score)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    spread = high - low
    return {
        item: ((score - low) / spread if spread > 0 else 1.0) if math.isfinite(score) else 0.0 for item, score in hits
    }


@dataclass(frozen=True, slots=True)
class FusedCandidate:
    """A chunk id with its fused score and the score of each retriever."""

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
    """Search with all retrievers and fuse their hits.

    Each retriever contributes `per_retriever` chunks that are not in `exclude`. To have enough of them, the search
    requests one more hit for each excluded id. A filter that excludes the ids would make a dense query linear in the
    collection.

    Args:
        retrievers: The retrievers. A retriever with weight 0 is not used.
        weights: Their weights in this corpus. `query_weights` adapts them to the query.
        query: The query.
        exclude: Ids of chunks to leave out.
        where: A metadata filter.
        limit: The maximum number of candidates to return.
        per_retriever: The number of hits from each retriever that are fused.
        executor: The executor that runs the searches in parallel. If it is None, they run one after the other.

    Returns:
        Candidates, best first.
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
"""The largest share of a question's weight on unknown words for which the weights of the corpus stay unchanged."""
UNKNOWN_EFFECT = 4.0
"""How fast the weight of BM25 falls beyond that share: by a factor of e for each quarter."""
CLEAR_LEAD = 0.3
"""The lead of the first hit by words over the fifth, from which it stands out even if other words are unknown.

The three values were chosen on 65 to 150 questions of each of twelve sets, with static and MiniLM vectors, and on the
notes of `benchmarks/coded_releases.py`. Three sets have no train split, so their dev questions were used. No set lost
more than .004 of recall@5. Without this value, questions in everyday words about schemas (spider-tables) lost .015.
"""


UNKNOWN_LANGUAGE_WEIGHT = 0.2
"""The factor of the weight of an embedder that does not know the language of the query.

On 342 dev questions of thirteen corpora in eleven other languages, hybrid search with static vectors has a recall@5 of
.755 without this factor and .781 with it. With MiniLM's vectors, it has .772 and .788.
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
        weights: Their weights in this corpus. A retriever that is not named has weight 1.
        query: The query.
        hits: The hits of each retriever as (id, score), best first.

    Returns:
        The weights for this query. If words cannot tell which passage the query means, the retrievers that do not use
        words get more weight. An embedder that does not know the language of the query cannot tell either. It then has
        less weight, and the other weights stay unchanged.
    """
    adapted = {retriever.name: weights.get(retriever.name, 1.0) for retriever in retrievers}
    unfamiliar = [it.name for it in retrievers if isinstance(it, KnowsLanguage) and not it.knows_language(query)]
    if unfamiliar:
        return adapted | {name: UNKNOWN_LANGUAGE_WEIGHT * adapted[name] for name in unfamiliar}
    for retriever in retrievers:
        if not isinstance(retriever, KnowsWords) or _lead(hits[retriever.name]) >= CLEAR_LEAD:
            continue
        excess = max(0.0, retriever.unknown_share(query) - UNKNOWN_SHARE)
        adapted[retriever.name] /= math.exp(UNKNOWN_EFFECT * excess)
    return adapted


def _lead(hits: Sequence[tuple[str, float]]) -> float:
    """Return (first - fifth) / first, from the scores of the first and the fifth hit.

    If there are fewer than five hits, use the last one instead of the fifth. A single hit gives 1, and no hit gives 0.
    """
    if len(hits) < 2:
        return float(len(hits))
    first, fifth = hits[0][1], hits[:5][-1][1]
    return (first - fifth) / first if first > 0 else 0.0


def hits_of(
    query: str, candidates: Sequence[FusedCandidate], chunks: Mapping[str, Chunk], reranker: Reranker | None, limit: int
) -> list[Hit]:
    """Return the candidates as hits with their chunks. Ids without a chunk are dropped.

    If there is a reranker, it decides the order. A `HitReranker` also counts the order of the search. If it does not
    return a finite score for each text, raise `RerankerError`.
    """
    candidates = [candidate for candidate in candidates if candidate.id in chunks]
    scores = [candidate.score for candidate in candidates]
    if reranker is not None and candidates:
        # A search without a reranker starts without this module.
        from context_agent.retrieval.rerankers import HitReranker, checked_scores

        texts = [chunks[candidate.id].indexed_text for candidate in candidates]
        score = reranker.score_hits if isinstance(reranker, HitReranker) else reranker.score
        scores = checked_scores(reranker, score(query, texts), len(texts)).tolist()
    ordered = sorted(zip(scores, candidates, strict=True), key=lambda pair: -pair[0])[:limit]
    return [
        Hit(chunks[candidate.id], score, rank, candidate.dense, candidate.sparse)
        for rank, (score, candidate) in enumerate(ordered, start=1)
    ]


def reranked(reranker: Reranker, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
    """Return the reranker's score of each chunk, shape (n,).

    If it does not return a finite score for each chunk, raise `RerankerError`.
    """
    from context_agent.retrieval.rerankers import checked_scores

    scores = reranker.score(query, [chunk.indexed_text for chunk in chunks])
    return checked_scores(reranker, scores, len(chunks))
