"""The plan of the demo: its two runs, what each evaluation measures, and how scores are stored. No torch.

The settings are two run files in this folder, with the changes of the command: `sft.toml` and `rl.toml` for the tiny
model in the toy environment, `smollm2-sft.toml` and `smollm2-rl.toml` for SmolLM2 on questions about text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from statistics import fmean, median
from typing import Any

from context_agent._support.journal import replace_file
from context_agent._support.question_files import Question
from context_agent.errors import ConfigError, DataError
from context_agent.eval.gold import gold_of
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.prompt import KEY, TokenCall
from context_agent.pruning.budget import RESERVES
from context_agent.pruning.view import ActionTaken
from context_agent.retrieval.corpus import Corpus
from context_agent.train.config import EpisodeConfig, ModelConfig, RunConfig, read_run
from context_agent.train.demo.material import DemoMaterial
from context_agent.train.environment import ToyEnvironment
from context_agent.train.rewards import RewardConfig, compute_reward, measure_outcome

ABLATION = "-without-trajectory-reward"
LESSONS, DEMONSTRATIONS, BEFORE = "lessons", "demonstrations", "asking before"
"""The phases that do not depend on the rewards."""
QUICK: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "tiny": {
        "sft": {
            "data.world.entities": 240,
            "data.world.tasks": 1_200,
            "model.tiny.hidden": 64,
            "model.tiny.layers": 2,
            "sft.demonstrations": 1_200,
            "sft.epochs": 3,
            "checkpoints.every": 100,
        },
        "rl": {"rollouts.steps": 30, "rollouts.groups": 8, "evaluation.every": 10, "evaluation.questions": 24},
    },
    "smollm2": {
        "material": {"tasks": 40},
        "rl": {"rollouts.steps": 4, "rollouts.groups": 2, "evaluation.every": 0},
    },
}
"""What `--quick` changes, by model: less data, a smaller model if that can be chosen, fewer steps."""


@dataclass(frozen=True, slots=True)
class DemoTargets:
    """What a demo should reach.

    - `gain`, `sure`: recall after the rewards less that after the demonstrations, and what its interval leaves out.
    - `accuracy`: share of the pruned chunks that are not gold.
    - `half`: in half the window, recall with prunes less that without; the interval leaves out 0.
    - `minutes`: time of all phases.
    - `one_shot`: whether recall after the demonstrations should be above that of one search, its interval above 0.
    - `temperature`: the sampling temperature of the answers that all this is about.
    """

    gain: float = 0.15
    sure: float = 0.10
    accuracy: float = 0.90
    half: float = 0.0
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


_ANSWERS = DemoTargets(gain=0.05, sure=0.0, accuracy=0.95, half=0.10, minutes=300.0, one_shot=True, temperature=0.0)
RECIPES: Mapping[str, DemoRecipe] = {
    "tiny": DemoRecipe("", DemoTargets(), DemoTargets(), (1.0, 0.0)),
    "smollm2": DemoRecipe(
        "smollm2-", _ANSWERS, replace(_ANSWERS, gain=0.0, half=0.0, minutes=40.0), (0.0,), (80, 16), tasks=200
    ),
}
"""By model. The tiny model is measured as it is trained, at temperature 1; SmolLM2 as it answers, greedily."""


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
        """Whether the phase is this variant's, or both variants'."""
        return phase in (LESSONS, DEMONSTRATIONS, BEFORE) or phase.endswith(ABLATION) == self.ablation

    def place(self, name: str) -> Path:
        """The file or folder of that name: `report.json`, or `report-without-trajectory-reward.json`."""
        path = self.out / name
        return path.with_name(f"{path.stem}{self.suffix}{path.suffix}")

    def trained_model(self, folder: Path) -> ModelConfig:
        """The model that a run left in that folder: all weights, or adapters for the same base."""
        if self.material is not None:
            return replace(self.rl.model, adapter=str(folder))
        return replace(self.rl.model, name=str(folder))

    def half(self, scores: Sequence[DemoScore]) -> EpisodeConfig:
        """The harness with half the window: a language model's own, else half of what these episodes placed in it."""
        if self.material is not None:
            return replace(self.rl.episodes, window=self.rl.episodes.window // 2)
        return half_window(scores, self.rl.episodes)

    def asked(self, world: ToyEnvironment | None) -> list[Question]:
        """The test questions, which select nothing. Raises `ConfigError` if there is none."""
        held_out = world.questions["test"] if world is not None else self.material.held_out() if self.material else []
        questions = held_out[: self.questions]
        if not questions:
            raise ConfigError(
                "no question is held out: a toy environment needs more tasks (data.world in sft.toml), a folder of "
                "questions a file queries.test.jsonl or queries.dev.jsonl with gold"
            )
        return questions


def make_plan(options: DemoOptions) -> DemoPlan:
    """The runs as they will be. Raises `ConfigError` for values that no run takes."""
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
    """The run on demonstrations, and the material of a language model."""
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


MEANS = ("reward", "recall", "seen", "precision", "turns", "searches", "calls", "mistakes", "placed")


@dataclass(frozen=True, slots=True)
class DemoScore:
    """One episode. `recall` and `precision` are the ranking's, `seen` is recall over all that was encountered.

    `placed` counts the tokens that the view would have had without any prune, `violations` the moments in which view
    and sampled output together passed the window.
    """

    question: str
    hops: int
    ending: str
    reward: float
    recall: float
    seen: float
    precision: float
    pruned: int
    pruned_gold: int
    turns: int
    searches: int
    calls: int
    mistakes: int
    placed: int
    violations: int


def score_episode(trajectory: Trajectory, question: Question, corpus: Corpus, rewards: RewardConfig) -> DemoScore:
    """The measures of a whole episode. Raises `DataError` for one that something other than its policy ended."""
    outcome = measure_outcome(trajectory, question, gold_of(question, corpus))
    assert trajectory.end is not None
    return DemoScore(
        question=question.id,
        hops=question.hops or 1,
        ending=outcome.ending.value,
        reward=compute_reward(outcome, rewards).total,
        recall=outcome.recall,
        seen=outcome.seen,
        precision=outcome.precision,
        pruned=outcome.pruned,
        pruned_gold=outcome.pruned_gold,
        turns=outcome.turns,
        searches=len(outcome.queries),
        calls=sum(outcome.calls),
        mistakes=outcome.mistakes,
        placed=trajectory.end.tokens,
        violations=budget_violations(trajectory),
    )


def budget_violations(trajectory: Trajectory) -> int:
    """Actions whose view and sampled output together passed the window, found by replay; and a last view that did.

    An action that says which ids were sampled counts by these, and its prompt by its own length too.
    """
    window, count, tokens = trajectory.header.budget.window, 0, 0
    for event, after in trajectory.replay():
        if isinstance(event, ActionTaken):
            has_token_call = KEY in event.action.extra
            call = TokenCall.from_extra(event.action.extra) if has_token_call else None
            sampled = len(call.output) if call else 0 if has_token_call else event.tokens
            sent = call.reused + len(call.new) if call else 0
            count += max(tokens, sent) + sampled > window
        tokens = after.tokens
    return count + (tokens > window)


def summarize(scores: Sequence[DemoScore]) -> dict[str, Any]:
    """Means with their 95 % intervals over tasks, and what is counted over all episodes together."""
    pruned = sum(score.pruned for score in scores)
    means: dict[str, Any] = {
        name: asdict(Figure.of([float(getattr(score, name)) for score in scores])) for name in MEANS
    }
    return means | {
        "episodes": len(scores),
        "median_placed": median(score.placed for score in scores),
        "pruning": fmean(score.pruned > 0 for score in scores),
        "prune_accuracy": 1 - sum(score.pruned_gold for score in scores) / pruned if pruned else None,
        "finished": fmean(score.ending == "finished" for score in scores),
        "violations": sum(score.violations for score in scores),
    }


def paired_gain(ours: Sequence[DemoScore], theirs: Sequence[DemoScore]) -> Figure:
    """The paired difference of recall over the same tasks. Raises `DataError` where the tasks are not the same."""
    return Figure.of(paired_differences(ours, theirs))


def paired_differences(ours: Sequence[DemoScore], theirs: Sequence[DemoScore], measure: str = "recall") -> list[float]:
    """Ours less theirs, task by task."""
    if [our.question for our in ours] != [their.question for their in theirs] or not ours:
        raise DataError("two evaluations are compared on the same questions, at least one")
    return [float(getattr(a, measure)) - float(getattr(b, measure)) for a, b in zip(ours, theirs, strict=True)]


def half_window(scores: Sequence[DemoScore], episodes: EpisodeConfig) -> EpisodeConfig:
    """The harness with half the window that the median episode would have filled had nothing been pruned.

    A call may show what it could before, as far as the hard cutoff allows. Never less than the least window that the
    reserve needs, and never more than the window there was.
    """
    least = RESERVES * episodes.reserve
    window = min(episodes.window, max(least, int(median(score.placed for score in scores)) // 2))
    before = episodes.budget
    per_call = min(before.per_call, window * 3 // 4)
    return replace(episodes, window=window, per_call=per_call)


def save_scores(path: Path, scores: Sequence[DemoScore], about: Mapping[str, Any]) -> None:
    """Writes an evaluation, all or nothing; `about` has its settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"about": about}, *(asdict(score) for score in scores)]
    replace_file(path, "".join(json.dumps(line) + "\n" for line in lines))


def load_scores(path: Path, about: Mapping[str, Any] | None = None) -> list[DemoScore] | None:
    """The scores of a file, None where there is none or it is of another evaluation. Raises `DataError`."""
    if not path.is_file():
        return None
    try:
        first, *rest = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if about is not None and first["about"] != json.loads(json.dumps(about)):
            return None
        return [DemoScore(**row) for row in rest]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is not an evaluation ({error}): delete it, and it is repeated") from None
