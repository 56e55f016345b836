"""The plan of the demo: its two runs and its targets. No torch.

The settings are two run files in this folder, with the changes of the command: `sft.toml` and `rl.toml` for the tiny
model in the toy environment, `smollm2-sft.toml` and `smollm2-rl.toml` for SmolLM2 on questions about text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from statistics import median
from typing import Any

from context_agent.errors import ConfigError
from context_agent.pruning.budget import RESERVES
from context_agent.train.config import EpisodeConfig, ModelConfig, RunConfig
from context_agent.train.demo.material import DemoMaterial
from context_agent.train.rewards import RewardConfig
from context_agent.train.run_file import read_run
from context_agent.train.toy.environment import ToyEnvironment
from context_agent.types import Question

ABLATION = "-without-trajectory-reward"


LESSONS, DEMONSTRATIONS, BEFORE = "lessons", "demonstrations", "asking before"
"""The phases that do not depend on the rewards."""


QUICK: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "tiny": {
        "sft": {
            "data.world.entities": 240,
            "data.world.tasks": 1_200,
            "sft.demonstrations": 6_000,
            "checkpoints.every": 100,
            "episodes": {"window": 512, "reserve": 8, "turns": 8},
        },
        "rl": {
            "rollouts.steps": 30,
            "rollouts.groups": 16,
            "rewards.mistake": 0.0,
            "optimiser.learning_rate": 7e-4,
            "optimiser.schedule": "constant_with_warmup",
            "evaluation.every": 10,
            "evaluation.questions": 24,
        },
    },
    "smollm2": {
        "material": {"tasks": 40},
        "rl": {"rollouts.steps": 4, "rollouts.groups": 2, "evaluation.every": 0},
    },
}
"""What `--quick` changes, by model: less data, a smaller model if that can be chosen, fewer steps.

The tiny model then has a single large window: learning in several small ones takes 40 minutes.
"""


@dataclass(frozen=True, slots=True)
class DemoTargets:
    """What a demo should reach.

    Attributes:
        gain, sure: Recall after the rewards less that after the demonstrations, and what its interval leaves out; no
            `gain` where the updates are too few to tell.
        accuracy: Share of the pruned chunks that are not gold.
        half: In half the window, recall with prunes less that without; the interval leaves out 0. None: not judged.
        minutes: Time of all phases.
        one_shot: Whether recall after the demonstrations should be above that of one search, its interval above 0.
        temperature: The sampling temperature of the answers that all this is about.
    """

    gain: float | None = 0.15
    sure: float = 0.10
    accuracy: float = 0.95
    half: float | None = 0.10
    minutes: float = 60.0
    one_shot: bool = False
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class DemoRecipe:
    """A demo's run files, targets, sampling temperatures of evaluations, and held-out questions (None: all)."""

    prefix: str
    targets: DemoTargets
    quick: DemoTargets
    temperatures: tuple[float, ...]
    questions: tuple[int | None, int | None] = (None, None)
    """Of the whole demo and of the quick one."""
    tasks: int = 0
    """Train questions from which the oracle makes lessons, in each window."""


_ANSWERS = DemoTargets(gain=0.05, sure=0.0, minutes=300.0, one_shot=True, temperature=0.0)


RECIPES: Mapping[str, DemoRecipe] = {
    "tiny": DemoRecipe(
        "",
        DemoTargets(),
        DemoTargets(gain=0.03, sure=0.0, accuracy=0.90, half=None, minutes=10.0, temperature=0.0),
        (1.0, 0.0),
    ),
    "smollm2": DemoRecipe(
        "smollm2-",
        _ANSWERS,
        replace(_ANSWERS, gain=None, half=None, minutes=40.0, one_shot=False),
        (0.0,),
        (80, 16),
        tasks=200,
    ),
}
"""By model. The tiny model is measured as it is trained, at temperature 1; quick demos and SmolLM2 as they answer,
greedily.
"""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command; None takes the run files' values. `questions` are those asked of the test split.

    `demonstrations` are the expert's episodes, or the questions that the oracle plays. `data` is the folder of a
    language model's documents and questions, None for an invented world.
    """

    out: Path
    seed: int = 0
    steps: int | None = None
    demonstrations: int | None = None
    threads: int | None = None
    questions: int | None = None
    trajectory_reward: bool = True
    quick: bool = False
    model: str = "tiny"
    data: Path | None = None


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """Both runs, and where everything goes. The ablation shares the demonstrations; all else of it has names of its
    own.
    """

    out: Path
    sft: RunConfig
    rl: RunConfig
    judged: RewardConfig
    """Rewards of every evaluation, whatever training used, so that figures are comparable."""
    questions: int | None
    ablation: bool
    targets: DemoTargets = field(default_factory=DemoTargets)
    temperatures: tuple[float, ...] = (1.0, 0.0)
    """Sampling temperatures of the evaluations."""
    material: DemoMaterial | None = None
    """Documents, questions and lessons of a language model; None in the toy environment."""

    @property
    def suffix(self) -> str:
        """Ends the names of what only this variant has."""
        return ABLATION if self.ablation else ""

    def has(self, phase: str) -> bool:
        """Return whether the phase is this variant's, or both variants'."""
        return phase in (LESSONS, DEMONSTRATIONS, BEFORE) or phase.endswith(ABLATION) == self.ablation

    def path(self, name: str) -> Path:
        """Return the file or folder of that name: `report.json`, or `report-without-trajectory-reward.json`."""
        path = self.out / name
        return path.with_name(f"{path.stem}{self.suffix}{path.suffix}")

    def trained_model(self, folder: Path) -> ModelConfig:
        """Return the model that a run left in that folder: all weights, or adapters for the same base."""
        if self.material is not None:
            return replace(self.rl.model, adapter=str(folder))
        return replace(self.rl.model, name=str(folder))

    def half(self, placed: Sequence[int]) -> EpisodeConfig:
        """Return the harness with half the window: a language model's own, else half of what episodes placed in it."""
        if self.material is not None:
            return replace(self.rl.episodes, window=self.rl.episodes.window // 2, windows=())
        return half_window(placed, self.rl.episodes)

    def test_questions(self, world: ToyEnvironment | None) -> list[Question]:
        """Return the test questions, which select nothing. Raises `ConfigError` if there is none."""
        held_out = world.questions["test"] if world is not None else self.material.held_out() if self.material else []
        questions = held_out[: self.questions]
        if not questions:
            raise ConfigError(
                "no question is held out: a toy environment needs more tasks (data.world in sft.toml), a folder of "
                "questions a file queries.test.jsonl or queries.dev.jsonl with gold"
            )
        return questions


def make_plan(options: DemoOptions) -> DemoPlan:
    """Return the runs as they will be. Raises `ConfigError` for values that no run takes."""
    recipe = RECIPES[options.model]
    quick = QUICK[options.model] if options.quick else {}
    if options.data is not None and not recipe.tasks:
        raise ConfigError("the tiny model reads its toy environment alone: --data needs --model smollm2")
    material, sft = _demonstrations(options, recipe, quick)
    ablation = not options.trajectory_reward
    shared = sft.plain()
    trained = str(options.out / "sft" / "final")
    changes = {
        **quick.get("rl", {}),
        "out": str(options.out / f"rl{ABLATION if ablation else ''}"),
        "seed": sft.seed,
        "threads": sft.threads,
        "data": shared["data"],
        "episodes": shared["episodes"],
        "model": {**shared["model"], **({"adapter": trained} if material else {"tiny": None, "name": trained})},
        **_without_none({"rollouts.steps": options.steps}),
    }
    full = _read_demo_run(f"{recipe.prefix}rl", changes)
    rl = _read_demo_run(f"{recipe.prefix}rl", {**changes, "rewards.trajectory": 0.0}) if ablation else full
    return DemoPlan(
        options.out,
        sft,
        rl,
        full.curriculum.rewards(full.rewards, 1.0),
        options.questions or recipe.questions[options.quick],
        ablation,
        recipe.quick if options.quick else recipe.targets,
        recipe.temperatures,
        material,
    )


def _demonstrations(
    options: DemoOptions, recipe: DemoRecipe, quick: Mapping[str, Mapping[str, Any]]
) -> tuple[DemoMaterial | None, RunConfig]:
    """Return the run on demonstrations, and the material of a language model."""
    own = _without_none({"seed": options.seed, "threads": options.threads})
    changes = {**quick.get("sft", {}), "out": str(options.out / "sft"), **own}
    name = f"{recipe.prefix}sft"
    if not recipe.tasks:
        return None, _read_demo_run(name, changes | _without_none({"sft.demonstrations": options.demonstrations}))
    run = _read_demo_run(name, changes)
    chosen = {"tasks": recipe.tasks, **quick.get("material", {}), **_without_none({"tasks": options.demonstrations})}
    window = run.episodes.window
    material = DemoMaterial(options.out, run.model.name, (window, window // 2), source=options.data, **chosen)
    return material, _read_demo_run(name, {**changes, "data": material.data()})


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _read_demo_run(name: str, changes: Mapping[str, Any]) -> RunConfig:
    with as_file(files("context_agent.train.demo") / f"{name}.toml") as path:
        return read_run(path, changes)


def half_window(placed: Sequence[int], episodes: EpisodeConfig) -> EpisodeConfig:
    """Return the harness with half the window that the median episode would have filled had nothing been pruned.

    `placed` is how many tokens that is, for each episode.
    A call may show what it could before, as far as the hard cutoff allows. Never less than the least window that the
    reserve needs, and never more than the window there was.
    """
    least = RESERVES * episodes.reserve
    window = min(episodes.window, max(least, int(median(placed)) // 2))
    return replace(episodes, window=window, windows=(), per_call=episodes.budget.resized(window).per_call)
