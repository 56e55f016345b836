"""The folder that verl is started with: questions in the curriculum's order, settings, the loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, DataError
from context_agent.train import config
from context_agent.train.config import RunConfig
from context_agent.train.rl.rollouts import step_questions
from context_agent.train.verl.folder import VerlQuestion, prepare
from tests.train import runs

parquet = pytest.importorskip("pyarrow.parquet")


def run(folder: Path, **changes: Any) -> RunConfig:
    base = runs.merged(runs.TINY, {"model": {"name": "some/model"}, "out": str(folder / "out")})
    return config.parse_run(runs.merged(base, {"curriculum": {"stages": [{"until": 0.5, "hops": 1}]}, **changes}))


def test_the_file_asks_what_the_run_s_steps_ask(tmp_path: Path) -> None:
    made = run(tmp_path)
    told = prepare(made, tmp_path / "verl", note=lambda _: None)
    lines = parquet.read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    assert told.rows == len(lines) == made.rollouts.steps * made.rollouts.groups
    asked = [VerlQuestion.of(line) for line in lines]
    assert [one.index for one in asked] == list(range(len(lines)))
    from context_agent.train.data import environment_of, open_data

    with open_data(made.data, lambda _: None, environment_of(made.data)) as material:
        for number in range(made.rollouts.steps):
            wanted = step_questions(number, material.questions, made.curriculum, made.drawing)
            assert [one.question for one in asked[number * 2 : number * 2 + 2]] == wanted
    half = len(asked) // 2
    assert {one.question.hops for one in asked[:half]} == {1}
    assert max(one.question.hops for one in asked[half:]) > 1


def test_the_loop_gets_the_run_whole(tmp_path: Path) -> None:
    made = run(tmp_path)
    prepare(made, tmp_path / "verl", note=lambda _: None)
    (loop,) = json.loads((tmp_path / "verl" / "agent_loop.yaml").read_text())
    assert loop["_target_"] == "context_agent.train.verl.loop.SearchLoop"
    assert config.parse_run(loop["run"]) == made


def test_the_settings_are_yaml_that_hydra_merges_at_the_top(tmp_path: Path) -> None:
    prepare(run(tmp_path), tmp_path / "verl", note=lambda _: None)
    head, *rest = (tmp_path / "verl" / "settings.yaml").read_text().splitlines()
    assert head == "# @package _global_"
    assert json.loads("\n".join(rest))["data"]["val_max_samples"] == 3


def test_dev_questions_are_as_many_as_the_run_evaluates_by(tmp_path: Path) -> None:
    assert prepare(run(tmp_path), tmp_path / "some", note=lambda _: None).dev == 3
    assert prepare(run(tmp_path, evaluation={"every": 0}), tmp_path / "none", note=lambda _: None).dev == 0
    assert not (tmp_path / "none" / "dev.parquet").exists()


def test_paths_hold_wherever_a_worker_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "student").mkdir()
    prepare(run(Path(), model={"name": "student"}), "verl", note=lambda _: None)
    (loop,) = json.loads((tmp_path / "verl" / "agent_loop.yaml").read_text())
    assert loop["run"]["out"] == str(tmp_path / "out")
    assert loop["run"]["model"]["name"] == str(tmp_path / "student")


def test_a_run_that_verl_cannot_do_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only cispo"):
        prepare(run(tmp_path, loss={"kind": "grpo"}), tmp_path / "verl", note=lambda _: None)
    mixed = run(tmp_path, rollouts={"demonstrations": 1}, data={"trajectories": "lessons"})
    with pytest.raises(ConfigError, match=r"rollouts\.demonstrations: verl samples every episode"):
        prepare(mixed, tmp_path / "verl", note=lambda _: None)
    assert not (tmp_path / "verl").exists()


@pytest.mark.parametrize("row", [{}, {"extra_info": {"index": 0}}, {"extra_info": {"index": 0, "question": "["}}])
def test_a_row_of_another_data_set_is_told(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="ctx1 train verl"):
        VerlQuestion.of(row)
