"""Measures of the quality of probabilities: the calibration error, the reliability curve, and the ROC curve's area.

In the shapes below, m is the number of predictions. Outcomes are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from context_agent.errors import DataError
from context_agent.eval.statistics import LEVEL, Figure, Floats

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
        DataError: If there are no positives or no negatives, the shapes differ, or a score is NaN.
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64) > 0
    count = int(positive.sum())
    if np.isnan(values).any():
        raise DataError("a score is NaN, so the predictions have no order. Leave out the predictions without a score.")
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
    if len(groups) != len(predicted):
        raise DataError(f"each prediction needs one group; got {len(predicted)} predictions and {len(groups)} groups")
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
