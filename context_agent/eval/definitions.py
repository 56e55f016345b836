"""The table of metrics: what each is, which way is better, and how several rollouts of a question make one value.

A metric of kind `quality` counts 0 for a question that failed. One of kind `pruning` applies only to an episode that
showed or pruned something, and one of kind `cost` is what was spent, as far as that is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from context_agent.errors import ConfigError

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
