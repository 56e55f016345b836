"""A small demo from end to end: it resumes, does not repeat finished work, and refuses wrong options."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from context_agent import MemoryCorpus
from context_agent.cli.app import run
from context_agent.harness.trajectory_file import read
from context_agent.testing.tiny_runs import timeless, weights
from context_agent.train.demo import plan
from context_agent.train.demo.scores import load_scores
from context_agent.train.metrics_log import MetricsLog
from tests.support.demo_records import pruned

pytest.importorskip("trl")

SMALL: dict[str, dict[str, Any]] = {
    "sft": {
        "data.world": {"entities": 120, "tasks": 300},
        "model.tiny": {"hidden": 32, "layers": 1, "positions": 1024},
        "episodes": {"window": 512, "reserve": 8, "turns": 3},
        "sft": {"demonstrations": 160, "epochs": 2, "rows_per_pass": 16},
        "optimizer.learning_rate": 1e-2,
        "optimizer.warmup": 0,
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
    """Make `--quick` even smaller."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", {"tiny": SMALL})
        yield


def demo(out: Path, *arguments: str) -> int:
    return run(["train", "demo", "--quick", "--questions", "8", "--out", str(out), "--json", *arguments])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    assert demo(out) == 0
    return out


def test_everything_is_in_the_folder(done: Path) -> None:
    report = json.loads((done / "report.json").read_text())
    assert set(report["evaluations"]) == {"before", "after", "half", "half_unpruned"}
    assert all(set(evaluation) == {"t1", "greedy"} for evaluation in report["evaluations"].values())
    assert len(report["targets"]) == 4
    assert report["targets"][2]["result"] == "0", "no view and output passes its window"
    assert set(report["seconds"]) == {
        "demonstrations",
        "asking before",
        "rewards",
        "asking after",
        "asking half-pruning",
        "asking half-unpruned",
    }
    assert report["settings"]["rl"]["loss"]["kind"] == "cispo"
    assert 64 <= report["half_window"]["window"] < 512
    assert "<!DOCTYPE html>" in (done / "report.html").read_text()
    assert (done / "plot.svg").is_file()
    assert (done / "plot.png").is_file()


def test_scores_are_of_the_episodes_that_can_be_viewed(done: Path) -> None:
    questions = {
        question["id"]: question for question in map(json.loads, (done / "questions.jsonl").read_text().splitlines())
    }
    scores = load_scores(done / "evaluations" / "after-t1.jsonl")
    assert scores is not None
    assert [score.question for score in scores] == list(questions)
    assert all(question["gold"] for question in questions.values())
    trajectories = [read(path) for path in sorted((done / "trajectories" / "after-t1").glob("*.jsonl"))]
    assert len(trajectories) == 8
    score_by_question = {score.question: score for score in scores}
    for trajectory in trajectories:
        trajectory.verify()
        assert trajectory.end is not None
        assert score_by_question[str(trajectory.header.question_id)].placed == trajectory.end.tokens


def test_any_id_of_a_question_gives_a_saved_episode_of_its_own(tmp_path: Path, corpus: MemoryCorpus) -> None:
    from context_agent.train.demo.course import save_episodes

    ids = ["a/b", "a_b", "\0", "x" * 300]
    trajectory = pruned(corpus)
    save_episodes(tmp_path, [replace(trajectory, header=replace(trajectory.header, id=name)) for name in ids])
    assert {read(path).header.id for path in tmp_path.iterdir()} == set(ids)


def test_prunes_are_not_carried_out_under_control(done: Path) -> None:
    window = json.loads((done / "report.json").read_text())["half_window"]["window"]
    scores = load_scores(done / "evaluations" / "half-unpruned-t1.jsonl")
    assert scores is not None
    assert sum(score.pruned for score in scores) == 0
    trajectories = [read(path) for path in (done / "trajectories" / "half-unpruned-t1").glob("*.jsonl")]
    assert {trajectory.header.budget.window for trajectory in trajectories} == {window}


def test_finished_work_is_not_repeated(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mtimes = {path: path.stat().st_mtime_ns for path in done.rglob("*.safetensors")}
    mtimes |= {path: path.stat().st_mtime_ns for path in (done / "evaluations").iterdir()}
    first_report = json.loads((done / "report.json").read_text())
    assert demo(done, "--resume") == 0
    assert {path: path.stat().st_mtime_ns for path in mtimes} == mtimes
    assert json.loads((done / "report.json").read_text()) == first_report
    capsys.readouterr()


def test_the_ablation_shares_the_lessons(done: Path) -> None:
    mtime = (done / "sft" / "final" / "model.safetensors").stat().st_mtime_ns
    assert demo(done, "--resume", "--without-trajectory-reward") == 0
    assert (done / "sft" / "final" / "model.safetensors").stat().st_mtime_ns == mtime
    report = json.loads((done / "report-without-trajectory-reward.json").read_text())
    full_report = json.loads((done / "report.json").read_text())
    assert report["evaluations"]["before"] == full_report["evaluations"]["before"]
    assert report["settings"]["rl"]["rewards"]["trajectory"] == 0
    terms = [line["term/trajectory"] for line in timeless(done / "rl-without-trajectory-reward") if "reward" in line]
    assert terms
    assert not any(terms)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["sft", "rl"])
def test_a_demo_that_was_interrupted_ends_as_one_that_was_not(
    phase: str, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add = MetricsLog.add
    step = {"sft": 21, "rl": 2}[phase]

    def add_or_interrupt(self: MetricsLog, number: int, line: Any) -> None:
        add(self, number, line)
        if self.path.parent.name == phase and number == step:
            raise KeyboardInterrupt

    resume = []
    if phase == "rl":
        # The lessons were learned, and the rewards have not begun.
        shutil.copytree(done, tmp_path, dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "rl")
        for path in [*tmp_path.glob("report*"), *(tmp_path / "evaluations").glob("[ah]*")]:
            path.unlink()
        resume = ["--resume"]
    monkeypatch.setattr(MetricsLog, "add", add_or_interrupt)
    assert demo(tmp_path, *resume) == 130
    assert "To continue, add --resume." in capsys.readouterr().err
    monkeypatch.undo()
    assert demo(tmp_path, "--resume") == 0
    for folder in ("sft", "rl"):
        assert weights(tmp_path / folder) == weights(done / folder)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["evaluations"] == json.loads((done / "report.json").read_text())["evaluations"]
    name = {"sft": "demonstrations", "rl": "rewards"}[phase]
    assert report["seconds"][name]["whole"] is False


def test_a_folder_with_a_demo_is_not_written_over(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(done) == 2
    assert "Resume it with --resume" in capsys.readouterr().err
    assert demo(done, "--resume", "--demonstrations", "99") == 2
    assert "other options" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--steps", "0"], ["--demonstrations", "-1"], ["--questions", "0"], ["--sede", "1"]])
def test_options_that_make_no_sense_are_refused(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(tmp_path, *wrong) == 2
    assert wrong[0] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "[1]", '{"rewards": 5}', '{"rewards": {"seconds": "x", "whole": true}}'])
def test_damaged_times_are_told_and_count_as_none(text: str, tmp_path: Path) -> None:
    from context_agent.train.demo.course import DemoCourse

    notes: list[str] = []
    folder_alone = cast("plan.DemoPlan", SimpleNamespace(out=tmp_path))
    course = DemoCourse(folder_alone, resume=True, note=notes.append, bar=lambda *_: nullcontext(lambda *_: None))
    assert course._spent() == {}
    (tmp_path / "seconds.json").write_text(text)
    assert course._spent() == {}
    assert not (tmp_path / "seconds.json").exists()
    assert ["seconds.json is damaged" in note for note in notes] == [True]


@pytest.mark.parametrize("text", ["{", None])
def test_times_that_are_lost_are_not_left_out_of_the_report(
    text: str | None, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: (done / name).read_bytes() for name in ("seconds.json", "report.json")}
    phases = json.loads(files["report.json"])["seconds"]
    (done / "seconds.json").unlink()
    if text is not None:
        (done / "seconds.json").write_text(text)
    assert demo(done, "--resume") == 0
    assert ("seconds.json is damaged" in capsys.readouterr().err) is (text is not None)
    seconds = json.loads((done / "report.json").read_text())["seconds"]
    assert set(seconds) == set(phases)
    assert not any(phase["whole"] for phase in seconds.values())
    for name, before in files.items():
        (done / name).write_bytes(before)


@pytest.mark.parametrize("text", ["{", "[]", "{}", None])
def test_a_run_without_its_settings_is_not_taken_for_the_demos(
    text: str | None, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = (done / "sft" / "run.json").read_bytes()
    (done / "sft" / "run.json").unlink()
    if text is not None:
        (done / "sft" / "run.json").write_text(text)
    assert demo(done, "--resume") == 2
    assert "run.json is missing or damaged" in capsys.readouterr().err
    (done / "sft" / "run.json").write_bytes(about)
