"""The metrics of a step over all ranks. Each rank plays and measures its own share of the questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SUMS = frozenset(
    {
        *("episodes", "episodes_aborted", "episodes_trained", "episodes_unjudged", "groups_equal", "groups_refilled"),
        *("replies_truncated", "rows", "rows_stale", "tokens_sampled", "tokens_trained", "trajectories_failed"),
        *("demonstrations/episodes", "demonstrations/groups_without", "demonstrations/rows"),
        *("demonstrations/tokens", "demonstrations/trained"),
        *("judge/absent", "judge/calls", "judge/cost", "judge/tokens", "judge/wanted"),
    }
)
"""The metrics that count something, so that the values of the ranks are added."""


def gathered_metrics(accelerator: Any, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a step over all ranks. All ranks must call this together."""
    if accelerator.num_processes == 1:
        return dict(metrics)
    from accelerate.utils import gather_object

    return metrics_over_ranks(gather_object([dict(metrics)]))


def metrics_over_ranks(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics of a step over the episodes of all ranks.

    Counts are added. The time is that of the slowest rank. All other metrics are means over episodes, so a rank weighs
    as much as it has episodes. A rank without a metric does not count in its mean.

    Args:
        parts: The metrics of each rank.

    Returns:
        The metrics by name.
    """
    together = {name: _over_ranks(name, parts) for name in dict.fromkeys(name for part in parts for name in part)}
    if "reward_deviation" in together:
        squares = [{**part, "reward": part["reward"] ** 2 + part["reward_deviation"] ** 2} for part in parts]
        together["reward_deviation"] = math.sqrt(max(0.0, _over_ranks("reward", squares) - together["reward"] ** 2))
    if "sampled_per_second" in together:
        together["sampled_per_second"] = together["tokens_sampled"] / max(together["rollout_seconds"], 1e-9)
    return together


def _over_ranks(name: str, parts: Sequence[Mapping[str, float]]) -> float:
    having = [part for part in parts if name in part]
    if name in SUMS:
        return math.fsum(part[name] for part in having)
    if name.endswith("_seconds"):
        return max(part[name] for part in having)
    weights = [_weight(name, part) for part in having]
    total = math.fsum(weights)
    if not total:
        return having[0][name]
    return math.fsum(weight * part[name] for weight, part in zip(weights, having, strict=True)) / total


def _weight(name: str, part: Mapping[str, float]) -> float:
    if name.startswith("demonstrations/"):
        return part["demonstrations/episodes"]
    episodes = part.get("episodes", 0.0)
    return episodes * part["pruned"] if name == "prune_accuracy" else episodes
