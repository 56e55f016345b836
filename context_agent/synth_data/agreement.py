"""How far judges agree: with each other, and with the automatic verification.

Every value has a percentile bootstrap interval over tasks.

Sources: J. Cohen, A coefficient of agreement for nominal scales (1960); K. Krippendorff, Computing Krippendorff's
alpha-reliability (2011), nominal metric.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

UnitT = TypeVar("UnitT")
RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A value over `n` tasks with its 95 % interval. None if the value is undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.value is None:
            return f"undefined (n = {self.n})"
        between = f" [{self.low:.3f}, {self.high:.3f}]" if self.low is not None else ""
        return f"{self.value:.3f}{between} (n = {self.n})"


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """One judge: how many tasks they judged and accepted, and how often the verification said the same.

    `kappa` corrects that share for chance agreement. It is undefined if the verification passed every judged task.
    """

    judged: int
    accepted: int
    accept_rate: IntervalEstimate
    verification: IntervalEstimate
    kappa: IntervalEstimate


@dataclass(frozen=True, slots=True)
class Agreement:
    """All judges by name; for each pair the share of equal verdicts and Cohen's kappa.

    Krippendorff's alpha over all.
    """

    judges: dict[str, JudgeAgreement]
    equal: dict[str, IntervalEstimate]
    kappa: dict[str, IntervalEstimate]
    alpha: IntervalEstimate


def measure_agreement(
    verdicts: Mapping[str, Mapping[str, bool]], verified: Mapping[str, bool], *, seed: int = 0
) -> Agreement:
    """Return the agreement of `verdicts[judge][task]`, True for accepted, and the verification's `verified[task]`."""
    judges = {name: _judge_agreement(by_task, verified, seed) for name, by_task in sorted(verdicts.items())}
    equal, kappas = {}, {}
    for judge_a, judge_b in combinations(sorted(verdicts), 2):
        both = [
            (verdicts[judge_a][task], verdicts[judge_b][task])
            for task in _sorted_tasks(verdicts[judge_a])
            if task in verdicts[judge_b]
        ]
        equal[f"{judge_a}, {judge_b}"] = estimate(both, equal_share, seed)
        kappas[f"{judge_a}, {judge_b}"] = estimate(both, cohen_kappa, seed)
    tasks = sorted({task for by_task in verdicts.values() for task in by_task})
    units = [[by_task[task] for _, by_task in sorted(verdicts.items()) if task in by_task] for task in tasks]
    return Agreement(
        judges, equal, kappas, estimate([unit for unit in units if len(unit) > 1], krippendorff_alpha, seed)
    )


def equal_share(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Return the share of pairs with two equal values; None without pairs."""
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else None


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """kappa = (p_o - p_e) / (1 - p_e) for two judges; None without pairs, or if the expected agreement is 1."""
    observed = equal_share(pairs)
    if observed is None:
        return None
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(first[value] * second[value] for value in first) / len(pairs) ** 2
    return None if chance == 1 else (observed - chance) / (1 - chance)


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float | None:
    """alpha = 1 - D_o / D_e, nominal, for any number of judges per unit; units with one value are ignored.

    None without pairs of values, or if all values are equal.
    """
    paired = [Counter(unit) for unit in units if len(unit) > 1]
    totals = sum(paired, Counter[Hashable]())
    n = totals.total()
    expected = n * n - sum(count * count for count in totals.values())
    if not expected:
        return None
    # Values of a unit that differ, each ordered pair weighted by 1 / (values of the unit - 1).
    observed = sum(
        (unit.total() ** 2 - sum(count * count for count in unit.values())) / (unit.total() - 1) for unit in paired
    )
    return 1 - (n - 1) * observed / expected


def estimate(
    units: Sequence[UnitT], statistic: Callable[[Sequence[UnitT]], float | None], seed: int
) -> IntervalEstimate:
    """Return the statistic over the units with its interval; resamples for which it is undefined are ignored."""
    point = statistic(units)
    if point is None:
        return IntervalEstimate(None, None, None, len(units))
    draw = random.Random(seed)
    drawn = (statistic(draw.choices(units, k=len(units))) for _ in range(RESAMPLES))
    values = sorted(value for value in drawn if value is not None)
    tail = int(len(values) * (1 - CONFIDENCE) / 2)
    return (
        IntervalEstimate(point, values[tail], values[-1 - tail], len(units))
        if values
        else IntervalEstimate(point, None, None, len(units))
    )


def _judge_agreement(by_task: Mapping[str, bool], verified: Mapping[str, bool], seed: int) -> JudgeAgreement:
    pairs = [(by_task[task], verified[task]) for task in _sorted_tasks(by_task) if task in verified]
    accepted = [by_task[task] for task in _sorted_tasks(by_task)]
    return JudgeAgreement(
        judged=len(accepted),
        accepted=sum(accepted),
        accept_rate=estimate(accepted, _mean, seed),
        verification=estimate(pairs, equal_share, seed),
        kappa=estimate(pairs, cohen_kappa, seed),
    )


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _sorted_tasks(by_task: Mapping[str, bool]) -> list[str]:
    """Return a judge's tasks in an order that does not depend on the order of judging."""
    return sorted(by_task)
