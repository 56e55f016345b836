"""Means over questions with bootstrap intervals (Efron, 1979): percentile method, seeded, in numpy.

The unit is the question. Values of several seeds are averaged per question first, because two runs on the same question
are not two questions. Two systems are compared by the interval of their mean difference on the questions that both
answered; reports say "better" if that interval excludes 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

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
        """The mean of the values, resampled with replacement; there must be at least one value."""
        return cls(*mean_intervals(np.array(values, dtype=np.float64)[:, None], seed=seed)[0])

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_intervals(values: Floats, *, seed: int = 0) -> list[tuple[float, float, float]]:
    """Mean, low and high of each column of values, shape (questions, metrics); all columns share their resamples."""
    return _intervals(values.mean(axis=0), resampled(values, seed))


def pooled(strata: Sequence[Floats], *, seed: int = 0) -> list[tuple[float, float, float]]:
    """The same for the mean over benchmarks with equal weights, resampled within each benchmark (stratified).

    `strata` has an array of shape (questions, metrics) for each benchmark.
    """
    mean = np.mean([values.mean(axis=0) for values in strata], axis=0)
    draws = np.mean([resampled(values, seed + number) for number, values in enumerate(strata)], axis=0)
    return _intervals(mean, draws)


def resampled(values: Floats, seed: int = 0) -> Floats:
    """Means of the columns in each resample, shape (RESAMPLES, metrics)."""
    return np.concatenate([counts @ values for counts in _counts(len(values), seed)]) / len(values)


def _counts(size: int, seed: int) -> Iterator[Floats]:
    """How often each row occurs in each resample, in blocks of resamples."""
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
    """The value without the digits that depend on the order of a sum."""
    return float(f"{value:.{_DIGITS}g}")
