"""Episodes begun alike, and driven by their actors to the end, whatever ends them.

A deadline, a policy or a corpus that fails, or the caller. Agents and their sub-agents run their episodes by this.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from context_agent.errors import ContextAgentError, CorpusError, PolicyError
from context_agent.harness.episode import Episode, Limits, Listener, StopReason
from context_agent.harness.policy import Actor, PartialRanker, Policy
from context_agent.harness.profile import Profile
from context_agent.harness.rendering import Renderer
from context_agent.harness.tools.base import SubAgents
from context_agent.harness.trajectory import Header
from context_agent.harness.trajectory_file import TrajectoryWriter
from context_agent.pruning.budget import Budget
from context_agent.retrieval.corpus import Corpus, Where

Observer = Callable[[Header], Listener]
"""Makes the listener of an episode that begins. The listener runs in the episode's own task, in its context."""


class Deadline:
    """When searches end with what they have, beside the limit of their agent. Counts from when it is made.

    It may be shared by searches and be brought forward to now while they run, in the event loop that runs them.
    """

    def __init__(self, seconds: float | None = None) -> None:
        """None: not before it is brought forward."""
        self._clock = asyncio.get_running_loop().time
        self._ends = math.inf if seconds is None else self._clock() + seconds
        self._running: set[asyncio.Timeout] = set()

    @property
    def left(self) -> float:
        """Seconds until then, never negative; infinite where there is no such moment."""
        return max(0.0, self._ends - self._clock())

    def expire(self) -> None:
        """Ends what runs, now, and whatever begins later before its first turn."""
        self._ends = min(self._ends, self._clock())
        for timeout in self._running:
            if not timeout.expired():
                timeout.reschedule(self._ends)

    @asynccontextmanager
    async def within(self, limit: float | None) -> AsyncIterator[None]:
        """Raises `TimeoutError` in its block at the deadline, or after `limit` seconds where that comes first."""
        ends = min(self._ends, math.inf if limit is None else self._clock() + limit)
        async with asyncio.timeout_at(ends if math.isfinite(ends) else None) as timeout:
            self._running.add(timeout)
            try:
                yield
            finally:
                self._running.discard(timeout)


@dataclass(frozen=True, slots=True)
class EpisodeRun:
    """An episode with who decides in it; `path` is where its trajectory is written, None where it is not.

    `delegated` are the runs of its sub-agents, as far as they have begun.
    """

    episode: Episode
    actor: Actor
    path: Path | None = None
    delegated: Sequence[EpisodeRun] = ()

    async def drive(self, deadline: Deadline | None = None) -> ContextAgentError | None:
        """Runs the episode to its end; gives back the error of a policy or corpus that failed on the way.

        The episode's own limit on seconds holds beside the `deadline`.
        """
        episode = self.episode
        try:
            async with (deadline or Deadline()).within(episode.limits.seconds):
                view = episode.open()
                while not episode.done:
                    view = await episode.step(await self.actor.act(view))
        except TimeoutError:
            episode.stop(StopReason.TIME)
        except PolicyError as error:
            episode.stop(StopReason.POLICY_ERROR, error=str(error))
            return error
        except CorpusError as error:
            episode.stop(StopReason.CORPUS_ERROR, error=str(error))
            return error
        except BaseException:
            episode.stop(StopReason.CANCELLED)
            raise
        return None


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """What differs from one episode of an agent to the next; see `Episode` for the fields."""

    question: str
    where: Where | None = None
    seed: int = 0
    question_id: str | None = None
    id: str | None = None
    parent: str | None = None
    sub_agents: SubAgents | None = None
    excluded_ids: AbstractSet[str] = frozenset()
    listeners: Sequence[Listener] = ()


class EpisodeStarter(Protocol):
    """Begins the episodes of an agent."""

    def begin(self, request: EpisodeRequest) -> EpisodeRun:
        """An episode ready to be driven. Raises what its policy raises, and what `Episode` does."""


class EpisodeExtension(Protocol):
    """Changes how an agent's episodes begin, as a swarm does."""

    def over(self, factory: EpisodeFactory) -> EpisodeStarter:
        """What begins the episodes of an agent; `factory` makes those of the agent without the extension."""


@dataclass(frozen=True, slots=True)
class EpisodeFactory:
    """What the episodes of an agent have in common. `trajectories` is a folder, None for none written."""

    corpus: Corpus
    policy: Policy
    profile: Profile
    budget: Budget
    limits: Limits
    renderer: Renderer
    executor: Executor | None = None
    trajectories: Path | None = None
    observers: Sequence[Observer] = ()

    def begin(self, request: EpisodeRequest) -> EpisodeRun:
        """See `EpisodeStarter`."""
        actor = self.policy.open(request.question, self.corpus, profile=self.profile, seed=request.seed)
        listeners: list[Listener] = []
        episode = Episode(
            request.question,
            self.corpus,
            profile=self.profile,
            budget=self.budget,
            limits=self.limits,
            renderer=self.renderer,
            instructions=self.policy.instructions(self.profile),
            where=request.where,
            executor=self.executor,
            listeners=listeners,
            partial=actor.partial if isinstance(actor, PartialRanker) else None,
            sub_agents=request.sub_agents,
            excluded_ids=request.excluded_ids,
            policy=self.policy.name,
            seed=request.seed,
            question_id=request.question_id,
            id=request.id,
            parent=request.parent,
        )
        path = None
        if self.trajectories is not None:
            path = self.trajectories / f"{episode.header.id}.jsonl"
            listeners.append(TrajectoryWriter(path, episode.header))
        listeners += [*(observe(episode.header) for observe in self.observers), *request.listeners]
        return EpisodeRun(episode, actor, path)
