"""The endpoints."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, DataError, FeedbackLimitError, TrajectoryError
from context_agent.integrations.feedback import FeedbackLog, Judgement, judgement
from context_agent.integrations.server.live_index import Served
from context_agent.integrations.server.observability import CONTENT_TYPE, REQUEST_ID, log, request_id
from context_agent.integrations.server.schema import ChatRequest, FeedbackRequest, Health, RetrieveRequest, document
from context_agent.integrations.server.service import Admitted, Asked, Service, Settings

with extra("serve"):
    from starlette.applications import Starlette
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from context_agent.integrations.server.responses import (
        HEARTBEAT,
        Answer,
        Completion,
        Events,
        Gone,
        Json,
        Problem,
        beating,
        encode,
        ended,
        invalid,
        question_of,
        sent,
        told,
        unless_gone,
    )
    from context_agent.integrations.server.transport import BODY_TIMEOUT

M = TypeVar("M", bound=BaseModel)
BEGAN = 0
"""When a model was made, which OpenAI's clients want to know of each."""
HEALTH = "/health"
METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))
"""Methods that the log names; a client may make up others, as long as a header can be."""
HUNG_UP, GONE = 499, "client_gone"
"""The status and the code that are counted for a client that left before it had its whole answer."""
INTERNAL = Problem(500, "internal", "something went wrong in the server")


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
            return Events(self._events(admitted, record), _leaving(admitted, record))
        answer = await self._answer(request, admitted)
        return Json(answer.to_json())

    async def complete(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        given = await self._read(request, ChatRequest)
        self._known(given.model)
        asked = Asked(question_of(given), given.k, request.url.path, given.where, given.deadline)
        admitted = self._service.admit(asked)
        completion = Completion(f"chatcmpl-{REQUEST_ID.get()}", given.model)
        if given.stream:
            with_usage = given.stream_options is not None and given.stream_options.include_usage
            chunks = self._chunks(admitted, completion, with_usage, request.state.record)
            return Events(chunks, _leaving(admitted, request.state.record))
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
            answer = await unless_gone(request, self._service.answer(admitted))
        finally:
            admitted.leave()
        _note(request.state.record, answer)
        return answer

    async def _events(self, admitted: Admitted, record: Record) -> AsyncGenerator[bytes]:
        """The search's events, signs of life, and the answer or what went wrong."""
        stream = beating(self._service.stream(admitted), self._settings.heartbeat)
        try:
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, Answer):
                        _note(record, item)
                        yield ended(item)
                    elif (event := HEARTBEAT if item is None else told(item)) is not None:
                        yield event
        except Exception as error:  # noqa: BLE001 (the answer has begun: the error is its last event)
            yield sent("error", _broken(error, record).to_json())

    async def _chunks(
        self, admitted: Admitted, completion: Completion, with_usage: bool, record: Record
    ) -> AsyncGenerator[bytes]:
        """The completion's chunks and signs of life."""
        yield completion.opening()
        stream = beating(self._service.stream(admitted), self._settings.heartbeat)
        try:
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, Answer):
                        _note(record, item)
                        for chunk in completion.chunks(item, with_usage=with_usage):
                            yield chunk
                    elif item is None:
                        yield HEARTBEAT
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
            raise Gone from None
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


@dataclass(slots=True)
class Record:
    """What a request comes to. `notes` is what its route adds to the log line."""

    method: str
    path: str
    began: float = field(default_factory=time.perf_counter)
    status: int = 0
    code: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


class Front:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        """`paths` are those that metrics know by name."""
        self._app, self._service, self._paths = app, service, paths
        token = service.settings.token
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(name.lower() for name in service.settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        identity = request_id(headers.get("x-request-id"))
        method = scope["method"] if scope["method"] in METHODS else "other"
        record = Record(method, scope["path"] if scope["path"] in self._paths else "other")
        scope.setdefault("state", {})["record"] = record

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                answered = MutableHeaders(scope=message)
                answered["X-Request-ID"] = identity
                if self._service.draining:
                    answered["Connection"] = "close"
            await send(message)

        token = REQUEST_ID.set(identity)
        try:
            if (refused := self._refused(headers, scope["path"])) is not None:
                await answered_with(refused, record)(scope, receive, sending)
            else:
                await self._answered(scope, receive, sending, record)
        finally:
            self._note(record)
            REQUEST_ID.reset(token)

    async def _answered(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 (the client has its answer from `on_failure` by now)
            log("unexpected", logging.ERROR, error=error)
            record.code = record.code or INTERNAL.code

    def _refused(self, headers: Headers, path: str) -> Problem | None:
        """What is said to a request without the token, or to one that calls the server by a wrong name.

        The health of a server is no secret.
        """
        if self._hosts and host_in(headers.get("host", "")) not in self._hosts:
            return Problem(403, "host_not_allowed", "the server does not go by the name in the Host header")
        if self._token is None or path == HEALTH:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            return None
        wrong = "a bearer token is needed" if not given else "the bearer token is wrong"
        return Problem(401, "invalid_api_key", wrong, headers={"WWW-Authenticate": "Bearer"})

    def _note(self, record: Record) -> None:
        seconds, metrics = time.perf_counter() - record.began, self._service.metrics
        metrics.requests.add(record.path, str(record.status or HUNG_UP))
        metrics.seconds.add(record.path, seconds)
        if record.code:
            metrics.errors.add(record.code)
        fields: dict[str, Any] = {"method": record.method, "path": record.path, "status": record.status or HUNG_UP}
        if record.code:
            fields["code"] = record.code
        log("request", **fields, seconds=round(seconds, 4), **record.notes)


def host_in(header: str) -> str:
    """The name in a Host header, without the port."""
    name, _, port = header.rpartition(":")
    return (name if name and port.isdigit() else header).lower()


def answered_with(problem: Problem, record: Record) -> Response:
    """The problem as an answer, noted in the record."""
    record.code = problem.code
    body = {**problem.to_json(), "request_id": REQUEST_ID.get()}
    return Json(body, problem.status, headers=dict(problem.headers))


def on_failure(request: Request, error: Exception) -> Response:
    """The answer where nobody foresaw what went wrong; Starlette raises the error on, so that it is logged."""
    return answered_with(INTERNAL, request.state.record)


def on_gone(request: Request, error: Exception) -> Response:
    """What nobody reads any more."""
    request.state.record.code = GONE
    return Response(status_code=HUNG_UP)


def on_problem(request: Request, problem: Exception) -> Response:
    """Starlette's way to a `Problem`'s answer."""
    assert isinstance(problem, Problem)
    return answered_with(problem, request.state.record)


def on_refusal(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: no such path, no such method."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    told = {404: "there is nothing at this path", 405: "this path knows other methods"}
    problem = Problem(
        error.status_code, code, told.get(error.status_code, error.detail), headers=dict(error.headers or {})
    )
    return answered_with(problem, request.state.record)


def application(agent: SearchAgent, settings: Settings | None = None) -> ASGIApp:
    """An ASGI application on an agent, which stays the caller's to close. Its trajectories can be judged."""
    return application_of(service_of(Served(agent), settings or Settings(), agent))


def service_of(served: Served, settings: Settings, agent: SearchAgent) -> Service:
    """The service; judgements are written beside the agent's trajectories."""
    feedback = None if agent.trajectories is None else FeedbackLog(agent.trajectories)
    return Service(served, settings, feedback)


def application_of(service: Service) -> ASGIApp:
    """The application of a service."""
    routes = Routes(service)
    table = [
        Route("/v1/retrieve", routes.retrieve, methods=["POST"]),
        Route("/v1/chat/completions", routes.complete, methods=["POST"]),
        Route("/v1/feedback", routes.judge, methods=["POST"]),
        Route("/v1/models", routes.models),
        Route("/v1/models/{name}", routes.model),
        Route(HEALTH, routes.health),
        Route("/metrics", routes.metrics),
        Route("/openapi.json", routes.schema),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(service.follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await service.served.close()

    inner = Starlette(
        routes=table,
        lifespan=lifespan,
        exception_handlers={Problem: on_problem, HTTPException: on_refusal, Gone: on_gone, Exception: on_failure},
    )
    return Front(inner, service, frozenset(route.path for route in table))
