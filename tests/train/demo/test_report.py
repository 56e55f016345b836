"""The report's numbers from given scores, its page and its plots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from context_agent.eval.statistics import Figure
from context_agent.train.config import EpisodeConfig
from context_agent.train.demo import plots
from context_agent.train.demo.plan import DemoTargets
from context_agent.train.demo.report import (
    DemoReport,
    accuracy_target,
    gain_target,
    half_window_target,
    make_report,
    one_shot_target,
    report_page,
    time_target,
)
from tests.support.demo_records import scores

TARGETS = DemoTargets()
HALF = EpisodeConfig(window=128, reserve=8)
SECONDS = {"demonstrations": {"seconds": 600.0, "whole": True}, "rewards": {"seconds": 1_200.0, "whole": True}}


def demo_report(**changes: Any) -> DemoReport:
    """The report of a demo that reached every target."""
    scores_by_name = {"before": scores(*[0.0, 0.5] * 20), "after": scores(*[0.5, 1.0] * 20, pruned_gold=0)}
    scores_by_name |= {"half": scores(*[0.5] * 40), "half_unpruned": scores(*[0.25] * 40)} | changes.pop("scores", {})
    evaluations = {name: {"t1": values, "greedy": values} for name, values in scores_by_name.items()}
    return make_report(evaluations, changes.pop("half", HALF), changes.pop("seconds", SECONDS), TARGETS)


def reached_targets(report: DemoReport) -> list[bool]:
    return [target.reached for target in report.targets]


def test_every_figure_is_beside_its_target() -> None:
    report = demo_report()
    assert reached_targets(report) == [True] * 5
    figures = {target.name: target.result for target in report.targets}
    assert figures["recall, rewards less demonstrations"] == "+0.500 [+0.500, +0.500]"
    assert figures["prune accuracy"] == "1.000"
    assert figures["budget violations"] == "0"
    assert figures["half window, pruning less not"] == "+0.250 [+0.250, +0.250]"
    assert figures["minutes"] == "30.0"
    assert json.loads(json.dumps(report.data))["half_window"]["window"] == 128


def test_each_target_can_be_missed() -> None:
    assert reached_targets(demo_report(scores={"after": scores(*[0.0, 0.5] * 20, pruned_gold=4)}))[:2] == [False, False]
    one_violation = scores(*[0.5] * 39) + scores(*[0.5] * 40, violations=1)[-1:]
    assert reached_targets(demo_report(scores={"half": one_violation}))[2] is False, "of any evaluation"
    assert reached_targets(demo_report(scores={"half": scores(*[0.25] * 40)}))[3] is False
    assert reached_targets(demo_report(seconds={"demonstrations": {"seconds": 3_601.0, "whole": True}}))[4] is False


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (gain_target(Figure(0.15, 0.101, 0.2), 0.15, 0.1), True),
        (gain_target(Figure(0.149, 0.12, 0.2), 0.15, 0.1), False),
        (gain_target(Figure(0.3, 0.1, 0.5), 0.15, 0.1), False),
        (accuracy_target(0.95, TARGETS), True),
        (accuracy_target(0.949, TARGETS), False),
        (accuracy_target(None, TARGETS), False),
        (half_window_target(Figure(0.01, 0.001, 0.02), 0.0), True),
        (half_window_target(Figure(0.01, 0.0, 0.02), 0.0), False),
        (half_window_target(Figure(0.11, 0.01, 0.2), 0.1), True),
        (half_window_target(Figure(0.09, 0.01, 0.2), 0.1), False),
        (time_target(59.9, TARGETS, complete=True), True),
        (time_target(60.1, TARGETS, complete=True), False),
        (time_target(10.0, TARGETS, complete=False), False),
        (one_shot_target(scores(0.5, 1.0), [0.25, 0.5]), True),
        (one_shot_target(scores(0.5, 1.0), [0.5, 1.0]), False),
    ],
)
def test_where_the_targets_lie(target: Any, wanted: bool) -> None:
    assert target.reached is wanted


def test_what_a_quick_demo_cannot_tell_is_not_judged() -> None:
    scores_by_name = {"before": scores(0.5), "after": scores(0.5), "half": scores(0.5), "half_unpruned": scores(0.5)}
    evaluations = {name: {"t1": values, "greedy": values} for name, values in scores_by_name.items()}
    report = make_report(evaluations, HALF, SECONDS, replace(TARGETS, gain=None, half=None))
    assert [target.name for target in report.targets] == ["prune accuracy", "budget violations", "minutes"]


def test_a_resumed_phase_says_that_its_time_is_a_part() -> None:
    report = demo_report(seconds={"demonstrations": {"seconds": 60.0, "whole": False}})
    assert report.targets[4].result == "more than 1.0"


def test_a_row_for_each_evaluation() -> None:
    report = demo_report()
    rows = list(report.rows())
    assert len(rows) == 8
    assert all(len(row) == len(report.head) for row in rows)
    assert rows[2][:3] == ("rewards", "sampled", "0.750 [0.675, 0.825]")


def test_the_page_needs_nothing_else() -> None:
    page = report_page(demo_report(), "<svg></svg>", "", table="rl/episodes.html")
    assert page.startswith("<!DOCTYPE html>")
    assert "Half the window is 128 tokens; the median episode places 240" in page
    assert "http://" not in page
    assert 'href="rl/episodes.html"' in page
    assert page.count("reached") == 5


def lines(seed: int, updates: int = 40) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    records: list[dict[str, Any]] = [{"step": 0, "dev/t1/recall": 0.2}]
    for step in range(1, updates + 1):
        keys = [*plots.PANELS, *plots.EXPLORATION_PANELS]
        records.append({"step": step, **{key: float(rng.uniform(step / 80, step / 40)) for key in keys}})
    return records


def test_curves_of_one_run_and_of_several(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    levels = {"recall": {"mean": 0.3}, "seen": 0.4, "prune_accuracy": None}
    svg = plots.plot([plots.PlottedRuns("rewards", (lines(0),), levels, levels)], plots.PANELS, tmp_path / "plot.png")
    assert all(title in svg for title in plots.PANELS.values())
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    groups = [
        plots.PlottedRuns(name, (lines(1), lines(2), lines(3, 30))) for name in ("full reward", "without r_trajectory")
    ]
    comparison = plots.plot(groups, plots.PANELS | plots.EXPLORATION_PANELS)
    assert "without r_trajectory" in comparison
    assert all(title in comparison for title in plots.EXPLORATION_PANELS.values())
    assert comparison == plots.plot(groups, plots.PANELS | plots.EXPLORATION_PANELS), (
        "the same figures give the same bytes"
    )


def test_a_run_without_prunes_has_an_empty_panel() -> None:
    pytest.importorskip("matplotlib")
    lines_without_prunes = [{key: value for key, value in line.items() if key != "prune_accuracy"} for line in lines(0)]
    assert "prune accuracy" in plots.plot([plots.PlottedRuns("rewards", (lines_without_prunes,))], plots.PANELS)


def test_a_series_leaves_out_what_is_null() -> None:
    steps, values = plots.metric_series([{"step": 1, "x": 1.0}, {"step": 2, "x": None}, {"step": 3, "x": 3.0}], "x")
    assert steps.tolist() == [1, 3]
    assert values.tolist() == [1.0, 3.0]


def test_smoothing_keeps_a_level_and_its_length() -> None:
    assert plots.running_mean(np.full(100, 0.5)).tolist() == pytest.approx([0.5] * 100)
    assert len(plots.running_mean(np.arange(7.0))) == 7
