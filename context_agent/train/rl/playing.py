"""Many episodes at a time, each under an id that says which it is. One that the world ends stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.engines.protocol import Gathering
from context_agent.questions import Question


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
