"""The settings of `ctx1 train demo`: two run files beside this module, and what the command changes in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError
from context_agent.questions import Question
from context_agent.train.config import Run
from context_agent.train.demo.gym import Gym
from context_agent.train.rewards import Rewards
from context_agent.train.run_file import read

TEMPERATURES = (1.0, 0.0)
"""How the policy is asked: as it is sampled in training, which the targets are about, and greedily."""
ABLATION = "-without-trajectory-reward"
LESSONS, BEFORE = "lessons", "asking before"
"""The phases that do not depend on the rewards."""
QUICK: Mapping[str, Mapping[str, Any]] = {
    "sft": {
        "data.world.entities": 240,
        "data.world.tasks": 1_200,
        "model.tiny.hidden": 64,
        "model.tiny.layers": 2,
        "sft.lessons": 1_200,
        "sft.epochs": 3,
        "checkpoints.every": 100,
    },
    "rl": {"rollouts.steps": 30, "rollouts.groups": 8, "evaluation.every": 10, "evaluation.questions": 24},
}
"""What `--quick` changes: a smaller world, a smaller model, fewer steps."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says; None leaves it to the run files. `questions` are those asked of the test split."""

    out: Path
    seed: int = 0
    steps: int | None = None
    lessons: int | None = None
    threads: int | None = None
    questions: int | None = None
    trajectory_reward: bool = True
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Both runs, and where everything goes. The ablation shares the lessons; all else of it has names of its own."""

    out: Path
    sft: Run
    rl: Run
    judged: Rewards
    """By which every evaluation is rewarded, whatever training went by, so that figures compare."""
    questions: int | None
    ablation: bool

    @property
    def suffix(self) -> str:
        """Ends the names of what only this variant has."""
        return ABLATION if self.ablation else ""

    def has(self, phase: str) -> bool:
        """Whether the phase is this variant's, or both variants'."""
        return phase in (LESSONS, BEFORE) or phase.endswith(ABLATION) == self.ablation

    def place(self, name: str) -> Path:
        """The file or folder of that name: `report.json`, or `report-without-trajectory-reward.json`."""
        path = self.out / name
        return path.with_name(f"{path.stem}{self.suffix}{path.suffix}")

    def asked(self, world: Gym) -> list[Question]:
        """The questions that nothing is chosen by. Raises `ConfigError` for a world without any."""
        found = world.questions["test"][: self.questions]
        if not found:
            raise ConfigError(
                "the world has no question in its test split: give it more tasks (data.world in sft.toml)"
            )
        return found


def plan(options: Options) -> Plan:
    """The runs as they will be. Raises `ConfigError` for values that no run takes."""
    quick: Mapping[str, Mapping[str, Any]] = QUICK if options.quick else {"sft": {}, "rl": {}}
    ablation = not options.trajectory_reward
    lessons = {"seed": options.seed, "threads": options.threads, "sft.lessons": options.lessons}
    sft = _read("sft", {**quick["sft"], "out": str(options.out / "sft"), **_given(lessons)})
    shared = sft.plain()
    changes = {
        **quick["rl"],
        "out": str(options.out / f"rl{ABLATION if ablation else ''}"),
        "seed": sft.seed,
        "threads": sft.threads,
        "data": shared["data"],
        "episodes": shared["episodes"],
        "model": {**shared["model"], "tiny": None, "name": str(options.out / "sft" / "final")},
        **_given({"rollouts.steps": options.steps}),
    }
    full = _read("rl", changes)
    rl = _read("rl", {**changes, "rewards.trajectory": 0.0}) if ablation else full
    return Plan(options.out, sft, rl, full.curriculum.rewards(full.rewards, 1.0), options.questions, ablation)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _read(name: str, changes: Mapping[str, Any]) -> Run:
    with as_file(files("context_agent.train.proof") / f"{name}.toml") as path:
        return read(path, changes)
