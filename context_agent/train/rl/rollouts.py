"""Many episodes at a time, each under an id that says which it is. One that the world ends stops no other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Protocol, TypeGuard

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, ContextAgentError, DataError, PolicyError
from context_agent.eval.gold import Gold, gold_of
from context_agent.policies.engines.protocol import Gathering
from context_agent.policies.token_calls import calls
from context_agent.questions import Question
from context_agent.tools import SPAWN
from context_agent.train.advantages import Advantages, Scored, advantages
from context_agent.train.config import Parl, RolloutSettings
from context_agent.train.curriculum import Curriculum, drawn
from context_agent.train.judge.judge import Bench, Judged, golden
from context_agent.train.rewards import Outcome, Reward, Rewards, outcome, reward, spoiled
from context_agent.train.rl.parl import delegating, delegation, with_parl
from context_agent.train.rows import Row, Weighted, decay, rows_of, shares
from context_agent.trajectory import Trajectory
from context_agent.trajectory_file import write


@dataclass(frozen=True, slots=True)
class Ask:
    """One episode to run: its question, the seed it samples with, and the id of its trajectory."""

    question: Question
    seed: int
    episode: str


def group_of(episode: str) -> str:
    """The group of an episode's id: the episodes of one question of one step."""
    return episode.rpartition("-")[0]


Ended = Trajectory | ContextAgentError
"""How an episode ended: with its trajectory, or with what kept it from beginning."""


async def played(agent: SearchAgent, asks: Sequence[Ask], concurrency: int) -> list[Ended]:
    """The trajectory of each, in order, at most `concurrency` at a time.

    The error in its place where an engine or the corpus failed before the episode had begun. An engine that batches is
    told how many episodes are at work, so that no clock decides what shares a batch.
    """
    waiting = iter(enumerate(asks))
    found: dict[int, Ended] = {}

    async def work() -> None:
        try:
            for place, ask in waiting:
                found[place] = await one(agent, ask)
        finally:
            _expect(agent, -1)

    workers = min(concurrency, len(asks))
    _expect(agent, workers)
    await asyncio.gather(*(work() for _ in range(workers)))
    return [found[place] for place in range(len(asks))]


async def one(agent: SearchAgent, ask: Ask) -> Ended:
    """How an episode ends, under its own id. Raises `ConfigError` alone."""
    try:
        result = await agent.asearch(ask.question.question, question_id=ask.question.id, seed=ask.seed)
    except ConfigError:
        raise
    except ContextAgentError as error:
        return error
    trajectory = result.trajectories[0]
    return replace(trajectory, header=replace(trajectory.header, id=ask.episode))


def _expect(agent: SearchAgent, episodes: int) -> None:
    engine = getattr(agent.policy, "engine", None)
    if isinstance(engine, Gathering):
        engine.expect(episodes)


SEEDS_A_STEP = 1_000_003
"""Seeds lie this far apart from step to step, so that no two steps sample with the same ones."""


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
            raise PolicyError(f"step {number}: none of {len(asks)} episodes could be run to an end{_why_failed(made)}")
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


def _why_failed(made: Sequence[Ended]) -> str:
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


@dataclass(frozen=True, slots=True)
class Buffer:
    """The rows of each substep of step `number`; -1 stands for none."""

    number: int = -1
    parts: Sequence[Sequence[Weighted]] = field(default_factory=list)

    def save(self, folder: Path, rank: int) -> None:
        """Writes the rank's rows, one a line."""
        with _path(folder, rank).open("w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"number": self.number, "parts": len(self.parts)}) + "\n")
            for place, part in enumerate(self.parts):
                for item in part:
                    line = [place, item.advantage, item.weights, asdict(item.row)]
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")

    @staticmethod
    def load(folder: Path, rank: int) -> Buffer:
        """What was saved, to the last bit; an empty buffer where nothing was. Raises `DataError`."""
        path = _path(folder, rank)
        if not path.is_file():
            return Buffer()
        try:
            with path.open(encoding="utf-8") as file:
                head = json.loads(next(file))
                parts: list[list[Weighted]] = [[] for _ in range(head["parts"])]
                for line in file:
                    place, advantage, weights, row = json.loads(line)
                    parts[place].append(Weighted(Row(**row), advantage, tuple(weights)))
            return Buffer(int(head["number"]), parts)
        except (OSError, ValueError, TypeError, KeyError, IndexError, StopIteration) as error:
            raise DataError(f"cannot read the rollouts {path}: {type(error).__name__} {error}") from error


def _path(folder: Path, rank: int) -> Path:
    return folder / f"rollouts-{rank}.jsonl"


class Rows(Protocol):
    """The rows of an optimiser step."""

    def rows(self, step: int) -> Sequence[Weighted]:
        """Those of this rank."""


class Fresh:
    """The rows of another source that are at most `bound` updates old. `dropped` hears how many were not."""

    def __init__(self, source: Rows, bound: int, dropped: Callable[[int], None]) -> None:
        self._source, self._bound, self._dropped = source, bound, dropped

    def rows(self, step: int) -> Sequence[Weighted]:
        """Raises `PolicyError` where not one row is fresh: then whatever samples no longer gets new weights."""
        every = self._source.rows(step)
        fresh = [item for item in every if age(item.row, step) <= self._bound]
        self._dropped(len(every) - len(fresh))
        if every and not fresh:
            oldest = max(age(item.row, step) for item in every)
            raise PolicyError(
                f"update {step}: all {len(every)} rows are more than {self._bound} updates old, up to {oldest}: "
                "the engine did not get new weights"
            )
        return fresh


def age(row: Row, step: int) -> int:
    """Updates since the row was sampled; 0 for a version that is no number of an update."""
    made = update_number(row.policy_version)
    return 0 if made is None else step - made


def update_number(version: str) -> int | None:
    """The update that a version is named by; None for another name."""
    return int(version) if version.isdecimal() else None


MEASURES = (
    *("reward", "recall", "precision", "trajectory_recall", "prune_accuracy"),
    *("pruned", "pruning", "finished", "turns", "searches"),
    *("spawning", "searchers", "searchers_finished", "critical_steps"),
)
SHOWN = 4
"""Trajectories that are kept of each evaluation and temperature, for `ctx1 view`."""


class Evaluator:
    """Asks the same questions with the same seeds each time, by one agent for each temperature."""

    def __init__(
        self,
        agents: dict[float, SearchAgent],
        questions: Sequence[Question],
        *,
        rewards: Rewards,
        concurrency: int,
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        """`rewards` are those that training ends with, so that figures of different steps compare."""
        self._agents, self._questions, self._rewards = agents, list(questions), rewards
        self._concurrency, self._seed, self._folder = concurrency, seed, folder

    def evaluate(self, step: int) -> dict[str, float]:
        """`dev/greedy/recall` and so on: means over episodes; `spoilt` counts those that the world ended."""
        found: dict[str, float] = {}
        for temperature, agent in self._agents.items():
            name = "greedy" if temperature == 0 else f"t{temperature:g}"
            found |= {f"dev/{name}/{key}": value for key, value in self._one(agent, step, name).items()}
        return found

    def _one(self, agent: SearchAgent, step: int, name: str) -> dict[str, float]:
        asks = [Ask(one, self._seed + place, f"{name}-{one.id}") for place, one in enumerate(self._questions)]
        made = asyncio.run(played(agent, asks, self._concurrency))
        done = []
        for ask, trajectory in zip(asks, made, strict=True):
            if whole(trajectory):
                measured = outcome(trajectory, ask.question, gold_of(ask.question, agent.corpus))
                done.append(Played(ask.question, trajectory, measured, reward(measured, self._rewards)))
        self._save(done, step)
        means = measures(done) if done else {}
        return {key: means[key] for key in MEASURES if key in means} | {"spoilt": float(len(asks) - len(done))}

    def _save(self, done: Sequence[Played], step: int) -> None:
        if self._folder is None:
            return
        for one in done[:SHOWN]:
            name = one.trajectory.header.id.replace("/", "_")
            write(one.trajectory, self._folder / f"dev-{step:05d}" / f"{name}.jsonl")
