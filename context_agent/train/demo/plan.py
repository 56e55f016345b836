"""The plan of the demo: its two runs, what each evaluation measures, and how scores are stored. No torch.

The settings are the two run files `sft.toml` and `rl.toml` in this folder, with the changes of the command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from context_agent.train.config import EpisodeConfig, RunConfig, read_run
from context_agent.train.environment import ToyEnvironment
from context_agent.train.rewards import RewardConfig, compute_reward, measure_outcome

TEMPERATURES = (1.0, 0.0)
"""Sampling temperatures of the evaluations: 1, as in training and in the targets, and 0, greedy."""
ABLATION = "-without-trajectory-reward"
DEMONSTRATIONS, BEFORE = "demonstrations", "asking before"
"""The phases that do not depend on the rewards."""
QUICK: Mapping[str, Mapping[str, Any]] = {
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
}
"""What `--quick` changes: a smaller world, a smaller model, fewer steps."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command; None takes the run files' values. `questions` are those asked of the test split."""

    out: Path
    seed: int = 0
    steps: int | None = None
    demonstrations: int | None = None
    threads: int | None = None
    questions: int | None = None
    trajectory_reward: bool = True
    quick: bool = False


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

    @property
    def suffix(self) -> str:
        """Ends the names of what only this variant has."""
        return ABLATION if self.ablation else ""

    def has(self, phase: str) -> bool:
        """Whether the phase is this variant's, or both variants'."""
        return phase in (DEMONSTRATIONS, BEFORE) or phase.endswith(ABLATION) == self.ablation

    def place(self, name: str) -> Path:
        """The file or folder of that name: `report.json`, or `report-without-trajectory-reward.json`."""
        path = self.out / name
        return path.with_name(f"{path.stem}{self.suffix}{path.suffix}")

    def asked(self, world: ToyEnvironment) -> list[Question]:
        """The test questions, which select nothing. Raises `ConfigError` if there is none."""
        questions = world.questions["test"][: self.questions]
        if not questions:
            raise ConfigError(
                "the world has no question in its test split: give it more tasks (data.world in sft.toml)"
            )
        return questions


def make_plan(options: DemoOptions) -> DemoPlan:
    """The runs as they will be. Raises `ConfigError` for values that no run takes."""
    quick: Mapping[str, Mapping[str, Any]] = QUICK if options.quick else {"sft": {}, "rl": {}}
    ablation = not options.trajectory_reward
    demonstrations = {"seed": options.seed, "threads": options.threads, "sft.demonstrations": options.demonstrations}
    sft = _read_demo_run("sft", {**quick["sft"], "out": str(options.out / "sft"), **_without_none(demonstrations)})
    shared = sft.plain()
    changes = {
        **quick["rl"],
        "out": str(options.out / f"rl{ABLATION if ablation else ''}"),
        "seed": sft.seed,
        "threads": sft.threads,
        "data": shared["data"],
        "episodes": shared["episodes"],
        "model": {**shared["model"], "tiny": None, "name": str(options.out / "sft" / "final")},
        **_without_none({"rollouts.steps": options.steps}),
    }
    full = _read_demo_run("rl", changes)
    rl = _read_demo_run("rl", {**changes, "rewards.trajectory": 0.0}) if ablation else full
    return DemoPlan(options.out, sft, rl, full.curriculum.rewards(full.rewards, 1.0), options.questions, ablation)


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


def paired_gain(ours: Sequence[DemoScore], theirs: Sequence[DemoScore], measure: str = "recall") -> Figure:
    """The paired difference over the same tasks. Raises `DataError` where the tasks are not the same."""
    return Figure.of(paired_differences(ours, theirs, measure))


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
