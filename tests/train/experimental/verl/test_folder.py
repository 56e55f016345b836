"""The folder that verl starts from: questions in the curriculum's order, settings and the agent loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, DataError
from context_agent.testing import tiny_runs
from context_agent.train import run_file
from context_agent.train.config import RunConfig
from context_agent.train.experimental.verl.folder import VerlQuestion, prepare
from context_agent.train.rl.rollouts import step_questions

parquet = pytest.importorskip("pyarrow.parquet")


def make_run(folder: Path, **changes: Any) -> RunConfig:
    base = tiny_runs.merged(tiny_runs.TINY, {"model": {"name": "some/model"}, "out": str(folder / "out")})
    return run_file.parse_run(
        tiny_runs.merged(base, {"curriculum": {"stages": [{"until": 0.5, "hops": 1}]}, **changes})
    )


def test_the_file_asks_what_the_run_s_steps_ask(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    prepared_folder = prepare(run, tmp_path / "verl", note=lambda _: None)
    lines = parquet.read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    assert prepared_folder.rows == len(lines) == run.rollouts.steps * run.rollouts.groups
    question_rows = [VerlQuestion.of(line) for line in lines]
    assert [row.index for row in question_rows] == list(range(len(lines)))
    from context_agent.train.data import open_data

    with open_data(run.data, lambda _: None) as material:
        for step in range(run.rollouts.steps):
            expected = step_questions(step, material.questions, run.curriculum, run.drawing)
            assert [row.question for row in question_rows[step * 2 : step * 2 + 2]] == expected
    half = len(question_rows) // 2
    assert {row.question.hops for row in question_rows[:half]} == {1}
    assert max(row.question.hops for row in question_rows[half:]) > 1


def test_the_loop_gets_the_run_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    prepare(run, tmp_path / "verl", note=lambda _: None)
    (loop_config,) = json.loads((tmp_path / "verl" / "agent_loop.yaml").read_text())
    assert loop_config["_target_"] == "context_agent.train.experimental.verl.loop.SearchLoop"
    assert run_file.parse_run(loop_config["run"]) == run


def test_the_settings_are_yaml_that_hydra_merges_at_the_top(tmp_path: Path) -> None:
    prepare(make_run(tmp_path), tmp_path / "verl", note=lambda _: None)
    head, *rest = (tmp_path / "verl" / "settings.yaml").read_text().splitlines()
    assert head == "# @package _global_"
    assert json.loads("\n".join(rest))["data"]["val_max_samples"] == 3


def test_dev_questions_are_as_many_as_the_run_evaluates_by(tmp_path: Path) -> None:
    assert prepare(make_run(tmp_path), tmp_path / "some", note=lambda _: None).dev == 3
    assert prepare(make_run(tmp_path, evaluation={"every": 0}), tmp_path / "none", note=lambda _: None).dev == 0
    assert not (tmp_path / "none" / "dev.parquet").exists()


def test_dev_questions_without_gold_are_left_out_because_verl_cannot_reward_them(tmp_path: Path) -> None:
    rows = [{"id": "1", "question": "Who?"}, {"id": "2", "question": "Where?", "gold": ["a"]}]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "train.jsonl").write_text(json.dumps({"question": "When?", "gold": ["a"]}))
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "a", "text": "In a town, in spring."}))
    data = {
        "dev": [str(tmp_path / "dev.jsonl")],
        "questions": [str(tmp_path / "train.jsonl")],
        "documents": [str(tmp_path / "corpus.jsonl")],
        "embedder": "static",
    }
    run = run_file.parse_run(
        {"model": {"name": "some/model", "renderer": "template"}, "data": data, "out": str(tmp_path / "out")}
    )
    assert prepare(run, tmp_path / "verl", note=lambda _: None).dev == 1
    (line,) = parquet.read_table(tmp_path / "verl" / "dev.parquet").to_pylist()
    assert VerlQuestion.of(line).question.id == "2"


def test_paths_hold_wherever_a_worker_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "student").mkdir()
    prepare(make_run(Path(), model={"name": "student", "adapter": "final", "lora": {}}), "verl", note=lambda _: None)
    (loop_config,) = json.loads((tmp_path / "verl" / "agent_loop.yaml").read_text())
    assert loop_config["run"]["out"] == str(tmp_path / "out")
    assert loop_config["run"]["model"]["name"] == str(tmp_path / "student")
    assert loop_config["run"]["model"]["adapter"] == str(tmp_path / "final")


def test_a_run_that_verl_cannot_do_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only cispo"):
        prepare(make_run(tmp_path, loss={"kind": "grpo"}), tmp_path / "verl", note=lambda _: None)
    mixed = make_run(tmp_path, rollouts={"demonstrations": 1}, data={"trajectories": "lessons"})
    with pytest.raises(ConfigError, match=r"rollouts\.demonstrations .verl samples every episode"):
        prepare(mixed, tmp_path / "verl", note=lambda _: None)
    assert not (tmp_path / "verl").exists()


@pytest.mark.parametrize("row", [{}, {"extra_info": {"index": 0}}, {"extra_info": {"index": 0, "question": "["}}])
def test_a_row_of_another_data_set_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="ctx1 train verl"):
        VerlQuestion.of(row)
