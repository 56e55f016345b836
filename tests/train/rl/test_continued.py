"""Rewards that continue from lessons: their adapters, the distance to them, and longer runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.testing import tiny_runs
from context_agent.train.config import RunConfig
from context_agent.train.lineage import check_start, started_from

pytest.importorskip("trl")
safetensors = pytest.importorskip("safetensors.torch")

QUIET = {"evaluation": {"every": 0}}


@pytest.fixture(scope="module")
def lessons(student: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of lessons that trained adapters on the student."""
    from context_agent.train import sft

    out = tmp_path_factory.mktemp("runs") / "lessons"
    changes: dict[str, Any] = {
        "model": {"tiny": None, "name": str(student), "lora": {"rank": 4}},
        "sft": {"demonstrations": 60, "epochs": 1, "held_out": 0},
    }
    sft.train(tiny_runs.demonstrations(out, **changes), note=lambda _: None)
    return out


def train(run: RunConfig, **options: Any) -> Any:
    from context_agent.train import reinforcement

    return reinforcement.train(run, note=lambda _: None, **options)


def adapter_size(folder: Path) -> float:
    """The sum of the absolute values of the second adapter matrices, which begin at zero."""
    tensors = safetensors.load_file(folder / "adapter_model.safetensors")
    return float(sum(tensor.abs().sum() for name, tensor in tensors.items() if "lora_B" in name))


def rewarded(student: Path, out: Path, **changes: Any) -> RunConfig:
    rollouts = {"steps": 1, "substeps": 2}
    return tiny_runs.rewards(student, out, **tiny_runs.merged({"rollouts": rollouts, **QUIET}, changes))


def test_rewards_from_the_lessons_keep_what_they_taught(student: Path, lessons: Path) -> None:
    run = rewarded(student, lessons.parent / "rewards", model={"lora": {"rank": 4}}, optimizer={"learning_rate": 1e-9})
    with pytest.raises(ConfigError, match=rf"Add --from {lessons}"):
        check_start(run)
    taught = adapter_size(lessons / "final")
    assert taught > 0
    result = train(started_from(run, lessons))
    assert adapter_size(Path(result.model)) == pytest.approx(taught, rel=1e-3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rank": 8, "alpha": 32}, "rank 4 and alpha 64, but [model.lora] has rank 8 and alpha 32"),
        (
            {"modules": ["q_proj", "v_proj"]},
            "modules k_proj, o_proj, q_proj, v_proj, but [model.lora] has modules q_proj, v_proj",
        ),
        ({"parameters": ["mlp.experts"]}, "parameters none, but [model.lora] has parameters mlp.experts"),
        ({"first_layer": 1}, "first_layer 0, but [model.lora] has first_layer 1"),
    ],
)
def test_adapters_that_differ_from_those_of_the_run_file_are_refused(
    student: Path, lessons: Path, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    run = started_from(rewarded(student, tmp_path, model={"lora": {"rank": 4, **changed}}), lessons)
    with pytest.raises(ConfigError, match=re.escape(f"have {said}, which would have no effect")):
        train(run)


def test_the_distance_to_the_start_is_zero_at_the_first_update(student: Path, lessons: Path, tmp_path: Path) -> None:
    """The lessons' adapters are the reference, not the model below them."""
    from context_agent.train.models import load_model

    run = started_from(rewarded(student, tmp_path, loss={"kl": 0.1}, checkpoints={"every": 1}), lessons)
    train(run)
    first, second = (line["kl"] for line in tiny_runs.timeless(tmp_path) if "kl" in line)
    assert abs(first) < 1e-7
    assert second > 1e-6
    loaded = load_model(run)
    assert loaded.model.peft_config.keys() == {"default"}
    for folder in (tmp_path / "final", tmp_path / "checkpoints" / "step-00000002" / "trainer"):
        assert not (folder / "ref").exists(), "the reference is the run's model.adapter: it is not saved again"


def test_resumed_it_has_the_same_reference(student: Path, lessons: Path, tmp_path: Path) -> None:
    changes = {"loss": {"kl": 0.1}, "rollouts": {"steps": 2, "substeps": 1}, "checkpoints": {"every": 1}}
    straight = started_from(rewarded(student, tmp_path / "straight", **changes), lessons)
    train(straight)
    resumed = replace(straight, out=str(tmp_path / "resumed"))
    train(replace(resumed, rollouts=replace(resumed.rollouts, steps=1)))
    train(resumed, resume=True)
    kls = [[line["kl"] for line in tiny_runs.timeless(run.out) if "kl" in line] for run in (straight, resumed)]
    assert kls[0][0] == kls[1][0]
    assert adapter_size(Path(resumed.out) / "final") == pytest.approx(adapter_size(Path(straight.out) / "final"))


def test_a_longer_run_ends_with_the_bits_of_one_that_was_long_from_the_start(student: Path, tmp_path: Path) -> None:
    steady = {"curriculum": {"beta": [2, 2]}, "rollouts": {"steps": 3, "substeps": 1}}
    long = rewarded(student, tmp_path / "long", **steady)
    train(long)
    extended = replace(long, out=str(tmp_path / "extended"))
    short = replace(extended, rollouts=replace(long.rollouts, steps=2))
    train(short)
    result = train(extended, resume=True)
    assert (result.first_update, result.updates) == (2, 3)
    assert tiny_runs.weights(extended.out) == tiny_runs.weights(long.out)
    assert tiny_runs.timeless(extended.out) == tiny_runs.timeless(long.out)
    with pytest.raises(ConfigError, match=r"rollouts\.steps was 3 and is 2.*can be raised"):
        train(short, resume=True)


def test_more_epochs_of_lessons_continue(tmp_path: Path) -> None:
    from context_agent.train import sft

    def lessons(epochs: int, **options: Any) -> Any:
        run = tiny_runs.demonstrations(tmp_path, sft={"demonstrations": 60, "epochs": epochs})
        return sft.train(run, note=lambda _: None, **options)

    first = lessons(1)
    result = lessons(2, resume=True)
    assert (result.first_update, result.updates) == (first.updates, 2 * first.updates)
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [*range(1, result.updates + 1)]
