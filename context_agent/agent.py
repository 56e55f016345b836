"""`SearchAgent` answers questions with a corpus and a policy.

It is asynchronous, and has synchronous methods as well.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Self, TypedDict, TypeVar, Unpack

from context_agent._support.arguments import (
    folder_path,
    items_of,
    require_callable,
    require_members,
    require_type,
    whole_number,
)
from context_agent._support.event_loops import context_blocking, running_loop
from context_agent._support.thread_pool import ThreadPool
from context_agent.budget import Budget
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.deadline import Deadline
from context_agent.harness.episode import EpisodeRequest, Limits, Listener, Observer, StopReason
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile, default, named_profile
from context_agent.harness.ranking import fuse, pool
from context_agent.harness.rendering import Renderer
from context_agent.harness.runs import (
    EpisodeExtension,
    EpisodeFactory,
    EpisodeRun,
    EpisodeStarter,
    begin_all,
    drive_all,
)
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import Event, View
from context_agent.retrieval.corpus import Corpus, LimitedCorpus, check_question
from context_agent.retrieval.filters import Where
from context_agent.tokens import HarmonyCounter
from context_agent.types import RankedDocument

T = TypeVar("T")
MAX_ROLLOUTS = 1_000
"""The largest number of episodes for one question. They run at the same time."""
MIN_CONFIDENCE = 1 / 3
"""Confidence from which the evidence suffices.

`confidence` is calibrated on as many questions without an answer as with one. People ask at least twice as many
questions that have an answer. By Bayes' rule an answer is then more likely than none from 1/3 on.
"""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one question.

    If the policy gives a confidence, the score of a document or passage is the probability that it belongs to the
    evidence. Without a confidence, scores only order the documents. A document has the score of its best passage.

    Attributes:
        question: The question.
        documents: The documents, best first. The rankings of several rollouts are fused.
        stop_reason: The reason for the end of the episode, a value of `StopReason`.
        turns: The number of turns of all rollouts and sub-agents.
        tokens: The number of tokens that all rollouts and sub-agents placed in a context, pruned or not.
        trajectories: The record of each rollout.
        paths: The files of the trajectories. Rollouts come before their sub-agents.
        error: The error, if the policy or the corpus failed during the search. `documents` is then the best
            ranking that the view supports.
        id: The id of the question.
        searchers: The trajectories of sub-agents. Their headers name the `parent`.
        confidence: The probability that the corpus answers the question, judged by the evidence. None if the policy
            gives none.
    """

    question: str
    documents: tuple[RankedDocument, ...]
    stop_reason: str
    turns: int
    tokens: int
    trajectories: tuple[Trajectory, ...] = field(repr=False)
    paths: tuple[Path, ...] = ()
    error: str | None = None
    id: str | None = None
    searchers: tuple[Trajectory, ...] = field(default=(), repr=False)
    confidence: float | None = None

    @property
    def sufficient(self) -> bool | None:
        """True if `confidence` is at least `MIN_CONFIDENCE`. If it is False, `documents` are the nearest ones.

        It is False if there are no documents. It is None if there are documents but no confidence, and if nothing was
        searched.
        """
        if not self.documents:
            return False if self.searched else None
        return None if self.confidence is None else self.confidence >= MIN_CONFIDENCE

    @property
    def searched(self) -> bool:
        """False if the time limit ended the search before its first turn, so that nobody knows what the corpus has."""
        return self.stop_reason != StopReason.TIME or self.turns > 0 or bool(self.documents)

    @property
    def critical_steps(self) -> int:
        """The number of actions that had to wait for each other.

        If there are several rollouts, it is the largest number of them.
        """
        return max((trajectory.critical_steps for trajectory in self.trajectories), default=0)

    @property
    def trajectory(self) -> Path | None:
        """The file of the first trajectory. If no trajectory was written, None."""
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
    """An event of a running search.

    Attributes:
        rollout: The number of the rollout, from 0.
        event: The event.
        view: The view after the event.
    """

    rollout: int
    event: Event
    view: View


class SearchOptions(TypedDict, total=False):
    """Options of a search. Each has a default.

    Attributes:
        k: The number of documents to return, 10 by default. There are fewer if fewer were seen and kept.
        where: A filter on metadata, such as `{"year": {"$gte": 2020}}`.
        question_id: An id that the trajectory stores.
        seed: A seed that replaces the agent's seed. Rollout n samples with seed + n.
        effort: An effort that replaces the policy's effort, such as `fast`.
        budget: A budget that replaces the agent's budget. A number is the window in tokens.
    """

    k: int
    where: Where | None
    question_id: str | None
    seed: int | None
    effort: str | None
    budget: Budget | int | None


class SearchAgent:
    """An agent that answers questions with ranked documents.

    An agent may be shared between threads and tasks. Close it, or use it in a `with` statement.

    Args:
        corpus: The corpus to search.
        policy: The policy that decides what to search for and what to keep. Defaults to the embedded `BridgePolicy`.
        profile: The tools and texts of an episode, or the name of a profile.
        budget: The size of the context. A number is the window in tokens.
        limits: The limits of an episode.
        rollouts: The number of episodes that answer a question. Their rankings are fused.
        workers: The number of threads for a corpus that waits for disk or network.
        seed: The seed of the first rollout.
        trajectories: A folder that gets one JSONL file for each rollout.
        observers: Each makes a listener for every episode, which gets its events.
        swarm: The swarm, which lets the policy start sub-agents. Their episodes are written and observed as well.
        effort: The effort of the embedded policy: `careful` (the default) reads the best passages, `fast` does not.

    Raises:
        ConfigError: If settings cannot work, or `effort` is given together with a policy.

    Example:
        >>> from context_agent import Document, MemoryCorpus
        >>> corpus = MemoryCorpus([Document("light", "Orm Skerry Light was lit in 1868.")])
        >>> with SearchAgent(corpus, effort="fast") as agent:
        ...     result = agent.search("When was Orm Skerry Light lit?")
        >>> [document.id for document in result.documents]
        ['light']
    """

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
        rollouts, workers = whole_number(rollouts, "rollouts", least=1), whole_number(workers, "workers", least=1)
        if rollouts > MAX_ROLLOUTS:
            raise ConfigError(f"`rollouts` must be at most {MAX_ROLLOUTS:,}; got {rollouts}")
        require_members(corpus, "corpus", ("search", "blocking"), "a corpus, such as MemoryCorpus(documents)")
        if policy is not None:
            require_members(policy, "policy", ("instructions", "open", "counter"), "a policy, such as BridgePolicy()")
        require_type(profile, "profile", (Profile, str, type(None)), "a Profile or the name of one")
        require_type(limits, "limits", (Limits, type(None)), "Limits, such as Limits(turns=8)")
        self.observers = tuple(items_of(observers, "observers", "a list of functions"))
        for observer in self.observers:
            require_callable(observer, "observers")
        if swarm is not None:
            require_members(swarm, "swarm", ("over",), "a swarm, such as Swarm(breadth=4)")
        self.corpus = corpus
        if policy is not None and effort is not None:
            raise ConfigError(
                "effort and policy cannot be combined, because effort chooses the embedded policy. Pass "
                f"policy=BridgePolicy(effort={effort!r}), or leave out one of the two."
            )
        self.policy = policy if policy is not None else _embedded(effort)
        self._whole_profile = named_profile(profile) if isinstance(profile, str) else profile or default()
        unsupported = corpus.unsupported_tools if isinstance(corpus, LimitedCorpus) else frozenset()
        self.profile = self._whole_profile.without(unsupported)
        self.budget = self.profile.budget(budget)
        self.limits = limits or Limits()
        self.rollouts = rollouts
        self.seed = whole_number(seed, "seed")
        self.trajectories = None if trajectories is None else folder_path(trajectories, "trajectories")
        if self.trajectories is not None:
            folder = next(path for path in (self.trajectories, *self.trajectories.absolute().parents) if path.exists())
            if not folder.is_dir():
                raise ConfigError(f"`trajectories` must be a folder; {folder} is a file. Pass another path.")
        self.workers = workers
        self.swarm = swarm
        self._closed = False
        self._executor = ThreadPool(workers, name="ctx1") if corpus.blocking else None
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
        """Return a copy of this agent that searches another corpus.

        Both agents share the policy. Close each agent separately.

        Args:
            corpus: The corpus that the copy searches.
        """
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

    def search(self, question: str, **options: Unpack[SearchOptions]) -> SearchResult:
        """Return the ranked documents for a question.

        The call blocks. Inside a running event loop it works in a thread of its own.

        Args:
            question: What to search for.
            **options: `k`, `where`, `question_id`, `seed`, `effort` and `budget`: see `SearchOptions`.

        Returns:
            The documents, best first, with the confidence and the trajectories.

        Raises:
            ConfigError: If the question is empty or not text, if an option has an invalid value, or if the agent is
                closed.
            BudgetError: If the budget cannot hold the question.
            ContextAgentError: If the policy or the corpus failed before anything was found.
        """
        return _run(self.asearch(question, **options))

    async def asearch(
        self,
        question: str,
        *,
        deadline: Deadline | None = None,
        on_unrecorded: Callable[[OSError], None] | None = None,
        **options: Unpack[SearchOptions],
    ) -> SearchResult:
        """Return the ranked documents for a question. Rollouts run at the same time.

        Args:
            question: What to search for.
            deadline: The deadline at which the search ends early. The result is then the best ranking that the view
                supports, with the stop reason `time`.
            on_unrecorded: A function that is called if a trajectory cannot be written, for example because the disk is
                full. The search then continues without a record. By default, it fails.
            **options: See `SearchOptions`.

        Returns:
            The documents, best first, with the confidence and the trajectories.

        Raises:
            ContextAgentError: As `search` does.
        """
        requests = [replace(request, on_unrecorded=on_unrecorded) for request in self._requests(question, options)]
        runs = begin_all(self._starter, requests)
        return _result(runs, await drive_all(runs, deadline), requests[0].k)

    async def stream(
        self,
        question: str,
        *,
        deadline: Deadline | None = None,
        on_unrecorded: Callable[[OSError], None] | None = None,
        **options: Unpack[SearchOptions],
    ) -> AsyncGenerator[Progress | SearchResult, None]:
        """Yield the events of all rollouts as they happen, and the `SearchResult` last.

        If you leave the loop early, the rollouts that are still running are canceled.

        Args:
            question: What to search for.
            deadline: The deadline at which the search ends early, as in `asearch`.
            on_unrecorded: As in `asearch`.
            **options: See `SearchOptions`.

        Yields:
            A `Progress` for each event, and the result at the end.

        Raises:
            ContextAgentError: As `search` does.
        """
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        requests = [
            replace(request, listeners=[_progress_listener(queue, rollout)], on_unrecorded=on_unrecorded)
            for rollout, request in enumerate(self._requests(question, options))
        ]
        runs = begin_all(self._starter, requests)
        driven = asyncio.create_task(drive_all(runs, deadline))
        driven.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield progress
            yield _result(runs, await driven, requests[0].k)
        finally:
            driven.cancel()
            await asyncio.gather(driven, return_exceptions=True)

    def _requests(self, question: str, options: SearchOptions) -> list[EpisodeRequest]:
        """Return the request of each rollout."""
        if unknown := options.keys() - SearchOptions.__annotations__.keys():
            names = ", ".join(SearchOptions.__annotations__)
            raise TypeError(f"a search has no option {min(unknown)!r}. Its options are {names}.")
        if running_loop() is None:
            raise ConfigError(
                "`asearch` and `stream` need the event loop of asyncio, and none is running. With trio, call `search` "
                "in a thread."
            )
        if self._closed:
            raise ConfigError("the agent is closed. Make a new SearchAgent, or search before the `with` block ends.")
        request = EpisodeRequest(question, **options)
        check_question(question)
        k = whole_number(request.k, "k", least=1)
        seed = self.seed if request.seed is None else whole_number(request.seed, "seed")
        return [replace(request, k=k, seed=seed + rollout) for rollout in range(self.rollouts)]

    def close(self) -> None:
        """End the worker threads. The corpus belongs to the caller and stays open."""
        self._closed = True
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
    """Run a coroutine to its end. The calling thread may already run an event loop, as in a notebook."""
    blocked = running_loop()
    if blocked is None:
        return asyncio.run(work)
    outcome: list[T] = []
    failure: list[BaseException] = []
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []

    async def cancellable() -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        begun.append((loop, task))
        return await task

    def target() -> None:
        try:
            outcome.append(asyncio.run(cancellable()))
        except BaseException as error:  # noqa: BLE001 - handed to the calling thread, whatever it is
            failure.append(error)

    # The thread gets the caller's context, such as a trace or the id of a request.
    thread = threading.Thread(target=context_blocking(blocked).run, args=(target,), name="ctx1-search")
    thread.start()
    try:
        thread.join()
    except BaseException:  # KeyboardInterrupt, which reaches only the calling thread
        for loop, task in begun:
            with suppress(RuntimeError):  # The loop has ended meanwhile.
                loop.call_soon_threadsafe(task.cancel)
        raise
    if failure:
        raise failure[0]
    return outcome[0]
