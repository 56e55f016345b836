"""Measures of probabilities, against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import DataError
from context_agent.eval.probabilities import (
    ReliabilityBin,
    chance_calibration_error,
    expected_calibration_error,
    measure_interval,
    reliability_curve,
    roc_auc,
)


def test_the_area_under_the_curve_counts_pairs_in_the_right_order() -> None:
    # In three of the pairs (.35, .1), (.35, .4), (.8, .1), (.8, .4) the positive is higher: scikit-learn's example.
    assert roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == pytest.approx(0.75)
    assert roc_auc([0.2, 0.2, 0.2], [1, 0, 1]) == pytest.approx(0.5)
    assert roc_auc([3, 1, 2, 1], [1, 0, 0, 1]) == pytest.approx((1 + 1 + 0 + 0.5) / 4)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_the_area_equals_the_share_of_pairs(pairs: list[tuple[int, bool]]) -> None:
    positive = [value for value, outcome in pairs if outcome]
    negative = [value for value, outcome in pairs if not outcome]
    if not positive or not negative:
        return
    share = np.mean([(a > b) + 0.5 * (a == b) for a in positive for b in negative])
    assert roc_auc(*zip(*pairs, strict=True)) == pytest.approx(float(share))


def test_a_curve_has_a_point_for_each_bin_with_predictions() -> None:
    curve = reliability_curve([0.1, 0.15, 0.95, 1.0, 0.5], [0, 1, 1, 1, 0], bins=10)
    assert curve[0] == ReliabilityBin(2, pytest.approx(0.125), 0.5)
    assert curve[1] == ReliabilityBin(1, 0.5, 0.0)
    assert curve[2] == ReliabilityBin(2, pytest.approx(0.975), 1.0)


def test_the_calibration_error_is_the_mean_distance_by_count() -> None:
    error = expected_calibration_error([0.1, 0.15, 0.95, 1.0, 0.5], [0, 1, 1, 1, 0])
    assert error == pytest.approx((2 * 0.375 + 1 * 0.5 + 2 * 0.025) / 5)
    assert expected_calibration_error([0.0, 1.0, 1.0], [0, 1, 1]) == 0.0


def test_the_error_by_chance_shrinks_with_the_number_of_predictions() -> None:
    assert chance_calibration_error([0.0, 1.0, 1.0]) == 0.0, "certain predictions leave nothing to chance"
    assert chance_calibration_error([0.5]) == pytest.approx(0.5)
    few, many = (chance_calibration_error(np.tile([0.3, 0.7], count)) for count in (8, 800))
    # In a bin of m predictions, the share deviates by sqrt(2 / pi * p (1 - p) / m) on average.
    assert few == pytest.approx(np.sqrt(2 / np.pi * 0.21 / 8), rel=0.1)
    assert many == pytest.approx(few / 10, rel=0.2)


def test_an_interval_contains_its_mean_and_resamples_whole_groups() -> None:
    draw = np.random.default_rng(1)
    probabilities = draw.random(100)
    outcomes = draw.random(100) < probabilities
    groups = [str(number // 4) for number in range(100)]
    figure = measure_interval(expected_calibration_error, probabilities, outcomes, groups)
    assert figure.low <= figure.mean < figure.high < 0.3
    assert measure_interval(roc_auc, [0.9, 0.1, 0.2], [1, 0, 0], ["a", "b", "c"]).mean == 1.0, (
        "some resamples lack positives"
    )
    assert measure_interval(roc_auc, [0.1, 0.9] * 20, [0, 1] * 20, [str(n // 2) for n in range(40)]).low == 1.0


@pytest.mark.parametrize(
    ("probabilities", "outcomes", "message"),
    [
        ([], [], "each probability needs one outcome; got 0 probabilities and 0"),
        ([0.5], [1, 0], "each probability needs one outcome; got 1 probabilities and 2"),
        ([1.5], [1], "from 0 to 1"),
        ([float("nan")], [1], "from 0 to 1"),
    ],
)
def test_what_are_no_probabilities_is_refused(probabilities: list[float], outcomes: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        expected_calibration_error(probabilities, outcomes)


@pytest.mark.parametrize("groups", [["a"], list("abcd")])
def test_each_prediction_needs_a_group(groups: list[str]) -> None:
    with pytest.raises(DataError, match=f"got 3 predictions and {len(groups)} groups"):
        measure_interval(roc_auc, [0.9, 0.1, 0.2], [1, 0, 0], groups)


def test_a_score_that_is_no_number_has_no_area() -> None:
    with pytest.raises(DataError, match="NaN"):
        roc_auc([float("nan"), 0.2, 0.3], [1, 0, 0])


def test_one_outcome_alone_has_no_area() -> None:
    with pytest.raises(DataError, match="both outcomes; got 2 of 2 positive"):
        roc_auc([0.1, 0.2], [1, 1])
    with pytest.raises(DataError, match="both outcomes; got 2 of 2 positive"):
        measure_interval(roc_auc, [0.1, 0.2], [1, 1], ["a", "b"])
