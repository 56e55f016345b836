"""Each call of an asynchronous run has the log-probabilities of the version that it names, and of no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_agent.testing import tiny_runs
from context_agent.testing.sampled_versions import train_and_check

pytest.importorskip("trl")

LORA = {"lora": {"rank": 4, "alpha": 64.0, "modules": ["q_proj", "v_proj"]}}


@pytest.mark.usefixtures("forked_rollouts")
@pytest.mark.parametrize("sampler", ["thread", "process"])
@pytest.mark.parametrize(
    ("model", "bound"),
    [
        pytest.param({}, 1e-5, id="all weights"),
        pytest.param({**LORA, "gradient_checkpointing": True}, 1e-5, id="adapters, checkpointed"),
        pytest.param({"dtype": "bfloat16", "gradient_checkpointing": True}, 0.02, id="all weights, autocast"),
        pytest.param({**LORA, "dtype": "bfloat16"}, 0.02, id="adapters, autocast"),
    ],
)
def test_a_call_s_logprobs_are_those_of_its_version(
    sampler: str, model: dict[str, Any], bound: float, student: Path, tmp_path: Path
) -> None:
    run = tiny_runs.rewards(
        student,
        tmp_path,
        model=model,
        rollouts={"steps": 4},
        optimizer={"learning_rate": 2e-2},
        async_rollouts={"max_steps_ahead": 1, "sampler": sampler},
        evaluation={"every": 0},
    )
    checked = train_and_check(run, bound)
    assert checked.calls > 30
    assert checked.versions > 2
    assert checked.beyond == checked.nearer == 0, str(checked)
