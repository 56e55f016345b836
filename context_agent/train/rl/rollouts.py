"""Rollouts of a step: which episodes a step requests, and how they are played.

The questions of a step and the seeds of its episodes depend only on the settings and the step. If the sampling engine
is deterministic, a resumed run therefore samples the same episodes as a run without interruption.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeGuard

from context_agent.agent import SearchAgent
from context_agent.budget import Budget
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import BatchingEngine
from context_agent.train.batches import WeightedRow
from context_agent.train.config import RolloutConfig
from context_agent.train.curriculum import Curriculum
from context_agent.train.outcome import is_aborted
from context_agent.types import Question

SEED_STRIDE = 1_000_003
"""Distance between the seeds of two steps, so that no two steps share a seed."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """An episode to play.

    Attributes:
        question: The question.
        seed: The sampling seed.
        episode: The id of the trajectory.
        demonstrated: True if an expert has played the episode. The policy then does not play it.
        budget: The window of the episode. None means the agent's.
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
    """The requested episodes of a step with their results.

    Attributes:
        requests: The requests.
        results: The results, in the order of the requests.
        seconds: Time that playing took.
        metrics: Metrics of the playing.
        lost: Ids of the episodes that weights sampled which were lost with an interrupted process.
    """

    requests: Sequence[RolloutRequest]
    results: Sequence[EpisodeResult]
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()


def played_together(first: PlayedEpisodes, second: PlayedEpisodes) -> PlayedEpisodes:
    """Return both sets of episodes as one."""
    return PlayedEpisodes(
        [*first.requests, *second.requests],
        [*first.results, *second.results],
        first.seconds + second.seconds,
        {**second.metrics, **first.metrics},
        first.lost | second.lost,
    )


class RolloutSource(Protocol):
    """The source of a step's episodes. They are played on request (`Rollouts`) or ahead of time (`AsyncRollouts`)."""

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return the episodes that a step requests on this rank."""

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Return the episodes of `count` further questions of a step. Skip the first `first` further questions.

        If too few questions are left, return fewer episodes.
        """

    def play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        """Return the episodes that the step trains on. Block until they are available."""

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Return the source's metrics of an update's rows."""

    def checkpointed(self) -> None:
        """Drop the episodes that no kept checkpoint needs. The trainer calls this after each checkpoint."""


def group_of(episode: str) -> str:
    """Return the group in an episode's id. A group is the episodes of one question in one step."""
    return episode.rpartition("-")[0]


def draw_questions(questions: Sequence[Question], count: int, *, seed: int, step: int) -> list[Question]:
    """Draw the questions of a step at random.

    If `count` exceeds the number of questions, every question is drawn once before any question is drawn again.

    Args:
        questions: The questions that may be drawn.
        count: Number of questions to draw.
        seed: The seed of the run.
        step: The step. Seed and step determine the draw.

    Returns:
        The drawn questions, in order.
    """
    chosen: list[Question] = []
    order = random.Random(f"{seed}:{step}")
    while len(chosen) < count:
        chosen += order.sample(questions, min(len(questions), count - len(chosen)))
    return chosen


def step_questions(
    step: int, questions: Sequence[Question], curriculum: Curriculum, config: RolloutConfig
) -> list[Question]:
    """Return the questions of a step, in order.

    Args:
        step: The step.
        questions: The questions of the run.
        curriculum: The curriculum, which decides which questions the step may draw.
        config: The rollout settings.

    Returns:
        The questions. Equal arguments give the same questions.
    """
    admitted = curriculum.admitted(questions, step / config.steps)
    return draw_questions(admitted, config.groups, seed=config.seed, step=step)


def further_questions(
    step: int, questions: Sequence[Question], curriculum: Curriculum, config: RolloutConfig
) -> list[Question]:
    """Return the questions that may replace those of a step, in the order in which they are used."""
    drawn = {question.id for question in step_questions(step, questions, curriculum, config)}
    others = [q for q in curriculum.admitted(questions, step / config.steps) if q.id not in drawn]
    return random.Random(f"{config.seed}:{step}:refill").sample(others, len(others))


def episode_request(
    question: Question, config: RolloutConfig, step: int, group: int, rollout: int, *, budget: Budget | None = None
) -> RolloutRequest:
    """Return the request for one rollout. No other rollout of the run has its seed or its id.

    Args:
        question: The question.
        config: The rollout settings.
        step: The step.
        group: The index of the question in the step.
        rollout: The index of the rollout in the group.
        budget: The window of the episode. None means the agent's.

    Returns:
        The request.
    """
    seed = (config.seed + step + 1) * SEED_STRIDE + group * config.rollouts + rollout
    return RolloutRequest(question, seed, f"{step:05d}-{group:04d}-{rollout:03d}", budget=budget)


async def play_episodes(
    agent: SearchAgent, requests: Sequence[RolloutRequest], concurrency: int
) -> list[EpisodeResult]:
    """Play the requests. If an episode fails before it starts, its error is its result and the others continue.

    An engine that batches learns how many episodes are running, so batches do not depend on timing.

    Args:
        agent: The agent.
        requests: The episodes.
        concurrency: Largest number of episodes that run concurrently.

    Returns:
        The results, in the order of the requests.
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
    """Play one episode and return its result. Its trajectory has the request's id.

    Raises:
        ConfigError: If the agent's settings are invalid. Any other error of this package becomes the result.
    """
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
    """Return True if the policy or a limit ended the episode, so that it can be rewarded."""
    return isinstance(result, Trajectory) and not is_aborted(result)


class Rollouts:
    """A synchronous `RolloutSource`, which plays the episodes of a step on request. Each rank has its own."""

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
        """Set up the source.

        Each rank plays every `ranks`-th group, so an advantage never depends on another rank.

        Args:
            agent: The agent. Its policy must record its token calls, as `TokenPolicy` does.
            questions: The questions of the run.
            config: The rollout settings.
            curriculum: The curriculum, which decides which questions a step may draw.
            demonstration_count: A function that returns the number of demonstrations in a question's group. They are
                not played.
            budget_of: A function that returns the window of a group's episodes, or None for the agent's.
            rank: The number of this rank.
            ranks: The number of ranks.
            play: A function that plays requests elsewhere. By default this process plays them.

        Raises:
            ConfigError: If the agent runs several episodes per question, or a step has fewer groups than ranks.
        """
        if agent.rollouts != 1:
            raise ConfigError(
                f"training plays one episode per request, so the agent must have rollouts=1; got {agent.rollouts}"
            )
        if config.groups < ranks:
            raise ConfigError(
                f"rollouts.groups = {config.groups} cannot be shared by {ranks} ranks. Use at least {ranks} groups."
            )
        self._agent, self._questions, self._config = agent, list(questions), config
        self._curriculum = curriculum or Curriculum()
        self._demonstration_count = demonstration_count or (lambda _: 0)
        self._rank, self._ranks = rank, ranks
        self._budget_of = budget_of
        self._play = play or self._play_here

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return every rollout of this rank's questions in the step, except those that demonstrations replace."""
        questions = step_questions(step, self._questions, self._curriculum, self._config)
        groups = range(self._rank, len(questions), self._ranks)
        return [request for group in groups for request in self._group(step, group, questions[group])]

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Return all rollouts of `count` further questions on this rank.

        The numbers of their groups follow those of the step.
        """
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
        """Play the requests concurrently."""
        started = time.perf_counter()
        results = self._play(requests)
        return PlayedEpisodes(requests, results, time.perf_counter() - started)

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Return no metrics. The loop already measures the rows of this source."""
        return {}

    def checkpointed(self) -> None:
        """Do nothing. This source stores no episodes."""

    def _play_here(self, requests: Sequence[RolloutRequest]) -> list[EpisodeResult]:
        return asyncio.run(play_episodes(self._agent, requests, self._config.concurrency))


def _expect(agent: SearchAgent, episodes: int) -> None:
    engine = getattr(agent.policy, "engine", None)
    if isinstance(engine, BatchingEngine):
        engine.expect(episodes)
