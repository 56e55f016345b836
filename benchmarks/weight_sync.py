"""Measure the bytes that a weight sync sends to a sampler in its own process, compared with those of all weights.

    python benchmarks/weight_sync.py [--steps 4] [--threads 1]

A tiny gpt-oss with 16 experts learns from demonstrations, and then from rewards with asynchronous rollouts, once with
adapters and twice with all weights. The program prints the means of `sync/bytes` and `sync/full_bytes` in
`metrics.jsonl` over all syncs. It also prints what `--dry-run` computes for the adapters of
configs/gpt-oss-20b-1gpu.toml.

With all weights, AdamW changes every weight that has a gradient. A sync then saves only two things: the experts and
words that no row has used, and the high bytes, which a small step does not change. The program needs the extra `train`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.train.estimate import estimate_run
from context_agent.train.run_file import parse_run, read_run

RECIPE = Path(__file__).parents[1] / "configs" / "gpt-oss-20b-1gpu.toml"
MOST_OF_RECIPE = 0.05
"""The maximum size of a sync of the recipe's adapters, as a share of all weights."""
TABLES: dict[str, Any] = {
    "data": {"world": {"entities": 120, "tasks": 300}},
    "episodes": {"window": 512, "turns": 4},
    "engine": {"batch": 8, "max_tokens": 16},
    "rollouts": {"groups": 2, "rollouts": 4, "substeps": 1, "concurrency": 8},
    "loss": {"pass_tokens": 2048},
    "evaluation": {"every": 0},
    "checkpoints": {"every": 100},
    "async_rollouts": {"sampler": "process"},
}
RUNS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("adapters", {"lora": {"rank": 4}}, 1e-4),
    ("all weights, rate 1e-3", {}, 1e-3),
    ("all weights, rate 1e-5", {}, 1e-5),
)
MODEL = {"dtype": "float32", "attention": "eager", "gradient_checkpointing": False, "renderer": "words"}


def main() -> int:
    """Print a line for each kind of weights. If the recipe's adapters are too large, return 1."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args()
    recipe = estimate_run(read_run(RECIPE))
    assert recipe.adapter_bytes is not None
    print(f"{'weights':34}{'bytes':>16}{'of all':>16}{'share':>8}")
    show("adapters of gpt-oss-20b, computed", recipe.adapter_bytes, recipe.full_bytes)
    with tempfile.TemporaryDirectory() as folder:
        student = demonstrated(Path(folder) / "student", chosen.threads)
        for name, model, rate in RUNS:
            tables = {**TABLES, "rollouts": {**TABLES["rollouts"], "steps": chosen.steps}, "threads": chosen.threads}
            tables["optimizer"] = {"learning_rate": rate}
            out = Path(folder) / name
            show(f"tiny gpt-oss, {name}", *measured({**tables, "out": str(out), "model": {**student, **model}}))
    return int(recipe.adapter_bytes > MOST_OF_RECIPE * recipe.full_bytes)


def demonstrated(out: Path, threads: int) -> dict[str, Any]:
    """Train a student on demonstrations, and return its model table."""
    from context_agent.train import sft

    tiny = {"hidden": 64, "layers": 2, "experts": 16, "positions": 1024, "deviation": 0.12}
    tables = {name: TABLES[name] for name in ("data", "episodes")}
    lessons = {"demonstrations": 600, "rows_per_pass": 16, "epochs": 2}
    rates = {"optimizer": {"learning_rate": 1e-2}, "checkpoints": {"every": 100}}
    run = {**tables, **rates, "sft": lessons, "threads": threads, "out": str(out), "model": {**MODEL, "tiny": tiny}}
    sft.train(parse_run(run), note=lambda _: None)
    return {**MODEL, "name": str(out / "final")}


def measured(tables: dict[str, Any]) -> tuple[float, float]:
    """Return the mean bytes of the syncs of a run, and the bytes of all weights."""
    from context_agent.train import reinforcement

    reinforcement.train(parse_run(tables), note=lambda _: None)
    lines = [json.loads(line) for line in (Path(tables["out"]) / "metrics.jsonl").read_text().splitlines()]
    syncs = [line for line in lines if "sync/bytes" in line]
    return fmean(line["sync/bytes"] for line in syncs), fmean(line["sync/full_bytes"] for line in syncs)


def show(name: str, sent: float, full: float) -> None:
    """Print a line."""
    print(f"{name:34}{sent:16,.0f}{full:16,.0f}{sent / full:8.3f}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
