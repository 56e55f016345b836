"""The table of metrics, and the formulas of those that compare ids with gold.

There are three kinds of metrics. A metric of kind `quality` is 0 for a question that failed. A metric of kind `pruning`
applies only to episodes that showed or pruned something. A metric of kind `cost` measures what was spent, if it
is known.

The formulas are pure functions with values in [0, 1]. The gold of a question is a number of facts. A fact is a list of
ids, and finding any one of them is enough (Context-1, section 4, scores some sets this way). A gold document is a fact
with one id. A ranking is passed as the facts that each of its items finds (`Gold.found_by`).

A question without facts raises `DataError`. It has no score, and an invented one would distort a mean. On document ids
the functions are the measures R@k, nDCG@k, SetR and SetP of trec_eval, with binary gains.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from context_agent.errors import ConfigError, DataError

DEPTHS = (5, 10)
"""The default depths at which the ranking is measured, in documents."""
BETAS = (2.0, 4.0)
"""The betas of the F-measures besides F1.

The published reward anneals between these two values (Context-1, section 3).
"""

Finds = Sequence[AbstractSet[int]]
"""The indices of the facts that the item at each rank finds."""


class MetricKind(StrEnum):
    """The aspect of an answer that a metric measures."""

    QUALITY = "quality"
    PRUNING = "pruning"
    COST = "cost"


class Direction(StrEnum):
    """The direction in which a metric gets better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric.

    Attributes:
        name: The name, such as `recall@5`.
        what: A phrase that says what the metric measures.
        kind: The aspect of an answer that it measures.
        better: Whether higher or lower values are better.
        rollouts: How the values of several rollouts are combined into one.
        unit: The unit. It is empty for a share from 0 to 1.
        headline: Whether the metric appears in the short table and in the breakdowns by type, hops and seed.
    """

    name: str
    what: str
    kind: MetricKind
    better: Direction
    rollouts: str
    unit: str = ""
    headline: bool = False


def _quality(name: str, what: str, rollouts: str = "the fused ranking", *, headline: bool = False) -> Metric:
    return Metric(name, what, MetricKind.QUALITY, Direction.HIGHER, rollouts, headline=headline)


def _pruning(name: str, what: str) -> Metric:
    return Metric(name, what, MetricKind.PRUNING, Direction.HIGHER, "counts are summed, then divided")


def _cost(
    name: str,
    what: str,
    unit: str,
    rollouts: str = "sum",
    better: Direction = Direction.LOWER,
    *,
    headline: bool = False,
) -> Metric:
    return Metric(name, what, MetricKind.COST, better, rollouts, unit, headline)


_AT_DEPTH = (
    ("recall", "Share of the gold among the first {k} of the ranking", True),
    ("ndcg", "nDCG of the ranking's first {k}, gains 0 and 1, as trec_eval computes it", False),
    ("all_gold", "1 if all gold is among the first {k} of the ranking, else 0", True),
)
_F_BETA = "F-beta of output precision and recall, in which recall weighs {weight:g} times as much as precision"
_OUTPUT = (
    _quality("recall", "Share of the gold documents, or of the facts, that are in the output", headline=True),
    _quality("precision", "Share of the output documents that are gold or contain a fact"),
    _quality("f1", "Harmonic mean of output precision and recall", headline=True),
)
_EPISODE = (
    _quality("answer_found", "1 if an output document contains the answer's words, else 0", headline=True),
    _quality(
        "trajectory_recall",
        "Share of the gold among everything shown, pruned or not",
        "the union of what was shown",
        headline=True,
    ),
    _quality("held_recall", "Share of the gold that is still in the final view", "the union of the final views"),
    _pruning("prune_accuracy", "Share of the pruned chunks that are not gold, each chunk once"),
    _pruning("prune_recall", "Share of the shown chunks without gold that the final view leaves out"),
    _cost("turns", "Actions with calls whose results were returned", "turns", headline=True),
    _cost("calls", "Tool calls, including refused ones", "calls"),
    _cost("calls_per_turn", "Calls divided by turns", "calls", "summed calls over summed turns", Direction.NEITHER),
    _cost("critical_steps", "Actions that had to run one after another, with the slowest sub-agent of each turn",
          "steps", "max", headline=True),
    _cost("tokens", "Tokens ever placed in the context, pruned or not", "tokens", headline=True),
    _cost("prompt_tokens", "Tokens that a server reads, which are the views of all actions", "tokens"),
    _cost("cached_tokens", "Prompt tokens that repeat the previous prompt and reply", "tokens",
          better=Direction.HIGHER),
    _cost("sampled_tokens", "Tokens of the policy's actions", "tokens"),
    _cost("lost_tokens", "Tokens that must be read again because an edit changed the text before them", "tokens"),
    _cost("freed_tokens", "Tokens that edits removed from the view, minus those they restored", "tokens",
          better=Direction.NEITHER),
    _cost("context_end", "Size of the final view", "tokens", "max"),
    _cost("context_peak", "Size of the largest view that an action was taken on", "tokens", "max"),
    _cost("mistakes", "Calls that were refused, or failed because of the policy", "calls"),
    _cost("dropped_ids", "Ids that the final ranking drops because they were pruned or never shown", "ids"),
    _cost("money", "Price of the prompt, cached and sampled tokens", "money"),
    _cost("seconds", "Wall time", "s", "until the last one ended"),
)  # fmt: skip


def metric_table(depths: Iterable[int] = DEPTHS, betas: Iterable[float] = BETAS) -> tuple[Metric, ...]:
    """Return the metrics for these depths and betas, in the order of the reports.

    Args:
        depths: The depths of the ranking, in documents.
        betas: The betas of the F-measures. F1 is always included.

    Raises:
        ConfigError: If a depth or a beta is not positive, or is not finite.
    """
    depths, betas = list(depths), list(betas)
    if any(k < 1 for k in depths) or not all(0 < beta < math.inf for beta in betas):
        raise ConfigError(f"depths and betas must be positive and finite; got {depths} and {betas}")
    depths, betas = sorted(set(depths)), sorted(set(betas) - {1.0})
    f_betas = [_quality(f"f{beta:g}", _F_BETA.format(weight=beta * beta)) for beta in betas]
    at_depth = [
        _quality(f"{name}@{k}", what.format(k=k), headline=headline and k == depths[0])
        for name, what, headline in _AT_DEPTH
        for k in depths
    ]
    return (*_OUTPUT, *f_betas, *at_depth, *_EPISODE)


METRICS = {metric.name: metric for metric in metric_table()}
"""The metrics of the default depths and betas, by name."""


def find_metric(name: str) -> Metric:
    """Return the metric with this name, at any depth or beta.

    Raises:
        ConfigError: If the name is unknown.
    """
    if name in METRICS:
        return METRICS[name]
    depth = re.fullmatch(r"(?:recall|ndcg|all_gold)@([1-9]\d{0,5})", name)
    beta = re.fullmatch(r"f(\d+(?:\.\d+)?)", name)
    try:
        table = metric_table([int(depth[1])] if depth else DEPTHS, [float(beta[1])] if beta else BETAS)
        return next(metric for metric in table if metric.name == name)
    except (ConfigError, StopIteration):
        raise ConfigError(f"unknown metric {name!r}. Choose from {', '.join(METRICS)}.") from None


def in_table_order(names: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics with these names, in the order of `metric_table`.

    Raises:
        ConfigError: If a name is unknown.
    """
    metrics = {name: find_metric(name) for name in sorted(set(names))}
    depths = [int(name.partition("@")[2]) for name in metrics if "@" in name]
    betas = [float(name[1:]) for name in metrics if name[0] == "f" and name[1:2].isdigit()]
    return tuple(metric for metric in metric_table(depths or DEPTHS, betas) if metric.name in metrics)


def leading_metric(names: Iterable[str]) -> str:
    """Return the name of the metric that summarizes a run.

    It is the first recall at a depth. If there is none, it is output recall.
    """
    return next((name for name in names if name.startswith("recall@")), "recall")


def recall_of(items: Finds, facts: int) -> float:
    """Return the share of the facts that the items find.

    Any id of a fact is enough to find it, as in Context-1.

    Args:
        items: The facts that each item finds.
        facts: The number of facts.

    Raises:
        DataError: If there are no facts.
    """
    return len(_union(items)) / _checked(facts)


def precision_of(items: Finds) -> float:
    """Return the share of the items that find a fact. Without items, return 0.

    The published metrics don't define precision over facts, so this definition is the project's own. A second id of a
    known fact counts as correct, because corpora that are scored by fact contain repetitions.

    Args:
        items: The facts that each item finds.
    """
    return sum(bool(item) for item in items) / len(items) if items else 0.0


def all_gold_of(items: Finds, facts: int) -> float:
    """Return 1 if the items find every fact, and 0 otherwise.

    Args:
        items: The facts that each item finds.
        facts: The number of facts.

    Raises:
        DataError: If there are no facts.
    """
    return float(len(_union(items)) == _checked(facts))


def ndcg_of(items: Finds, facts: int, k: int) -> float:
    """Return the nDCG of the first `k` items, with gains discounted by log2(1 + rank).

    An item gains 1 for each fact that no earlier item found. The ideal ranking finds one fact at each rank. For
    documents this is the usual measure. For facts the definition is the project's own: an item that finds two facts at
    once could exceed the ideal, so the value is capped at 1.

    Args:
        items: The facts that each item finds, best item first.
        facts: The number of facts.
        k: The number of items to measure.

    Raises:
        DataError: If there are no facts.
    """
    covered: set[int] = set()
    gain = 0.0
    for rank, item in enumerate(items[:k], start=1):
        gain += len(item - covered) / math.log2(1 + rank)
        covered |= item
    ideal = sum(1 / math.log2(1 + rank) for rank in range(1, min(k, _checked(facts)) + 1))
    return min(1.0, gain / ideal) if ideal else 0.0


def f_beta(precision: float, recall: float, beta: float = 1.0) -> float:
    """Return van Rijsbergen's F: (1 + b²)·P·R / (b²·P + R), in which recall weighs b² times as much as precision.

    If precision and recall are 0, return 0. The parameter of trec_eval's set_F is b², so `f_beta(p, r, 4)` equals its
    set_F.16.
    """
    weight = beta * beta
    denominator = weight * precision + recall
    return (1 + weight) * precision * recall / denominator if denominator else 0.0


def prune_accuracy(pruned: Iterable[Hashable], gold: AbstractSet[Hashable]) -> float | None:
    """Return 1 minus the share of the pruned ids that are gold, as published for Context-1.

    An id counts once, however often it was pruned and even if it was restored later. If nothing was pruned, return
    None.
    """
    ids = set(pruned)
    return 1 - len(ids & gold) / len(ids) if ids else None


def prune_recall(
    shown_ids: Iterable[Hashable], final_view: AbstractSet[Hashable], gold: AbstractSet[Hashable]
) -> float | None:
    """Return the share of the shown ids without gold that are no longer in the final view.

    The definition is the project's own. If everything shown was gold, return None.
    """
    not_gold = set(shown_ids) - gold
    return len(not_gold - final_view) / len(not_gold) if not_gold else None


def _union(items: Finds) -> set[int]:
    return set().union(*items)


def _checked(facts: int) -> int:
    if facts < 1:
        raise DataError("a question without gold has no score. Leave it out, or give it gold documents or facts.")
    return facts
