"""Means over questions with bootstrap intervals (Efron, 1979), and how good probabilities are; in numpy.

Intervals are those of the percentile method, seeded. The unit is the question. Values of several seeds are averaged per
question first, because two runs on the same question are not two questions. Two systems are compared by the interval of
their mean difference on the questions that both answered; reports say "better" if that interval excludes 0.

Probabilities are measured by the area under the ROC curve, the calibration error, and the reliability curve. m is the
number of predictions. Outcomes are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from context_agent.errors import DataError

RESAMPLES = 2000
LEVEL = 0.95
"""Share of the resampled means inside an interval."""
_BLOCK = 1 << 21
"""Draws held in memory at once."""
_CACHED = 1 << 21
"""Largest number of draws that are cached for the next cell with as many questions."""
_DIGITS = 10
"""Significant digits that are kept; further digits depend on the order in which a library sums."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over questions with its bootstrap 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], *, seed: int = 0) -> Self:
        """Return the mean of the values, resampled with replacement; there must be at least one value."""
        return cls(*mean_intervals(np.array(values, dtype=np.float64)[:, None], seed=seed)[0])

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_intervals(values: Floats, *, seed: int = 0) -> list[tuple[float, float, float]]:
    """Mean, low and high of each column of values, shape (questions, metrics); all columns share their resamples."""
    return _intervals(values.mean(axis=0), resampled(values, seed))


def pooled(strata: Sequence[Floats], *, seed: int = 0) -> list[tuple[float, float, float]]:
    """Return the same for the mean over benchmarks with equal weights, resampled within each benchmark (stratified).

    `strata` has an array of shape (questions, metrics) for each benchmark.
    """
    mean = np.mean([values.mean(axis=0) for values in strata], axis=0)
    draws = np.mean([resampled(values, seed + number) for number, values in enumerate(strata)], axis=0)
    return _intervals(mean, draws)


def resampled(values: Floats, seed: int = 0) -> Floats:
    """Means of the columns in each resample, shape (RESAMPLES, metrics)."""
    return np.concatenate([counts @ values for counts in _counts(len(values), seed)]) / len(values)


def _counts(size: int, seed: int) -> Iterator[Floats]:
    """Yield how often each row occurs in each resample, in blocks of resamples."""
    if size * RESAMPLES <= _CACHED:
        yield _drawn(size, seed).astype(np.float64)
        return
    draw = np.random.default_rng(seed)
    step = max(1, _BLOCK // size)
    for first in range(0, RESAMPLES, step):
        yield _counted(draw, min(step, RESAMPLES - first), size).astype(np.float64)


@lru_cache(maxsize=32)
def _drawn(size: int, seed: int) -> NDArray[np.uint16]:
    return _counted(np.random.default_rng(seed), RESAMPLES, size)


def _counted(draw: np.random.Generator, rows: int, size: int) -> NDArray[np.uint16]:
    drawn = draw.integers(0, size, (rows, size)) + size * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.uint16)


def _intervals(mean: Floats, draws: Floats) -> list[tuple[float, float, float]]:
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    return [(rounded(a), rounded(b), rounded(c)) for a, b, c in zip(mean, low, high, strict=True)]


def rounded(value: float) -> float:
    """Return the value without the digits that depend on the order of a sum."""
    return float(f"{value:.{_DIGITS}g}")


# Probabilities ------------------------------------------------------------------------------------------------------

BINS = 10
"""Bins of equal width in a reliability curve (Guo et al., 2017)."""
MEASURE_RESAMPLES = 1000
"""Resamples of a measure that is computed anew for each."""
Measure = Callable[[Floats, Floats], float]
"""A figure of probabilities and outcomes, both of shape (m,)."""


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Predictions of similar probability: how many, their mean probability, and the share whose outcome is 1."""

    count: int
    probability: float
    share: float


def reliability_curve(probabilities: ArrayLike, outcomes: ArrayLike, bins: int = BINS) -> list[ReliabilityBin]:
    """Return the bins of equal width that are not empty, by ascending probability. Raises `DataError`."""
    predicted, happened = _checked(probabilities, outcomes)
    numbers = np.minimum((predicted * bins).astype(int), bins - 1)
    return [
        ReliabilityBin(int(inside.sum()), float(predicted[inside].mean()), float(happened[inside].mean()))
        for inside in (numbers == number for number in np.unique(numbers))
    ]


def expected_calibration_error(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the mean distance of probability and share over the bins, by count (Naeini et al., 2015). Raises
    `DataError`.
    """
    curve = reliability_curve(probabilities, outcomes)
    total = sum(part.count for part in curve)
    return sum(part.count * abs(part.probability - part.share) for part in curve) / total


def roc_auc(scores: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the probability that a random positive scores above a random negative; ties count half (Hanley, McNeil,
    1982).

    Raises `DataError` without positives or without negatives.
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64) > 0
    count = int(positive.sum())
    if values.shape != positive.shape or not 0 < count < len(positive):
        raise DataError(f"the area under the ROC curve needs both outcomes; got {count} of {len(positive)} positive")
    return float((shared_ranks(values)[positive].sum() - count * (count + 1) / 2) / (count * (len(positive) - count)))


def shared_ranks(values: Floats) -> Floats:
    """Return the ranks of the values, from 1, shape (m,). Equal values share the mean of their ranks."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[position]
    return ranks


def measure_interval(measure: Measure, probabilities: ArrayLike, outcomes: ArrayLike, groups: Sequence[str]) -> Figure:
    """Return the measure with its bootstrap interval, resampled by group, e.g. the question that predictions belong to.

    A resample that the measure is not defined for, such as one without positives, is left out.
    """
    predicted, happened = _checked(probabilities, outcomes)
    rows_of: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    parts, draw = [np.array(rows) for rows in rows_of.values()], np.random.default_rng(0)
    values = []
    for _ in range(MEASURE_RESAMPLES):
        rows = np.concatenate([parts[number] for number in draw.integers(0, len(parts), len(parts))])
        with suppress(DataError):
            values.append(measure(predicted[rows], happened[rows]))
    low, high = np.quantile(values, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Figure(measure(predicted, happened), float(low), float(high))


def _checked(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[Floats, Floats]:
    predicted, happened = np.asarray(probabilities, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    if predicted.shape != happened.shape or predicted.ndim != 1 or not len(predicted):
        raise DataError(f"{predicted.size} probabilities and {happened.size} outcomes: pass equally many, at least one")
    if not (np.all(predicted >= 0) and np.all(predicted <= 1)):
        raise DataError("a probability must be a number from 0 to 1")
    return predicted, happened
