"""The demo from end to end, in miniature: it resumes, repeats nothing that is done, and says what was asked wrongly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from context_agent.cli.app import run
from context_agent.harness.trajectory_file import read
from context_agent.train.checkpoints import MetricsLog
from context_agent.train.demo import plan
from context_agent.train.demo.report import load_scores
from tests.train.runs import timeless, weights

pytest.importorskip("trl")

SMALL: dict[str, dict[str, Any]] = {
    "sft": {
        "data.world": {"entities": 120, "tasks": 300},
        "model.tiny": {"hidden": 32, "layers": 1, "positions": 1024},
        "episodes": {"window": 512, "reserve": 8, "turns": 3},
        "sft": {"demonstrations": 160, "epochs": 2, "rows_per_pass": 16},
        "optimiser.learning_rate": 1e-2,
        "optimiser.warmup": 0,
        "checkpoints.every": 20,
    },
    "rl": {
        "rollouts": {"steps": 3, "groups": 2, "rollouts": 4, "substeps": 1, "concurrency": 8, "save_every": 2},
        "engine": {"batch": 32, "max_tokens": 12},
        "evaluation": {"every": 2, "questions": 3},
        "checkpoints.every": 1,
    },
}
"""A demo that takes seconds."""


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """What `--quick` changes, smaller still."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", {"tiny": SMALL})
        yield


def demo(out: Path, *more: str) -> int:
    return run(["train", "demo", "--quick", "--questions", "8", "--out", str(out), "--json", *more])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    assert demo(out) == 0
    return out


def test_everything_is_in_the_folder(done: Path) -> None:
    parsed = json.loads((done / "report.json").read_text())
    assert set(parsed["evaluations"]) == {"before", "after", "half", "half_unpruned"}
    assert all(set(item) == {"t1", "greedy"} for item in parsed["evaluations"].values())
    assert len(parsed["targets"]) == 4
    assert parsed["targets"][2]["found"] == "0", "no view and output passes its window"
    assert set(parsed["seconds"]) == {
        "demonstrations",
        "asking before",
        "rewards",
        "asking after",
        "asking half-pruning",
        "asking half-unpruned",
    }
    assert parsed["settings"]["rl"]["loss"]["kind"] == "cispo"
    assert 64 <= parsed["half_window"]["window"] < 512
    assert "<!DOCTYPE html>" in (done / "report.html").read_text()
    assert (done / "plot.svg").is_file()
    assert (done / "plot.png").is_file()


def test_scores_are_of_the_episodes_that_can_be_viewed(done: Path) -> None:
    gold = {item["id"]: item for item in map(json.loads, (done / "questions.jsonl").read_text().splitlines())}
    scores = load_scores(done / "evaluations" / "after-t1.jsonl")
    assert scores is not None
    assert [item.question for item in scores] == list(gold)
    assert all(item["gold"] for item in gold.values())
    shown = [read(path) for path in sorted((done / "trajectories" / "after-t1").glob("*.jsonl"))]
    assert len(shown) == 8
    by_question = {item.question: item for item in scores}
    for trajectory in shown:
        trajectory.verify()
        assert trajectory.end is not None
        assert by_question[str(trajectory.header.question_id)].placed == trajectory.end.tokens


def test_prunes_are_not_carried_out_under_control(done: Path) -> None:
    window = json.loads((done / "report.json").read_text())["half_window"]["window"]
    scores = load_scores(done / "evaluations" / "half-unpruned-t1.jsonl")
    assert scores is not None
    assert sum(item.pruned for item in scores) == 0
    episodes = [read(path) for path in (done / "trajectories" / "half-unpruned-t1").glob("*.jsonl")]
    assert {item.header.budget.window for item in episodes} == {window}


def test_what_is_done_is_not_repeated(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*.safetensors")}
    before |= {path: path.stat().st_mtime_ns for path in (done / "evaluations").iterdir()}
    first = json.loads((done / "report.json").read_text())
    assert demo(done, "--resume") == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert json.loads((done / "report.json").read_text()) == first
    capsys.readouterr()


def test_the_ablation_shares_the_lessons(done: Path) -> None:
    demonstrations = (done / "sft" / "final" / "model.safetensors").stat().st_mtime_ns
    assert demo(done, "--resume", "--without-trajectory-reward") == 0
    assert (done / "sft" / "final" / "model.safetensors").stat().st_mtime_ns == demonstrations
    report = json.loads((done / "report-without-trajectory-reward.json").read_text())
    full = json.loads((done / "report.json").read_text())
    assert report["evaluations"]["before"] == full["evaluations"]["before"]
    assert report["settings"]["rl"]["rewards"]["trajectory"] == 0
    terms = [line["term/trajectory"] for line in timeless(done / "rl-without-trajectory-reward") if "reward" in line]
    assert terms
    assert not any(terms)


@pytest.mark.parametrize("phase", ["sft", "rl"])
def test_a_demo_that_was_interrupted_ends_as_one_that_was_not(
    phase: str, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = MetricsLog.add
    step = {"sft": 21, "rl": 2}[phase]

    def interrupted(self: MetricsLog, at: int, line: Any) -> None:
        add(self, at, line)
        if self.path.parent.name == phase and at == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(MetricsLog, "add", interrupted)
    assert demo(tmp_path) == 130
    monkeypatch.undo()
    assert demo(tmp_path, "--resume") == 0
    for item in ("sft", "rl"):
        assert weights(tmp_path / item) == weights(done / item)
    parsed = json.loads((tmp_path / "report.json").read_text())
    assert parsed["evaluations"] == json.loads((done / "report.json").read_text())["evaluations"]
    name = {"sft": "demonstrations", "rl": "rewards"}[phase]
    assert parsed["seconds"][name]["whole"] is False


def test_a_folder_with_a_demo_is_not_written_over(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(done) == 2
    assert "resume it with --resume" in capsys.readouterr().err
    assert demo(done, "--resume", "--demonstrations", "99") == 2
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--steps", "0"], ["--demonstrations", "-1"], ["--questions", "0"], ["--sede", "1"]])
def test_options_that_make_no_sense_are_refused(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(tmp_path, *wrong) == 2
    assert wrong[0] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
