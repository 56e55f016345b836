"""How far judges agree, against published examples."""

import pytest

from context_agent.synth_data.agreement import (
    cohen_kappa,
    equal_share,
    estimate,
    krippendorff_alpha,
    measure_agreement,
)

# Krippendorff, Computing Krippendorff's alpha-reliability (2011): sections B (two observers) and C (four).
OBSERVERS_B = ("0100000010", "1110010000")
OBSERVERS_C = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")


def units(observers):
    return [[value for value in column if value != "."] for column in zip(*observers, strict=True)]


def test_alpha_is_that_of_the_published_examples():
    assert krippendorff_alpha(units(OBSERVERS_B)) == pytest.approx(0.095, abs=5e-4)
    assert krippendorff_alpha(units(OBSERVERS_C)) == pytest.approx(0.743, abs=5e-4)


def test_kappa_is_that_of_the_contingency_table():
    """Cohen (1960): agreement .70 where chance gives .50, then agreement .60 where chance gives .54 and .46."""
    table = {(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}
    assert cohen_kappa([pair for pair, count in table.items() for _ in range(count)]) == pytest.approx(0.4)
    table = {(True, True): 45, (True, False): 15, (False, True): 25, (False, False): 15}
    assert cohen_kappa([pair for pair, count in table.items() for _ in range(count)]) == pytest.approx(0.1304, abs=5e-5)
    table = {(True, True): 25, (True, False): 35, (False, True): 5, (False, False): 35}
    assert cohen_kappa([pair for pair, count in table.items() for _ in range(count)]) == pytest.approx(0.2593, abs=5e-5)


def test_nothing_to_vary_is_undefined_and_not_perfect():
    assert cohen_kappa([(True, True)] * 10) is None
    assert cohen_kappa([]) is None
    assert krippendorff_alpha([[True, True]] * 10) is None
    assert krippendorff_alpha([[True], [False]]) is None
    assert equal_share([]) is None


def test_complete_disagreement_is_below_chance():
    assert cohen_kappa([(True, False), (False, True)] * 5) == -1
    assert krippendorff_alpha([[True, False]] * 5) < 0


def test_an_interval_holds_its_value_and_narrows_with_more_tasks():
    small_sample, large_sample = (
        estimate([True, True, True, False] * n, equal := lambda verdicts: sum(verdicts) / len(verdicts), 0)
        for n in (5, 100)
    )
    assert small_sample.low < small_sample.value == 0.75 < small_sample.high
    assert large_sample.high - large_sample.low < 0.5 * (small_sample.high - small_sample.low)
    assert estimate([True, False] * 9, equal, 0) == estimate([True, False] * 9, equal, 0)
    assert "0.750 [" in str(small_sample)
    assert "undefined (n = 0)" in str(estimate([], cohen_kappa, 0))


def test_judges_pairs_and_the_verification():
    tasks = [f"t{number}" for number in range(10)]
    verification = {name: number < 8 for number, name in enumerate(tasks)}
    ann = {name: number < 7 for number, name in enumerate(tasks)}
    ben = {name: number < 8 for number, name in enumerate(tasks[:9])}
    agreement = measure_agreement({"ben": ben, "ann": ann}, verification)
    assert list(agreement.judges) == ["ann", "ben"]
    assert (agreement.judges["ann"].judged, agreement.judges["ann"].accepted) == (10, 7)
    assert agreement.judges["ann"].verification.value == pytest.approx(0.9)
    assert agreement.judges["ben"].verification.value == 1
    assert agreement.judges["ben"].kappa.value == 1
    assert agreement.equal["ann, ben"].value == pytest.approx(8 / 9)
    assert agreement.equal["ann, ben"].n == 9
    assert agreement.kappa["ann, ben"].value == pytest.approx(0.609, abs=1e-3)
    assert agreement.alpha.n == 9


def test_one_judge_alone_has_no_pair():
    agreement = measure_agreement({"ann": {"t": True}}, {"t": True})
    assert agreement.kappa == {}
    assert agreement.alpha.value is None
    assert agreement.judges["ann"].accept_rate.value == 1
