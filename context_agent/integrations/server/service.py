"""The service that handles the searches of a server. It admits a search, runs it with a deadline, and answers it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from textwrap import shorten

from context_agent._support.extras import extra
from context_agent.agent import Progress, SearchAgent, SearchResult
from context_agent.errors import ConfigError, reason_of
from context_agent.harness.deadline import Deadline
from context_agent.harness.policy import Policy, with_effort
from context_agent.integrations.feedback import FeedbackLog
from context_agent.integrations.server.admission import Ticket
from context_agent.integrations.server.answers import ServedAnswer
from context_agent.integrations.server.errors import Problem, problem_of
from context_agent.integrations.server.limited_service import LimitedService
from context_agent.integrations.server.live_index import LiveIndex
from context_agent.integrations.server.logs import REQUEST_ID, log
from context_agent.integrations.server.settings import Settings
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.filters import Where, check_where

with extra("serve"):
    from prometheus_client.metrics_core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

MAX_REASON_CHARACTERS = 500
"""Characters of Chroma's message that the client gets. The message quotes the filter."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question for the service.

    Attributes:
        question: The question.
        k: The number of documents to return.
        path: The endpoint, for the metrics.
        where: A filter on metadata in Chroma's syntax.
        deadline: The client's time limit in seconds.
        id: The id of the question, for the record.
        effort: The effort of the policy. If it is None, the policy's default applies.
    """

    question: str
    k: int
    path: str
    where: Where | None = None
    deadline: float | None = None
    id: str | None = None
    effort: str | None = None


@dataclass(frozen=True, slots=True)
class AdmittedSearch:
    """A search in the queue. Its owner must call `leave`, even after an error.

    Attributes:
        request: The question.
        ticket: The search's entry in the queue.
        deadline: The end of the search's time. A shutdown may bring it forward.
        arrival: The time when the request arrived, by `time.perf_counter`.
    """

    request: SearchRequest
    ticket: Ticket
    deadline: Deadline
    arrival: float = field(default_factory=time.perf_counter)

    def leave(self) -> None:
        """Free the slot or the waiting place."""
        self.ticket.leave()


class Service(LimitedService):
    """The service that runs searches for a server. Only one event loop may use it."""

    work = "searches"

    def __init__(self, index: LiveIndex, settings: Settings, feedback: FeedbackLog | None = None) -> None:
        super().__init__(settings)
        self.index, self.feedback = index, feedback
        self.metrics.registry.register(_CurrentState(self))

    @classmethod
    def of(cls, agent: SearchAgent, settings: Settings | None = None, index: LiveIndex | None = None) -> Service:
        """Return the service of an agent. If the agent writes trajectories, they can be judged.

        Args:
            agent: The agent. The caller closes it.
            settings: The settings of the server.
            index: The index that may change. If it is None, the index never changes.
        """
        feedback = None if agent.trajectories is None else FeedbackLog(agent.trajectories)
        return cls(index or LiveIndex(agent), settings or Settings(), feedback)

    @property
    def ready(self) -> bool:
        """True if the service accepts questions."""
        return self.index.ready and not self.draining

    def admit(self, request: SearchRequest) -> AdmittedSearch:
        """Check a search and put it into the queue.

        Raises:
            Problem: If the filter or the effort is wrong, if the queue is full, or if the server is shutting down.
        """
        check_filter(request.where)
        check_effort(self.index.policy, request.effort)
        ticket = self.enter()
        deadline = Deadline(min(request.deadline or math.inf, self.settings.deadline))
        return AdmittedSearch(request, ticket, deadline)

    async def answer(self, search: AdmittedSearch) -> ServedAnswer:
        """Run a search and return its answer. A cancellation ends the search and frees its slot.

        Raises:
            Problem: If the search fails, or if its time ends in the queue.
        """
        request = search.request
        async with self._running(search) as agent:
            queued_seconds = time.perf_counter() - search.arrival
            result = await agent.asearch(
                request.question,
                k=request.k,
                where=request.where,
                question_id=request.id,
                deadline=search.deadline,
                on_unrecorded=self._note_unrecorded,
                effort=request.effort,
            )
        return await self._answered(search, result, queued_seconds)

    async def stream(self, search: AdmittedSearch) -> AsyncGenerator[Progress | ServedAnswer]:
        """Run a search. Yield its progress as it happens, and finally its answer.

        Raises:
            Problem: If the search fails, or if its time ends in the queue.
        """
        request, result = search.request, None
        async with self._running(search) as agent:
            queued_seconds = time.perf_counter() - search.arrival
            stream = agent.stream(
                request.question,
                k=request.k,
                where=request.where,
                question_id=request.id,
                deadline=search.deadline,
                on_unrecorded=self._note_unrecorded,
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
        """Yield the corpus for a single step. The step takes a slot, as a search does.

        Raises:
            Problem: If `admit` would raise it, or if the time of the step ends in the queue.
        """
        search = self.admit(SearchRequest("", 1, path, where))
        try:
            await self._wait(search)
            async with self.index.agent() as agent:
                yield agent.corpus
        finally:
            search.leave()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Reload a changed index while the block runs, and close the index at the end of the block."""
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
                self.metrics.reloads.labels("failed" if is_reloaded is None else "done").inc()

    @asynccontextmanager
    async def _running(self, search: AdmittedSearch) -> AsyncIterator[SearchAgent]:
        """Wait for the search's turn, and then yield the agent. If the block fails, raise the failure as `Problem`."""
        self._deadlines.add(search.deadline)
        try:
            await self._wait(search)
            async with self.index.agent() as agent:
                yield agent
        except Exception as error:
            problem = problem_of(error, search.request.where)
            if problem is None:
                raise
            if not isinstance(error, Problem):
                log("failed", logging.WARNING, code=problem.code, reason=reason_of(error))
            raise problem from error
        finally:
            self._deadlines.discard(search.deadline)
            search.leave()

    async def _wait(self, search: AdmittedSearch) -> None:
        try:
            await self.wait_for_turn(search.ticket, search.deadline.within(None))
        finally:
            self.metrics.queue_seconds.labels(search.request.path).observe(time.perf_counter() - search.arrival)

    async def _answered(self, search: AdmittedSearch, result: SearchResult, queued_seconds: float) -> ServedAnswer:
        seconds = time.perf_counter() - search.arrival
        self._typical_seconds += 0.1 * (seconds - queued_seconds - self._typical_seconds)
        self.metrics.searches.labels(result.stop_reason).inc()
        self.metrics.turns.inc(result.turns)
        self.metrics.tokens.inc(result.tokens)
        answer = ServedAnswer(REQUEST_ID.get() or "", result, seconds, queued_seconds)
        if result.error is not None:
            log("failed", logging.WARNING, code=result.stop_reason, reason=result.error)
        if self.feedback is not None and result.paths:
            trajectories = [path.stem for path in result.paths]
            try:
                await asyncio.to_thread(self.feedback.record_request, answer.request_id, trajectories)
            except (OSError, ConfigError) as error:
                self._note_unrecorded(error)
        return answer

    def _note_unrecorded(self, error: Exception) -> None:
        """Log and count a search that could not be recorded. The search itself does not fail."""
        log("unrecorded", logging.ERROR, reason=str(error))
        self.metrics.unrecorded.inc()


class _CurrentState(Collector):
    """The gauges of a service. Their values are read when Prometheus asks for them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        index, admission = self._service.index, self._service.admission
        gauge = GaugeMetricFamily
        yield gauge("ctx1_searches_running", "Searches that are running.", admission.running)
        yield gauge("ctx1_searches_waiting", "Searches in the queue.", admission.waiting)
        yield gauge("ctx1_index_stale", "1 while the index is known to have changed.", float(index.stale))
        yield gauge("ctx1_index_checked", "When the index was last known to be current.", index.checked)
        yield gauge("ctx1_index_chunks", "Chunks of the index that is served.", index.chunks)
        named = gauge("ctx1_index", "The index that is served, with its revision.", labels=("corpus",))
        named.add_metric((index.name,), 1)
        yield named


def check_effort(policy: Policy, effort: str | None) -> None:
    """Raise `Problem` if the policy does not have this effort."""
    if effort is None:
        return
    try:
        with_effort(policy, effort)
    except ConfigError as error:
        raise Problem(422, "invalid_request", str(error), "effort") from None


def check_filter(where: Where | None) -> None:
    """Raise `Problem` if a filter exceeds the limits of `check_where`, or if Chroma refuses it."""
    if where is None:
        return
    from chromadb.api.types import validate_where

    try:
        check_where(where)
        validate_where(where)
    except ConfigError as error:
        raise Problem(400, "invalid_filter", str(error), "where") from None
    except ValueError as error:
        reason = shorten(str(error), MAX_REASON_CHARACTERS, placeholder=" ...")
        raise Problem(
            400, "invalid_filter", f"Chroma refuses the metadata filter ({reason}). Correct the filter.", "where"
        ) from None
