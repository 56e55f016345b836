"""The agreement of judges with each other, and with the automatic verification.

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
    """A value with its 95% interval over tasks.

    Attributes:
        value: The value. None if it is undefined.
        low: The lower end of the interval. None if it is undefined.
        high: The upper end of the interval. None if it is undefined.
        n: The number of tasks.
    """

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
    """The judgments of one judge, and how often the automatic verification agrees.

    Attributes:
        judged: The number of tasks that the judge judged.
        accepted: The number of tasks that the judge accepted.
        accept_rate: The share of the judged tasks that the judge accepted.
        verification: The share of the judged tasks on which the judge and the verification agree.
        kappa: Cohen's kappa of the judge and the verification. It is undefined if the verification passed every judged
            task.
    """

    judged: int
    accepted: int
    accept_rate: IntervalEstimate
    verification: IntervalEstimate
    kappa: IntervalEstimate


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of all judges.

    Attributes:
        judges: The agreement of each judge with the verification, by the judge's name.
        equal: For each pair of judges, the share of equal verdicts.
        kappa: For each pair of judges, Cohen's kappa.
        alpha: Krippendorff's alpha over all judges.
    """

    judges: dict[str, JudgeAgreement]
    equal: dict[str, IntervalEstimate]
    kappa: dict[str, IntervalEstimate]
    alpha: IntervalEstimate


def measure_agreement(
    verdicts: Mapping[str, Mapping[str, bool]], verified: Mapping[str, bool], *, seed: int = 0
) -> Agreement:
    """Return the agreement of judges with each other and with the verification.

    Args:
        verdicts: The verdicts by judge and task. True means accepted.
        verified: The verdicts of the automatic verification by task.
        seed: The seed of the bootstrap.
    """
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
    """Return the share of pairs with two equal values. If there are no pairs, return None."""
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else None


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Return Cohen's kappa of two judges: kappa = (p_o - p_e) / (1 - p_e).

    Here p_o is the share of equal judgments, and p_e is the share that is expected by chance. If there are no pairs,
    or if p_e is 1, return None.
    """
    observed = equal_share(pairs)
    if observed is None:
        return None
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(first[value] * second[value] for value in first) / len(pairs) ** 2
    return None if chance == 1 else (observed - chance) / (1 - chance)


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float | None:
    """Return Krippendorff's alpha for nominal values: alpha = 1 - D_o / D_e.

    Here D_o is the observed disagreement, and D_e is the disagreement that is expected by chance. A unit may have any
    number of judges. Units with fewer than two values are ignored. If no unit is left, or if all values are equal,
    return None.

    Args:
        units: The values that the judges gave to each unit.
    """
    paired = [Counter(unit) for unit in units if len(unit) > 1]
    totals = sum(paired, Counter[Hashable]())
    n = totals.total()
    expected = n * n - sum(count * count for count in totals.values())
    if not expected:
        return None
    # The ordered pairs of different values in a unit, each weighted by 1 / (number of values in the unit - 1).
    observed = sum(
        (unit.total() ** 2 - sum(count * count for count in unit.values())) / (unit.total() - 1) for unit in paired
    )
    return 1 - (n - 1) * observed / expected


def estimate(
    units: Sequence[UnitT], statistic: Callable[[Sequence[UnitT]], float | None], seed: int
) -> IntervalEstimate:
    """Return the statistic of the units with its interval.

    If the statistic is undefined for a resample, that resample is ignored.
    """
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
