"""Reciprocal rank fusion, and the protocol of what is fused. Pure functions over ids and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from context_agent.errors import ConfigError
from context_agent.retrieval.protocol import Where

RRF_K = 60
"""Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009."""


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
