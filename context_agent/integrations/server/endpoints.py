"""The endpoints of a server, and their handling of requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

from context_agent._support.event_loops import run_cancellable
from context_agent._support.extras import extra
from context_agent.agent import Progress
from context_agent.errors import ConfigError, DataError, FeedbackLimitError, TrajectoryError, reason_of
from context_agent.harness.policy import AdjustableEffort
from context_agent.integrations.conversation_pruners import (
    ConversationPruners,
    conversation_digest,
)
from context_agent.integrations.feedback import FeedbackLog, Judgment, judgment
from context_agent.integrations.server.answers import ServedAnswer
from context_agent.integrations.server.completions import Completion, question_of
from context_agent.integrations.server.disconnects import unless_gone
from context_agent.integrations.server.episodes import episode_data
from context_agent.integrations.server.errors import INTERNAL_ERROR, Problem
from context_agent.integrations.server.health import health_answer
from context_agent.integrations.server.json_encoding import Json
from context_agent.integrations.server.logs import REQUEST_ID, log
from context_agent.integrations.server.metrics import CONTENT_TYPE, labeled_by_worker
from context_agent.integrations.server.middleware import CLIENT_CLOSED, CLIENT_GONE, RequestRecord
from context_agent.integrations.server.prune_requests import prune_conversation
from context_agent.integrations.server.schema import (
    AgentDescription,
    ChatRequest,
    FeedbackRequest,
    PruneRequest,
    RetrieveRequest,
)
from context_agent.integrations.server.service import AdmittedSearch, SearchRequest, Service
from context_agent.integrations.server.streams import (
    HEARTBEAT_COMMENT,
    HEARTBEAT_SECONDS,
    EventResponse,
    error_event,
    search_events,
    with_heartbeat,
)
from context_agent.integrations.server.worker_calls import WorkerPeers
from context_agent.version import __version__

with extra("serve"):
    from starlette.requests import Request
    from starlette.responses import Response


MODEL_CREATED = 0
"""The creation time of the model. OpenAI's clients require the field."""
PRUNE_PATH = "/v1/prune"
METRICS_TIMEOUT = 2.0
"""Seconds that the other workers have to send their metrics."""


class Endpoints:
    """The endpoints of one service."""

    def __init__(self, service: Service, peers: WorkerPeers) -> None:
        self._service, self._peers = service, peers
        self._settings = service.settings
        self._judging = asyncio.Lock()
        self._pruners = ConversationPruners()
        peers.handlers |= {"metrics": self._metrics_for_peer, "prune": self._prune_for_peer}

    async def retrieve(self, request: Request, body: RetrieveRequest) -> Response:
        """Search for documents that answer a question."""
        record: RequestRecord = request.state.record
        search = self._service.admit(
            SearchRequest(body.question, body.k, record.path, body.where, body.deadline, body.id, body.effort)
        )
        if body.stream or "text/event-stream" in request.headers.get("accept", ""):
            return EventResponse(self._stream(search, record, search_events, error_event), _leave(search, record))
        answer = await self._answer(request, search)
        return Json(answer.to_json())

    async def complete(self, request: Request, body: ChatRequest) -> Response:
        """Answer the last user message as a chat model does."""
        self._check_model(body.model)
        record: RequestRecord = request.state.record
        search = self._service.admit(SearchRequest(question_of(body), body.k, record.path, body.where, body.deadline))
        completion = Completion(f"chatcmpl-{REQUEST_ID.get()}", body.model)
        if body.stream:
            with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            chunks = partial(completion.chunks, with_usage=with_usage)
            stream = self._stream(search, record, chunks, completion.failure, [completion.opening()])
            return EventResponse(stream, _leave(search, record))
        return Json(completion.whole(await self._answer(request, search)))

    async def judge(self, body: FeedbackRequest) -> Response:
        """Write a judgment on a search to the log."""
        feedback = self._service.feedback
        if feedback is None:
            raise Problem(404, "no_trajectories", "this server writes no trajectories to judge. Start it with --save.")
        try:
            # One at a time: the log has one writer, and waiting judgments must not block the threads of searches.
            async with self._judging:
                entry, created = await asyncio.to_thread(_judge, feedback, body)
        except FeedbackLimitError as error:
            raise Problem(413, "feedback_limit", str(error)) from None
        except TrajectoryError as error:
            raise Problem(404, "unknown_trajectory", str(error)) from None
        except ConfigError as error:
            raise Problem(422, "invalid_request", str(error)) from None
        except DataError as error:
            raise Problem(409, "conflict", str(error), "id") from None
        except OSError as error:
            log("unrecorded", logging.ERROR, reason=reason_of(error))
            message = "the server cannot write the judgment. Its log has the reason."
            raise Problem(503, "not_recorded", message, headers={"Retry-After": "5"}) from None
        return Json({"id": entry.id, "trajectory": entry.trajectory, "created": created}, 201 if created else 200)

    async def prune(self, request: Request, body: PruneRequest) -> Response:
        """Prune an agent's conversation, or bring passages back."""
        answer = await unless_gone(request, self._pruned(body))
        if (report := answer["report"]) is not None:
            request.state.record.notes |= {name: report[name] for name in ("outcome", "freed", "cached_lost")}
        return Json(answer)

    async def _pruned(self, body: PruneRequest) -> Any:
        if self._peers.count == 1:
            return await self._prune(body)
        # The worker that remembers what it removed from the conversation.
        owner = self._peers.owner(await asyncio.to_thread(conversation_digest, body.messages))
        return await self._peers.call(owner, "prune", body.model_dump(), seconds=self._settings.deadline)

    async def _prune(self, body: PruneRequest) -> Any:
        async with self._service.step(PRUNE_PATH):
            try:
                answer = await run_cancellable(prune_conversation, self._pruners, body)
            except ConfigError as error:
                if body.restore:
                    raise Problem(400, "unknown_passage", str(error), "restore") from None
                raise Problem(422, "invalid_request", str(error), "budget") from None
        return answer.model_dump()

    async def _prune_for_peer(self, fields: Any) -> Any:
        return await self._prune(PruneRequest.model_validate(fields))

    async def agent(self) -> Response:
        """Describe what is searched, and how."""
        service, index, budget = self._service, self._service.index, self._service.index.budget
        description = AgentDescription(
            title=self._settings.title or index.name.partition(":")[2].partition("@")[0] or index.name,
            corpus=index.name,
            chunks=index.chunks,
            window=budget.window,
            soft=budget.soft,
            hard=budget.hard,
            efforts=list(index.policy.efforts) if isinstance(index.policy, AdjustableEffort) else [],
            records=service.feedback is not None,
            version=__version__,
        )
        return Json(description.model_dump())

    async def trajectory(self, name: str) -> Response:
        """Return a recorded episode, as the viewer reads it."""
        if self._service.feedback is None:
            raise Problem(404, "no_trajectories", "this server writes no trajectories. Start it with --save.")
        try:
            data = await asyncio.to_thread(episode_data, self._service.feedback, name)
        except DataError as error:
            raise Problem(404, "unknown_trajectory", str(error)) from None
        return Json(data, headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})

    async def models(self) -> Response:
        """List the agent as a model."""
        return Json({"object": "list", "data": [self._model()]})

    async def model(self, name: str) -> Response:
        """Return the agent as a model."""
        self._check_model(name)
        return Json(self._model())

    async def health(self) -> Response:
        """Report whether the server accepts questions. The status is 503 while it accepts none."""
        return health_answer(self._service)

    async def metrics(self) -> Response:
        """Return the metrics in Prometheus's format. Workers that answer too late are left out."""
        if self._peers.count == 1:
            text = self._service.metrics.text()
        else:
            text = labeled_by_worker(await self._peers.call_all("metrics", None, seconds=METRICS_TIMEOUT))
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def _metrics_for_peer(self, _: Any) -> Any:
        return self._peers.number, self._service.metrics.text()

    def _model(self) -> dict[str, Any]:
        return {"id": self._settings.model, "object": "model", "created": MODEL_CREATED, "owned_by": "context-agent"}

    def _check_model(self, name: str) -> None:
        if name != self._settings.model:
            raise Problem(
                404,
                "model_not_found",
                f"this server has only the model {self._settings.model!r}. Request this model.",
                "model",
            )

    async def _answer(self, request: Request, search: AdmittedSearch) -> ServedAnswer:
        try:
            answer = await unless_gone(request, self._service.answer(search))
        finally:
            search.leave()
        _note(request.state.record, answer)
        return answer

    async def _stream(
        self,
        search: AdmittedSearch,
        record: RequestRecord,
        parts: Callable[[Progress | ServedAnswer], Iterable[bytes]],
        failure: Callable[[Problem], bytes],
        opening: Iterable[bytes] = (),
    ) -> AsyncGenerator[bytes]:
        """Yield a search as a stream.

        Args:
            search: The search.
            record: The record of the request.
            parts: A function that returns the bytes for a step of the search or for its answer.
            failure: A function that returns the bytes that end a failed stream.
            opening: The bytes that begin the stream.
        """
        for part in opening:
            yield part
        try:
            async with aclosing(with_heartbeat(self._service.stream(search), HEARTBEAT_SECONDS)) as stream:
                async for item in stream:
                    if isinstance(item, ServedAnswer):
                        _note(record, item)
                    for part in [HEARTBEAT_COMMENT] if item is None else parts(item):
                        yield part
        except Exception as error:  # noqa: BLE001 (the response has started: the failure is its last part)
            if not isinstance(error, Problem):
                log("unexpected", logging.ERROR, error=error)
            problem = error if isinstance(error, Problem) else INTERNAL_ERROR
            record.code = problem.code
            yield failure(problem)


def _judge(feedback: FeedbackLog, body: FeedbackRequest) -> tuple[Judgment, bool]:
    """Write a judgment to the log. Return the judgment, and True if the log did not have it."""
    trajectory = feedback.trajectory_of(body.request_id) if body.request_id is not None else body.trajectory or ""
    entry = judgment(trajectory=trajectory, **body.model_dump(exclude={"trajectory", "request_id"}))
    return entry, feedback.add(entry)


def _leave(search: AdmittedSearch, record: RequestRecord) -> Callable[[bool], None]:
    """Return the function to call when a stream ends. It frees the slot of the search, and notes a client that left
    early.
    """

    def leave(complete: bool) -> None:
        search.leave()
        if not complete:
            record.status, record.code = CLIENT_CLOSED, CLIENT_GONE

    return leave


def _note(record: RequestRecord, answer: ServedAnswer) -> None:
    """Add the known facts about a search to the log line."""
    result = answer.result
    record.notes |= {"stop_reason": result.stop_reason, "documents": len(result.documents), **answer.usage()}
    record.notes["seconds_searched"] = round(record.notes.pop("seconds") - answer.queued, 4)
    if answer.trajectory is not None:
        record.notes["trajectory"] = answer.trajectory
