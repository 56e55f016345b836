"""The paths that only a GPU takes: asynchronous rollouts, and sampler against trainer in 32 and 16 bits.

A tiny gpt-oss learns in the toy environment. Each recorded call of its asynchronous rollouts is scored again by the
weights of the version that it names, and the run's own canary watches the sampler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent.testing.sampled_versions import train_and_check
from context_agent.train.config import MISMATCH_BOUNDS, RunConfig
from context_agent.train.metrics_log import read_metrics
from context_agent.train.run_file import parse_run
from gpu.part import MISSED, OK, SKIPPED, Clock, Row, Scale, within

LORA = {"lora": {"rank": 4, "alpha": 64.0, "modules": ["q_proj", "v_proj"]}}
CALL_BOUNDS = {"float32": 1e-4, "bfloat16": 0.1}
"""Maximum difference of a call's log-probabilities from those of its version. Kernels for one row and a batch differ.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of run: the place where it samples, and its `[model]`."""

    sampler: str
    name: str
    dtype: str
    model: dict[str, Any]


KINDS = (
    Kind("thread", "all weights, float32", "float32", {}),
    Kind("thread", "adapters, bfloat16, checkpointed", "bfloat16", {**LORA, "gradient_checkpointing": True}),
    Kind("process", "adapters, bfloat16", "bfloat16", LORA),
)


def rollouts(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Train a tiny model asynchronously, and check the log-probabilities of every call."""
    from context_agent.train import sft

    student = folder / "student"
    sft.train(_run(scale, student, {"tiny": {"hidden": 32, "layers": 1, "positions": 1024, "deviation": 0.18}}))
    for kind in KINDS:
        title = f"{kind.sampler}, {kind.name}"
        if clock.left < clock.seconds / (len(KINDS) + 2):
            yield Row("", title, "no time left", verdict=SKIPPED)
            continue
        out = folder / f"{kind.sampler}-{len(kind.name)}"
        model = {"name": str(student / "final"), "dtype": kind.dtype, **kind.model}
        run = _run(scale, out, model, {"max_steps_ahead": 1, "sampler": kind.sampler})
        checked = train_and_check(run, CALL_BOUNDS[kind.dtype])
        wrong = checked.beyond + checked.nearer
        yield Row("", title, str(checked), "0 and 0", OK if checked.calls and not wrong else MISSED)
        yield _canary_row(title, out, kind.dtype)


def _canary_row(title: str, out: Path, dtype: str) -> Row:
    """Return the largest difference between sampler and trainer that the run's canary saw."""
    lines = read_metrics(out / "metrics.jsonl")
    seen = [line["sampler/logp_difference_mean"] for line in lines if "sampler/logp_difference_mean" in line]
    if not seen:
        return Row("", f"{title}: canary", "no row of the newest weights", verdict=MISSED)
    bound = MISMATCH_BOUNDS[dtype]
    return Row(
        "", f"{title}: canary", f"off by {max(seen):.1e} on average, at most", f"<= {bound:g}", within(max(seen), bound)
    )


def _run(scale: Scale, out: Path, model: dict[str, Any], ahead: dict[str, Any] | None = None) -> RunConfig:
    """Return a run in the toy environment: lessons from scratch, or asynchronous rewards."""
    tables: dict[str, Any] = {
        "out": str(out),
        "model": {
            "dtype": "float32",
            "attention": "eager",
            "gradient_checkpointing": False,
            "renderer": "words",
            **model,
        },
        "data": {"world": {"entities": scale.entities, "tasks": 5 * scale.entities}},
        "episodes": {"window": 512, "turns": 4},
        "engine": {"batch": scale.episodes, "max_tokens": 16},
        "rollouts": {
            "steps": scale.updates,
            "groups": max(1, scale.episodes // 4),
            "rollouts": 4,
            "substeps": 1,
            "concurrency": scale.episodes,
            "save_every": 0,
        },
        "loss": {"pass_tokens": 4096},
        "optimizer": {"learning_rate": 1e-2 if ahead is None else 2e-3},
        "evaluation": {"every": 0},
        "checkpoints": {"every": 1_000},
        "logging": {"to": []},
        "sft": {"demonstrations": scale.lessons, "rows_per_pass": 16, "epochs": 3, "held_out": 0.0},
    }
    if ahead is not None:
        tables["async_rollouts"] = ahead
    return parse_run(tables)
