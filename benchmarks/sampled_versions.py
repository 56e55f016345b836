"""Check that asynchronous rollouts sample with the weights that their calls name, in 1,000 calls per sampler.

    python benchmarks/sampled_versions.py [--calls 1000] [--samplers thread process] [--student FOLDER]

A tiny model is trained asynchronously, with a sampler in a thread and in a process. The runs differ in what is trained
(all weights or adapters), in the number type (float32, or autocast to bfloat16), and in gradient checkpointing. The
trained weights of every update are kept. Each recorded call is scored again by a plain forward pass with the weights of
the update that it names (`context_agent.testing.sampled_versions`). Runs are repeated with other seeds until there are
enough calls. The program prints a line for each run. If a call has other log-probabilities, it exits with 1. It needs
the extra `train`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from context_agent.testing import tiny_runs
from context_agent.testing.sampled_versions import train_and_check

SAMPLERS = ["thread", "process"]
LORA = {"lora": {"rank": 4, "alpha": 64.0, "modules": ["q_proj", "v_proj"]}}
KINDS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("all weights, float32", {}, 1e-5),
    ("adapters, float32, checkpointed", {**LORA, "gradient_checkpointing": True}, 1e-5),
    ("all weights, bfloat16, checkpointed", {"dtype": "bfloat16", "gradient_checkpointing": True}, 0.02),
    ("adapters, bfloat16", {**LORA, "dtype": "bfloat16"}, 0.02),
)
"""The name of each kind, its [model] section of the run file, and the maximum difference between a call and its
version.
"""


def main() -> int:
    """Train until there are enough calls of each sampler, and print the results."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=1_000)
    options.add_argument("--student", type=Path, help="a model trained by demonstrations; without it, one is trained")
    options.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=SAMPLERS)
    chosen = options.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        student = chosen.student or _student(Path(folder))
        for sampler in chosen.samplers:
            calls = others = number = 0
            while calls < chosen.calls:
                name, model, bound = KINDS[number % len(KINDS)]
                out = Path(folder) / f"{sampler}-{number}"
                checked = train_and_check(_run(student, out, sampler, model, number), bound)
                print(f"{sampler:8}{name:38}{checked}", flush=True)
                calls, others, number = calls + checked.calls, others + checked.beyond + checked.nearer, number + 1
            print(f"{sampler}: {others} of {calls:,} calls have log-probabilities of other weights", flush=True)
            wrong += others
    return 1 if wrong else 0


def _student(folder: Path) -> Path:
    from context_agent.train import sft

    sft.train(tiny_runs.demonstrations(folder / "student"), note=lambda _: None)
    return folder / "student" / "final"


def _run(student: Path, out: Path, sampler: str, model: dict[str, Any], seed: int) -> Any:
    return tiny_runs.rewards(
        student,
        out,
        seed=seed,
        model=model,
        rollouts={"steps": 8, "save_every": 0},
        optimizer={"learning_rate": 2e-2},
        async_rollouts={"max_steps_ahead": 1, "sampler": sampler},
        evaluation={"every": 0},
    )


if __name__ == "__main__":
    raise SystemExit(main())
