"""Intervals: the properties of the bootstrap, and a comparison with a plain implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.eval import statistics
from context_agent.eval.statistics import Figure

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def plain_bootstrap(values: list[float], seed: int) -> tuple[float, float, float]:
    data = np.array(values)
    draws = np.random.default_rng(seed).integers(0, len(data), (statistics.RESAMPLES, len(data)))
    low, high = np.quantile(data[draws].mean(axis=1), (0.025, 0.975))
    return float(data.mean()), float(low), float(high)


def test_it_is_the_bootstrap_as_one_would_write_it() -> None:
    values = np.random.default_rng(3).random(257).tolist()
    figure = Figure.of(values, seed=11)
    assert (figure.mean, figure.low, figure.high) == pytest.approx(plain_bootstrap(values, 11), abs=1e-9)


def test_blocks_of_resamples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random((101, 3))
    expected = statistics.mean_intervals(values, seed=5)
    monkeypatch.setattr(statistics, "_CACHED", 0)
    monkeypatch.setattr(statistics, "_BLOCK", 1000)
    assert statistics.mean_intervals(values, seed=5) == expected


@settings(deadline=None)
@given(VALUES, st.integers(0, 2**31))
def test_the_mean_lies_in_its_interval_and_the_interval_in_the_range(values: list[float], seed: int) -> None:
    figure = Figure.of(values, seed=seed)
    assert min(values) - 1e-9 <= figure.low <= figure.high <= max(values) + 1e-9
    if len(values) == 1:
        assert figure.low == figure.mean == figure.high


def test_columns_share_their_resamples() -> None:
    values = np.random.default_rng(3).random((40, 2))
    joint = statistics.mean_intervals(values, seed=1)
    assert joint == [
        *statistics.mean_intervals(values[:, :1], seed=1),
        *statistics.mean_intervals(values[:, 1:], seed=1),
    ]


def test_a_small_steady_gain_shows_only_when_paired() -> None:
    draw = np.random.default_rng(0)
    improved = draw.random((200, 1))
    baseline = improved - 0.01 - 0.002 * draw.random((200, 1))
    (_, low, _), (_, _, high) = statistics.mean_intervals(improved)[0], statistics.mean_intervals(baseline)[0]
    assert low < high, "the intervals of the two overlap"
    assert statistics.mean_intervals(improved - baseline)[0][1] > 0, "that of the difference has no 0 in it"


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        figure = Figure.of((draw.random(80) < 0.7).astype(float).tolist())
        covered += figure.low <= 0.7 <= figure.high
    assert 0.88 <= covered / 200 <= 0.99


def test_pooling_weighs_benchmarks_alike_and_resamples_within_them() -> None:
    small, large = np.zeros((10, 1)), np.ones((1000, 1))
    assert statistics.pooled([small, large])[0] == (0.5, 0.5, 0.5), "no resample mixes the two"


def test_it_reads_as_a_figure() -> None:
    assert str(Figure(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
