"""Searches within limits: so many at once, so many waiting, each with a deadline, until the server is told to end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from textwrap import shorten

from context_agent.agent import Deadline, Progress, SearchAgent, SearchResult
from context_agent.errors import ConfigError
from context_agent.integrations.feedback import FeedbackLog
from context_agent.integrations.server.live_index import Served
from context_agent.integrations.server.observability import REQUEST_ID, Metrics, log
from context_agent.integrations.server.responses import Answer, Problem, problem_of
from context_agent.retrieval.corpus import Corpus, Where, check_where

LAST_WORDS = 5.0
"""Seconds that searches get to hand back what they have, after the grace period."""
LONGEST_REASON = 500
"""Characters of Chroma's message that a client reads: the message quotes the filter."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server behaves. Times are in seconds."""

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    """Names by which clients may call the server, as their Host header has them; any where there is none here."""
    concurrency: int = 8
    queue: int = 128
    deadline: float = 120.0
    """The longest that a search may take, waiting included."""
    max_body: int = 1_000_000
    """Bytes of a request's body."""
    max_connections: int = 512
    """Connections open at once; fewer where the process has fewer file descriptors."""
    grace: float = 30.0
    """What running searches get to end by themselves when the server is told to."""
    check: float = 10.0
    """Between looks at whether the index has changed; 0 for never."""
    heartbeat: float = 10.0
    """Silence after which a stream says that it is alive."""
    model: str = "context-agent"
    """The agent's name as a chat model."""

    def __post_init__(self) -> None:
        if min(self.concurrency, self.max_body, self.max_connections) < 1 or self.queue < 0:
            raise ConfigError("concurrency, max-body and max-connections must be at least 1, and queue at least 0")
        if min(self.deadline, self.heartbeat) <= 0 or min(self.grace, self.check) < 0:
            raise ConfigError("deadline and heartbeat are positive, grace and check not negative")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it came in. `path` is where, for the metrics."""

    question: str
    k: int
    path: str
    where: Where | None = None
    deadline: float | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """A question that may wait for its turn; `leave` must be called, whatever becomes of it."""

    asked: Asked
    ticket: Ticket
    deadline: Deadline
    came: float = field(default_factory=time.perf_counter)

    def leave(self) -> None:
        """Frees the slot or the place in the queue."""
        self.ticket.leave()


class Service:
    """Runs searches for a server. Used from one event loop."""

    def __init__(self, served: Served, settings: Settings, feedback: FeedbackLog | None = None) -> None:
        self.served, self.settings, self.feedback = served, settings, feedback
        self.gate = Gate(settings.concurrency, settings.queue)
        self.metrics = Metrics()
        self.draining = False
        self._deadlines: set[Deadline] = set()
        self._typical = 0.5
        gauge = self.metrics.gauge
        gauge("ctx1_searches_running", "Searches that run.", lambda: self.gate.running)
        gauge("ctx1_searches_waiting", "Searches that wait for their turn.", lambda: self.gate.waiting)
        gauge("ctx1_index_stale", "1 while the index is known to have changed.", lambda: float(served.stale))
        gauge("ctx1_index_checked", "When the index was last known to be current.", lambda: served.checked)
        gauge("ctx1_index_chunks", "Chunks of the index as it was read.", lambda: served.chunks)
        gauge("ctx1_index", "The index that is searched, with its revision.", lambda: served.name, "corpus")

    @property
    def ready(self) -> bool:
        """Whether questions are taken."""
        return self.served.ready and not self.draining

    def admit(self, asked: Asked) -> Admitted:
        """A place for the question. Raises `Problem`: for a bad filter, a full queue, a server that ends."""
        check_filter(asked.where)
        if self.draining:
            raise closing()
        try:
            ticket = self.gate.enter()
        except QueueFull:
            wait = min(60, max(1, math.ceil(self._typical * (self.gate.waiting + 1) / self.gate.slots)))
            message = f"{self.gate.running} searches run and {self.gate.waiting} wait: try again in {wait} s"
            raise Problem(429, "queue_full", message, headers={"Retry-After": str(wait)}) from None
        deadline = Deadline(min(asked.deadline or math.inf, self.settings.deadline))
        return Admitted(asked, ticket, deadline)

    async def answer(self, admitted: Admitted) -> Answer:
        """The answer. Raises `Problem`; when cancelled, the search ends and its slot is free."""
        asked = admitted.asked
        async with self._running(admitted) as agent:
            waited = time.perf_counter() - admitted.came
            result = await agent.asearch(
                asked.question, k=asked.k, where=asked.where, question_id=asked.id, deadline=admitted.deadline
            )
        return await self._answered(admitted, result, waited)

    async def stream(self, admitted: Admitted) -> AsyncGenerator[Progress | Answer]:
        """What happens, as it happens, and the answer last. Raises `Problem`."""
        asked, result = admitted.asked, None
        async with self._running(admitted) as agent:
            waited = time.perf_counter() - admitted.came
            stream = agent.stream(
                asked.question, k=asked.k, where=asked.where, question_id=asked.id, deadline=admitted.deadline
            )
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, SearchResult):
                        result = item
                    else:
                        yield item
        assert result is not None
        yield await self._answered(admitted, result, waited)

    @asynccontextmanager
    async def step(self, path: str, where: Where | None = None) -> AsyncIterator[Corpus]:
        """The corpus for a single step, which takes a slot as a search does. Raises `Problem` as `admit`."""
        admitted = self.admit(Asked("", 1, path, where))
        try:
            await self._turn(admitted)
            async with self.served.agent() as agent:
                yield agent.corpus
        finally:
            admitted.leave()

    async def follow(self) -> None:
        """Looks after the index for as long as the server runs."""
        while self.settings.check:
            await asyncio.sleep(self.settings.check)
            followed = await self.served.follow()
            if followed is not False:
                self.metrics.reloads.add("failed" if followed is None else "done")

    async def drain(self) -> None:
        """Takes no more questions, and returns when those taken are answered: in part, when the grace is over."""
        self.draining = True
        log("draining", running=self.gate.running, waiting=self.gate.waiting)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.grace):
                await self.gate.empty.wait()
            return
        for deadline in list(self._deadlines):
            deadline.expire()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self.gate.empty.wait()

    @asynccontextmanager
    async def _running(self, admitted: Admitted) -> AsyncIterator[SearchAgent]:
        """The agent, when the question's turn has come; failures are told as `Problem`."""
        self._deadlines.add(admitted.deadline)
        try:
            await self._turn(admitted)
            async with self.served.agent() as agent:
                yield agent
        except Exception as error:
            problem = problem_of(error, admitted.asked.where)
            if problem is None:
                raise
            if not isinstance(error, Problem):
                log("failed", logging.WARNING, code=problem.code, reason=str(error))
            raise problem from error
        finally:
            self._deadlines.discard(admitted.deadline)
            admitted.leave()

    async def _turn(self, admitted: Admitted) -> None:
        try:
            async with admitted.deadline.within(None):
                await admitted.ticket.turn.wait()
        except TimeoutError:
            if self.draining:
                raise closing() from None
            message = "the deadline passed before the question's turn came"
            raise Problem(503, "queue_timeout", message, headers={"Retry-After": "1"}) from None
        finally:
            self.metrics.waited.add(admitted.asked.path, time.perf_counter() - admitted.came)

    async def _answered(self, admitted: Admitted, result: SearchResult, waited: float) -> Answer:
        seconds = time.perf_counter() - admitted.came
        self._typical += 0.1 * (seconds - waited - self._typical)
        self.metrics.searches.add(result.stop_reason)
        self.metrics.turns.add(by=result.turns)
        self.metrics.tokens.add(by=result.tokens)
        answer = Answer(REQUEST_ID.get() or "", result, seconds, waited)
        if result.error is not None:
            log("failed", logging.WARNING, code=result.stop_reason, reason=result.error)
        if self.feedback is not None and result.paths:
            await asyncio.to_thread(self.feedback.served, answer.request_id, [path.stem for path in result.paths])
        return answer


def closing() -> Problem:
    """What is said while the server ends."""
    message = "the server is ending: ask another one, or this one again later"
    return Problem(503, "shutting_down", message, headers={"Connection": "close", "Retry-After": "1"})


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
        reason = shorten(str(error), LONGEST_REASON, placeholder=" ...")
        raise Problem(400, "invalid_filter", f"Chroma refuses the metadata filter: {reason}", "where") from None


class QueueFull(Exception):
    """Nobody more may wait."""


class Gate:
    """Lets `slots` run and `places` wait, in the order they came. Used from one event loop."""

    def __init__(self, slots: int, places: int) -> None:
        self.slots, self.places = slots, places
        self.running = 0
        self.empty = asyncio.Event()
        """Set while nothing runs; then nothing waits either."""
        self.empty.set()
        self._queue: deque[Ticket] = deque()

    @property
    def waiting(self) -> int:
        """Tickets whose turn has not come."""
        return len(self._queue)

    def enter(self) -> Ticket:
        """A ticket, which must be left again, whatever happens. Raises `QueueFull`."""
        ticket = Ticket(self)
        if self.running < self.slots:
            self._start(ticket)
        elif self.waiting < self.places:
            self._queue.append(ticket)
        else:
            raise QueueFull
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Gives back the ticket's slot or its place in the queue. Once is enough, more do no harm."""
        if ticket.left:
            return
        ticket.left = True
        if not ticket.turn.is_set():
            self._queue.remove(ticket)
            return
        self.running -= 1
        if self._queue:
            self._start(self._queue.popleft())
        elif not self.running:
            self.empty.set()

    def _start(self, ticket: Ticket) -> None:
        self.running += 1
        self.empty.clear()
        ticket.turn.set()


class Ticket:
    """A place at the gate; `turn` is set when it may run."""

    def __init__(self, gate: Gate) -> None:
        self.turn = asyncio.Event()
        self.left = False
        self._gate = gate

    def leave(self) -> None:
        """See `Gate.leave`."""
        self._gate.leave(self)
