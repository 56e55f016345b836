"""Rollouts of a step: questions drawn, episodes run by the production `SearchAgent`, rewarded, and made into rows.

What a step asks and with which seeds depends on the settings and the step alone. So a run that was killed and resumed
samples what it would have sampled, as far as the engine that samples is deterministic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import TypeGuard

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.eval.gold import Gold, gold_of
from context_agent.harness.tools import SPAWN
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import write
from context_agent.policies.token_calls import calls
from context_agent.questions import Question
from context_agent.train.advantages import Advantages, Baseline, Scored, advantages
from context_agent.train.batches import Weighted, shares
from context_agent.train.curriculum import Curriculum, drawn
from context_agent.train.judged.terms import Bench, Judged, golden
from context_agent.train.outcomes import outcome, spoiled
from context_agent.train.parl import Parl, delegating, delegation, with_parl
from context_agent.train.rewards import Outcome, Reward, Rewards, reward
from context_agent.train.rl.buffer import Buffer
from context_agent.train.rl.playing import Ask, Ended, played
from context_agent.train.rows import decay, rows_of

SEEDS_A_STEP = 1_000_003
"""Seeds lie this far apart from step to step, so that no two steps sample with the same ones."""


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """A step: `groups` questions, `rollouts` episodes of each, and `substeps` steps of the optimiser over their rows.

    The defaults are the report's (Context-1, section 3). `keep_negative` and `baseline` are `advantages`'. `save_every`
    writes the trajectories of `save_groups` questions every so many steps, for `ctx1 view`; 0 writes none.
    """

    steps: int = 300
    groups: int = 128
    rollouts: int = 8
    substeps: int = 4
    concurrency: int = 256
    seed: int = 0
    baseline: Baseline = Baseline.MEAN
    keep_negative: float = 1.0
    save_every: int = 10
    save_groups: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "groups", "rollouts", "substeps", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.rollouts < 2:
            raise ConfigError("a group needs at least 2 rollouts: an advantage compares them with each other")


@dataclass(frozen=True, slots=True)
class Played:
    """One episode with its outcome and reward."""

    question: Question
    trajectory: Trajectory
    outcome: Outcome
    reward: Reward


@dataclass(frozen=True, slots=True)
class Step:
    """What a step's rollouts came to. `metrics` are means over its episodes, by name."""

    number: int
    items: tuple[Weighted, ...]
    metrics: Mapping[str, float]
    played: tuple[Played, ...] = field(repr=False, default=())


Report = Callable[[Step], None]


def drawn_for(
    number: int, questions: Sequence[Question], curriculum: Curriculum, settings: RolloutSettings
) -> list[Question]:
    """The questions of a step, in order."""
    admitted = curriculum.admitted(questions, number / settings.steps)
    return drawn(admitted, settings.groups, seed=settings.seed, step=number)


def ask_of(question: Question, settings: RolloutSettings, number: int, group: int, rollout: int) -> Ask:
    """A rollout of the question that stands at place `group` of step `number`, with a seed and an id of its own."""
    seed = (settings.seed + number + 1) * SEEDS_A_STEP + group * settings.rollouts + rollout
    return Ask(question, seed, f"{number:05d}-{group:04d}-{rollout:03d}")


class Rollouts:
    """The rows of each optimiser step: a `Source` for the trainer. Use one for each rank."""

    def __init__(
        self,
        agent: SearchAgent,
        questions: Sequence[Question],
        settings: RolloutSettings,
        *,
        rewards: Rewards | None = None,
        parl: Parl | None = None,
        curriculum: Curriculum | None = None,
        report: Report | None = None,
        trajectories: Path | None = None,
        bench: Bench | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """The agent's policy must record token calls, as `TokenPolicy` does, and run one rollout a question.

        Of the groups of a step every `ranks`-th is this rank's, so an advantage never needs another rank. `bench` has
        a judge; without one, questions need gold. Raises `ConfigError` for questions without gold, or a step that is
        too small to be shared out.
        """
        if agent.rollouts != 1:
            raise ConfigError(f"the agent runs one episode a question when it is trained; it has {agent.rollouts}")
        if settings.groups < ranks:
            raise ConfigError(f"{settings.groups} questions a step cannot be shared by {ranks} ranks")
        lacking = [question.id for question in questions if not golden(question)]
        if (lacking and bench is None) or not questions:
            raise ConfigError(f"{len(lacking)} of {len(questions)} questions have no gold, {lacking[:3]} among them")
        self._agent = agent
        self._questions = list(questions)
        self._gold: dict[str, Gold] = {}
        self.settings = settings
        self._rewards = rewards or Rewards()
        self._parl = parl or Parl()
        self._curriculum = curriculum or Curriculum(beta=(self._rewards.beta, self._rewards.beta))
        self._report = report
        self._trajectories = trajectories
        self._bench = bench
        self._rank, self._ranks = rank, ranks
        self._buffer = Buffer()

    def rows(self, step: int) -> Sequence[Weighted]:
        """The rows of an optimiser step; the rollouts are made at the first of their substeps."""
        number, part = divmod(step, self.settings.substeps)
        if self._buffer.number != number:
            self._buffer = Buffer(number, shares(self.play(number).items, self.settings.substeps))
        return self._buffer.parts[part]

    def save(self, folder: Path, step: int) -> None:
        """Writes what the optimiser steps from `step` on still need of the rollouts at hand: nothing between steps."""
        number, part = divmod(step, self.settings.substeps)
        if part and self._buffer.number == number:
            self._buffer.save(folder, self._rank)

    def restore(self, folder: Path) -> None:
        """Takes up the rollouts that `save` wrote, so that a half-used step is not sampled anew by newer weights."""
        self._buffer = Buffer.load(folder, self._rank)

    def play(self, number: int) -> Step:
        """Runs the episodes of a step. Raises `PolicyError` where not one of them could be rewarded."""
        asks = self.asks(number)
        started = time.perf_counter()
        made = asyncio.run(played(self._agent, asks, self.settings.concurrency))
        return self.reckoned(number, asks, made, time.perf_counter() - started)

    def asks(self, number: int) -> list[Ask]:
        """What a step asks: every rollout of this rank's questions, under an id that says which it is."""
        return self._asks(drawn_for(number, self._questions, self._curriculum, self.settings), number)

    def reckoned(
        self,
        number: int,
        asks: Sequence[Ask],
        made: Sequence[Ended],
        seconds: float,
        more: Mapping[str, float] | None = None,
    ) -> Step:
        """A step of episodes that have ended: rewarded, compared, made into rows, and reported with `more` metrics.

        Raises `PolicyError` where not one of them could be rewarded.
        """
        rewards = self._curriculum.rewards(self._rewards, number / self.settings.steps)
        ended = [(ask.question, one) for ask, one in zip(asks, made, strict=True) if whole(one)]
        if not ended:
            raise PolicyError(f"step {number}: none of {len(asks)} episodes could be run to an end{_why(made)}")
        judged = Judged((None,) * len(ended)) if self._bench is None else self._bench.judged(ended)
        done = [
            self._rewarded(question, one, rewards, score, number / self.settings.steps)
            for (question, one), score in zip(ended, judged.scores, strict=True)
            if golden(question) or score is not None
        ]
        if not done:
            raise PolicyError(f"step {number}: none of its questions has gold, and {judged.why}")
        step = self._step(number, done, spoilt=len(asks) - len(ended), seconds=seconds, beta=rewards.beta)
        found = {**step.metrics, **(more or {})}
        if self._bench is not None:
            found |= {**judged.metrics, "episodes_unjudged": float(len(ended) - len(done))}
        step = replace(step, metrics=found)
        self._save(step)
        if self._report is not None:
            self._report(step)
        return step

    def _asks(self, asked: Sequence[Question], number: int) -> list[Ask]:
        mine = [place for place in range(len(asked)) if place % self._ranks == self._rank]
        return [
            ask_of(asked[group], self.settings, number, group, rollout)
            for group in mine
            for rollout in range(self.settings.rollouts)
        ]

    def _rewarded(
        self, question: Question, trajectory: Trajectory, rewards: Rewards, judged: float | None, progress: float
    ) -> Played:
        if question.id not in self._gold:
            self._gold[question.id] = gold_of(question, self._agent.corpus)
        measured = outcome(trajectory, question, self._gold[question.id], judged=judged)
        try:
            earned = reward(measured, rewards)
            if self._parl.on:
                earned = with_parl(earned, measured, delegation(trajectory), self._parl.at(progress))
            return Played(question, trajectory, measured, earned)
        except DataError as error:
            raise DataError(f"episode {trajectory.header.id}, question {question.id}: {error}") from error

    def _step(self, number: int, done: list[Played], *, spoilt: int, seconds: float, beta: float) -> Step:
        scored = [Scored(one.trajectory.header.id, one.question.id, one.reward.total) for one in done]
        found = advantages(
            scored,
            baseline=self.settings.baseline,
            keep_negative=self.settings.keep_negative,
            seed=self.settings.seed + number,
        )
        items = tuple(item for one in done for item in self._weighted(one, found))
        metrics = measures(done) | {
            "groups_equal": float(len(found.equal)),
            "episodes_trained": float(len(found.by_episode)),
            "episodes_spoilt": float(spoilt),
            "rows": float(len(items)),
            "tokens_sampled": float(sum(len(call.output) for one in done for call in calls(one.trajectory))),
            "tokens_trained": float(sum(item.row.trained for item in items)),
            "beta": beta,
            "rollout_seconds": seconds,
        }
        return Step(number, items, metrics, tuple(done))

    def _weighted(self, one: Played, found: Advantages) -> list[Weighted]:
        """The rows of an episode that is trained on, with its advantage; gamma makes earlier steps count less."""
        advantage = found.by_episode.get(one.trajectory.header.id)
        if advantage is None:
            return []
        made = rows_of(one.trajectory, group_id=one.question.id)
        weights = decay(made, self._rewards.gamma)
        return [Weighted(row, advantage, tuple(weight)) for row, weight in zip(made, weights, strict=True)]

    def _save(self, step: Step) -> None:
        every = self.settings.save_every
        if self._trajectories is None or not every or step.number % every or self._rank:
            return
        folder = self._trajectories / f"step-{step.number:05d}"
        shown = list(dict.fromkeys(one.question.id for one in step.played))[: self.settings.save_groups]
        for one in step.played:
            if one.question.id in shown:
                write(one.trajectory, folder / f"{one.trajectory.header.id}.jsonl")


def _why(made: Sequence[Ended]) -> str:
    """What ended the first episode that says so."""
    errors = (one.end and one.end.error if isinstance(one, Trajectory) else str(one) for one in made)
    told = next((error for error in errors if error), None)
    return f" ({told})" if told else ""


def whole(ended: Ended) -> TypeGuard[Trajectory]:
    """Whether an episode came to an end of its own, so that it can be rewarded."""
    return isinstance(ended, Trajectory) and not spoiled(ended)


def measures(episodes: Sequence[Played]) -> dict[str, float]:
    """Means over episodes: the reward and each of its terms, recalls, pruning, turns and calls.

    Recalls and precision are means over the episodes whose question has gold, and absent where none has; those about
    sub-agents (`parl.delegating`) are there where an episode could start some.
    """
    outcomes = [one.outcome for one in episodes]
    known = [one for one in outcomes if one.golden]
    totals = [one.reward.total for one in episodes]
    pruned = sum(one.pruned for one in outcomes)
    found = {
        "reward": fmean(totals),
        "reward_deviation": pstdev(totals),
        "answered": fmean(float(bool(one.answered)) for one in outcomes),
        "finished": fmean(float(one.ending == "finished") for one in outcomes),
        "turns": fmean(one.turns for one in outcomes),
        "calls": fmean(sum(one.calls) for one in outcomes),
        "searches": fmean(len(one.queries) for one in outcomes),
        "pruned": pruned / len(outcomes),
        "pruning": fmean(float(one.pruned > 0) for one in outcomes),
        "mistakes": fmean(one.mistakes for one in outcomes),
    }
    if any(SPAWN in one.trajectory.header.profile["tools"] for one in episodes):
        found |= delegating([one.trajectory for one in episodes])
    if known:
        found["recall"] = fmean(one.recall for one in known)
        found["precision"] = fmean(one.precision for one in known)
        found["trajectory_recall"] = fmean(one.seen for one in known)
    if sorted_out := sum(one.pruned for one in known):
        found["prune_accuracy"] = 1 - sum(one.pruned_gold for one in known) / sorted_out
    terms = episodes[0].reward.terms
    return found | {f"term/{name}": fmean(one.reward.terms[name] for one in episodes) for name in terms}
