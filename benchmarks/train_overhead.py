"""Measure where the time of a training step goes: a tiny model on the closed world, by share.

    python benchmarks/train_overhead.py

The actual work is the model's forward and backward passes, generation and retrieval. The rest should take at most a
tenth of a step. It consists of the harness, rows, rewards, batching, the optimizer, the Trainer's own loop and metrics.
Times are measured around the calls. If several threads are in the same part at the same time, this time counts once.
The program needs the extra `train`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any

BOUND = 0.10


class Clock:
    """The seconds of each part. If several threads are in the same part at once, this time counts once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def part(self, name: str) -> Any:
        """Count the time inside the block."""
        with self._lock:
            if not self._open.get(name):
                self._since[name] = time.perf_counter()
            self._open[name] = self._open.get(name, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._open[name] -= 1
                if not self._open[name]:
                    spent = time.perf_counter() - self._since[name]
                    self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def around(self, owner: Any, method: str, name: str) -> None:
        """Count the time of every call of a method."""
        inner: Callable[..., Any] = getattr(owner, method)

        @wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return inner(*args, **kwargs)

        setattr(owner, method, timed)


def main() -> None:
    """Print the shares. The last one has a bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
        return
    for name, share in figures["shares"].items():
        print(f"{name:<22}{share:7.1%}")
    print(f"{'outside all of these':<22}{figures['outside']:7.1%}   bound {BOUND:.0%}")
    print(f"median step {figures['step_seconds']:.2f} s, {figures['tokens']:,.0f} tokens sampled a step")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train on demonstrations first, so that episodes are realistic. Then measure the steps and return the figures."""
    from context_agent.policies.tokens.engines import transformers as engine
    from context_agent.retrieval.memory import MemoryCorpus
    from context_agent.train import reinforcement, run_file, sft
    from context_agent.train.rl.row_trainer import RowTrainer

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        demonstrations = run_file.parse_run(_run(options, Path(folder) / "sft"))
        sft.train(demonstrations, note=lambda _: None)
        clock.around(engine, "sample_batch", "generation")
        clock.around(MemoryCorpus, "search", "retrieval")
        clock.around(RowTrainer, "compute_loss", "forward")
        _backward(clock)
        run = _run(options, Path(folder) / "rl")
        run["model"] = {**run["model"], "name": f"{folder}/sft/final"}
        del run["model"]["tiny"]
        clock.seconds.clear()
        lines = _steps(reinforcement.train, run_file.parse_run(run), Path(folder) / "rl")
    whole = sum(line["update_seconds"] for line in lines)
    shares = {name: seconds / whole for name, seconds in sorted(clock.seconds.items())}
    return {
        "shares": shares,
        "outside": 1 - sum(shares.values()),
        "bound": BOUND,
        "step_seconds": median(line["update_seconds"] for line in lines),
        "tokens": median(line.get("tokens_sampled", 0.0) for line in lines),
    }


def _steps(train: Callable[..., Any], run: Any, out: Path) -> list[dict[str, Any]]:
    train(run, note=lambda _: None)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "update_seconds" in line]


def _backward(clock: Clock) -> None:
    from accelerate import Accelerator

    clock.around(Accelerator, "backward", "backward")


def _run(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    tiny = {"hidden": options.hidden, "layers": 3, "experts": 2, "positions": 2048}
    return {
        "out": str(out),
        "threads": options.threads,
        "model": {
            "tiny": tiny,
            "dtype": "float32",
            "attention": "eager",
            "gradient_checkpointing": False,
            "renderer": "words",
        },
        "data": {"world": {"entities": 300, "tasks": 1500}},
        "episodes": {"window": 512, "turns": 8},
        "engine": {"batch": 128, "max_tokens": 32},
        "rollouts": {
            "steps": options.steps, "groups": options.groups, "rollouts": 8, "substeps": 1, "concurrency": 128,
            "save_every": 0,
        },
        "loss": {"pass_tokens": 8192},
        "optimizer": {"learning_rate": 3e-3, "schedule": "linear"},
        "evaluation": {"every": 0},
        "checkpoints": {"every": 10_000},
        "sft": {"demonstrations": 600, "rows_per_pass": 16, "epochs": 4},
    }  # fmt: skip


if __name__ == "__main__":
    main()
