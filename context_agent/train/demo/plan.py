"""The plan of the demo: its two runs, and what a language model learns from. No torch.

The settings are two run files in this folder, with the changes of the command: `sft.toml` and `rl.toml` for the tiny
model in the toy environment, `smollm2-sft.toml` and `smollm2-rl.toml` for SmolLM2 on questions about text.

The material of a language model is documents, questions, an index, and demonstrations by the oracle:

OUT/data/            an invented world, unless a folder of documents and questions is given
OUT/index/           the index of the documents
OUT/lessons/WINDOW/  the oracle's episodes in that window, as `ctx1 synth trajectories` leaves them
OUT/material.json    the settings of all this; written last

The folder is laid out as `ctx1 synth split` and `ctx1 synth world` write it: corpus.jsonl.gz (or corpus.jsonl) and
queries.<split>.jsonl. The split `test` is held out. Without one, `dev` is, and no question is asked during training.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from statistics import median
from typing import Any

from context_agent._support.journal import replace_file
from context_agent._support.question_files import load_questions
from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError
from context_agent.harness.profile import profile as named_profile
from context_agent.policies.tokens import VocabularyCounter, templated
from context_agent.pruning.budget import RESERVES
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.loaders import load
from context_agent.synth_data import world as worlds
from context_agent.synth_data.demonstrations.experts import OracleSettings, oracle_expert
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from context_agent.synth_data.demonstrations.runs import DemonstrationSettings, make_demonstrations
from context_agent.synth_data.sets.folder import CORPUS, queries_path
from context_agent.synth_data.task import load_tasks
from context_agent.tokens import TokenCounter
from context_agent.train.config import DataConfig, EpisodeConfig, ModelConfig, Notify, OnUpdate, RunConfig, read_run
from context_agent.train.data import open_corpus
from context_agent.train.environment import ToyEnvironment
from context_agent.train.rewards import RewardConfig
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
MATERIAL_FILE = "material.json"
HOPS = (2, 3)
QUESTIONS_PER_ENTITY = 4
"""Questions about the invented world; a tenth of them are held out."""
ORACLE = OracleSettings(pace=1, prune_at=1.0, batch=2, keep=3, hedge=1, names_only=True)
"""Searches for the question, then for names, one a turn; prunes from half of the window on, but leaves three passages;
ranks what is gold: the profile `lean` fills the rest of a ranking with what else was seen.
"""
FILTERS = DemonstrationFilters(min_output_recall=0.99, low_rate=0.0, short_rate=0.3)
"""Episodes that rank all gold; few of a single search, so that the model learns to go on."""


@dataclass(frozen=True, slots=True)
class DemoTargets:
    """What a demo should reach.

    - `gain`, `sure`: recall after the rewards less that after the demonstrations, and what its interval leaves out;
      no `gain` where the updates are too few to tell.
    - `accuracy`: share of the pruned chunks that are not gold.
    - `half`: in half the window, recall with prunes less that without; the interval leaves out 0. None: not judged.
    - `minutes`: time of all phases.
    - `one_shot`: whether recall after the demonstrations should be above that of one search, its interval above 0.
    - `temperature`: the sampling temperature of the answers that all this is about.
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
class DemoMaterial:
    """The material of a demo in the folder `out`. Equal settings give equal lessons.

    `source` is the folder of documents and questions, None for an invented world. The oracle plays the first `tasks`
    train questions in each of the `windows`, counted by the vocabulary of `model`. The invented world has so many
    `entities`.
    """

    out: Path
    model: str
    windows: tuple[int, ...]
    tasks: int
    source: Path | None = None
    profile: str = "lean"
    entities: int = 400

    @property
    def folder(self) -> Path:
        """The folder of documents and questions."""
        return self.source or self.out / "data"

    @property
    def index(self) -> Path:
        """The folder of the index."""
        return self.out / "index"

    @property
    def lessons(self) -> tuple[Path, ...]:
        """The folder of lessons of each window."""
        return tuple(self.out / "lessons" / str(window) for window in self.windows)

    def data(self) -> dict[str, Any]:
        """Return the table `[data]` of both runs."""
        has_test = self.source is None or queries_path(self.folder, "test").is_file()
        return {
            "questions": [str(queries_path(self.folder, "train"))],
            "dev": [str(queries_path(self.folder, "dev"))] if has_test else [],
            "path": str(self.index),
            "trajectories": [str(folder) for folder in self.lessons],
            "missing_gold": "drop",
        }

    def held_out(self) -> list[Question]:
        """Return the questions with gold that select nothing."""
        test = queries_path(self.folder, "test")
        questions = load_questions(test if test.is_file() else queries_path(self.folder, "dev"))
        return [question for question in questions if question.gold]

    def is_made(self) -> bool:
        """Return whether `out` holds all of it. Raises `ConfigError` if it holds other material or the source is
        invalid.
        """
        settings = self._settings()
        about = self.out / MATERIAL_FILE
        if about.is_file() and read_json(about) != settings:
            raise ConfigError(
                f"{self.out} holds lessons that were made with other settings. Pass the same options, or name "
                "another folder with --out"
            )
        return about.is_file()

    def make(self, note: Notify, advance: OnUpdate) -> None:
        """Makes all of it; an interrupted call resumes.

        Raises `ConfigError` for a folder without documents or a model that is not installed, and `MissingExtraError`.
        """
        counter = VocabularyCounter(templated(self.model))
        if self.source is None and not self.folder.is_dir():
            tasks = QUESTIONS_PER_ENTITY * self.entities
            worlds.write(worlds.make(entities=self.entities, tasks=tasks, hops=HOPS), self.folder)
        report = index_documents(load(self._corpus_file()), self.index)
        note(f"{report.chunks:,} chunks indexed from {self.folder}")
        with open_corpus(DataConfig(path=str(self.index))) as corpus:
            for number, window in enumerate(self.windows):
                advance(number, len(self.windows))
                self._play(corpus, window, counter, note)
        replace_file(self.out / MATERIAL_FILE, json.dumps(self._settings(), indent=1) + "\n")

    def _play(self, corpus: Corpus, window: int, counter: TokenCounter, note: Notify) -> None:
        profile = named_profile(self.profile)
        settings = DemonstrationSettings(
            profile=profile,
            budget=profile.budget(window),
            filters=FILTERS,
            expert=f"{ORACLE.description} tokenizer={self.model}",
        )
        tasks = load_tasks(queries_path(self.folder, "train"))[: self.tasks]
        expert = oracle_expert(settings=ORACLE, profile=profile, counter=counter)
        folder = self.out / "lessons" / str(window)
        report = asyncio.run(make_demonstrations(tasks, corpus, expert, folder, settings))
        note(f"{sum(report.kept.values()):,} of {report.tasks:,} lessons kept in a window of {window:,} tokens")

    def _corpus_file(self) -> Path:
        for name in (CORPUS, CORPUS.removesuffix(".gz")):
            if (self.folder / name).is_file():
                return self.folder / name
        raise ConfigError(f"{self.folder} has no {CORPUS}: name a folder of `ctx1 synth split` with --data")

    def _settings(self) -> dict[str, Any]:
        missing = [name for name in ("train", "dev") if self.source and not queries_path(self.source, name).is_file()]
        if missing:
            raise ConfigError(
                f"{self.source} has no queries.{missing[0]}.jsonl: name a folder of `ctx1 synth split` with --data"
            )
        return {
            "source": str(self.source.resolve()) if self.source else None,
            "entities": None if self.source else self.entities,
            "model": self.model,
            "profile": self.profile,
            "oracle": ORACLE.description,
            "filters": asdict(FILTERS),
            "windows": list(self.windows),
            "tasks": self.tasks,
        }


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
