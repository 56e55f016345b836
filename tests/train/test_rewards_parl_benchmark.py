"""The program that shows PARL in training: its runs differ in the reward alone, and its verdict is the rule's."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from context_agent.train.config import ParlConfig
from context_agent.train.rewards import RewardConfig, RewardPreset

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "parl.py"
if not PROGRAM.is_file():
    pytest.skip("benchmarks live in the repository alone", allow_module_level=True)


@pytest.fixture(scope="module")
def parl() -> Any:
    spec = importlib.util.spec_from_file_location("parl_benchmark", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_of(*spawning: float) -> list[dict[str, Any]]:
    """One seed's scores: whether each question's episode started sub-agents."""
    rest = {"recall": 0.5, "critical_steps": 5, "searches": 1, "reward": 0.5, "finished": 1.0}
    return [
        {"question": str(n), "spawning": share, "searchers": 3 * share, "done": 2 * share, **rest}
        for n, share in enumerate(spawning)
    ]


def test_the_arms_differ_in_their_reward_for_delegating_alone(parl: Any, tmp_path: Path) -> None:
    runs = [parl.reward_run(tmp_path, arm, 0) for arm in parl.ARMS]
    plain = [{**run.plain(), "out": "", "parl": {}, "rewards": {}} for run in runs]
    assert all(settings == plain[0] for settings in plain)
    published = RewardConfig(preset=RewardPreset.CONTEXT_1)
    assert [(run.parl.on, run.rewards == published) for run in runs] == [
        (False, True),
        (True, True),
        (False, False),
    ]
    assert runs[0].parl == ParlConfig()
    assert all(run.parl.at(parl.UNTIL) == run.parl.at(1.0) for run in runs)
    demonstrations = parl.demonstration_run(tmp_path)
    assert {run.episodes.searchers for run in runs} == {f"{demonstrations.out}/final"}


@pytest.mark.parametrize(
    ("after", "collapsed"),
    [
        ([[0.0] * 40], True),
        ([[0.0] * 40, [1.0] * 40], False),
        ([[1.0] * 12 + [0.0] * 28], False),
        ([[1.0] * 4 + [0.0] * 36], True),
    ],
)
def test_an_arm_has_collapsed_if_significantly_less_than_half_of_the_demonstrated_share_is_left(
    parl: Any, after: Sequence[Sequence[float]], collapsed: bool
) -> None:
    before = [run_of(*[0.0, 1.0, 1.0, 1.0] * 10)]
    assert parl.collapsed([run_of(*shares) for shares in after], before * len(after)) is collapsed


def test_figures_are_means_over_seeds_and_differences_of_the_same_questions(
    parl: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {
        "before": [run_of(1, 0, 1, 0), run_of(1, 1, 0, 0)],
        "without": [run_of(0, 0, 0, 0), run_of(0, 0, 0, 0)],
        "with": [run_of(1, 1, 1, 1), run_of(1, 1, 1, 0)],
    }
    summary = parl.summarize(scores)
    assert (summary["seeds"], summary["questions"]) == ({"before": 2, "without": 2, "with": 2}, 4)
    assert summary["figures"]["before"]["spawning"]["mean"] == 0.5
    assert summary["against_without"]["with"]["spawning"]["mean"] == 0.875
    assert summary["collapsed"] == {"without": True, "with": False}
    assert summary["done"] == {"before": pytest.approx(2 / 3), "without": None, "with": pytest.approx(2 / 3)}
    lines = [{"step": n, "spawning": float(n > 50)} for n in range(1, 101)]
    trained = {"with": parl.spawning_by_tenths([[{"step": 0}, *lines], lines])}
    assert trained["with"] == [0.0] * 5 + [1.0] * 5
    parl.print_summary({**summary, "split": "dev", "minutes": {"demonstrations": 1.0}, "training": trained})
    output = capsys.readouterr().out
    assert "without r_parallel and r_finish: spawning less half" in output
    assert output.count("no collapse") == 1
