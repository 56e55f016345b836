"""Files of settings and records from a stranger: nested deep, too large or sparse, they are errors of this package."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from context_agent._support.journal import AppendLog, read_log
from context_agent._support.question_files import load_questions
from context_agent.cli.config_file import load_config
from context_agent.errors import ConfigError, ContextAgentError, DataError, TrajectoryError
from context_agent.eval.model_prices import load_prices
from context_agent.eval.records import open_run
from context_agent.eval.records import read_run as read_evaluation
from context_agent.harness.trajectory_file import read
from context_agent.harness.trajectory_folder import is_trajectory
from context_agent.integrations.feedback import FeedbackLog
from context_agent.train.experimental.judge.calibration_check import check_calibration
from context_agent.train.experimental.judge.rubric import load_rubric
from context_agent.train.metrics_log import read_metrics
from context_agent.train.run_file import read_run


def options(path: Path) -> Any:
    return load_config(App("ctx1"), [], path)


READERS: dict[str, Callable[[Path], Any]] = {
    "run": read_run,
    "prices": load_prices,
    "rubric": load_rubric,
    "options": options,
}


@pytest.mark.parametrize("text", ["a = " + "[" * 50_000, "[" + ".".join("a" * 50_000) + "]", "a = " + "{a=" * 50_000])
@pytest.mark.parametrize("reader", READERS)
def test_deep_settings_are_refused_by_each_reader(tmp_path: Path, reader: str, text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ContextAgentError, match=r"more than 16 (levels|parts)"):
        READERS[reader](tmp_path / "a.toml")


@pytest.mark.parametrize("reader", READERS)
def test_sparse_settings_are_refused_by_each_reader(tmp_path: Path, reader: str) -> None:
    (tmp_path / "a.toml").touch()
    os.truncate(tmp_path / "a.toml", 1 << 40)
    with pytest.raises(ContextAgentError, match="more than 1,000,000 bytes"):
        READERS[reader](tmp_path / "a.toml")


def made(path: Path, damage: str) -> Path:
    path.write_text("" if damage == "sparse" else "[" * 3_000_000 + "\n")
    if damage == "sparse":
        os.truncate(path, 1 << 40)
    return path


@pytest.mark.parametrize("damage", ["deep", "sparse"])
def test_records_are_refused_by_each_reader(tmp_path: Path, damage: str) -> None:
    file = made(tmp_path / "run.json", damage)
    assert not is_trajectory(file)
    with pytest.raises(TrajectoryError):
        read(file)
    with pytest.raises(DataError):
        load_questions(file)
    with pytest.raises(DataError):
        read_log(file)
    with pytest.raises(ContextAgentError):
        read_evaluation(tmp_path)
    with pytest.raises(ContextAgentError):
        check_calibration(file, {})


def test_a_line_of_metrics_that_is_nested_or_infinite_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    for line in ("[" * 100_000, '{"step": 1e999}'):
        file.write_text(f'{line}\n{{"step": 1}}\n')
        with pytest.raises(DataError, match="line 1"):
            list(read_metrics(file))


@pytest.mark.parametrize("content", [None, "a key without a line end"])
def test_no_log_is_written_through_a_link(tmp_path: Path, content: str | None) -> None:
    victim = tmp_path / "victim"
    if content is not None:
        victim.write_text(content)
    (tmp_path / "log.jsonl").symlink_to(victim)
    with pytest.raises(ConfigError, match="is a symbolic link"), AppendLog(tmp_path / "log.jsonl") as log:
        log.append({"key": "q1"})
    assert (victim.read_text() if victim.exists() else None) == content


@pytest.mark.parametrize("name", ["feedback.jsonl", "served.jsonl"])
def test_no_judgment_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "trajectories"
    folder.mkdir()
    folder.joinpath(name).symlink_to(tmp_path)
    with pytest.raises(DataError, match="is a link"):
        FeedbackLog(folder)


def test_a_pipe_in_place_of_a_log_blocks_no_reader(tmp_path: Path) -> None:
    for name in ("log.jsonl", "t1.jsonl", "feedback/served.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    with pytest.raises(DataError, match="is a pipe"):
        read_log(tmp_path / "log.jsonl")
    with pytest.raises(DataError, match="is a pipe"):
        list(read_metrics(tmp_path / "log.jsonl"))
    with pytest.raises(TrajectoryError, match="there is no trajectory 't1'"):
        FeedbackLog(tmp_path).header("t1")
    with pytest.raises(DataError, match="is a pipe"):
        FeedbackLog(tmp_path / "feedback")


def test_a_sparse_file_of_metrics_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(DataError, match="almost none of them are on the disk"):
        list(read_metrics(path))


@pytest.mark.parametrize("name", ["unfinished", "unfinished/one/agent", "trajectories"])
def test_a_link_in_the_folder_of_an_evaluation_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    link = run / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path)
    with pytest.raises(DataError, match="is a link"), open_run(run, {"windows": [1]}, {}):
        pass
    assert not (run / "run.json").exists()
