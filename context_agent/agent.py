"""SearchAgent: a corpus and a policy, ready to be asked. Async inside, with a thin synchronous face."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.episode import Limits, Listener
from context_agent.harness.episode_run import (
    Deadline,
    EpisodeExtension,
    EpisodeFactory,
    EpisodeRequest,
    EpisodeRun,
    EpisodeStarter,
    Observer,
)
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile, default
from context_agent.harness.profile import profile as named_profile
from context_agent.harness.ranking import fuse
from context_agent.harness.rendering import Renderer
from context_agent.harness.trajectory import Event, Trajectory
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus, Where
from context_agent.tokens import HarmonyCounter
from context_agent.types import RankedDocument

T = TypeVar("T")
DEFAULT_K = 10
"""Documents returned unless asked otherwise."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one question. With several rollouts `documents` is fused and the counts are sums over them.

    `tokens` counts what was ever placed in the context, pruned or not. `error` tells what went wrong where a policy
    or a corpus failed in the middle; `documents` is then the best ranking that could be defended. `searchers` are the
    trajectories of sub-agents, whose header names its `parent`; the counts are with theirs, `paths` too.
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

    @property
    def critical_steps(self) -> int:
        """Actions that had to wait for each other: of several rollouts those of the longest."""
        return max((trajectory.critical_steps for trajectory in self.trajectories), default=0)

    @property
    def trajectory(self) -> Path | None:
        """Where the (first) trajectory was written; None where none was."""
        return self.paths[0] if self.paths else None

    def to_json(self) -> dict[str, Any]:
        """The result as plain data: the object that `ctx1 search --json` prints."""
        return {
            "id": self.id,
            "question": self.question,
            "documents": [_document(document) for document in self.documents],
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
    ) -> None:
        """`policy` defaults to the embedded `BridgePolicy`; a `budget` given as a number is the window in tokens.

        `trajectories` is a folder that gets one JSONL file a rollout; `observers` are told of every rollout. With a
        `swarm` the policy may start sub-agents, whose episodes are kept and told of alike.
        Raises `ConfigError` for what cannot work.
        """
        if rollouts < 1 or workers < 1:
            raise ConfigError(f"rollouts and workers must be at least 1; got {rollouts} and {workers}")
        self.corpus = corpus
        self.policy = policy if policy is not None else _embedded()
        self.profile = named_profile(profile) if isinstance(profile, str) else profile or default()
        self.budget = Budget(budget) if isinstance(budget, int) else budget or Budget()
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
            limits=self.limits,
            renderer=Renderer(self.profile, self.policy.counter or HarmonyCounter()),
            executor=self._executor,
            trajectories=self.trajectories,
            observers=self.observers,
        )
        self._starter: EpisodeStarter = factory if swarm is None else swarm.over(factory)

    def on(self, corpus: Corpus) -> SearchAgent:
        """An agent like this one on another corpus, sharing the policy; it is closed by itself."""
        return SearchAgent(
            corpus,
            self.policy,
            profile=self.profile,
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
    ) -> SearchResult:
        """The ranked documents for a question; blocks. Works inside a running event loop too (in a thread of its own).

        `seed` takes the place of the agent's own for this question; rollout n samples with seed + n.
        Raises `ConfigError` for an empty question, `BudgetError` for one that the budget cannot hold, and the error
        of a policy or corpus that failed before anything was found.
        """
        return _run(self.asearch(question, k=k, where=where, question_id=question_id, seed=seed))

    async def asearch(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        where: Where | None = None,
        question_id: str | None = None,
        seed: int | None = None,
        deadline: Deadline | None = None,
    ) -> SearchResult:
        """The ranked documents for a question. Rollouts run concurrently and are fused by rank.

        At the `deadline` the result is the best ranking that can be defended, with the stop reason `time`.
        """
        runs = [self._open(question, where, question_id, rollout, seed=seed) for rollout in range(self.rollouts)]
        return _result(runs, await asyncio.gather(*(run.drive(deadline) for run in runs)), k)

    async def stream(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        where: Where | None = None,
        question_id: str | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[Progress | SearchResult, None]:
        """Events as they happen, of all rollouts in the order they come, and the `SearchResult` last.

        Leaving the loop early cancels what still runs. `deadline` is that of `asearch`.
        """
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        runs = [self._open(question, where, question_id, rollout, queue=queue) for rollout in range(self.rollouts)]
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(
        self,
        question: str,
        where: Where | None,
        question_id: str | None,
        rollout: int,
        *,
        queue: asyncio.Queue[Progress | None] | None = None,
        seed: int | None = None,
    ) -> EpisodeRun:
        seed = (self.seed if seed is None else seed) + rollout
        listeners: list[Listener] = []
        if queue is not None:
            listeners.append(lambda event, view: queue.put_nowait(Progress(rollout, event, view)))
        request = EpisodeRequest(question, where, seed, question_id, listeners=listeners)
        return self._starter.begin(request)


def _result(runs: Sequence[EpisodeRun], failures: Sequence[ContextAgentError | None], k: int) -> SearchResult:
    episodes = [run.episode for run in runs]
    every = [*runs, *(sub_run for run in runs for sub_run in run.delegated)]
    rankings = [episode.documents for episode in episodes]
    documents = rankings[0] if len(rankings) == 1 else fuse(rankings)
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
    )


def _embedded() -> Policy:
    from context_agent.policies.bridge import BridgePolicy

    return BridgePolicy()


def _document(document: RankedDocument) -> dict[str, Any]:
    return {
        "id": document.id,
        "title": document.title,
        "score": document.score,
        "chunks": [{"id": chunk.id, "text": chunk.text, "score": chunk.score} for chunk in document.chunks],
    }


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, also where the calling thread already runs an event loop (a notebook)."""
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
