"""Rollouts that overlap with updates, against the loop that samples first and then trains; and what kills do to it.

    python benchmarks/overlap.py [--steps 20] [--seeds 3] [--latency 0.05] [--kills 25] [--student FOLDER]

The first half trains a tiny model on the closed world by both, in turn, seed by seed: the same steps, questions and
episodes at a time, and every call of the policy takes at least `latency` seconds, as a server's would. Printed beside
each other: wall time of the training alone (loading and the demonstrations before it left out), the mean reward of the
second half of the steps, the mean loss, and how old the rows were. The second half kills a run so many times at random
moments (`tests/train/kills.py`), resumes it each time, and prints what was lost and what was trained twice. Needs the
extra `train`.
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
"""Tells a process that samples, which imports this file as well."""
CALLS: list[float] = []
"""Seconds of each call of an engine in this process."""


@dataclass(frozen=True, slots=True)
class Course:
    """What a training came to."""

    seconds: float
    lines: tuple[dict[str, Any], ...]
    call: float
    """Seconds of a call of the policy, the median; 0 where another process called."""

    @property
    def reward(self) -> float:
        """Mean over the second half of the steps."""
        found = [line["reward"] for line in self.lines if "reward" in line]
        return fmean(found[len(found) // 2 :])

    def mean(self, name: str) -> float:
        """Of a metric over the lines that have it."""
        return fmean([line[name] for line in self.lines if name in line] or [0.0])

    def __str__(self) -> str:
        return (
            f"{self.seconds:7.1f} s   reward {self.reward:6.3f}   loss {self.mean('loss'):7.4f}   "
            f"staleness {self.mean('staleness/mean'):.2f}"
            + (f"   a call {self.call * 1000:.0f} ms" if self.call else "")
        )


def main() -> int:
    """Prints both halves; 1 where a promise was not kept."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--groups", type=int, default=8)
    options.add_argument("--concurrency", type=int, default=64)
    options.add_argument("--hidden", type=int, default=128)
    options.add_argument("--rate", type=float, default=3e-4)
    options.add_argument("--latency", type=float, default=0.05, help="seconds that a call takes at least")
    options.add_argument("--ahead", type=int, default=2)
    options.add_argument("--sampler", choices=["process", "thread"], default="process")
    options.add_argument("--quota", type=float, default=1.0)
    options.add_argument("--kills", type=int, default=25, help="0: none")
    options.add_argument("--kill-steps", type=int, default=40)
    options.add_argument("--student", help="a model that `demonstrations` made, in place of one made now")
    options.add_argument("--json", metavar="FILE", help="write the figures there as well")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        student = chosen.student or _student(chosen, Path(folder))
        found = {"wall": _compared(chosen, student, Path(folder)) if chosen.seeds else {}}
        if chosen.kills:
            found["kills"] = _killed(chosen, student, Path(folder))
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(not part.get("sound", True) for part in found.values()))


def _student(chosen: argparse.Namespace, folder: Path) -> str:
    """A model that has had demonstrations, so that its episodes are such as a policy plays; made in a process of its
    own.
    """
    out = folder / "demonstrations"
    program = "import json, sys; from context_agent.train import config, sft; "
    program += "sft.train(config.parse_run(json.loads(sys.argv[1])), note=lambda _: None)"
    run = _run(chosen, out, 0)
    tiny = {"hidden": chosen.hidden, "layers": 3, "experts": 2, "positions": 1024}
    run["model"]["tiny"] = {**tiny, "deviation": chosen.hidden**-0.5, "tied": True}
    run["optimiser"] = {"learning_rate": 3e-3, "schedule": "linear"}
    subprocess.run([sys.executable, "-c", program, json.dumps(run)], check=True)
    return str(out / "final")


def _compared(chosen: argparse.Namespace, student: str, folder: Path) -> dict[str, Any]:
    """Both loops, seed by seed."""
    os.environ[LATENCY] = str(chosen.latency)
    _slow(chosen.latency)
    first: list[Course] = []
    then: list[Course] = []
    for seed in range(chosen.seeds):
        # In turn, so that a busy machine is as busy for one as for the other.
        for name, found in (("first", first), ("overlap", then))[:: 1 if seed % 2 == 0 else -1]:
            found.append(_trained(chosen, student, folder / f"{name}-{seed}", seed, overlap=name == "overlap"))
            print(f"seed {seed}  {'sampled, then trained' if name == 'first' else 'overlapped':<22}{found[-1]}")
    return _told(first, then)


def _told(first: list[Course], then: list[Course]) -> dict[str, Any]:
    shares = [one.seconds / other.seconds for one, other in zip(then, first, strict=True)]
    share = sum(one.seconds for one in then) / sum(one.seconds for one in first)
    print(f"wall time of overlapped over sampled, then trained: {share:.3f}   bound {BOUND}")
    for name, values in (("reward", lambda one: one.reward), ("loss", lambda one: one.mean("loss"))):
        old, new = [values(one) for one in first], [values(one) for one in then]
        noise = pstdev(old) if len(old) > 1 else float("nan")
        print(
            f"{name}: {fmean(old):.4f} and {fmean(new):.4f}, {fmean(new) - fmean(old):+.4f}; seeds deviate {noise:.4f}"
        )
    waits = {name: fmean([one.mean(name) for one in then]) for name in WAITS}
    print("a step, overlapped: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in waits.items()))
    sampling = fmean([one.mean("rollout_seconds") for one in first])
    print(
        f"a step, sampled, then trained: {sampling:.2f} s of rollouts in {fmean([_step(one) for one in first]):.2f} s"
    )
    return {
        "share": share,
        "bound": BOUND,
        "shares": shares,
        "first": [_plain(one) for one in first],
        "overlapped": [_plain(one) for one in then],
    }


WAITS = ("trainer_waited_seconds", "sampler_waited_seconds")


def _step(one: Course) -> float:
    return one.seconds / sum("reward" in line for line in one.lines)


def _plain(one: Course) -> dict[str, float]:
    return {"seconds": one.seconds, "reward": one.reward, "loss": one.mean("loss")}


def _trained(chosen: argparse.Namespace, student: str, out: Path, seed: int, *, overlap: bool) -> Course:
    from context_agent.train import config
    from context_agent.train.rl import loop
    from context_agent.train.rl.trl_adapter import RowTrainer

    run = _run(chosen, out, seed)
    run["model"]["name"] = student
    run["optimiser"] = {"learning_rate": chosen.rate}
    if overlap:
        run["async_rollouts"] = {"ahead": chosen.ahead, "quota": chosen.quota, "sampler": chosen.sampler}
    spent: list[float] = []
    CALLS.clear()
    train = RowTrainer.train

    def timed(self: Any, *given: Any, **more: Any) -> Any:
        started = time.perf_counter()
        try:
            return train(self, *given, **more)
        finally:
            spent.append(time.perf_counter() - started)

    RowTrainer.train = timed
    try:
        loop.train(config.parse_run(run), note=lambda _: None)
    finally:
        RowTrainer.train = train
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return Course(spent[0], tuple(map(json.loads, lines)), median(CALLS or [0.0]))


def _slow(latency: float) -> None:
    """Every call of an engine takes at least so long, as one of a server does."""
    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    TransformersEngine.generate = _slowed(TransformersEngine.generate, latency)  # type: ignore[method-assign, assignment]


def _slowed(generate: Callable[..., Awaitable[Any]], latency: float) -> Callable[..., Awaitable[Any]]:
    async def slow(self: Any, *given: Any, **more: Any) -> Any:
        started = time.perf_counter()
        made, _ = await asyncio.gather(generate(self, *given, **more), asyncio.sleep(latency))
        CALLS.append(time.perf_counter() - started)
        return made

    return slow


def _killed(chosen: argparse.Namespace, student: str, folder: Path) -> dict[str, Any]:
    """Half of the kills with whole steps, half where steps leave groups to later ones."""
    found: dict[str, Any] = {"sound": True}
    for quota, kills in ((1.0, chosen.kills - chosen.kills // 2), (0.6, chosen.kills // 2)):
        out = folder / f"kills-{quota}"
        options = {"student": student, "out": out, "kills": kills, "steps": chosen.kill_steps, "quota": quota}
        program = [sys.executable, "-m", "tests.train.kills"]
        given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        ended = subprocess.run([*program, *given], capture_output=True, text=True, check=False)
        if not ended.stdout:
            raise SystemExit(ended.stderr)
        one = json.loads(ended.stdout.splitlines()[-1])
        print(
            f"quota {quota}: killed {one['kills']} times; {one['finished']} episodes finished, {one['parked']} were "
            f"parked; lost {len(one['lost'])}, trained twice {len(one['twice'])}, sampled again {len(one['again'])}, "
            f"not gone on from where parked {len(one['unlike'])}, never taken {one['missing']}"
        )
        found[f"quota {quota}"] = one
        found["sound"] = found["sound"] and one["sound"] and not one["ended"]
    return found


def _run(chosen: argparse.Namespace, out: Path, seed: int) -> dict[str, Any]:
    return {
        "out": str(out),
        "seed": seed,
        "threads": 1,
        "model": {"dtype": "float32", "attention": "eager", "gradient_checkpointing": False, "renderer": "words"},
        "data": {"world": {"entities": 120, "tasks": 300}},
        "episodes": {"window": 512, "turns": 6},
        "engine": {"batch": chosen.concurrency, "max_tokens": 16},
        "rollouts": {
            "steps": chosen.steps, "groups": chosen.groups, "rollouts": 8, "substeps": 1,
            "concurrency": chosen.concurrency, "save_every": 0,
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
