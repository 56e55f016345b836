"""The runs of an agent's episodes, from the beginning to the end.

`EpisodeFactory` begins episodes. `EpisodeRun` runs an episode until the policy, a deadline, a failure of the policy or
the corpus, or the caller ends it. Sub-agents of a swarm run their episodes in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from context_agent.budget import Budget
from context_agent.errors import ContextAgentError, CorpusError, EmbedderError, PolicyError, RerankerError
from context_agent.harness.deadline import Deadline
from context_agent.harness.episode import Episode, EpisodeRequest, Limits, Listener, Observer, StopReason
from context_agent.harness.policy import Actor, AdjustableRanking, EvidenceAssessor, PartialRanker, Policy, with_effort
from context_agent.harness.profile import Profile
from context_agent.harness.rendering import Renderer
from context_agent.harness.trajectory import Header
from context_agent.harness.trajectory_file import TrajectoryWriter
from context_agent.pruning.view import Event, View
from context_agent.retrieval.corpus import Corpus


@dataclass(frozen=True, slots=True)
class EpisodeRun:
    """An episode with its actor.

    Attributes:
        episode: The episode.
        actor: The actor that decides in the episode.
        record: The record of the episode. It is None if no trajectory is written.
        delegated: The runs of the sub-agents that have begun.
    """

    episode: Episode
    actor: Actor
    record: EpisodeRecord | None = None
    delegated: Sequence[EpisodeRun] = ()

    @property
    def path(self) -> Path | None:
        """The file of the trajectory. It is None if no trajectory is written."""
        return None if self.record is None else self.record.path

    async def drive(self, deadline: Deadline | None = None) -> ContextAgentError | None:
        """Run the episode to its end.

        Args:
            deadline: The deadline at which the episode ends early. The episode's own limit on seconds applies as well.

        Returns:
            The error of the policy or the corpus if one of them failed, otherwise None.
        """
        episode = self.episode
        try:
            seconds = episode.limits.seconds
            async with asyncio.timeout(seconds) if deadline is None else deadline.within(seconds) as timeout:
                view = episode.open()
                while episode.stop_reason is None:
                    view = await episode.step(await self.actor.act(view))
        except TimeoutError:
            if not timeout.expired():  # The policy or the corpus raised it.
                episode.stop(StopReason.CANCELLED)
                raise
            episode.stop(StopReason.TIME)
        except PolicyError as error:
            episode.stop(StopReason.POLICY_ERROR, error=str(error))
            return error
        except (CorpusError, EmbedderError, RerankerError) as error:
            episode.stop(StopReason.CORPUS_ERROR, error=str(error))
            return error
        except BaseException:
            episode.stop(StopReason.CANCELLED)
            raise
        return None


class EpisodeRecord:
    """The record of an episode in a file of a folder.

    Attributes:
        path: The file. It is None until the episode begins, and after the file could not be written.
    """

    def __init__(self, folder: Path, on_unrecorded: Callable[[OSError], None] | None) -> None:
        self.path: Path | None = None
        self._folder, self._on_unrecorded = folder, on_unrecorded
        self._writer: TrajectoryWriter | None = None

    def begin(self, header: Header) -> Listener:
        """Begin the file, and return the listener that writes the events of the episode."""
        try:
            self._writer = TrajectoryWriter(self._folder / f"{header.id}.jsonl", header)
            self.path = self._writer.path
        except OSError as error:
            self._fail(error)
        return self._write

    def _write(self, event: Event, view: View) -> None:
        if self._writer is None:
            return
        try:
            self._writer(event, view)
        except OSError as error:
            self._fail(error)

    def discard(self) -> None:
        """Delete the file, as far as the disk allows. Later events are not written."""
        if self._writer is not None:
            self._writer.discard()
        self._writer = self.path = None

    def _fail(self, error: OSError) -> None:
        """End the record. If no function takes the failure, keep what was written, and raise the error."""
        if self._on_unrecorded is None:
            if self._writer is not None:
                self._writer.close()
            self._writer = None
            raise error
        self.discard()
        self._on_unrecorded(error)


class EpisodeStarter(Protocol):
    """An object that begins the episodes of an agent."""

    def begin(self, request: EpisodeRequest) -> EpisodeRun:
        """Return the run of a new episode. Raise the errors of its policy and of `Episode`."""


class EpisodeExtension(Protocol):
    """An object that changes how an agent's episodes begin. A swarm is one."""

    def over(self, factory: EpisodeFactory) -> EpisodeStarter:
        """Return the object that begins the episodes of an agent.

        The `factory` begins the episodes of the agent without the extension.
        """


@dataclass(frozen=True, slots=True)
class EpisodeFactory:
    """The settings that all episodes of an agent share.

    Attributes:
        corpus: The corpus that the episodes search.
        policy: The policy that decides in the episodes.
        profile: The tools and texts of the episodes.
        budget: The size of their context. A request may replace it.
        limits: The limits of an episode.
        renderer: The renderer that writes the blocks of a view.
        executor: The executor that runs the reads of a corpus that waits for disk or network.
        trajectories: The folder for trajectory files. If it is None, none are written.
        observers: Functions that make a listener for every episode.
    """

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
        """Return the run of a new episode. See `EpisodeStarter`."""
        policy = adjusted(self.policy, request)
        actor = policy.open(request.question, self.corpus, profile=self.profile, seed=request.seed or 0)
        record = None if self.trajectories is None else EpisodeRecord(self.trajectories, request.on_unrecorded)
        try:
            episode = Episode(
                request,
                self.corpus,
                profile=self.profile,
                budget=self.budget,
                limits=self.limits,
                renderer=self.renderer,
                instructions=policy.instructions(self.profile),
                executor=self.executor,
                observers=self.observers if record is None else [record.begin, *self.observers],
                partial=actor.partial if isinstance(actor, PartialRanker) else None,
                assess=actor.assess if isinstance(actor, EvidenceAssessor) else None,
                policy=policy.name,
            )
        except BaseException:  # An observer failed after the record had begun its file.
            if record is not None:
                record.discard()
            raise
        return EpisodeRun(episode, actor, record)


def adjusted(policy: Policy, request: EpisodeRequest) -> Policy:
    """Return the policy with the effort of a request, and with as many ranked documents as the request takes."""
    policy = policy if request.effort is None else with_effort(policy, request.effort)
    return policy.with_ranking(request.k) if isinstance(policy, AdjustableRanking) else policy


def begin_all(starter: EpisodeStarter, requests: Iterable[EpisodeRequest]) -> list[EpisodeRun]:
    """Return the runs of new episodes. If one of them cannot begin, end those that have begun."""
    runs: list[EpisodeRun] = []
    try:
        for request in requests:
            runs.append(starter.begin(request))  # noqa: PERF401 (those that have begun are ended after an error)
    except BaseException:
        for run in runs:
            with suppress(Exception):  # of a listener. The first error is raised.
                run.episode.stop(StopReason.CANCELLED)
        raise
    return runs


async def drive_all(runs: Iterable[EpisodeRun], deadline: Deadline | None = None) -> list[ContextAgentError | None]:
    """Run the episodes to their ends, at the same time. Return what `drive` returns for each of them.

    If one of them raises an error, cancel the others, and raise the error when they have ended.
    """
    tasks = [asyncio.create_task(run.drive(deadline)) for run in runs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
