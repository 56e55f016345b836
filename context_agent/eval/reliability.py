"""How good probabilities are: the area under the ROC curve, the calibration error, and the reliability curve.

m is the number of predictions. Outcomes are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from context_agent.errors import DataError
from context_agent.eval.page import INK, MARKS, PALETTE, canvas, svg
from context_agent.eval.statistics import LEVEL, Figure

BINS = 10
"""Bins of equal width in a reliability curve (Guo et al., 2017)."""
RESAMPLES = 1000

Floats = NDArray[np.float64]
Measure = Callable[[Floats, Floats], float]
"""A figure of probabilities and outcomes, both of shape (m,)."""


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Predictions of similar probability: how many, their mean probability, and the share whose outcome is 1."""

    count: int
    probability: float
    share: float


def reliability_curve(probabilities: ArrayLike, outcomes: ArrayLike, bins: int = BINS) -> list[ReliabilityBin]:
    """The bins of equal width that are not empty, by ascending probability. Raises `DataError`."""
    predicted, happened = _checked(probabilities, outcomes)
    numbers = np.minimum((predicted * bins).astype(int), bins - 1)
    return [
        ReliabilityBin(int(inside.sum()), float(predicted[inside].mean()), float(happened[inside].mean()))
        for inside in (numbers == number for number in np.unique(numbers))
    ]


def expected_calibration_error(probabilities: ArrayLike, outcomes: ArrayLike, bins: int = BINS) -> float:
    """The mean distance of probability and share over the bins, by count (Naeini et al., 2015). Raises `DataError`."""
    curve = reliability_curve(probabilities, outcomes, bins)
    total = sum(part.count for part in curve)
    return sum(part.count * abs(part.probability - part.share) for part in curve) / total


def roc_auc(scores: ArrayLike, outcomes: ArrayLike) -> float:
    """The probability that a random positive scores above a random negative; ties count half (Hanley, McNeil, 1982).

    Raises `DataError` without positives or without negatives.
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64) > 0
    count = int(positive.sum())
    if values.shape != positive.shape or not 0 < count < len(positive):
        raise DataError(f"the area under the ROC curve needs both outcomes; got {count} of {len(positive)} positive")
    _, rank_of, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[rank_of]
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(positive) - count)))


def interval(measure: Measure, probabilities: ArrayLike, outcomes: ArrayLike, groups: Sequence[str]) -> Figure:
    """The measure with its bootstrap interval, resampled by group, e.g. the question that predictions belong to.

    A resample that the measure is not defined for, such as one without positives, is left out.
    """
    predicted, happened = _checked(probabilities, outcomes)
    rows_of: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    parts, draw = [np.array(rows) for rows in rows_of.values()], np.random.default_rng(0)
    values = []
    for _ in range(RESAMPLES):
        rows = np.concatenate([parts[number] for number in draw.integers(0, len(parts), len(parts))])
        with suppress(DataError):
            values.append(measure(predicted[rows], happened[rows]))
    low, high = np.quantile(values, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Figure(measure(predicted, happened), float(low), float(high))


def reliability_plot(curves: Mapping[str, Sequence[ReliabilityBin]]) -> str:
    """The curves by name as SVG text: the share of positive outcomes against the mean probability.

    The area of a point grows with its predictions. Needs matplotlib (extra `plots`), else raises `MissingExtraError`.
    """
    with canvas() as figure_type:
        figure = figure_type(figsize=(4.6, 4.2))
        panel = figure.add_subplot()
        panel.plot([0, 1], [0, 1], color=INK, lw=1, ls=":", label="perfectly calibrated")
        for (name, curve), color, mark in zip(curves.items(), PALETTE, MARKS, strict=False):
            x, y = [part.probability for part in curve], [part.share for part in curve]
            most = max(part.count for part in curve)
            panel.plot(x, y, color=color, label=name)
            panel.scatter(x, y, s=[15 + 60 * part.count / most for part in curve], color=color, marker=mark)
        panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that is true")
        panel.legend(loc="upper left")
        return svg(figure, "reliability", "Reliability curves")


def _checked(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[Floats, Floats]:
    predicted, happened = np.asarray(probabilities, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    if predicted.shape != happened.shape or predicted.ndim != 1 or not len(predicted):
        raise DataError(f"{predicted.size} probabilities and {happened.size} outcomes: pass equally many, at least one")
    if not (np.all(predicted >= 0) and np.all(predicted <= 1)):
        raise DataError("a probability must be a number from 0 to 1")
    return predicted, happened
