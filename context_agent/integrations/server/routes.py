"""The endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from context_agent.errors import ConfigError, DataError, FeedbackLimitError, TrajectoryError
from context_agent.integrations.feedback import FeedbackLog, Judgement, judgement
from context_agent.integrations.server import chat, streaming
from context_agent.integrations.server.answers import Answer
from context_agent.integrations.server.connections import BODY_TIMEOUT
from context_agent.integrations.server.encoding import Json, encode
from context_agent.integrations.server.front import GONE, HUNG_UP, INTERNAL, Record
from context_agent.integrations.server.logs import REQUEST_ID, log
from context_agent.integrations.server.metrics import CONTENT_TYPE
from context_agent.integrations.server.openapi import document
from context_agent.integrations.server.problems import Problem, invalid
from context_agent.integrations.server.schema import ChatRequest, FeedbackRequest, Health, RetrieveRequest
from context_agent.integrations.server.service import Admitted, Asked, Service

M = TypeVar("M", bound=BaseModel)
BEGAN = 0
"""When a model was made, which OpenAI's clients want to know of each."""


class Routes:
    """The endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings
        self._judging = asyncio.Lock()

    async def retrieve(self, request: Request) -> Response:
        """`POST /v1/retrieve`."""
        given = await self._read(request, RetrieveRequest)
        asked = Asked(given.question, given.k, request.url.path, given.where, given.deadline, given.id)
        admitted = self._service.admit(asked)
        record: Record = request.state.record
        if given.stream or "text/event-stream" in request.headers.get("accept", ""):
            return streaming.Events(self._events(admitted, record), _leaving(admitted, record))
        answer = await self._answer(request, admitted)
        return Json(answer.to_json())

    async def complete(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        given = await self._read(request, ChatRequest)
        self._known(given.model)
        asked = Asked(chat.question_of(given), given.k, request.url.path, given.where, given.deadline)
        admitted = self._service.admit(asked)
        completion = chat.Completion(f"chatcmpl-{REQUEST_ID.get()}", given.model)
        if given.stream:
            with_usage = given.stream_options is not None and given.stream_options.include_usage
            chunks = self._chunks(admitted, completion, with_usage, request.state.record)
            return streaming.Events(chunks, _leaving(admitted, request.state.record))
        return Json(completion.whole(await self._answer(request, admitted)))

    async def judge(self, request: Request) -> Response:
        """`POST /v1/feedback`."""
        given = await self._read(request, FeedbackRequest)
        feedback = self._service.feedback
        if feedback is None:
            raise Problem(404, "no_trajectories", "this server keeps no trajectories, so none can be judged")
        try:
            # One at a time: the log has one writer, and judgements that wait for it must not hold up searches' threads.
            async with self._judging:
                made, created = await asyncio.to_thread(_judged, feedback, given)
        except FeedbackLimitError as error:
            raise Problem(413, "feedback_limit", str(error)) from None
        except TrajectoryError as error:
            raise Problem(404, "unknown_trajectory", str(error)) from None
        except ConfigError as error:
            raise Problem(422, "invalid_request", str(error)) from None
        except DataError as error:
            raise Problem(409, "conflict", str(error), "id") from None
        body = {"id": made.id, "trajectory": made.trajectory, "created": created}
        return Json(body, 201 if created else 200)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        return Json({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{name}`."""
        self._known(request.path_params["name"])
        return Json(self._model())

    async def health(self, request: Request) -> Response:
        """`GET /health`: 503 while no questions are taken."""
        service = self._service
        state = Health(live=True, ready=service.ready, draining=service.draining)
        return Json(state.model_dump(), 200 if service.ready else 503)

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`."""
        return Response(self._service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def schema(self, request: Request) -> Response:
        """`GET /openapi.json`."""
        return Response(self._document, media_type="application/json")

    @cached_property
    def _document(self) -> bytes:
        """The OpenAPI document; made once, since that takes far longer than any other answer without a search."""
        return encode(document(self._settings.model, secured=self._settings.token is not None))

    def _model(self) -> dict[str, Any]:
        return {"id": self._settings.model, "object": "model", "created": BEGAN, "owned_by": "context-agent"}

    def _known(self, model: str) -> None:
        if model != self._settings.model:
            raise Problem(404, "model_not_found", f"the only model here is {self._settings.model!r}", "model")

    async def _answer(self, request: Request, admitted: Admitted) -> Answer:
        try:
            answer = await streaming.unless_gone(request, self._service.answer(admitted))
        finally:
            admitted.leave()
        _note(request.state.record, answer)
        return answer

    async def _events(self, admitted: Admitted, record: Record) -> AsyncGenerator[bytes]:
        """The search's events, signs of life, and the answer or what went wrong."""
        beating = streaming.beating(self._service.stream(admitted), self._settings.heartbeat)
        try:
            async with aclosing(beating):
                async for item in beating:
                    if isinstance(item, Answer):
                        _note(record, item)
                        yield streaming.ended(item)
                    elif (event := streaming.HEARTBEAT if item is None else streaming.told(item)) is not None:
                        yield event
        except Exception as error:  # noqa: BLE001 (the answer has begun: the error is its last event)
            yield streaming.sent("error", _broken(error, record).to_json())

    async def _chunks(
        self, admitted: Admitted, completion: chat.Completion, with_usage: bool, record: Record
    ) -> AsyncGenerator[bytes]:
        """The completion's chunks and signs of life."""
        yield completion.opening()
        beating = streaming.beating(self._service.stream(admitted), self._settings.heartbeat)
        try:
            async with aclosing(beating):
                async for item in beating:
                    if isinstance(item, Answer):
                        _note(record, item)
                        for chunk in completion.chunks(item, with_usage=with_usage):
                            yield chunk
                    elif item is None:
                        yield streaming.HEARTBEAT
        except Exception as error:  # noqa: BLE001 (as above)
            yield completion.failure(_broken(error, record))

    async def _read(self, request: Request, model: type[M]) -> M:
        """The request's body as the model. Raises `Problem`."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(415, "unsupported_media_type", "the body must be application/json")
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                body = await self._body(request)
        except TimeoutError:
            message = f"the request's body did not arrive within {BODY_TIMEOUT} s"
            raise Problem(408, "slow_body", message, headers={"Connection": "close"}) from None
        except ClientDisconnect:
            raise streaming.Gone from None
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from None

    async def _body(self, request: Request) -> bytes:
        most = self._settings.max_body
        message = f"the body is larger than {most:,} bytes: send less, or raise --max-body of the server"
        large = Problem(413, "too_large", message, headers={"Connection": "close"})
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            raise large
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise large
        return bytes(body)


def _judged(feedback: FeedbackLog, given: FeedbackRequest) -> tuple[Judgement, bool]:
    trajectory = feedback.trajectory_of(given.request_id) if given.request_id is not None else given.trajectory or ""
    made = judgement(
        trajectory=trajectory,
        relevant=given.relevant,
        irrelevant=given.irrelevant,
        rating=given.rating,
        comment=given.comment,
        user=given.user,
        id=given.id,
    )
    return made, feedback.add(made)


def _broken(error: Exception, record: Record) -> Problem:
    """What a client is told in the middle of a stream."""
    if not isinstance(error, Problem):
        log("unexpected", logging.ERROR, error=error)
    problem = error if isinstance(error, Problem) else INTERNAL
    record.code = problem.code
    return problem


def _leaving(admitted: Admitted, record: Record) -> Callable[[bool], None]:
    """What is done when a stream is over."""

    def leave(whole: bool) -> None:
        admitted.leave()
        if not whole:
            record.status, record.code = HUNG_UP, GONE

    return leave


def _note(record: Record, answer: Answer) -> None:
    """What the log line says of a search."""
    result = answer.result
    record.notes |= {"stop_reason": result.stop_reason, "documents": len(result.documents), **answer.usage()}
    record.notes["seconds_searched"] = round(record.notes.pop("seconds") - answer.queued, 4)
    if answer.trajectory is not None:
        record.notes["trajectory"] = answer.trajectory
