"""The metrics: a comparison with an independent implementation, and their other properties."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import ConfigError, DataError
from context_agent.eval import metrics
from context_agent.eval.metrics import METRICS, Direction, MetricKind, find_metric, in_table_order, metric_table

RUNS = 2000
DEPTHS = (1, 5, 10, 20)
BETAS = (1, 2, 4)
IDS = st.lists(st.sampled_from([f"d{number}" for number in range(12)]))
GOLD = st.lists(st.sampled_from([f"d{number}" for number in range(12)]), min_size=1)


def make_run(draw: random.Random) -> tuple[list[str], list[str]]:
    """A ranking, sometimes empty, and gold; the ranking has some, all or none of the gold."""
    pool = [f"d{number}" for number in range(draw.choice((5, 20, 60)))]
    ranked = draw.sample(pool, draw.randint(0, min(30, len(pool))))
    return ranked, draw.sample(pool, draw.randint(1, min(15, len(pool))))


Measure = Callable[[list[str], list[str]], float]


def finds(ranked: list[str], facts: list[list[str]]) -> list[frozenset[int]]:
    """For each distinct id of the ranking, in order, the indices of the facts that it finds."""
    return [
        frozenset(number for number, fact in enumerate(facts) if ranked_id in fact)
        for ranked_id in dict.fromkeys(ranked)
    ]


def fact_recall(ranked: list[str], facts: list[list[str]]) -> float:
    return metrics.recall_of(finds(ranked, facts), len(facts))


def fact_precision(ranked: list[str], facts: list[list[str]]) -> float:
    return metrics.precision_of(finds(ranked, facts))


def facts_of(gold: list[str]) -> list[list[str]]:
    """Gold documents are facts of one id."""
    return [[document_id] for document_id in dict.fromkeys(gold)]


def recall(ranked: list[str], gold: list[str]) -> float:
    return fact_recall(ranked, facts_of(gold))


def precision(ranked: list[str], gold: list[str]) -> float:
    return fact_precision(ranked, facts_of(gold))


def recall_at(ranked: list[str], gold: list[str], k: int) -> float:
    return metrics.recall_of(finds(ranked, facts_of(gold))[:k], len(set(gold)))


def all_gold_at(ranked: list[str], gold: list[str], k: int) -> float:
    return metrics.all_gold_of(finds(ranked, facts_of(gold))[:k], len(set(gold)))


def ndcg(ranked: list[str], gold: list[str], k: int) -> float:
    return metrics.ndcg_of(finds(ranked, facts_of(gold)), len(set(gold)), k)


def reference_measures() -> dict[object, Measure]:
    """Each measure of ir-measures and its counterpart here."""
    from ir_measures import P, R, SetF, SetP, SetR, nDCG

    def f_measure(beta: float) -> Measure:
        return lambda ranked, gold: metrics.f_beta(precision(ranked, gold), recall(ranked, gold), beta)

    def precision_at(k: int) -> Measure:
        # trec_eval divides by k even if fewer were retrieved.
        return lambda ranked, gold: precision(ranked[:k], gold) * min(k, len(ranked)) / k

    measures: dict[object, Measure] = {SetR: recall, SetP: precision}
    for k in DEPTHS:
        measures[R @ k] = partial(recall_at, k=k)
        measures[nDCG @ k] = partial(ndcg, k=k)
        measures[P @ k] = precision_at(k)
    # trec_eval's set_F takes the square of beta.
    return measures | {SetF(beta=float(beta * beta)): f_measure(beta) for beta in BETAS}


def test_two_thousand_runs_agree_with_ir_measures() -> None:
    from ir_measures import iter_calc

    draw = random.Random(7)
    runs = {f"q{number}": make_run(draw) for number in range(RUNS)}
    measures = reference_measures()
    qrels = {name: dict.fromkeys(gold, 1) for name, (_, gold) in runs.items()}
    scores = {
        name: {document_id: float(len(ranked) - rank) for rank, document_id in enumerate(ranked)}
        for name, (ranked, _) in runs.items()
    }
    reference = {(value.query_id, value.measure): value.value for value in iter_calc(list(measures), qrels, scores)}
    assert len(reference) == RUNS * len(measures)
    for name, (ranked, gold) in runs.items():
        for measure, compute in measures.items():
            assert compute(ranked, gold) == pytest.approx(reference[name, measure], abs=1e-9), (name, measure)


@settings(deadline=None)
@given(IDS, GOLD, st.integers(1, 15))
def test_every_value_is_a_share(ranked: list[str], gold: list[str], k: int) -> None:
    values = (
        recall(ranked, gold),
        precision(ranked, gold),
        recall_at(ranked, gold, k),
        ndcg(ranked, gold, k),
        all_gold_at(ranked, gold, k),
        fact_recall(ranked, [gold, gold[:1]]),
        fact_precision(ranked, [gold]),
    )
    assert all(0 <= value <= 1 for value in values)


@settings(deadline=None)
@given(IDS, GOLD, st.integers(1, 15))
def test_repetitions_change_nothing(ranked: list[str], gold: list[str], k: int) -> None:
    unique = list(dict.fromkeys(ranked))
    assert ndcg(ranked, gold + gold, k) == ndcg(unique, sorted(set(gold)), k)
    assert precision(ranked + ranked, gold) == precision(unique, gold)
    assert recall_at(ranked, gold + gold, k) == recall_at(unique, gold, k)


@settings(deadline=None)
@given(IDS, GOLD, st.integers(1, 14))
def test_more_depth_never_lowers_recall(ranked: list[str], gold: list[str], k: int) -> None:
    assert recall_at(ranked, gold, k) <= recall_at(ranked, gold, k + 1)
    assert all_gold_at(ranked, gold, k) <= all_gold_at(ranked, gold, k + 1)
    assert recall_at(ranked, gold, 1000) == recall(ranked, gold)


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
    assert fact_recall(["b_3", "x_0"], facts) == 0.5
    assert fact_recall(["a_0", "b_3", "c_1"], facts) == 1
    assert fact_precision(["a_0", "b_3", "x_0", "y_0"], facts) == 0.5, "a repeated fact is not wrong"


def test_an_item_that_brings_a_known_fact_again_gains_nothing() -> None:
    facts = [["a_0", "b_0"], ["c_0"]]
    with_repeat = metrics.ndcg_of(finds(["a_0", "b_0", "c_0"], facts), 2, 10)
    without_repeat = metrics.ndcg_of(finds(["a_0", "c_0", "b_0"], facts), 2, 10)
    assert with_repeat < without_repeat == 1


def test_one_item_with_every_fact_is_a_perfect_ranking() -> None:
    assert metrics.ndcg_of(finds(["a_0"], [["a_0"], ["a_0", "b_0"]]), 2, 5) == 1


def test_more_gold_than_places_can_never_all_be_there() -> None:
    gold = [f"d{number}" for number in range(6)]
    assert all_gold_at(gold, gold, 5) == 0
    assert all_gold_at(gold, gold, 6) == 1


def test_prune_accuracy_counts_each_pruned_id_once() -> None:
    assert metrics.prune_accuracy(["a_0", "b_0", "b_0", "c_0", "d_0"], {"a_0"}) == 0.75
    assert metrics.prune_accuracy([], {"a_0"}) is None


def test_prune_recall_is_the_share_of_waste_that_went() -> None:
    shown_ids = ["g_0", "a_0", "b_0", "c_0", "d_0"]
    assert metrics.prune_recall(shown_ids, {"g_0", "a_0"}, {"g_0"}) == 0.75
    assert metrics.prune_recall(shown_ids, set(shown_ids), {"g_0"}) == 0
    assert metrics.prune_recall(["g_0"], {"g_0"}, {"g_0"}) is None


@pytest.mark.parametrize("measure", [recall, lambda ranked, gold: ndcg(ranked, gold, 5)])
def test_no_gold_is_an_error_that_says_so(measure: Callable[[list[str], list[str]], float]) -> None:
    with pytest.raises(DataError, match="without gold"):
        measure(["d1"], [])


PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_the_page_explains_each_metric_as_the_table_does() -> None:
    if not PAGE.exists():
        pytest.skip("the documentation is not part of the source distribution")
    text = PAGE.read_text(encoding="utf-8")
    for metric in metric_table([5], [4]):
        assert f"| `{metric.name}` | {metric.what} |" in text


def test_any_depth_and_beta_has_a_definition() -> None:
    assert find_metric("recall@37").what.endswith("first 37 of the ranking")
    assert "0.25 times" in find_metric("f0.5").what
    assert find_metric("ndcg@5") is METRICS["ndcg@5"]


@pytest.mark.parametrize("name", ["recal", "recall@0", "recall@", "f0", "f", "precision@5", "f-1", "recall@9999999"])
def test_an_unknown_metric_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown metric"):
        find_metric(name)


def test_names_are_ordered_as_the_table_is() -> None:
    names = [metric.name for metric in metric_table([3, 10, 20], [0.5, 4])]
    assert [metric.name for metric in in_table_order(reversed(names))] == names


@pytest.mark.parametrize(("depths", "betas"), [([0], [2]), ([5], [-1]), ([5], [math.nan]), ([5], [math.inf])])
def test_depths_and_betas_must_be_positive(depths: list[int], betas: list[float]) -> None:
    with pytest.raises(ConfigError, match="must be positive"):
        metric_table(depths, betas)


def test_quality_is_better_when_higher() -> None:
    costs = [metric for metric in METRICS.values() if metric.kind is MetricKind.COST]
    assert {metric.better for metric in METRICS.values() if metric not in costs} == {Direction.HIGHER}
    assert all(metric.unit for metric in costs)
