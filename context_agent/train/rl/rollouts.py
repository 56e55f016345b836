"""Rollouts of a step: which episodes a step asks for, and how they are played.

The questions of a step and the seeds of its episodes depend on the settings and the step alone. A run that was
interrupted therefore samples what it would have sampled, as far as the sampling engine is deterministic.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeGuard

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import BatchingEngine
from context_agent.pruning.budget import Budget
from context_agent.train.batches import WeightedRow
from context_agent.train.config import RolloutConfig
from context_agent.train.curriculum import Curriculum, draw_questions
from context_agent.train.outcome import is_aborted
from context_agent.types import Question

SEED_STRIDE = 1_000_003
"""Distance between the seeds of two steps: no two steps share one."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """An episode to play: its question, its sampling seed, and the id of its trajectory.

    Attributes:
        demonstrated: An expert has played it, and the policy does not.
        budget: The window; None for the agent's.
    """

    question: Question
    seed: int
    episode: str
    demonstrated: bool = False
    budget: Budget | None = None


EpisodeResult = Trajectory | ContextAgentError
"""The trajectory of an episode, or the error that kept it from starting."""


@dataclass(frozen=True, slots=True)
class PlayedEpisodes:
    """The requested episodes of a step with their results, in the same order. `metrics` are about the playing."""

    requests: Sequence[RolloutRequest]
    results: Sequence[EpisodeResult]
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


def played_together(first: PlayedEpisodes, second: PlayedEpisodes) -> PlayedEpisodes:
    """Return both sets of episodes as one."""
    return PlayedEpisodes(
        [*first.requests, *second.requests],
        [*first.results, *second.results],
        first.seconds + second.seconds,
        {**second.metrics, **first.metrics},
    )


class RolloutSource(Protocol):
    """Where the episodes of a step come from: played on request (`Rollouts`), or ahead of time (`AsyncRollouts`)."""

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return the episodes that a step asks for on this rank."""

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Return the episodes of `count` further questions of a step, after `first` earlier ones; fewer if none are
        left.
        """

    def play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        """Return the episodes that the step trains on; blocks until they are there."""

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Return what is known of an update's rows."""

    def checkpointed(self) -> None:
        """Called when a checkpoint is written: what no kept checkpoint needs may be dropped."""


def group_of(episode: str) -> str:
    """Return the group in an episode's id: the episodes of one question in one step."""
    return episode.rpartition("-")[0]


def step_questions(
    step: int, questions: Sequence[Question], curriculum: Curriculum, config: RolloutConfig
) -> list[Question]:
    """Return the questions of a step, in order."""
    admitted = curriculum.admitted(questions, step / config.steps)
    return draw_questions(admitted, config.groups, seed=config.seed, step=step)


def further_questions(
    step: int, questions: Sequence[Question], curriculum: Curriculum, config: RolloutConfig
) -> list[Question]:
    """Return the questions that may take the place of those of a step, in the order in which they do."""
    drawn = {question.id for question in step_questions(step, questions, curriculum, config)}
    others = [q for q in curriculum.admitted(questions, step / config.steps) if q.id not in drawn]
    return random.Random(f"{config.seed}:{step}:refill").sample(others, len(others))


def episode_request(
    question: Question, config: RolloutConfig, step: int, group: int, rollout: int, *, budget: Budget | None = None
) -> RolloutRequest:
    """Return the request of one rollout of the question in group `group` of a step; its seed and its id are unique."""
    seed = (config.seed + step + 1) * SEED_STRIDE + group * config.rollouts + rollout
    return RolloutRequest(question, seed, f"{step:05d}-{group:04d}-{rollout:03d}", budget=budget)


async def play_episodes(
    agent: SearchAgent, requests: Sequence[RolloutRequest], concurrency: int
) -> list[EpisodeResult]:
    """Return the results of the requests, in order; at most `concurrency` episodes run at a time.

    An episode that fails before it starts has its error as its result and stops no other. An engine that batches is
    told how many episodes are running, so that batches do not depend on timing.
    """
    waiting = iter(enumerate(requests))
    results: dict[int, EpisodeResult] = {}

    async def work() -> None:
        try:
            for index, request in waiting:
                results[index] = await play_episode(agent, request)
        finally:
            _expect(agent, -1)

    workers = min(concurrency, len(requests))
    _expect(agent, workers)
    await asyncio.gather(*(work() for _ in range(workers)))
    return [results[index] for index in range(len(requests))]


async def play_episode(agent: SearchAgent, request: RolloutRequest) -> EpisodeResult:
    """Return the result of one episode; its trajectory has the request's id. Raises only `ConfigError`."""
    question = request.question
    try:
        result = await agent.asearch(
            question.question, question_id=question.id, seed=request.seed, budget=request.budget
        )
    except ConfigError:
        raise
    except ContextAgentError as error:
        return error
    trajectory = result.trajectories[0]
    return replace(trajectory, header=replace(trajectory.header, id=request.episode))


def is_complete(result: EpisodeResult) -> TypeGuard[Trajectory]:
    """Return whether an episode was ended by its policy or a limit, so that it can be rewarded."""
    return isinstance(result, Trajectory) and not is_aborted(result)


class Rollouts:
    """Plays the episodes of a step when they are asked for: a synchronous `RolloutSource`, one for each rank."""

    def __init__(
        self,
        agent: SearchAgent,
        questions: Sequence[Question],
        config: RolloutConfig,
        *,
        curriculum: Curriculum | None = None,
        demonstration_count: Callable[[Question], int] | None = None,
        budget_of: Callable[[int], Budget | None] = lambda _: None,
        rank: int = 0,
        ranks: int = 1,
        play: Callable[[Sequence[RolloutRequest]], list[EpisodeResult]] | None = None,
    ) -> None:
        """The agent's policy must record its token calls, as `TokenPolicy` does.

        `play` plays requests elsewhere than in this process. `demonstration_count` says how many episodes of a
        question's group are demonstrations, which are not played. `budget_of` says in which window the episodes of a
        group are played, None for the agent's. Each rank plays every `ranks`-th group, so an advantage never needs
        another rank. Raises `ConfigError` for an agent that runs several episodes a question, and for a step with fewer
        groups than ranks.
        """
        if agent.rollouts != 1:
            raise ConfigError(f"training plays one episode per request; the agent has rollouts={agent.rollouts}: use 1")
        if config.groups < ranks:
            raise ConfigError(
                f"rollouts.groups = {config.groups} cannot be shared by {ranks} ranks: use at least {ranks} groups"
            )
        self._agent, self._questions, self._config = agent, list(questions), config
        self._curriculum = curriculum or Curriculum()
        self._demonstration_count = demonstration_count or (lambda _: 0)
        self._rank, self._ranks = rank, ranks
        self._budget_of = budget_of
        self._play = play or self._play_here

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return every rollout of this rank's questions of the step that is to be sampled."""
        questions = step_questions(step, self._questions, self._curriculum, self._config)
        groups = range(self._rank, len(questions), self._ranks)
        return [request for group in groups for request in self._group(step, group, questions[group])]

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Return every rollout of further questions of this rank, whose groups are numbered after those of the step."""
        others = further_questions(step, self._questions, self._curriculum, self._config)
        places = range(self._rank + first * self._ranks, len(others), self._ranks)[:count]
        groups = self._config.groups
        return [request for place in places for request in self._group(step, groups + place, others[place])]

    def _group(self, step: int, group: int, question: Question) -> list[RolloutRequest]:
        budget = self._budget_of(group)
        return [
            episode_request(question, self._config, step, group, rollout, budget=budget)
            for rollout in range(self._config.rollouts - self._demonstration_count(question))
        ]

    def play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        """Play the requests, concurrently."""
        started = time.perf_counter()
        results = self._play(requests)
        return PlayedEpisodes(requests, results, time.perf_counter() - started)

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Return nothing: the loop measures all there is."""
        return {}

    def checkpointed(self) -> None:
        """Do nothing: no episodes are stored."""

    def _play_here(self, requests: Sequence[RolloutRequest]) -> list[EpisodeResult]:
        return asyncio.run(play_episodes(self._agent, requests, self._config.concurrency))


def _expect(agent: SearchAgent, episodes: int) -> None:
    engine = getattr(agent.policy, "engine", None)
    if isinstance(engine, BatchingEngine):
        engine.expect(episodes)
