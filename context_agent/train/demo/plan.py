"""The plan of the demo: its two runs and its targets. This module does not import torch.

The settings come from two run files in this folder. The options of the command change them. `sft.toml` and `rl.toml`
are for the tiny model in the toy environment. `smollm2-sft.toml` and `smollm2-rl.toml` are for SmolLM2 on questions
about text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from statistics import median
from typing import Any

from context_agent.budget import MIN_RESERVES
from context_agent.errors import ConfigError
from context_agent.train.config import EpisodeConfig, ModelConfig, RunConfig
from context_agent.train.demo.material import DemoMaterial
from context_agent.train.rewards import RewardConfig
from context_agent.train.run_file import read_run
from context_agent.train.toy.environment import make_environment
from context_agent.types import Question

ABLATION = "-without-trajectory-reward"
"""Suffix of the files of the variant that trains without the trajectory reward."""


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
            "optimizer.learning_rate": 7e-4,
            "optimizer.schedule": "constant_with_warmup",
            "evaluation.every": 10,
            "evaluation.questions": 24,
        },
    },
    "smollm2": {
        "material": {"tasks": 40},
        "rl": {"rollouts.steps": 4, "rollouts.groups": 2, "evaluation.every": 0},
    },
}
"""Changes of `--quick` to the run files, by model: less data, fewer steps, and a smaller model if its size can be
chosen.

The tiny model then has a single large window. Learning in several small windows would take 40 minutes.
"""


@dataclass(frozen=True, slots=True)
class DemoTargets:
    """The results that a demo should reach.

    Attributes:
        gain: The minimum gain in recall from reinforcement learning, compared with the recall after the demonstrations.
            None if there are too few updates to judge it.
        sure: The minimum of the lower bound of the gain's interval.
        accuracy: The minimum share of the pruned chunks that are not gold.
        half: The minimum gain in recall from pruning in half the window. The gain's interval must also lie above 0.
            None if the gain has no target.
        minutes: The maximum time that all phases together may take.
        one_shot: True if the recall after the demonstrations should be above the recall of one search. The interval of
            the difference must also lie above 0.
        temperature: The sampling temperature of the evaluations to which the targets apply.
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
    """The run files, targets and evaluation settings of a demo.

    Attributes:
        prefix: Prefix of the names of the run files.
        targets: The targets of the whole demo.
        quick: The targets of the quick demo.
        temperatures: Sampling temperatures of evaluations.
        questions: Number of held-out questions, of the whole demo and of the quick one. None means all.
        tasks: Number of train questions, in each window, from which the oracle makes lessons.
    """

    prefix: str
    targets: DemoTargets
    quick: DemoTargets
    temperatures: tuple[float, ...]
    questions: tuple[int | None, int | None] = (None, None)
    tasks: int = 0


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
"""The recipes by model.

The tiny model is measured at temperature 1, at which it is trained. Quick demos and SmolLM2 are measured at temperature
0, at which they answer.
"""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command. If an option is None, the value in the run files applies.

    Attributes:
        out: The folder of the demo.
        seed: Random seed.
        steps: Number of steps of reinforcement learning.
        demonstrations: Number of demonstrations by the expert, or of questions that the oracle plays.
        threads: Number of torch threads.
        questions: Number of test questions.
        trajectory_reward: If False, train without the trajectory reward.
        quick: True for the quick demo.
        model: The model.
        data: The folder of a language model's documents and questions. None means an invented world.
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
    """The two runs of a demo, and the paths of everything that it writes.

    A demo without the trajectory reward shares the demonstrations of the full demo. Its other files have names of their
    own.

    Attributes:
        out: The folder of the demo.
        sft: The run on demonstrations.
        rl: The run of reinforcement learning.
        judged: The reward settings of every evaluation. They do not depend on the training reward, so figures are
            comparable.
        questions: Number of test questions. None means all.
        ablation: True for the demo without the trajectory reward.
        targets: The targets.
        temperatures: Sampling temperatures of the evaluations.
        material: Documents, questions and lessons of a language model. None in the toy environment.
    """

    out: Path
    sft: RunConfig
    rl: RunConfig
    judged: RewardConfig
    questions: int | None
    ablation: bool
    targets: DemoTargets = field(default_factory=DemoTargets)
    temperatures: tuple[float, ...] = (1.0, 0.0)
    material: DemoMaterial | None = None

    @property
    def suffix(self) -> str:
        """Suffix of the names of files that only this variant has."""
        return ABLATION if self.ablation else ""

    def has(self, phase: str) -> bool:
        """Return True if the phase belongs to this variant or to both variants."""
        return phase in (LESSONS, DEMONSTRATIONS, BEFORE) or phase.endswith(ABLATION) == self.ablation

    def path(self, name: str) -> Path:
        """Return the file or folder of that name, with the suffix of the variant."""
        path = self.out / name
        return path.with_name(f"{path.stem}{self.suffix}{path.suffix}")

    def trained_model(self, folder: Path) -> ModelConfig:
        """Return the settings of the model that a run saved in a folder.

        The model has whole weights, or adapters for the same base model.
        """
        if self.material is not None:
            return replace(self.rl.model, adapter=str(folder))
        return replace(self.rl.model, name=str(folder))

    def half(self, placed: Sequence[int]) -> EpisodeConfig:
        """Return the harness settings for the evaluation in half the window.

        For a language model, the window is half of the run's window. For a tiny model, `half_window` computes it from
        the episodes.
        """
        if self.material is not None:
            return replace(self.rl.episodes, window=self.rl.episodes.window // 2, windows=())
        return half_window(placed, self.rl.episodes)

    def test_questions(self) -> list[Question]:
        """Return the test questions, which training never uses. Raise `ConfigError` if there are none."""
        world = self.sft.data.world
        if world is not None:
            held_out = make_environment(world).questions["test"]
        else:
            held_out = self.material.held_out() if self.material is not None else []
        questions = held_out[: self.questions]
        if not questions:
            raise ConfigError(
                "no question is held out. For a toy environment, add tasks to data.world in sft.toml. For a folder of "
                "questions, add queries.test.jsonl or queries.dev.jsonl with gold."
            )
        return questions


def make_plan(options: DemoOptions) -> DemoPlan:
    """Return the plan of a demo.

    Args:
        options: The options of the command.

    Returns:
        The plan.

    Raises:
        ConfigError: If the value of an option is invalid.
    """
    recipe = RECIPES[options.model]
    quick = QUICK[options.model] if options.quick else {}
    if options.data is not None and not recipe.tasks:
        raise ConfigError(
            "the tiny model knows only its toy environment, so it cannot learn from --data. Pass --model smollm2."
        )
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
    """Return the run on demonstrations, and the material if the model is a language model."""
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
    """Return the harness settings with a smaller window.

    The window is half of the tokens that the median episode would have without prunes. It is never smaller than the
    reserve allows, and never larger than the current one. If the hard cutoff allows it, a call may return as many
    tokens as before.

    Args:
        placed: For each episode, the tokens that it would have had without prunes.
        episodes: The harness settings.

    Returns:
        A changed copy.
    """
    least = MIN_RESERVES * episodes.reserve
    window = min(episodes.window, max(least, int(median(placed)) // 2))
    return replace(episodes, window=window, windows=(), per_call=episodes.budget.resized(window).per_call)
