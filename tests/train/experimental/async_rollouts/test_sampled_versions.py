"""Each call of an asynchronous run has the log-probabilities of the version that it names, and of no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_agent.testing import tiny_runs
from context_agent.testing.sampled_versions import train_and_check

pytest.importorskip("trl")

LORA: dict[str, Any] = {"lora": {"rank": 4, "alpha": 64.0, "modules": ["q_proj", "v_proj"]}}
CHECKPOINTED: dict[str, Any] = {"gradient_checkpointing": True}
AUTOCAST: dict[str, Any] = {"dtype": "bfloat16"}


@pytest.mark.usefixtures("forked_rollouts")
@pytest.mark.parametrize(
    ("sampler", "model", "bound"),
    [
        pytest.param("thread", {}, 1e-5, id="thread, all weights"),
        pytest.param("thread", CHECKPOINTED | LORA, 1e-5, id="thread, adapters, checkpointed"),
        pytest.param("thread", CHECKPOINTED | AUTOCAST, 0.02, id="thread, all weights, autocast"),
        pytest.param("thread", LORA | AUTOCAST, 0.02, id="thread, adapters, autocast"),
        # The trainer's checkpointing does not reach the model of another process.
        pytest.param("process", {}, 1e-5, id="process, all weights"),
        pytest.param("process", LORA | AUTOCAST, 0.02, id="process, adapters, autocast"),
    ],
)
def test_a_call_s_logprobs_are_those_of_its_version(
    sampler: str, model: dict[str, Any], bound: float, student: Path, tmp_path: Path
) -> None:
    run = tiny_runs.rewards(
        student,
        tmp_path,
        model=model,
        rollouts={"steps": 3},
        optimizer={"learning_rate": 2e-2},
        async_rollouts={"max_steps_ahead": 1, "sampler": sampler},
        evaluation={"every": 0},
    )
    checked = train_and_check(run, bound)
    assert checked.calls > 30
    assert checked.versions > 2
    assert checked.beyond == checked.nearer == 0, str(checked)
