"""The metrics: against an independent implementation, and what they promise beyond it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import DataError
from context_agent.eval import metrics

RUNS = 2000
DEPTHS = (1, 5, 10, 20)
BETAS = (1, 2, 4)
IDS = st.lists(st.sampled_from([f"d{number}" for number in range(12)]))
GOLD = st.lists(st.sampled_from([f"d{number}" for number in range(12)]), min_size=1)


def made_run(draw: random.Random) -> tuple[list[str], list[str]]:
    """A ranking, sometimes empty, and gold of which it holds some, all or none."""
    pool = [f"d{number}" for number in range(draw.choice((5, 20, 60)))]
    ranked = draw.sample(pool, draw.randint(0, min(30, len(pool))))
    return ranked, draw.sample(pool, draw.randint(1, min(15, len(pool))))


Measured = Callable[[list[str], list[str]], float]


def pairs() -> dict[object, Measured]:
    """Each measure of ir-measures and what it is called here."""
    from ir_measures import P, R, SetF, SetP, SetR, nDCG

    def f(beta: float) -> Measured:
        return lambda ranked, gold: metrics.f_beta(metrics.precision(ranked, gold), metrics.recall(ranked, gold), beta)

    def precision_at(k: int) -> Measured:
        # trec_eval divides by k however few were retrieved.
        return lambda ranked, gold: metrics.precision(ranked[:k], gold) * min(k, len(ranked)) / k

    same: dict[object, Measured] = {SetR: metrics.recall, SetP: metrics.precision}
    for k in DEPTHS:
        same[R @ k] = partial(metrics.recall_at, k=k)
        same[nDCG @ k] = partial(metrics.ndcg, k=k)
        same[P @ k] = precision_at(k)
    # trec_eval's set_F takes the square of beta.
    return same | {SetF(beta=float(beta * beta)): f(beta) for beta in BETAS}


def test_two_thousand_runs_agree_with_ir_measures() -> None:
    from ir_measures import iter_calc

    draw = random.Random(7)
    runs = {f"q{number}": made_run(draw) for number in range(RUNS)}
    same = pairs()
    qrels = {name: dict.fromkeys(gold, 1) for name, (_, gold) in runs.items()}
    scored = {
        name: {one: float(len(ranked) - place) for place, one in enumerate(ranked)}
        for name, (ranked, _) in runs.items()
    }
    theirs = {(one.query_id, one.measure): one.value for one in iter_calc(list(same), qrels, scored)}
    assert len(theirs) == RUNS * len(same)
    for name, (ranked, gold) in runs.items():
        for measure, ours in same.items():
            assert ours(ranked, gold) == pytest.approx(theirs[name, measure], abs=1e-9), (name, measure)


@settings(deadline=None)
@given(IDS, GOLD, st.integers(1, 15))
def test_every_value_is_a_share(ranked: list[str], gold: list[str], k: int) -> None:
    values = (
        metrics.recall(ranked, gold),
        metrics.precision(ranked, gold),
        metrics.recall_at(ranked, gold, k),
        metrics.ndcg(ranked, gold, k),
        metrics.fact_recall(ranked, [gold, gold[:1]]),
        metrics.fact_precision(ranked, [gold]),
    )
    assert all(0 <= value <= 1 for value in values)


@settings(deadline=None)
@given(IDS, GOLD, st.integers(1, 15))
def test_repetitions_change_nothing(ranked: list[str], gold: list[str], k: int) -> None:
    once = list(dict.fromkeys(ranked))
    assert metrics.ndcg(ranked, gold + gold, k) == metrics.ndcg(once, sorted(set(gold)), k)
    assert metrics.precision(ranked + ranked, gold) == metrics.precision(once, gold)
    assert metrics.recall_at(ranked, gold + gold, k) == metrics.recall_at(once, gold, k)


@settings(deadline=None)
@given(IDS, GOLD, st.integers(1, 14))
def test_more_depth_never_lowers_recall(ranked: list[str], gold: list[str], k: int) -> None:
    assert metrics.recall_at(ranked, gold, k) <= metrics.recall_at(ranked, gold, k + 1)
    assert metrics.recall_at(ranked, gold, 1000) == metrics.recall(ranked, gold)


@settings(deadline=None)
@given(IDS, GOLD)
def test_documents_are_facts_of_one_id(ranked: list[str], gold: list[str]) -> None:
    facts = [[one] for one in dict.fromkeys(gold)]
    assert metrics.fact_recall(ranked, facts) == metrics.recall(ranked, gold)
    assert metrics.fact_precision(ranked, facts) == metrics.precision(ranked, gold)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.25, 8))
def test_f_lies_between_precision_and_recall(precision: float, recall: float, beta: float) -> None:
    value = metrics.f_beta(precision, recall, beta)
    assert min(precision, recall) - 1e-9 <= value <= max(precision, recall) + 1e-9 or value == 0


def test_recall_weighs_sixteen_times_at_a_beta_of_four() -> None:
    precision, recall, step = 0.5, 0.5, 1e-6
    by_recall = metrics.f_beta(precision, recall + step, 4) - metrics.f_beta(precision, recall, 4)
    by_precision = metrics.f_beta(precision + step, recall, 4) - metrics.f_beta(precision, recall, 4)
    assert by_recall / by_precision == pytest.approx(16, rel=1e-3)


def test_a_fact_is_found_by_any_of_its_chunks() -> None:
    facts = [["a_0", "b_3"], ["c_1"]]
    assert metrics.fact_recall(["b_3", "x_0"], facts) == 0.5
    assert metrics.fact_recall(["a_0", "b_3", "c_1"], facts) == 1
    assert metrics.fact_precision(["a_0", "b_3", "x_0", "y_0"], facts) == 0.5, "a repeated fact is not wrong"


def test_an_item_that_brings_a_known_fact_again_gains_nothing() -> None:
    facts = [["a_0", "b_0"], ["c_0"]]
    repeated = metrics.ndcg_of(metrics.finds(["a_0", "b_0", "c_0"], facts), 2, 10)
    straight = metrics.ndcg_of(metrics.finds(["a_0", "c_0", "b_0"], facts), 2, 10)
    assert repeated < straight == 1


def test_one_item_with_every_fact_is_a_perfect_ranking() -> None:
    assert metrics.ndcg_of(metrics.finds(["a_0"], [["a_0"], ["a_0", "b_0"]]), 2, 5) == 1


def test_more_gold_than_places_can_never_all_be_there() -> None:
    gold = [f"d{number}" for number in range(6)]
    found = metrics.finds(gold, [[one] for one in gold])
    assert metrics.all_of(found[:5], 6) == 0
    assert metrics.all_of(found[:6], 6) == 1


def test_prune_accuracy_counts_each_pruned_id_once() -> None:
    assert metrics.prune_accuracy(["a_0", "b_0", "b_0", "c_0", "d_0"], {"a_0"}) == 0.75
    assert metrics.prune_accuracy([], {"a_0"}) is None


def test_prune_recall_is_the_share_of_waste_that_went() -> None:
    shown = ["g_0", "a_0", "b_0", "c_0", "d_0"]
    assert metrics.prune_recall(shown, {"g_0", "a_0"}, {"g_0"}) == 0.75
    assert metrics.prune_recall(shown, set(shown), {"g_0"}) == 0
    assert metrics.prune_recall(["g_0"], {"g_0"}, {"g_0"}) is None


@pytest.mark.parametrize("measure", [metrics.recall, metrics.fact_recall])
def test_no_gold_is_an_error_that_says_so(measure: object) -> None:
    with pytest.raises(DataError, match="without gold"):
        measure(["d1"], [])  # type: ignore[operator]
