"""Metrics of one question: pure functions on ids. What they are computed on is `scoring`'s business, not theirs.

There are two kinds of gold. By document: a list of ids, each of which counts. By fact: a list of facts, each a list of
ids of which any one is enough (Context-1, section 4, scores some sets so); a document is the fact of one id. Ids that
come twice count once, at their first place. Values lie in [0, 1]. Gold that is empty raises `DataError`: a question
without gold has no score, and a made-up one would spoil a mean.

On document ids the functions are the measures R@k, nDCG@k, SetR and SetP of trec_eval, with binary gains.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from context_agent.errors import DataError

Facts = Sequence[Collection[str]]
"""Facts, each the ids of which any one is enough."""
Finds = Sequence[AbstractSet[int]]
"""For each place of a ranking the indices of the facts that the item there finds."""


def recall(found: Iterable[str], gold: Collection[str]) -> float:
    """Share of the gold ids that were found."""
    return fact_recall(found, _each(gold))


def precision(found: Iterable[str], gold: Collection[str]) -> float:
    """Share of the ids found that are gold; 0 where nothing was found."""
    return fact_precision(found, _each(gold))


def f_beta(precision: float, recall: float, beta: float = 1.0) -> float:
    """Van Rijsbergen's F: (1 + b²)·P·R / (b²·P + R), in which recall weighs b² times as much as precision.

    0 where both are 0. trec_eval's set_F takes b² for its parameter: `f_beta(p, r, 4)` is its set_F.16.
    """
    weight = beta * beta
    below = weight * precision + recall
    return (1 + weight) * precision * recall / below if below else 0.0


def recall_at(ranked: Iterable[str], gold: Collection[str], k: int) -> float:
    """Share of the gold ids among the first k."""
    return recall_of(finds(ranked, _each(gold))[:k], len(set(gold)))


def ndcg(ranked: Iterable[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain at k with gains of 0 and 1, discounted by log2(1 + place)."""
    return ndcg_of(finds(ranked, _each(gold)), len(set(gold)), k)


def fact_recall(found: Iterable[str], facts: Facts) -> float:
    """Share of the facts of which some id was found (Context-1: a fact is found when any of its chunks is)."""
    return recall_of(finds(found, facts), len(facts))


def fact_precision(found: Iterable[str], facts: Facts) -> float:
    """Share of the ids found that belong to some fact; 0 where nothing was found.

    The definition is this project's, the published one says nothing of precision. A second id of a fact that was
    found already is right as well: corpora that are scored by fact repeat themselves.
    """
    return precision_of(finds(found, facts))


def finds(ranked: Iterable[str], facts: Facts) -> list[frozenset[int]]:
    """For each distinct id of the ranking, in order, the facts it finds."""
    places: dict[str, set[int]] = {}
    for number, fact in enumerate(facts):
        for one in fact:
            places.setdefault(one, set()).add(number)
    return [frozenset(places.get(one, ())) for one in dict.fromkeys(ranked)]


def recall_of(found: Finds, facts: int) -> float:
    """Share of the facts that the items find, of how many `facts` there are."""
    return len(_union(found)) / _some(facts)


def precision_of(found: Finds) -> float:
    """Share of the items that find a fact."""
    return sum(bool(one) for one in found) / len(found) if found else 0.0


def all_of(found: Finds, facts: int) -> float:
    """1 where the items find every fact, else 0."""
    return float(len(_union(found)) == _some(facts))


def ndcg_of(found: Finds, facts: int, k: int) -> float:
    """nDCG at k, where an item gains 1 for each fact that none before it found, and the ideal finds one a place.

    For documents that is the usual measure. An item that finds two facts at once may pass the ideal: the value is
    then 1. That reading for facts is this project's.
    """
    known: set[int] = set()
    gained = 0.0
    for place, one in enumerate(found[:k], start=1):
        gained += len(one - known) / math.log2(1 + place)
        known |= one
    ideal = sum(1 / math.log2(1 + place) for place in range(1, min(k, _some(facts)) + 1))
    return min(1.0, gained / ideal) if ideal else 0.0


def prune_accuracy(pruned: Iterable[Hashable], gold: AbstractSet[Hashable]) -> float | None:
    """1 - (pruned ids that are gold) / (all pruned ids), as published; None where nothing was pruned.

    An id counts once however often it was pruned, and counts although it was restored later.
    """
    ids = set(pruned)
    return 1 - len(ids & gold) / len(ids) if ids else None


def prune_recall(shown: Iterable[Hashable], kept: AbstractSet[Hashable], gold: AbstractSet[Hashable]) -> float | None:
    """How much of what should go went: of the ids shown that are not gold, the share that is not in the final view.

    `kept` are the ids in the final view. None where everything shown was gold. The definition is this project's.
    """
    waste = set(shown) - gold
    return len(waste - kept) / len(waste) if waste else None


def _each(gold: Collection[str]) -> list[tuple[str]]:
    return [(one,) for one in dict.fromkeys(gold)]


def _union(found: Finds) -> set[int]:
    return set().union(*found)


def _some(facts: int) -> int:
    if facts < 1:
        raise DataError("a question without gold has no score: leave it out, or give it gold documents or facts")
    return facts
