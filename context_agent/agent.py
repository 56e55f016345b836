"""SearchAgent: answers questions with a corpus and a policy. Async inside, with a thin synchronous face.

`EpisodeFactory` begins the episodes of an agent, and `EpisodeRun` drives each to its end, whatever ends it: the policy,
a deadline, a failing policy or corpus, or the caller. Sub-agents of a swarm run their episodes in the same way.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, Self, TypeVar

from context_agent.errors import ConfigError, ContextAgentError, CorpusError, PolicyError
from context_agent.harness.episode import Episode, Limits, Listener, StopReason
from context_agent.harness.policy import Actor, AdjustableRanking, EvidenceAssessor, PartialRanker, Policy, with_effort
from context_agent.harness.profile import Profile, Renderer, default
from context_agent.harness.profile import profile as named_profile
from context_agent.harness.tools.tool import SubAgents
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.harness.trajectory_file import TrajectoryWriter
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import Event, View
from context_agent.retrieval.corpus import Corpus, LimitedCorpus, check_count, check_question
from context_agent.retrieval.filters import Where
from context_agent.retrieval.fusion import reciprocal_rank_fusion
from context_agent.tokens import HarmonyCounter
from context_agent.types import RankedDocument

T = TypeVar("T")
DEFAULT_K = 10
"""Documents returned by default."""
SUFFICIENT = 0.5
"""Least confidence at which the evidence suffices: an answer is then more likely than none."""

Observer = Callable[[Header], Listener]
"""Makes the listener of an episode that begins. The listener runs in the episode's own task, in its context."""


class Deadline:
    """When searches end with what they have, in addition to their agent's own limit. Counts from its creation.

    Several searches may share it. While they run, `expire` ends them, called in the event loop that runs them.
    """

    def __init__(self, seconds: float | None = None) -> None:
        """`seconds` from now; None: only when `expire` is called."""
        self._clock = asyncio.get_running_loop().time
        self._ends = math.inf if seconds is None else self._clock() + seconds
        self._running: set[asyncio.Timeout] = set()

    @property
    def left(self) -> float:
        """Seconds until the deadline, never negative; infinite if it has no time."""
        return max(0.0, self._ends - self._clock())

    def expire(self) -> None:
        """Ends running searches now, and later ones before their first turn."""
        self._ends = min(self._ends, self._clock())
        for timeout in self._running:
            if not timeout.expired():
                timeout.reschedule(self._ends)

    @asynccontextmanager
    async def within(self, limit: float | None) -> AsyncIterator[None]:
        """Raises `TimeoutError` in its block at the deadline, or after `limit` seconds if that comes first."""
        ends = min(self._ends, math.inf if limit is None else self._clock() + limit)
        async with asyncio.timeout_at(ends if math.isfinite(ends) else None) as timeout:
            self._running.add(timeout)
            try:
                yield
            finally:
                self._running.discard(timeout)


@dataclass(frozen=True, slots=True)
class EpisodeRun:
    """An episode with its actor; `path` is the file of its trajectory, None if it is not written.

    `delegated` are the runs of those of its sub-agents that have begun.
    """

    episode: Episode
    actor: Actor
    path: Path | None = None
    delegated: Sequence[EpisodeRun] = ()

    async def drive(self, deadline: Deadline | None = None) -> ContextAgentError | None:
        """Runs the episode to its end; returns the error of a policy or corpus that failed on the way.

        The episode's own limit on seconds applies in addition to the `deadline`.
        """
        episode = self.episode
        try:
            seconds = episode.limits.seconds
            async with asyncio.timeout(seconds) if deadline is None else deadline.within(seconds):
                view = episode.open()
                while episode.stop_reason is None:
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
    """What differs from one episode of an agent to the next; see `Episode` for the fields.

    `effort` and `budget` replace the policy's and the agent's; None keeps them. `k` is how many documents the caller
    takes: a policy that ranks fewer by itself may rank so many.
    """

    question: str
    where: Where | None = None
    seed: int = 0
    question_id: str | None = None
    id: str | None = None
    parent: str | None = None
    sub_agents: SubAgents | None = None
    excluded_ids: AbstractSet[str] = frozenset()
    listeners: Sequence[Listener] = ()
    effort: str | None = None
    budget: Budget | None = None
    k: int = DEFAULT_K


class EpisodeStarter(Protocol):
    """Begins the episodes of an agent."""

    def begin(self, request: EpisodeRequest) -> EpisodeRun:
        """Return an episode ready to be driven. Raises what its policy raises, and what `Episode` does."""


class EpisodeExtension(Protocol):
    """Changes how an agent's episodes begin, as a swarm does."""

    def over(self, factory: EpisodeFactory) -> EpisodeStarter:
        """Return what begins the episodes of an agent; `factory` makes those of the agent without the extension."""


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
        policy = self.policy if request.effort is None else with_effort(self.policy, request.effort)
        if isinstance(policy, AdjustableRanking):
            policy = policy.with_ranking(request.k)
        actor = policy.open(request.question, self.corpus, profile=self.profile, seed=request.seed)
        listeners: list[Listener] = []
        episode = Episode(
            request.question,
            self.corpus,
            profile=self.profile,
            budget=request.budget or self.budget,
            limits=self.limits,
            renderer=self.renderer,
            instructions=policy.instructions(self.profile),
            where=request.where,
            executor=self.executor,
            listeners=listeners,
            partial=actor.partial if isinstance(actor, PartialRanker) else None,
            assess=actor.assess if isinstance(actor, EvidenceAssessor) else None,
            sub_agents=request.sub_agents,
            excluded_ids=request.excluded_ids,
            policy=policy.name,
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


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one question. With several rollouts `documents` is fused and the counts are sums over them.

    `tokens` counts what was ever placed in the context, pruned or not. `error` says what went wrong if a policy or a
    corpus failed during the search; `documents` is then the best ranking that the view supports. `searchers` are the
    trajectories of sub-agents, whose header names its `parent`; the counts and `paths` include them.

    `confidence` is the probability that the corpus answers the question, as far as the evidence shows; None if the
    policy gives none. With it, the score of a document or passage is the probability that it belongs to the evidence.
    Without it, scores only order the documents. A document has the score of its best passage.
    """

    question: str
    documents: tuple[RankedDocument, ...]
    stop_reason: str
    turns: int
    tokens: int
    trajectories: tuple[Trajectory, ...] = field(repr=False)
    paths: tuple[Path, ...] = ()
    """Where trajectories were written, the rollouts' before those of their sub-agents."""
    error: str | None = None
    id: str | None = None
    searchers: tuple[Trajectory, ...] = field(default=(), repr=False)
    confidence: float | None = None

    @property
    def sufficient(self) -> bool | None:
        """Whether the evidence suffices: `confidence` is at least `SUFFICIENT`. If not, `documents` are the nearest.

        False without documents, else None without a confidence.
        """
        if not self.documents:
            return False
        return None if self.confidence is None else self.confidence >= SUFFICIENT

    @property
    def critical_steps(self) -> int:
        """Actions that had to wait for each other: of several rollouts those of the longest."""
        return max((trajectory.critical_steps for trajectory in self.trajectories), default=0)

    @property
    def trajectory(self) -> Path | None:
        """The file of the first trajectory; None if none was written."""
        return self.paths[0] if self.paths else None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data: the object that `ctx1 search --json` prints."""
        return {
            "id": self.id,
            "question": self.question,
            "documents": [_document(document) for document in self.documents],
            "sufficient": self.sufficient,
            "confidence": self.confidence,
            "stop_reason": self.stop_reason,
            "turns": self.turns,
            "tokens": self.tokens,
            "critical_steps": self.critical_steps,
            "trajectory": None if self.trajectory is None else str(self.trajectory),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """An event of a running search, and the view after it. `rollout` counts from 0."""

    rollout: int
    event: Event
    view: View


class SearchAgent:
    """Answers questions with ranked documents. Safe to share between threads and tasks; close it or use `with`."""

    def __init__(
        self,
        corpus: Corpus,
        policy: Policy | None = None,
        *,
        profile: Profile | str | None = None,
        budget: Budget | int | None = None,
        limits: Limits | None = None,
        rollouts: int = 1,
        workers: int = 8,
        seed: int = 0,
        trajectories: str | Path | None = None,
        observers: Sequence[Observer] = (),
        swarm: EpisodeExtension | None = None,
        effort: str | None = None,
    ) -> None:
        """`policy` defaults to the embedded `BridgePolicy`; a `budget` given as a number is the window in tokens.

        `effort` is that policy's: `careful` (the default) reads the best passages, `fast` ranks without reading.

        `trajectories` is a folder that gets one JSONL file per rollout; `observers` receive the events of each rollout.
        With a `swarm` the policy may start sub-agents, whose episodes are written and observed as well.
        Raises `ConfigError` for settings that cannot work.
        """
        if rollouts < 1 or workers < 1:
            raise ConfigError(f"rollouts and workers must be at least 1; got {rollouts} and {workers}")
        self.corpus = corpus
        if policy is not None and effort is not None:
            raise ConfigError("effort belongs to the embedded policy: give it to BridgePolicy, or leave out the policy")
        self.policy = policy if policy is not None else _embedded(effort)
        self._whole_profile = named_profile(profile) if isinstance(profile, str) else profile or default()
        unsupported = corpus.unsupported_tools if isinstance(corpus, LimitedCorpus) else frozenset()
        self.profile = self._whole_profile.without(unsupported)
        self.budget = budget if isinstance(budget, Budget) else self.profile.budget(budget)
        self.limits = limits or Limits()
        self.rollouts = rollouts
        self.seed = seed
        self.trajectories = None if trajectories is None else Path(trajectories)
        self.observers = tuple(observers)
        self.workers = workers
        self.swarm = swarm
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="ctx1") if corpus.blocking else None
        factory = EpisodeFactory(
            corpus,
            self.policy,
            profile=self.profile,
            budget=self.budget,
            limits=self.limits if self.limits.turns else replace(self.limits, turns=self.profile.turns),
            renderer=Renderer(self.profile, self.policy.counter or HarmonyCounter()),
            executor=self._executor,
            trajectories=self.trajectories,
            observers=self.observers,
        )
        self._starter: EpisodeStarter = factory if swarm is None else swarm.over(factory)

    def on(self, corpus: Corpus) -> SearchAgent:
        """Return an agent like this one on another corpus, sharing the policy; it is closed by itself."""
        return SearchAgent(
            corpus,
            self.policy,
            profile=self._whole_profile,
            budget=self.budget,
            limits=self.limits,
            rollouts=self.rollouts,
            workers=self.workers,
            seed=self.seed,
            trajectories=self.trajectories,
            observers=self.observers,
            swarm=self.swarm,
        )

    def search(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        where: Where | None = None,
        question_id: str | None = None,
        seed: int | None = None,
        effort: str | None = None,
        budget: Budget | int | None = None,
    ) -> SearchResult:
        """Return the ranked documents for a question.

        The call blocks. Inside a running event loop it works in a thread of its own.

        Args:
            question: What to search for.
            k: The number of documents to return. There are fewer if fewer were seen and kept.
            where: A filter on metadata.
            question_id: An id that the trajectory stores.
            seed: Replaces the agent's seed. Rollout n samples with seed + n.
            effort: Replaces the policy's effort.
            budget: Replaces the agent's budget.

        Returns:
            The documents, best first, with the confidence and the trajectories.

        Raises:
            ConfigError: The question is empty or not text, `k` is not a whole number of at least 1, the effort is not
                known, or the budget is too small.
            BudgetError: The budget cannot hold the question.
            ContextAgentError: The policy or the corpus failed before anything was found.
        """
        return _run(
            self.asearch(question, k=k, where=where, question_id=question_id, seed=seed, effort=effort, budget=budget)
        )

    async def asearch(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        where: Where | None = None,
        question_id: str | None = None,
        seed: int | None = None,
        deadline: Deadline | None = None,
        effort: str | None = None,
        budget: Budget | int | None = None,
    ) -> SearchResult:
        """Return the ranked documents for a question. Rollouts run concurrently and are fused by rank.

        `seed`, `effort` and `budget` replace the agent's own for this question. At the `deadline` the result is the
        best ranking that the view supports, with the stop reason `time`.
        """
        check_question(question)
        check_count(k)
        first_seed = self.seed if seed is None else seed
        own = self.profile.budget(budget) if isinstance(budget, int) else budget
        requests = [
            EpisodeRequest(question, where, first_seed + n, question_id, effort=effort, budget=own, k=k)
            for n in range(self.rollouts)
        ]
        runs = [self._starter.begin(request) for request in requests]
        return _result(runs, await asyncio.gather(*(run.drive(deadline) for run in runs)), k)

    async def stream(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        where: Where | None = None,
        question_id: str | None = None,
        deadline: Deadline | None = None,
        effort: str | None = None,
    ) -> AsyncGenerator[Progress | SearchResult, None]:
        """Events as they happen, of all rollouts in the order they come, and the `SearchResult` last.

        Leaving the loop early cancels what still runs. `deadline` and `effort` are those of `asearch`.
        """
        check_question(question)
        check_count(k)
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        requests = [
            EpisodeRequest(
                question,
                where,
                self.seed + n,
                question_id,
                listeners=[_progress_listener(queue, n)],
                effort=effort,
                k=k,
            )
            for n in range(self.rollouts)
        ]
        runs = [self._starter.begin(request) for request in requests]
        driven = asyncio.gather(*(run.drive(deadline) for run in runs))
        driven.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield progress
            yield _result(runs, await driven, k)
        finally:
            driven.cancel()
            await asyncio.gather(driven, return_exceptions=True)

    def close(self) -> None:
        """Ends the worker threads. The corpus stays open: it belongs to the caller."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _progress_listener(queue: asyncio.Queue[Progress | None], rollout: int) -> Listener:
    return lambda event, view: queue.put_nowait(Progress(rollout, event, view))


def _result(runs: Sequence[EpisodeRun], failures: Sequence[ContextAgentError | None], k: int) -> SearchResult:
    episodes = [run.episode for run in runs]
    every = [*runs, *(sub_run for run in runs for sub_run in run.delegated)]
    confidences = [episode.confidence for episode in episodes if episode.confidence is not None]
    confidence = fmean(confidences) if confidences else None
    rankings = [episode.ranking.documents for episode in episodes]
    merge = pool if len(confidences) == len(rankings) else fuse
    documents = rankings[0] if len(rankings) == 1 else merge(rankings)
    failed = next((error for error in failures if error is not None), None)
    if failed is not None and not documents:
        raise failed
    return SearchResult(
        question=episodes[0].header.question,
        documents=documents[:k],
        stop_reason=str(episodes[0].stop_reason),
        turns=sum(run.episode.view.turn for run in every),
        tokens=sum(run.episode.spent for run in every),
        trajectories=tuple(episode.trajectory for episode in episodes),
        paths=tuple(run.path for run in every if run.path is not None),
        error=None if failed is None else str(failed),
        id=episodes[0].header.question_id,
        searchers=tuple(run.episode.trajectory for run in every[len(runs) :]),
        confidence=confidence,
    )


def fuse(rankings: Sequence[Sequence[RankedDocument]]) -> tuple[RankedDocument, ...]:
    """Several rankings fused by reciprocal rank, ties by id; a document has the passages of all rankings."""
    merged = _merged(rankings)
    fused = reciprocal_rank_fusion([[document.id for document in ranking] for ranking in rankings])
    return tuple(_with_score(merged[document_id], score) for document_id, score in fused)


def pool(rankings: Sequence[Sequence[RankedDocument]]) -> tuple[RankedDocument, ...]:
    """Several rankings whose scores are probabilities, ranked by their mean, ties by id.

    A passage has the probability 0 in a ranking that lacks it, and a document has that of its best passage.
    """
    means: defaultdict[str, float] = defaultdict(float)
    for document in chain.from_iterable(rankings):
        for chunk in document.chunks:
            means[chunk.id] += chunk.score / len(rankings)
    pooled = []
    for document in _merged(rankings).values():
        chunks = sorted((replace(chunk, score=means[chunk.id]) for chunk in document.chunks), key=lambda c: -c.score)
        pooled.append(replace(document, score=chunks[0].score, chunks=tuple(chunks)))
    return tuple(sorted(pooled, key=lambda document: (-document.score, document.id)))


def _merged(rankings: Sequence[Sequence[RankedDocument]]) -> dict[str, RankedDocument]:
    """Return the documents by id, each with the passages of all rankings."""
    merged: dict[str, RankedDocument] = {}
    for document in chain.from_iterable(rankings):
        first_ranked = merged.get(document.id)
        merged[document.id] = document if first_ranked is None else _with_passages(first_ranked, document)
    return merged


def _with_score(document: RankedDocument, score: float) -> RankedDocument:
    return replace(document, score=score, chunks=tuple(replace(chunk, score=score) for chunk in document.chunks))


def _with_passages(first_ranked: RankedDocument, later_ranked: RankedDocument) -> RankedDocument:
    chunk_ids = {chunk.id for chunk in first_ranked.chunks}
    added = tuple(chunk for chunk in later_ranked.chunks if chunk.id not in chunk_ids)
    return replace(
        first_ranked,
        chunks=first_ranked.chunks + added,
        justification=first_ranked.justification or later_ranked.justification,
    )


def _embedded(effort: str | None) -> Policy:
    from context_agent.policies.bridge import BridgePolicy

    return BridgePolicy(effort=effort)


def _document(document: RankedDocument) -> dict[str, Any]:
    return {
        "id": document.id,
        "title": document.title,
        "score": document.score,
        "chunks": [{"id": chunk.id, "text": chunk.text, "score": chunk.score} for chunk in document.chunks],
    }


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, even if the calling thread already runs an event loop (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[T] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - handed to the calling thread, whatever it is
            failure.append(error)

    # What the caller's context holds (a trace, a request's id) holds in the thread as well.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(target,), name="ctx1-search")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
