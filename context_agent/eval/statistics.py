"""Means over questions with bootstrap intervals (Efron, 1979).

Intervals come from the percentile method with a fixed seed. The unit of resampling is the question. Values of several
seeds are averaged per question first, because two runs of the same question are not two questions. Two systems are
compared by the interval of their mean difference on the questions that both answered. If that interval excludes 0, a
report says "better" (`summary.verdict`).
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
