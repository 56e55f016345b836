"""The summary of a run's records: means, comparisons, and what was left out, failed or missing."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import ConfigError, DataError
from context_agent.eval.aggregate import summarize
from context_agent.eval.records import EvalRecord, TurnState
from context_agent.eval.summary import Cell, EvalSummary, summary_from_json
from context_agent.eval.summary_table import floor_line
from tests.support.growth import MOST_GROWTH, growth
from tests.support.sample_records import ORDER, made_records

RECORDS = made_records()
SUMMARY = summarize(RECORDS, order=ORDER)


def record(system: str, question: str, recall: float | None, **fields: object) -> EvalRecord:
    values: dict[str, object] = {"window": 0, "seed": 0, "scores": {"recall": recall}} | fields
    return EvalRecord("b", system, question=question, **values)  # type: ignore[arg-type]


def cell_of(summary: EvalSummary, system: str, window: int = 0, benchmark: str = "b") -> Cell:
    return next(
        cell for cell in summary.cells if (cell.benchmark, cell.system, cell.window) == (benchmark, system, window)
    )


def test_the_mean_is_over_questions_and_a_question_s_seeds_come_first() -> None:
    records = [record("s", "q1", 1.0, seed=seed) for seed in range(3)] + [record("s", "q2", 0.0)]
    cell = cell_of(summarize(records), "s")
    assert cell.metrics["recall"].mean == 0.5
    assert (cell.questions, cell.records, cell.seeds) == (2, 4, (0, 1, 2))


def test_failures_count_as_zero_and_are_listed() -> None:
    records = [record("s", "q1", 1.0), record("s", "q2", 0.0, error="down")]
    summary = summarize(records)
    assert cell_of(summary, "s").metrics["recall"].mean == 0.5
    assert cell_of(summary, "s").failed == 1
    assert [(failure.question, failure.error) for failure in summary.failures] == [("q2", "down")]


def test_questions_to_which_a_metric_does_not_apply_are_left_out_and_counted() -> None:
    records = [record("s", f"q{number}", None if number < 3 else 0.5) for number in range(5)]
    value = cell_of(summarize(records), "s").metrics["recall"]
    assert (value.mean, value.n, value.left_out) == (0.5, 2, 3)
    assert "recall" not in cell_of(summarize(records[:3]), "s").metrics, "a metric of no question has no mean"


def test_systems_are_compared_on_the_questions_that_both_answered() -> None:
    baseline = [record("bm25", f"q{number}", 0.2 * number) for number in range(5)]
    agent_records = [record("agent", f"q{number}", 0.2 * number + 0.1, window=99) for number in range(2, 8)]
    difference = cell_of(summarize(baseline + agent_records, reference="bm25"), "agent", 99).differences["recall"]
    assert difference.mean == pytest.approx(0.1)
    assert difference.low == pytest.approx(difference.high)
    assert (difference.n, difference.left_out) == (3, 3)


def test_the_reference_is_taken_under_the_same_window_where_it_has_one() -> None:
    records = [record(system, "q", recall, window=window) for system, recall, window in (
        ("a", 0.1, 1), ("a", 0.5, 2), ("b", 0.6, 1), ("b", 0.6, 2), ("b", 0.6, 3)
    )]  # fmt: skip
    summary = summarize(records, reference="a")
    assert cell_of(summary, "b", 1).differences["recall"].mean == pytest.approx(0.5)
    assert cell_of(summary, "b", 2).differences["recall"].mean == pytest.approx(0.1)
    assert not cell_of(summary, "b", 3).differences
    assert not cell_of(summary, "a", 1).differences


def test_the_reference_is_the_first_system_without_a_context() -> None:
    assert SUMMARY.reference == "bm25"
    assert summarize([r for r in RECORDS if r.system != "bm25"], order=ORDER).reference == "agent"
    with pytest.raises(ConfigError, match="'bm52'"):
        summarize(RECORDS, reference="bm52")


def test_pools_weigh_benchmarks_alike() -> None:
    pool = next(item for item in SUMMARY.pools if (item.system, item.window) == ("agent", 2048))
    cells = [cell_of(SUMMARY, "agent", 2048, benchmark) for benchmark in pool.benchmarks]
    assert pool.benchmarks == ("hotpotqa", "musique")
    assert pool.metrics["recall"].mean == pytest.approx(fmean(cell.metrics["recall"].mean for cell in cells))
    assert pool.differences["recall"].mean == pytest.approx(fmean(cell.differences["recall"].mean for cell in cells))
    assert pool.questions == sum(cell.questions for cell in cells)
    value, parts = pool.metrics["answer_found"], [cell.metrics["answer_found"] for cell in cells]
    assert (value.n, value.left_out) == (sum(v.n for v in parts), sum(v.left_out for v in parts))
    assert value.left_out > 0


def test_a_system_that_ran_on_some_benchmarks_alone_is_in_no_pool() -> None:
    records = [item for item in RECORDS if (item.benchmark, item.system, item.window) != ("musique", "agent", 2048)]
    pools = summarize(records, order=ORDER).pools
    assert ("agent", 2048) not in [(pool.system, pool.window) for pool in pools]
    assert ("agent", 8192) in [(pool.system, pool.window) for pool in pools]


def test_breakdowns_cover_all_questions() -> None:
    cell = cell_of(SUMMARY, "agent", 2048, "musique")
    for field in ("type", "hops"):
        groups = cell.breakdown[field].values()
        assert sum(group.questions for group in groups) == cell.questions
        assert sum(group.failed for group in groups) == cell.failed > 0
        mean = sum(group.questions * group.metrics["recall"].mean for group in groups) / cell.questions
        assert mean == pytest.approx(cell.metrics["recall"].mean)
    assert list(cell.breakdown["hops"]) == ["2", "3", "4"]
    assert set(cell.breakdown["seed"]) == {"0", "1"}


def test_a_breakdown_of_one_kind_is_none() -> None:
    assert not cell_of(SUMMARY, "bm25", 0, "musique").breakdown.get("seed")
    assert not cell_of(summarize([record("s", "q", 1.0, type="only")]), "s").breakdown


def test_curves_carry_an_ended_episode_on_and_count_a_failed_one_as_zero() -> None:
    scores: dict[str, float | None] = {"recall": 1.0, "trajectory_recall": 1.0}
    short_curve = (TurnState(1, 600, 500, 1.0, 1.0, 2, 0),)
    long_curve = (TurnState(1, 800, 700, 0.0, 0.0), TurnState(2, 1500, 900, 1.0, 0.5, 2, 1))
    records = [
        record("s", "q1", None, scores=scores, curve=short_curve),
        record("s", "q2", None, scores=scores, curve=long_curve),
        record("s", "q3", None, scores={"trajectory_recall": 0.0}, error="down"),
        record("s", "q4", None, scores={"trajectory_recall": None}),
    ]
    cell = cell_of(summarize(records), "s")
    first, second = cell.turns
    assert (first.seen, first.running, first.prune_accuracy) == (pytest.approx(1 / 3), pytest.approx(2 / 3), 1)
    assert (second.seen, second.held) == (pytest.approx(2 / 3), pytest.approx(0.5))
    assert (second.running, second.prune_accuracy) == (pytest.approx(1 / 3), 0.75)
    assert [(point.at, round(point.seen * 3)) for point in cell.tokens] == [
        (512, 0),
        (724, 1),
        (1024, 1),
        (1448, 1),
        (2048, 2),
    ]


def test_the_order_of_records_changes_nothing() -> None:
    expected = json.dumps(SUMMARY.to_json())
    shuffled = list(RECORDS)
    for seed in range(3):
        random.Random(seed).shuffle(shuffled)
        assert json.dumps(summarize(shuffled, order=ORDER).to_json()) == expected


def test_wall_time_is_all_that_two_runs_differ_in() -> None:
    slower = summarize([replace(r, seconds=r.seconds * 3) for r in RECORDS], order=ORDER)
    assert slower != SUMMARY
    assert without_seconds(slower) == without_seconds(SUMMARY)


def without_seconds(summary: EvalSummary) -> str:
    def drop(value: object) -> object:
        if isinstance(value, dict):
            return {key: drop(item) for key, item in value.items() if key != "seconds"}
        return [drop(item) for item in value] if isinstance(value, list | tuple) else value

    return json.dumps(drop(summary.to_json()))


def test_records_that_come_twice_count_once() -> None:
    repeated = [replace(r, seconds=r.seconds + 1) for r in RECORDS[:50]]
    assert summarize([*repeated, *RECORDS], order=ORDER) == SUMMARY


def test_records_that_contradict_each_other_are_reported_and_one_counts() -> None:
    contradictory = [record("s", "q", 1.0), record("s", "q", 0.0)]
    summary, reverse_summary = summarize(contradictory), summarize(contradictory[::-1])
    assert summary == reverse_summary
    assert cell_of(summary, "s").questions == 1
    assert summary.problems == ("b / s / 0 / 0 / q: 2 different records; only one counts",)


def test_missing_records_are_counted_and_some_named() -> None:
    expected = [r.key for r in RECORDS] + [("musique", "agent", 2048, 7, f"z{n}") for n in range(9)]
    missing = summarize(RECORDS[1:], order=ORDER, expected=expected).missing
    assert [(m.benchmark, m.system, m.count) for m in missing] == [("hotpotqa", "bm25", 1), ("musique", "agent", 9)]
    assert missing[1].first == ("z0", "z1", "z2", "z3", "z4")


def test_nothing_makes_an_empty_summary_that_keeps_the_problems() -> None:
    summary = summarize([], problems=["no questions"], expected=[("b", "s", 0, 0, "q")])
    assert summary.cells == summary.metrics == ()
    assert summary.problems == ("no questions",)
    assert summary.missing[0].count == 1
    assert summary_from_json(summary.to_json()) == summary


def test_the_json_comes_back_as_it_was() -> None:
    summary = summarize(RECORDS, order=ORDER, settings={"policy": "bridge", "ks": [5, 10]}, problems=["row 3"])
    data = json.loads(json.dumps(summary.to_json(), allow_nan=False))
    assert summary_from_json(data) == summary
    assert set(data["definitions"]) == set(summary.metrics)


@pytest.mark.parametrize("row", [None, [], {}, {"schema": 1}, {"schema": "x"}])
def test_data_that_is_not_a_summary_is_refused(row: object) -> None:
    with pytest.raises(DataError, match=r"f\.json is not a summary"):
        summary_from_json(row, "f.json")


def test_a_newer_summary_is_refused() -> None:
    with pytest.raises(DataError, match="has schema 2"):
        summary_from_json(SUMMARY.to_json() | {"schema": 2})


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.floats(0, 1) | st.none()), max_size=30))
def test_any_records_make_a_summary(rows: list[tuple[str, int, float | None]]) -> None:
    records = [record("s" if seed else "t", name, value, seed=seed) for name, seed, value in rows]
    summary = summarize(records)
    for cell in summary.cells:
        for value in cell.metrics.values():
            assert value.n + value.left_out == cell.questions
            assert value.low - 1e-9 <= value.mean <= value.high + 1e-9


def test_a_large_run_is_summarized_in_linear_time() -> None:
    def make(questions: int) -> list[EvalRecord]:
        return made_records(questions=questions, seeds=1)

    assert growth(lambda records: summarize(records, order=ORDER), make, 125) < MOST_GROWTH


def test_a_rollout_ended_by_an_error_is_reported_and_its_question_scored() -> None:
    records = [
        replace(item, broken=("the server is gone",) if item.question == "q003" else ()) for item in made_records(6)
    ]
    (line, *_) = summarize(records).problems
    assert line == (
        "hotpotqa, agent, window 2,048: 2 records have rollouts that ended by an error; they are scored. "
        "The first is q003 (seed 0): the server is gone"
    )
    assert not summarize(made_records(6)).problems


def test_the_questions_that_agents_answered_worst_are_named() -> None:
    summary = summarize(made_records(12))
    assert {item.benchmark for item in summary.worst} == {"hotpotqa", "musique"}
    for benchmark in ("hotpotqa", "musique"):
        values = [item.value for item in summary.worst if item.benchmark == benchmark]
        assert values == sorted(values)
        assert len(values) == 10
    assert {item.system for item in summary.worst} <= {"agent", "agent-unpruned"}
    failed = {(item.benchmark, item.system, item.window, item.seed, item.question) for item in summary.failures}
    assert not failed & {(item.benchmark, item.system, item.window, item.seed, item.question) for item in summary.worst}


def test_an_agent_is_compared_with_the_best_one_shot_search_of_its_benchmark() -> None:
    recalls = {"bm25": [0.0, 1.0, 0.5], "dense": [1.0, 1.0, 0.5], "hybrid": [0.0, 0.5, 0.5], "agent": [1.0, 1.0, 1.0]}
    records = [record(name, f"q{n}", value) for name, row in recalls.items() for n, value in enumerate(row)]
    (floor,) = summarize(records, reference="hybrid").floors
    assert (floor.system, floor.one_shot) == ("agent", "dense")
    assert floor.difference.mean == pytest.approx(floor.value - floor.one_shot_value) == pytest.approx(1 / 6)
    assert floor.difference.low <= floor.difference.mean <= floor.difference.high
    line = floor_line(floor)
    assert "\n" not in line
    assert all(part in line for part in ("agent 1.000", "dense 0.833", "+0.167 ["))


def test_without_a_one_shot_search_or_an_agent_there_is_nothing_to_compare() -> None:
    assert summarize([record("agent", "a", 1.0)]).floors == ()
    assert summarize([record("bm25", "a", 1.0), record("hybrid", "a", 0.5)]).floors == ()
