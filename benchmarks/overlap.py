"""Compare rollouts that overlap with updates with sampling first and then training, and measure what kills lose.

    python benchmarks/overlap.py [--steps 20] [--seeds 3] [--latency 0.05] [--kills 25] [--student FOLDER]

The first part trains a tiny model in the toy environment with both loops, seed by seed. Steps, questions and
concurrency are the same. Every call of the policy takes at least `latency` seconds, like a call to a server. The
program prints the wall time of the training itself, without loading and the demonstrations before it. It also prints
the mean reward of the second half of the steps, the mean loss, and the age of the rows.

The second part kills a run `kills` times at random moments (`context_agent.testing.killed_runs`), and resumes it each
time. It prints how many episodes were lost and how many were trained twice. The program needs the extra `train`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

BOUND = 0.65
LATENCY = "CTX1_BENCH_LATENCY"
"""The environment variable that passes the latency to the sampling process, which imports this file too."""
CALLS: list[float] = []
"""The seconds of each engine call in this process."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The figures of one training run."""

    seconds: float
    lines: tuple[dict[str, Any], ...]
    call: float
    """The median seconds of a call of the policy. It is 0 if another process made the calls."""

    @property
    def reward(self) -> float:
        """The mean reward of the second half of the steps."""
        rewards = [line["reward"] for line in self.lines if "reward" in line]
        return fmean(rewards[len(rewards) // 2 :])

    def mean(self, name: str) -> float:
        """Return the mean of a metric over the lines that have it."""
        return fmean([line[name] for line in self.lines if name in line] or [0.0])

    def __str__(self) -> str:
        return (
            f"{self.seconds:7.1f} s   reward {self.reward:6.3f}   loss {self.mean('loss'):7.4f}   "
            f"staleness {self.mean('staleness/mean'):.2f}"
            + (f"   a call {self.call * 1000:.0f} ms" if self.call else "")
        )


def main() -> int:
    """Print both parts. If an episode was lost or trained twice, return 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--latency", type=float, default=0.05, help="shortest duration of a call, in seconds")
    parser.add_argument("--max-steps-ahead", type=int, default=2)
    parser.add_argument("--sampler", choices=["process", "thread"], default="process")
    parser.add_argument("--quota", type=float, default=1.0)
    parser.add_argument("--kills", type=int, default=25, help="0: none")
    parser.add_argument("--kill-steps", type=int, default=40)
    parser.add_argument("--student", help="a model trained by demonstrations; without it, one is trained now")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        student = options.student or _student(options, Path(folder))
        summary = {"wall": _compare(options, student, Path(folder)) if options.seeds else {}}
        if options.kills:
            summary["kills"] = _kill(options, student, Path(folder))
    if options.json:
        Path(options.json).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return int(any(not part.get("sound", True) for part in summary.values()))


def _student(options: argparse.Namespace, folder: Path) -> str:
    """Train a model on demonstrations, so that its episodes are realistic. Return its folder.

    The training runs in a process of its own.
    """
    out = folder / "demonstrations"
    program = "import json, sys; from context_agent.train import run_file, sft; "
    program += "sft.train(run_file.parse_run(json.loads(sys.argv[1])), note=lambda _: None)"
    run = _run(options, out, 0)
    tiny = {"hidden": options.hidden, "layers": 3, "experts": 2, "positions": 1024}
    run["model"]["tiny"] = {**tiny, "deviation": options.hidden**-0.5, "tied": True}
    run["optimizer"] = {"learning_rate": 3e-3, "schedule": "linear"}
    subprocess.run([sys.executable, "-c", program, json.dumps(run)], check=True)
    return str(out / "final")


def _compare(options: argparse.Namespace, student: str, folder: Path) -> dict[str, Any]:
    """Train with both loops, seed by seed, and return the figures."""
    os.environ[LATENCY] = str(options.latency)
    _slow(options.latency)
    alternating: list[TrainingRun] = []
    overlapped: list[TrainingRun] = []
    for seed in range(options.seeds):
        # The order alternates, so that a busy machine slows both loops alike.
        for name, runs in (("first", alternating), ("overlap", overlapped))[:: 1 if seed % 2 == 0 else -1]:
            runs.append(_train(options, student, folder / f"{name}-{seed}", seed, overlap=name == "overlap"))
            print(f"seed {seed}  {'sampled, then trained' if name == 'first' else 'overlapped':<22}{runs[-1]}")
    return _summarize(alternating, overlapped)


def _summarize(alternating: list[TrainingRun], overlapped: list[TrainingRun]) -> dict[str, Any]:
    shares = [run.seconds / other.seconds for run, other in zip(overlapped, alternating, strict=True)]
    share = sum(run.seconds for run in overlapped) / sum(run.seconds for run in alternating)
    print(f"wall time of overlapped over sampled, then trained: {share:.3f}   bound {BOUND}")
    for name, values in (("reward", lambda run: run.reward), ("loss", lambda run: run.mean("loss"))):
        old, new = [values(run) for run in alternating], [values(run) for run in overlapped]
        noise = pstdev(old) if len(old) > 1 else float("nan")
        print(
            f"{name}: {fmean(old):.4f} and {fmean(new):.4f}, {fmean(new) - fmean(old):+.4f}; seeds deviate {noise:.4f}"
        )
    waits = {name: fmean([run.mean(name) for run in overlapped]) for name in WAITS}
    print("a step, overlapped: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in waits.items()))
    sampling = fmean([run.mean("rollout_seconds") for run in alternating])
    steps = fmean([_step_seconds(run) for run in alternating])
    print(f"a step, sampled, then trained: {sampling:.2f} s of rollouts in {steps:.2f} s")
    return {
        "share": share,
        "bound": BOUND,
        "shares": shares,
        "first": [_plain(run) for run in alternating],
        "overlapped": [_plain(run) for run in overlapped],
    }


WAITS = ("trainer_waited_seconds", "sampler_waited_seconds")


def _step_seconds(run: TrainingRun) -> float:
    return run.seconds / sum("reward" in line for line in run.lines)


def _plain(run: TrainingRun) -> dict[str, float]:
    return {"seconds": run.seconds, "reward": run.reward, "loss": run.mean("loss")}


def _train(options: argparse.Namespace, student: str, out: Path, seed: int, *, overlap: bool) -> TrainingRun:
    from context_agent.train import reinforcement, run_file
    from context_agent.train.rl.row_trainer import RowTrainer

    run = _run(options, out, seed)
    run["model"]["name"] = student
    run["optimizer"] = {"learning_rate": options.rate}
    if overlap:
        run["async_rollouts"] = {
            "max_steps_ahead": options.max_steps_ahead,
            "quota": options.quota,
            "sampler": options.sampler,
        }
    spent: list[float] = []
    CALLS.clear()
    train = RowTrainer.train

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return train(self, *args, **kwargs)
        finally:
            spent.append(time.perf_counter() - started)

    RowTrainer.train = timed
    try:
        reinforcement.train(run_file.parse_run(run), note=lambda _: None)
    finally:
        RowTrainer.train = train
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return TrainingRun(spent[0], tuple(map(json.loads, lines)), median(CALLS or [0.0]))


def _slow(latency: float) -> None:
    """Make every call of an engine take at least `latency` seconds, like a call to a server."""
    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    TransformersEngine.generate = _slowed(TransformersEngine.generate, latency)  # type: ignore[method-assign, assignment]


def _slowed(generate: Callable[..., Awaitable[Any]], latency: float) -> Callable[..., Awaitable[Any]]:
    async def slow(self: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        reply, _ = await asyncio.gather(generate(self, *args, **kwargs), asyncio.sleep(latency))
        CALLS.append(time.perf_counter() - started)
        return reply

    return slow


def _kill(options: argparse.Namespace, student: str, folder: Path) -> dict[str, Any]:
    """Kill runs and return what was lost.

    Half of the runs have complete steps. The other half leave groups to later steps.
    """
    summary: dict[str, Any] = {"sound": True}
    for quota, kills in ((1.0, options.kills - options.kills // 2), (0.6, options.kills // 2)):
        out = folder / f"kills-{quota}"
        settings = {"student": student, "out": out, "kills": kills, "steps": options.kill_steps, "quota": quota}
        program = [sys.executable, "-m", "context_agent.testing.killed_runs"]
        arguments = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        process = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
        if not process.stdout:
            raise SystemExit(process.stderr)
        report = json.loads(process.stdout.splitlines()[-1])
        print(
            f"quota {quota}: killed {report['kills']} times; {report['finished']} episodes finished, "
            f"{report['parked']} were parked; lost {len(report['lost'])}, trained twice {len(report['twice'])}, "
            f"sampled again {len(report['again'])}, not resumed where parked {len(report['unlike'])}, "
            f"never taken {report['missing']}"
        )
        summary[f"quota {quota}"] = report
        summary["sound"] = summary["sound"] and report["sound"] and not report["ended"]
    return summary


def _run(options: argparse.Namespace, out: Path, seed: int) -> dict[str, Any]:
    return {
        "out": str(out),
        "seed": seed,
        "threads": 1,
        "model": {"dtype": "float32", "attention": "eager", "gradient_checkpointing": False, "renderer": "words"},
        "data": {"world": {"entities": 120, "tasks": 300}},
        "episodes": {"window": 512, "turns": 6},
        "engine": {"batch": options.concurrency, "max_tokens": 16},
        "rollouts": {
            "steps": options.steps, "groups": options.groups, "rollouts": 8, "substeps": 1,
            "concurrency": options.concurrency, "save_every": 0,
        },
        "loss": {"pass_tokens": 2048},
        "evaluation": {"every": 0},
        "checkpoints": {"every": 10_000},
        "sft": {"demonstrations": 1_500, "rows": 32, "rows_per_pass": 32, "epochs": 4},
    }  # fmt: skip


if __name__ == "__mp_main__" and LATENCY in os.environ:
    _slow(float(os.environ[LATENCY]))

if __name__ == "__main__":
    sys.exit(main())
