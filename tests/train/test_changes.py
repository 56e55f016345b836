"""Settings from the command line: `--set key=value`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.train.run_file import parse_changes, parse_run, read_run


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("rollouts.groups=8", "rollouts.groups", 8),
        ("optimizer.learning_rate = 2e-4", "optimizer.learning_rate", 2e-4),
        ("model.gradient_checkpointing=false", "model.gradient_checkpointing", False),
        ("curriculum.beta=[4, 2]", "curriculum.beta", [4, 2]),
        ("curriculum.stages=[{until = 0.5, hops = 2}]", "curriculum.stages", [{"until": 0.5, "hops": 2}]),
        ("model.lora.rank=16", "model.lora.rank", 16),
        ('model.name="a=b"', "model.name", "a=b"),
        ("model.name=owner/model", "model.name", "owner/model"),
        ("data.trajectories=lessons/wide", "data.trajectories", "lessons/wide"),
        ("data.world={}", "data.world", {}),
    ],
)
def test_a_value_is_toml_and_a_bare_word_a_string(text: str, key: str, value: Any) -> None:
    assert parse_changes([text]) == {key: value}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rollouts.group=8", "Did you mean 'rollouts.groups'"),
        ("rollout.groups=8", "Did you mean 'rollouts.groups'"),
        ("groups=8", "Did you mean 'rollouts.groups'"),
        ("optimizer.lr=1", "Did you mean 'optimizer.learning_rate'"),
        ("model.lora.rnk=8", "Did you mean 'model.lora.rank'"),
        ("rewards.xyz=8", "Choose from answer, beta"),
        ("zzz=8", "Choose from async_rollouts, checkpoints"),
        ("rollouts.groups", "'rollouts.groups' sets nothing. Write KEY=VALUE"),
        ("=8", "sets nothing"),
        ("curriculum.beta=[4", "curriculum.beta = .4 is not valid TOML"),
        ("seed=1\nthreads=2", "sets more than one value"),
    ],
)
def test_what_sets_nothing_is_refused_with_the_key_that_was_meant(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_changes([text])


def test_changes_override_a_file_and_make_its_missing_tables(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('seed = 3\n[model]\nname = "m"\n[data]\n[rollouts]\ngroups = 4\nrollouts = 2\n')
    run = read_run(path, parse_changes(["rollouts.groups=8", "model.lora.rank=16", "rollouts.groups=16"]))
    assert (run.rollouts.groups, run.rollouts.rollouts, run.seed) == (16, 2, 3)
    assert run.model.lora is not None
    assert run.model.lora.rank == 16
    path.write_text('model = "m"\n')
    with pytest.raises(ConfigError, match=r"cannot set model\.name, because model is a value, not a table"):
        read_run(path, parse_changes(["model.name=m"]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("rollouts.groups=many", "--set rollouts.groups: Input should be a valid integer; got 'many'"),
        ("seed=true", "--set seed: Input should be a valid integer; got True"),
        ("minutes=inf", "--set minutes: minutes must be a finite number; got inf"),
        ("curriculum.stages=[{until = 1, hop = 1}]", "--set curriculum.stages: unknown key 'hop'"),
        ("curriculum.stages=[{until = 'x'}]", "--set curriculum.stages: curriculum.stages.0.until: "),
        ("rollouts.demonstrations=1", "run.toml with --set rollouts.demonstrations: rollouts.demonstrations = 1 needs"),
    ],
)
def test_an_invalid_change_is_blamed_and_not_the_file(tmp_path: Path, change: str, told: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[model]\nname = "m"\n[data]\n')
    with pytest.raises(ConfigError) as raised:
        read_run(path, parse_changes(["threads=1", change]))
    assert told in str(raised.value)
    assert "threads" not in str(raised.value)
    assert (str(path) in str(raised.value)) == ("run.toml" in told)
    path.write_text('minutes = "2"\n[model]\nname = "m"\n[data]\n')
    with pytest.raises(ConfigError, match=r"run\.toml: minutes: Input should be a valid number"):
        read_run(path, parse_changes(["threads=1"]))


LEAST: dict[str, Any] = {"model": {"name": "m"}, "data": {}}
ADAPTED: dict[str, Any] = {"model": {"name": "m", "lora": {}}, "data": {}}


def test_a_change_is_not_blamed_for_a_setting_whose_name_contains_its_own(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[model]\nname = "m"\n[data]\nworld = {}\n')
    with pytest.raises(ConfigError, match=r"run\.toml with --set rollouts\.rollouts: rollouts\.rollouts must be at"):
        read_run(tmp_path / "run.toml", {"out": "here", "rollouts.rollouts": 1})


def test_lessons_and_rewards_have_learning_rates_of_their_own() -> None:
    run = parse_run(LEAST)
    assert (run.learning_rate("sft"), run.learning_rate("rl")) == (1e-5, 1e-5)
    run = parse_run(ADAPTED)
    assert (run.learning_rate("sft"), run.learning_rate("rl")) == (2e-4, 1e-5)
    run = parse_run(ADAPTED | {"optimizer": {"learning_rate": 3e-5}})
    assert (run.learning_rate("sft"), run.learning_rate("rl")) == (3e-5, 3e-5)
    run = parse_run(ADAPTED | {"optimizer": {"learning_rate": 3e-5}, "sft": {"learning_rate": 1e-4}})
    assert (run.learning_rate("sft"), run.learning_rate("rl")) == (1e-4, 3e-5)
