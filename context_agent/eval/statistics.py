"""Means over questions with bootstrap intervals (Efron, 1979), and measures of the quality of probabilities.

Intervals come from the percentile method with a fixed seed. The unit of resampling is the question. Values of several
seeds are averaged per question first, because two runs of the same question are not two questions. Two systems are
compared by the interval of their mean difference on the questions that both answered. If that interval excludes 0, a
report says "better".

Probabilities are measured by the area under the ROC curve, the calibration error, and the reliability curve. In the
shapes below, m is the number of predictions. Outcomes are 0 or 1.
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
"""The share of the resampled means inside an interval."""
_BLOCK = 1 << 21
"""The maximum number of draws in memory at a time."""
_CACHED = 1 << 21
"""The maximum number of draws that are cached for the next cell with the same number of questions."""
_DIGITS = 10
"""The number of significant digits that are kept. Further digits depend on the order in which a library sums."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over questions, with the bounds `low` and `high` of its bootstrap 95% interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], *, seed: int = 0) -> Self:
        """Return the mean of the values with its interval. There must be at least one value."""
        return cls(*mean_intervals(np.array(values, dtype=np.float64)[:, None], seed=seed)[0])

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_intervals(values: Floats, *, seed: int = 0) -> list[tuple[float, float, float]]:
    """Return the mean, low and high of each column. All columns share their resamples.

    Args:
        values: Values, shape (n_questions, n_metrics).
        seed: The seed of the resampling.
    """
    return _intervals(values.mean(axis=0), resampled(values, seed))


def pooled(strata: Sequence[Floats], *, seed: int = 0) -> list[tuple[float, float, float]]:
    """Return the mean, low and high of each metric over several benchmarks that have equal weights.

    The values are resampled within each benchmark (a stratified bootstrap).

    Args:
        strata: One array for each benchmark, shape (n_questions, n_metrics).
        seed: The seed of the resampling.
    """
    mean = np.mean([values.mean(axis=0) for values in strata], axis=0)
    draws = np.mean([resampled(values, seed + number) for number, values in enumerate(strata)], axis=0)
    return _intervals(mean, draws)


def resampled(values: Floats, seed: int = 0) -> Floats:
    """Return the means of the columns in each resample, shape (RESAMPLES, n_metrics)."""
    return np.concatenate([counts @ values for counts in _counts(len(values), seed)]) / len(values)


def _counts(size: int, seed: int) -> Iterator[Floats]:
    """Yield how often each row occurs in each resample, for one block of resamples at a time."""
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
    """Return the value, rounded so that it does not depend on the order of a sum."""
    return float(f"{value:.{_DIGITS}g}")


# Probabilities ------------------------------------------------------------------------------------------------------

BINS = 10
"""The number of bins of equal width in a reliability curve (Guo et al., 2017)."""
MEASURE_RESAMPLES = 1000
"""The number of resamples for a measure that must be computed again on each of them."""
Measure = Callable[[Floats, Floats], float]
"""A function of probabilities and outcomes, both of shape (m,), that returns one figure."""


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """A bin of predictions with similar probabilities.

    Attributes:
        count: The number of predictions.
        probability: Their mean probability.
        share: The share of them whose outcome is 1.
    """

    count: int
    probability: float
    share: float


def reliability_curve(probabilities: ArrayLike, outcomes: ArrayLike, bins: int = BINS) -> list[ReliabilityBin]:
    """Return the nonempty bins of equal width, ordered by probability.

    Args:
        probabilities: The predicted probabilities, shape (m,).
        outcomes: The outcomes, 0 or 1, shape (m,).
        bins: The number of bins.

    Raises:
        DataError: If the shapes differ, there are no predictions, or a probability is outside [0, 1].
    """
    predicted, happened = _checked(probabilities, outcomes)
    numbers = np.minimum((predicted * bins).astype(int), bins - 1)
    return [
        ReliabilityBin(int(inside.sum()), float(predicted[inside].mean()), float(happened[inside].mean()))
        for inside in (numbers == number for number in np.unique(numbers))
    ]


def expected_calibration_error(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the expected calibration error (Naeini et al., 2015).

    This is the distance between the mean probability and the share of each bin, averaged with the bins' counts as
    weights.

    Args:
        probabilities: Predicted probabilities, shape (m,).
        outcomes: Outcomes, 0 or 1, shape (m,).

    Raises:
        DataError: If the shapes differ, there are no predictions, or a probability is outside [0, 1].
    """
    curve = reliability_curve(probabilities, outcomes)
    total = sum(part.count for part in curve)
    return sum(part.count * abs(part.probability - part.share) for part in curve) / total


def chance_calibration_error(probabilities: ArrayLike) -> float:
    """Return the mean expected calibration error of perfectly calibrated probabilities.

    The error of few predictions is above 0 even if every probability is right, because the share of true outcomes in a
    bin varies by chance. Compare the error that you measured with this one.

    The outcomes are drawn from the probabilities, `MEASURE_RESAMPLES` times.

    Args:
        probabilities: Predicted probabilities, shape (m,).

    Returns:
        The error, from 0 to 1.

    Raises:
        DataError: If there are no predictions, or a probability is outside [0, 1].
    """
    predicted, _ = _checked(probabilities, np.zeros_like(probabilities, dtype=np.float64))
    outcomes = np.random.default_rng(0).random((MEASURE_RESAMPLES, len(predicted))) < predicted
    return float(np.mean([expected_calibration_error(predicted, drawn) for drawn in outcomes]))


def roc_auc(scores: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the area under the ROC curve (Hanley and McNeil, 1982).

    This is the probability that a random positive scores above a random negative. Ties count half.

    Args:
        scores: Scores in any unit, shape (m,).
        outcomes: Outcomes, 0 or 1, shape (m,).

    Raises:
        DataError: If there are no positives or no negatives.
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
    """Return a measure of all predictions with its bootstrap interval, resampled by group.

    If the measure is not defined for a resample, for example because it has no positives, the resample is left out.

    Args:
        measure: The measure.
        probabilities: Predicted probabilities, shape (m,).
        outcomes: Outcomes, 0 or 1, shape (m,).
        groups: The group of each prediction, for example its question. Predictions of a group are drawn together.

    Raises:
        DataError: If the shapes differ, there are no predictions, or a probability is outside [0, 1]. Also if the
            measure is not defined for all predictions.
    """
    predicted, happened = _checked(probabilities, outcomes)
    whole = measure(predicted, happened)
    rows_of: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    parts, draw = [np.array(rows) for rows in rows_of.values()], np.random.default_rng(0)
    values = []
    for _ in range(MEASURE_RESAMPLES):
        rows = np.concatenate([parts[number] for number in draw.integers(0, len(parts), len(parts))])
        with suppress(DataError):
            values.append(measure(predicted[rows], happened[rows]))
    low, high = np.quantile(values or [whole], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Figure(whole, float(low), float(high))


def _checked(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[Floats, Floats]:
    predicted, happened = np.asarray(probabilities, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    if predicted.shape != happened.shape or predicted.ndim != 1 or not len(predicted):
        raise DataError(
            f"each probability needs one outcome; got {predicted.size} probabilities and {happened.size} outcomes"
        )
    if not (np.all(predicted >= 0) and np.all(predicted <= 1)):
        raise DataError("each probability must be a number from 0 to 1")
    return predicted, happened
