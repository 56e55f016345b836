"""Small training runs for tests: a closed world, and a gpt-oss model with a few thousand weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from context_agent.train import run_file
from context_agent.train.config import RunConfig

WORLD = {"entities": 120, "tasks": 300}
TINY: dict[str, Any] = {
    "threads": 1,
    "logging": {"to": []},
    "model": {"dtype": "float32", "attention": "eager", "gradient_checkpointing": False, "renderer": "words"},
    "data": {"world": WORLD},
    "episodes": {"window": 512, "turns": 4},
    "engine": {"batch": 8, "max_tokens": 16},
    "rollouts": {"steps": 10, "groups": 2, "rollouts": 4, "substeps": 2, "concurrency": 8, "save_every": 5},
    "loss": {"pass_tokens": 2048},
    "optimizer": {"learning_rate": 1e-3},
    "evaluation": {"every": 5, "questions": 3},
    "checkpoints": {"every": 3},
    "sft": {"demonstrations": 600, "rows_per_pass": 16, "epochs": 3},
}


def demonstrations(out: Path, **changes: Any) -> RunConfig:
    """Return a run of supervised training from scratch.

    Args:
        out: The output folder.
        changes: Tables that replace the defaults value by value.
    """
    run = merged(TINY, {"out": str(out), "optimizer": {"learning_rate": 1e-2}, "checkpoints": {"every": 20}})
    tiny = {"hidden": 32, "layers": 1, "positions": 1024, "deviation": 0.18}
    return run_file.parse_run(merged(merged(run, {"model": {"tiny": tiny}}), changes))


def rewards(student: Path, out: Path, **changes: Any) -> RunConfig:
    """Return a run of reinforcement learning that starts from a trained policy.

    Args:
        student: The folder of the policy, which a run of `demonstrations` wrote.
        out: The output folder.
        changes: Tables that replace the defaults value by value.
    """
    run = merged(TINY, {"out": str(out), "model": {"name": str(student)}})
    return run_file.parse_run(merged(run, changes))


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of both, merged value by value. Values of `changes` take precedence."""
    tables = dict(base)
    for key, value in changes.items():
        tables[key] = merged(base.get(key, {}), value) if isinstance(value, dict) else value
    return tables


def timeless(out: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics without the values that depend on a clock."""
    lines = [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if not key.endswith(("seconds", "per_second"))} for line in lines
    ]


def weights(out: str | Path) -> bytes:
    """Return the content of the file with the final weights."""
    return (Path(out) / "final" / "model.safetensors").read_bytes()
