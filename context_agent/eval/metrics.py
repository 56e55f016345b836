"""Metrics of one question: pure functions on ids. What they are computed on is `scoring`'s business, not theirs.

There are two kinds of gold. By document: a list of ids, each of which counts. By fact: a list of facts, each a list of
ids of which any one is enough (Context-1, section 4, scores some sets so); a document is the fact of one id. Ids that
come twice count once, at their first place. Values lie in [0, 1]. Gold that is empty raises `DataError`: a question
without gold has no score, and a made-up one would spoil a mean.

On document ids the functions are the measures R@k, nDCG@k, SetR and SetP of trec_eval, with binary gains.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from context_agent.errors import ConfigError, DataError

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


def all_gold_at(ranked: Iterable[str], gold: Collection[str], k: int) -> float:
    """1 where every gold id is among the first k, else 0; so always 0 where more than k ids are gold."""
    return all_of(finds(ranked, _each(gold))[:k], len(set(gold)))


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


KS = (5, 10)
"""Depths at which the ranking is measured unless asked otherwise."""
BETAS = (2.0, 4.0)
"""F-beta beside F1: the two ends of the published reward's annealing (Context-1, section 3)."""


class Kind(StrEnum):
    """What a metric tells."""

    QUALITY = "quality"
    PRUNING = "pruning"
    COST = "cost"


class Better(StrEnum):
    """Which way a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `unit` is empty for a share between 0 and 1. `rollouts` says how several rollouts make one value.

    `headline` metrics are broken down by type and hops, and stand in the short table.
    """

    name: str
    what: str
    kind: Kind
    better: Better
    rollouts: str
    unit: str = ""
    headline: bool = False


def _quality(name: str, what: str, rollouts: str = "the fused ranking", *, headline: bool = False) -> Metric:
    return Metric(name, what, Kind.QUALITY, Better.HIGHER, rollouts, headline=headline)


def _pruning(name: str, what: str) -> Metric:
    return Metric(name, what, Kind.PRUNING, Better.HIGHER, "counts are summed, then divided")


def _cost(
    name: str, what: str, unit: str, rollouts: str = "sum", better: Better = Better.LOWER, *, headline: bool = False
) -> Metric:
    return Metric(name, what, Kind.COST, better, rollouts, unit, headline)


_FOUND = "the gold of the output: documents, or facts where the question has them"
_AT = (
    ("recall", "Share of the gold among the first {k} of the ranking", True),
    ("ndcg", "nDCG of the ranking's first {k}, gains 0 and 1, as trec_eval has it", False),
    ("all_gold", "1 where all gold is among the first {k} of the ranking, else 0", True),
)
_F = "F-beta of output precision and recall: recall weighs {weight:g} times as much as precision"
_ENDS = (
    _quality("recall", f"Output recall: share of {_FOUND}", headline=True),
    _quality("precision", "Output precision: share of the output documents that are gold, or hold a fact"),
    _quality("f1", "Harmonic mean of output precision and recall", headline=True),
)
_EPISODE = (
    _quality("answer_found", "1 where an output document holds the answer's words, else 0", headline=True),
    _quality(
        "trajectory_recall",
        "Share of the gold among all that was ever shown, pruned or not",
        "the union of what was shown",
        headline=True,
    ),
    _quality("held_recall", "Share of the gold that is still in the final view", "the union of the final views"),
    _pruning("prune_accuracy", "1 - (pruned chunks that are gold) / (all pruned chunks), each chunk once"),
    _pruning("prune_recall", "Share of the chunks shown that are not gold and are not in the final view either"),
    _cost("turns", "Actions with calls whose results came back", "turns", headline=True),
    _cost("calls", "Tool calls, refused ones too", "calls"),
    _cost("calls_per_turn", "Calls divided by turns", "calls", "summed calls over summed turns", Better.NEITHER),
    _cost("critical_steps", "Actions that had to wait for each other: sum of S_main + max S_sub", "steps", "max",
          headline=True),
    _cost("tokens", "Tokens ever placed in the context, pruned or not", "tokens", headline=True),
    _cost("prompt_tokens", "Tokens a server reads: the size of the view, summed over the actions", "tokens"),
    _cost(
        "cached_tokens", "Prompt tokens that repeat the previous prompt and reply", "tokens", better=Better.HIGHER
    ),
    _cost("sampled_tokens", "Tokens of the policy's actions", "tokens"),
    _cost("lost_tokens", "Tokens behind an edit whose cached prefix it broke", "tokens"),
    _cost("freed_tokens", "Tokens that edits took out of the view, less those they brought back", "tokens",
          better=Better.NEITHER),
    _cost("context_end", "Size of the final view", "tokens", "max"),
    _cost("context_peak", "Size of the largest view an action was taken on", "tokens", "max"),
    _cost("mistakes", "Calls that were refused or failed by the policy's doing", "calls"),
    _cost("dropped_ids", "Ids of the final ranking that it could not stand on: pruned, or never seen", "ids"),
    _cost("money", "Price of the prompt, cached and sampled tokens", "money"),
    _cost("seconds", "Wall time", "s", "until the last one ended"),
)  # fmt: skip


def table(ks: Iterable[int] = KS, betas: Iterable[float] = BETAS) -> tuple[Metric, ...]:
    """The metrics for these depths and betas, in the order reports show them. Raises `ConfigError`."""
    ks, betas = sorted(set(ks)), sorted(set(betas) - {1.0})
    if any(k < 1 for k in ks) or any(beta <= 0 for beta in betas):
        raise ConfigError(f"depths and betas must be positive; got {ks} and {betas}")
    f = [_quality(f"f{beta:g}", _F.format(weight=beta * beta)) for beta in betas]
    at = [
        _quality(f"{name}@{k}", what.format(k=k), headline=headline and k == ks[0])
        for name, what, headline in _AT
        for k in ks
    ]
    return (*_ENDS, *f, *at, *_EPISODE)


METRICS = {metric.name: metric for metric in table()}
"""The metrics of a run with the default depths and betas, by name."""


def metric(name: str) -> Metric:
    """The metric of that name, at whatever depth or beta. Raises `ConfigError` for a name that is none."""
    if name in METRICS:
        return METRICS[name]
    depth = re.fullmatch(r"(?:recall|ndcg|all_gold)@([1-9]\d{0,5})", name)
    beta = re.fullmatch(r"f(\d+(?:\.\d+)?)", name)
    try:
        made = table([int(depth[1])] if depth else KS, [float(beta[1])] if beta else BETAS)
        return next(one for one in made if one.name == name)
    except (ConfigError, StopIteration):
        raise ConfigError(f"no metric {name!r}: choose among {', '.join(METRICS)}") from None


def ordered(names: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics of these names, in the order of `table`. Raises `ConfigError` for a name that is none."""
    wanted = {name: metric(name) for name in sorted(set(names))}
    depths = [int(name.partition("@")[2]) for name in wanted if "@" in name]
    betas = [float(name[1:]) for name in wanted if name[0] == "f" and name[1:2].isdigit()]
    return tuple(one for one in table(depths or KS, betas) if one.name in wanted)


def lead(names: Iterable[str]) -> str:
    """Of these metrics the one that stands for a run: recall at its smallest depth, else output recall."""
    return next((name for name in names if name.startswith("recall@")), "recall")
