"""Work within limits: concurrent, queued, until the server shuts down; searches with deadlines on a live index.

`LiveIndex` is the agent on the current state of an index: an index that changed is reloaded without losing a request.
An index on a server is opened a second time while the first stays open; running searches finish on the state that they
started with. A folder can be open only once in a process, so its reload waits for running searches, and new searches
wait for the reload.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Protocol, runtime_checkable

from context_agent.agent import Deadline, Progress, SearchAgent, SearchResult
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.policy import Policy, with_effort
from context_agent.integrations.feedback import FeedbackLog
from context_agent.integrations.server.observability import REQUEST_ID, Metrics, log
from context_agent.integrations.server.responses import Problem, ServedAnswer, index_problem, problem_of
from context_agent.pruning.budget import Budget
from context_agent.retrieval.corpus import Corpus, Where, check_where


@runtime_checkable
class ChangingCorpus(Protocol):
    """A corpus on an index that others may write to."""

    def stale(self) -> bool:
        """Return whether it has changed since it was opened."""

    def close(self) -> None:
        """Closes the index."""


@dataclass(slots=True, eq=False)
class _Revision:
    """One state of the index, and the number of searches that use it."""

    agent: SearchAgent
    users: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        self.agent.close()
        if isinstance(self.agent.corpus, ChangingCorpus):
            self.agent.corpus.close()


class LiveIndex:
    """The agent on the current revision. Used from one event loop; opens and closes in threads."""

    def __init__(
        self, agent: SearchAgent, reopen: Callable[[], Corpus] | None = None, *, concurrent: bool = False
    ) -> None:
        """`reopen` opens the current state of the index; None for an index that never changes, which the caller closes.

        `concurrent` if the index may be open twice at a time.
        """
        self._revision: _Revision | None = _Revision(agent)
        self._template = agent
        self._reopen, self._concurrent = reopen, concurrent
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._retired: set[asyncio.Task[None]] = set()
        self.stale = False
        """Whether the index is known to have changed since it was loaded."""
        self.checked = time.time()
        """When the index was last loaded or found unchanged, in seconds since the epoch."""

    @property
    def ready(self) -> bool:
        """Whether there is an index to search."""
        return self._revision is not None or not self._loaded.is_set()

    @property
    def policy(self) -> Policy:
        """The policy that searches every revision."""
        return self._template.policy

    @property
    def budget(self) -> Budget:
        """The budget of every search."""
        return self._template.budget

    @property
    def name(self) -> str:
        """The name of the corpus with the revision that is served; empty without one."""
        return self._revision.agent.corpus.name if self._revision else ""

    @property
    def chunks(self) -> int:
        """Chunks of the revision that is served."""
        return self._revision.agent.corpus.count() if self._revision else 0

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[SearchAgent]:
        """Yield the agent, whose index stays open until the block ends. Raises `Problem` if the index is not
        available.
        """
        await self._loaded.wait()
        revision = self._revision
        if revision is None:
            raise index_problem()
        revision.users += 1
        try:
            yield revision.agent
        finally:
            revision.users -= 1
            if not revision.users:
                revision.unused.set()

    async def follow(self) -> bool | None:
        """Reloads the index if it has changed. True if it was reloaded, None if checking or loading failed."""
        if self._reopen is None:
            return False
        try:
            if not await self._changed():
                return False
            self.stale = True
            await (self._swap(self._reopen) if self._concurrent else self._replace(self._reopen))
        except ContextAgentError as error:
            log("index", logging.ERROR, reason=str(error))
            return None
        self.stale, self.checked = False, time.time()
        log("index", corpus=self.name, chunks=self.chunks)
        return True

    async def close(self) -> None:
        """Closes the revisions that were opened here."""
        if self._retired:
            await asyncio.wait(self._retired, timeout=1.0)
        if self._reopen is not None and self._revision is not None:
            await asyncio.to_thread(self._revision.close)

    async def _changed(self) -> bool:
        if self._revision is None:
            return True
        corpus = self._revision.agent.corpus
        if not isinstance(corpus, ChangingCorpus) or not await asyncio.to_thread(corpus.stale):
            self.checked = time.time()
            return False
        return True

    async def _swap(self, reopen: Callable[[], Corpus]) -> None:
        """Opens the new revision; the old one is closed when its last search ends."""
        fresh = await self._opened(reopen)
        former, self._revision = self._revision, fresh
        if former is not None:
            task = asyncio.create_task(_retire(former))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def _replace(self, reopen: Callable[[], Corpus]) -> None:
        """Closes the old revision, then opens the new one."""
        self._loaded.clear()
        try:
            if self._revision is not None:
                await _retire(self._revision)
                self._revision = None
            self._revision = await self._opened(reopen)
        finally:
            self._loaded.set()

    async def _opened(self, reopen: Callable[[], Corpus]) -> _Revision:
        return _Revision(self._template.on(await asyncio.to_thread(reopen)))


async def _retire(revision: _Revision) -> None:
    revision.unused.clear()
    if revision.users:
        await revision.unused.wait()
    await asyncio.to_thread(revision.close)


FINAL_GRACE = 5.0
"""Seconds for searches to return what they have, after the grace period."""
MAX_REASON = 500
"""Characters of Chroma's message for the client: the message quotes the filter."""


class QueueFull(Exception):
    """The queue has no room for another search."""


class Gate:
    """Lets `slots` searches run and `queue` searches wait, first come, first served. Used from one event loop."""

    def __init__(self, slots: int, queue: int) -> None:
        self.slots, self.queue = slots, queue
        self.running = 0
        self.empty = asyncio.Event()
        """Set while nothing runs; then nothing waits either."""
        self.empty.set()
        self._queued: deque[Ticket] = deque()

    @property
    def waiting(self) -> int:
        """Tickets that wait for a slot."""
        return len(self._queued)

    def enter(self) -> Ticket:
        """Return a ticket, which must be left in any case. Raises `QueueFull`."""
        ticket = Ticket(self)
        if self.running < self.slots:
            self._start(ticket)
        elif self.waiting < self.queue:
            self._queued.append(ticket)
        else:
            raise QueueFull
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Frees the slot of the ticket, or removes it from the queue. Idempotent."""
        if ticket.left:
            return
        ticket.left = True
        if not ticket.turn.is_set():
            self._queued.remove(ticket)
            return
        self.running -= 1
        if self._queued:
            self._start(self._queued.popleft())
        elif not self.running:
            self.empty.set()

    def _start(self, ticket: Ticket) -> None:
        self.running += 1
        self.empty.clear()
        ticket.turn.set()


class Ticket:
    """An entry at the gate; `turn` is set when its search may run."""

    def __init__(self, gate: Gate) -> None:
        self.turn = asyncio.Event()
        self.left = False
        self._gate = gate

    def leave(self) -> None:
        """See `Gate.leave`."""
        self._gate.leave(self)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server. Times are in seconds."""

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    """Allowed names in the Host header. Without one, programs may use any name. Without a token as well, web pages may
    use only addresses and the names of loopback: any other name could be another page's, made to resolve to here."""
    origins: tuple[str, ...] = ()
    """Web pages that may call the server besides its own, such as `https://app.example`."""
    concurrency: int = 8
    queue: int = 128
    deadline: float = 120.0
    """Limit for a search, including the wait in the queue."""
    max_body: int = 1_000_000
    """Bytes of a request's body."""
    max_connections: int = 512
    """Connections open at once; fewer if the process has fewer file descriptors."""
    grace: float = 30.0
    """Time for running searches to finish when the server shuts down."""
    check: float = 10.0
    """Time between checks for a changed index; 0 turns them off."""
    heartbeat: float = 10.0
    """Silence after which a stream sends a heartbeat."""
    model: str = "context-agent"
    """The agent's name as a chat model."""
    title: str = ""
    """What is searched, in words for the page; empty for the corpus's own name."""
    guardrail_budget: int = 8_000
    """Tokens of tool results that LiteLLM's guardrail leaves."""

    def __post_init__(self) -> None:
        if min(self.concurrency, self.max_body, self.max_connections) < 1 or self.queue < 0:
            raise ConfigError("concurrency, max-body and max-connections must be at least 1, and queue at least 0")
        if self.guardrail_budget < 1:
            raise ConfigError(f"the guardrail's budget is {self.guardrail_budget} tokens; it must be at least 1")
        if min(self.deadline, self.heartbeat) <= 0 or min(self.grace, self.check) < 0:
            raise ConfigError("deadline and heartbeat must be positive, grace and check at least 0")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question for the service. `path` is the endpoint, for the metrics."""

    question: str
    k: int
    path: str
    where: Where | None = None
    deadline: float | None = None
    id: str | None = None
    effort: str | None = None


@dataclass(frozen=True, slots=True)
class AdmittedSearch:
    """A search that may wait for its turn; `leave` must be called in any case."""

    request: SearchRequest
    ticket: Ticket
    deadline: Deadline
    arrival: float = field(default_factory=time.perf_counter)

    def leave(self) -> None:
        """Frees the slot or the entry in the queue."""
        self.ticket.leave()


class GatedService:
    """What every server of this package has: settings, metrics, a gate, and an orderly shutdown. One event loop."""

    work = "requests"
    """What passes the gate, for messages."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.gate = Gate(settings.concurrency, settings.queue)
        self.metrics = Metrics()
        self.draining = False
        self._deadlines: set[Deadline] = set()
        self._typical_seconds = 0.5

    def enter(self) -> Ticket:
        """Return a ticket, which must be left in any case. Raises `Problem` for a full queue, and during the
        shutdown.
        """
        if self.draining:
            raise shutting_down()
        try:
            return self.gate.enter()
        except QueueFull:
            running, waiting = self.gate.running, self.gate.waiting
            wait = min(60, max(1, math.ceil(self._typical_seconds * (waiting + 1) / self.gate.slots)))
            message = f"{running} {self.work} are running and {waiting} waiting: try again in {wait} s"
            raise Problem(429, "queue_full", message, headers={"Retry-After": str(wait)}) from None

    async def drain(self) -> None:
        """Refuses new work, and returns when all admitted work is answered. After the grace, cuts searches short."""
        self.draining = True
        log("draining", running=self.gate.running, waiting=self.gate.waiting)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.grace):
                await self.gate.empty.wait()
            return
        for deadline in list(self._deadlines):
            deadline.expire()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINAL_GRACE):
                await self.gate.empty.wait()


class Service(GatedService):
    """Runs searches for a server. Used from one event loop."""

    work = "searches"

    def __init__(self, index: LiveIndex, settings: Settings, feedback: FeedbackLog | None = None) -> None:
        super().__init__(settings)
        self.index, self.feedback = index, feedback
        gauge = self.metrics.gauge
        gauge("ctx1_searches_running", "Searches that are running.", lambda: self.gate.running)
        gauge("ctx1_searches_waiting", "Searches in the queue.", lambda: self.gate.waiting)
        gauge("ctx1_index_stale", "1 while the index is known to have changed.", lambda: float(index.stale))
        gauge("ctx1_index_checked", "When the index was last known to be current.", lambda: index.checked)
        gauge("ctx1_index_chunks", "Chunks of the index that is served.", lambda: index.chunks)
        gauge("ctx1_index", "The index that is served, with its revision.", lambda: index.name, "corpus")

    @classmethod
    def of(cls, agent: SearchAgent, settings: Settings | None = None, index: LiveIndex | None = None) -> Service:
        """Return the service of an agent, by default on an index that never changes. Its trajectories can be judged."""
        feedback = None if agent.trajectories is None else FeedbackLog(agent.trajectories)
        return cls(index or LiveIndex(agent), settings or Settings(), feedback)

    @property
    def ready(self) -> bool:
        """Whether the service accepts questions."""
        return self.index.ready and not self.draining

    def admit(self, request: SearchRequest) -> AdmittedSearch:
        """Admits the search. Raises `Problem` for a bad filter or effort, a full queue, and during the shutdown."""
        check_filter(request.where)
        check_effort(self.index.policy, request.effort)
        ticket = self.enter()
        deadline = Deadline(min(request.deadline or math.inf, self.settings.deadline))
        return AdmittedSearch(request, ticket, deadline)

    async def answer(self, search: AdmittedSearch) -> ServedAnswer:
        """Return the answer. Raises `Problem`. Cancelling it ends the search and frees its slot."""
        request = search.request
        async with self._running(search) as agent:
            queued_seconds = time.perf_counter() - search.arrival
            result = await agent.asearch(
                request.question,
                k=request.k,
                where=request.where,
                question_id=request.id,
                deadline=search.deadline,
                effort=request.effort,
            )
        return await self._answered(search, result, queued_seconds)

    async def stream(self, search: AdmittedSearch) -> AsyncGenerator[Progress | ServedAnswer]:
        """Yield the progress as it happens, and then the answer. Raises `Problem`."""
        request, result = search.request, None
        async with self._running(search) as agent:
            queued_seconds = time.perf_counter() - search.arrival
            stream = agent.stream(
                request.question,
                k=request.k,
                where=request.where,
                question_id=request.id,
                deadline=search.deadline,
                effort=request.effort,
            )
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, SearchResult):
                        result = item
                    else:
                        yield item
        assert result is not None
        yield await self._answered(search, result, queued_seconds)

    @asynccontextmanager
    async def step(self, path: str, where: Where | None = None) -> AsyncIterator[Corpus]:
        """Yield the corpus for a single step, which takes a slot as a search does. Raises `Problem` as `admit`."""
        search = self.admit(SearchRequest("", 1, path, where))
        try:
            await self._wait_for_turn(search)
            async with self.index.agent() as agent:
                yield agent.corpus
        finally:
            search.leave()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Reloads a changed index while the block runs, and closes the index at its end."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.index.close()

    async def _follow(self) -> None:
        while self.settings.check:
            await asyncio.sleep(self.settings.check)
            is_reloaded = await self.index.follow()
            if is_reloaded is not False:
                self.metrics.reloads.add("failed" if is_reloaded is None else "done")

    @asynccontextmanager
    async def _running(self, search: AdmittedSearch) -> AsyncIterator[SearchAgent]:
        """Yield the agent, when it is the search's turn. Raises failures of the block as `Problem`."""
        self._deadlines.add(search.deadline)
        try:
            await self._wait_for_turn(search)
            async with self.index.agent() as agent:
                yield agent
        except Exception as error:
            problem = problem_of(error, search.request.where)
            if problem is None:
                raise
            if not isinstance(error, Problem):
                log("failed", logging.WARNING, code=problem.code, reason=str(error))
            raise problem from error
        finally:
            self._deadlines.discard(search.deadline)
            search.leave()

    async def _wait_for_turn(self, search: AdmittedSearch) -> None:
        try:
            async with search.deadline.within(None):
                await search.ticket.turn.wait()
        except TimeoutError:
            if self.draining:
                raise shutting_down() from None
            message = "the deadline passed while the search was waiting in the queue"
            raise Problem(503, "queue_timeout", message, headers={"Retry-After": "1"}) from None
        finally:
            self.metrics.queue_seconds.add(search.request.path, time.perf_counter() - search.arrival)

    async def _answered(self, search: AdmittedSearch, result: SearchResult, queued_seconds: float) -> ServedAnswer:
        seconds = time.perf_counter() - search.arrival
        self._typical_seconds += 0.1 * (seconds - queued_seconds - self._typical_seconds)
        self.metrics.searches.add(result.stop_reason)
        self.metrics.turns.add(by=result.turns)
        self.metrics.tokens.add(by=result.tokens)
        answer = ServedAnswer(REQUEST_ID.get() or "", result, seconds, queued_seconds)
        if result.error is not None:
            log("failed", logging.WARNING, code=result.stop_reason, reason=result.error)
        if self.feedback is not None and result.paths:
            await asyncio.to_thread(
                self.feedback.record_request, answer.request_id, [path.stem for path in result.paths]
            )
        return answer


def shutting_down() -> Problem:
    """Return the error while the server drains."""
    message = "the server is shutting down: use another server, or try again later"
    return Problem(503, "shutting_down", message, headers={"Connection": "close", "Retry-After": "1"})


def check_effort(policy: Policy, effort: str | None) -> None:
    """Raises `Problem` for an effort that the policy does not have."""
    if effort is None:
        return
    try:
        with_effort(policy, effort)
    except ConfigError as error:
        raise Problem(422, "invalid_request", str(error), "effort") from None


def check_filter(where: Where | None) -> None:
    """Raises `Problem` for a filter beyond the limits of `check_where`, or one that Chroma refuses."""
    if where is None:
        return
    from chromadb.api.types import validate_where

    try:
        check_where(where)
        validate_where(where)
    except ConfigError as error:
        raise Problem(400, "invalid_filter", str(error), "where") from None
    except ValueError as error:
        reason = shorten(str(error), MAX_REASON, placeholder=" ...")
        raise Problem(400, "invalid_filter", f"Chroma refuses the metadata filter: {reason}", "where") from None
