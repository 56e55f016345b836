"""The HTTP application: an agent behind its endpoints, for `ctx1 serve` or for a server of your own."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from context_agent._support.extras import extra
from context_agent.agent import Progress, SearchAgent
from context_agent.errors import ConfigError, DataError, FeedbackLimitError, TrajectoryError
from context_agent.harness.policy import AdjustableEffort
from context_agent.integrations.feedback import FeedbackLog, Judgement, judgement
from context_agent.integrations.pruning import (
    ConversationPruners,
    RelevanceRequest,
    conversation_digest,
    judge,
)
from context_agent.integrations.server.observability import (
    CONTENT_TYPE,
    REQUEST_ID,
    by_worker,
    exposition,
    log,
    request_id,
)
from context_agent.integrations.server.schema import (
    AgentDescription,
    ChatRequest,
    FeedbackRequest,
    Health,
    PruneRequest,
    RetrieveRequest,
    document,
)
from context_agent.version import __version__

with extra("serve"):
    from starlette.applications import Starlette
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from context_agent.integrations.server.origins import host_name, is_foreign_page, is_navigation, is_rebindable
    from context_agent.integrations.server.responses import (
        HEARTBEAT,
        INTERNAL,
        ROUTES,
        ClientGone,
        Completion,
        EventResponse,
        Json,
        Problem,
        ServedAnswer,
        encode,
        episode_data,
        error_event,
        invalid_body,
        is_public,
        prune_conversation,
        question_of,
        search_events,
        unless_gone,
        with_heartbeat,
    )
    from context_agent.integrations.server.service import AdmittedSearch, GatedService, SearchRequest, Service, Settings
    from context_agent.integrations.server.transport import BODY_TIMEOUT
    from context_agent.integrations.server.workers import WorkerPeers

M = TypeVar("M", bound=BaseModel)
MODEL_CREATED = 0
"""The creation time of the model, a field that OpenAI's clients require."""
HEALTH, PRUNE = "/health", "/v1/prune"
METRICS_TIMEOUT = 2.0
"""Seconds for the other workers to send their metrics."""
METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))
"""Methods that the log names. A client can invent others, as long as a header allows."""
CLIENT_CLOSED, CLIENT_GONE = 499, "client_gone"
"""The status and the code of a request whose client left before it had the complete answer."""


def application(agent: SearchAgent, settings: Settings | None = None) -> ASGIApp:
    """Return an ASGI application on an agent, which the caller closes. Its trajectories can be judged."""
    return application_of(Service.of(agent, settings))


def application_of(service: Service, peers: WorkerPeers | None = None) -> ASGIApp:
    """Return the application of a service; `peers` are the other processes that serve the same address."""
    peers = peers or WorkerPeers()
    routes = Routes(service, peers)
    table = [
        Route("/v1/retrieve", routes.retrieve, methods=["POST"]),
        Route("/v1/chat/completions", routes.complete, methods=["POST"]),
        Route("/v1/feedback", routes.judge, methods=["POST"]),
        Route("/v1/systemone", routes.judge_relevance, methods=["POST"]),
        Route(PRUNE, routes.prune, methods=["POST"]),
        Route("/v1/agent", routes.agent),
        Route("/v1/trajectories/{name}", routes.trajectory),
        Route("/v1/models", routes.models),
        Route("/v1/models/{name}", routes.model),
        Route(HEALTH, routes.health),
        Route("/metrics", routes.metrics),
        Route("/openapi.json", routes.schema),
        *ROUTES,
    ]

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with service.following(), peers.listening():
            yield

    return assemble(table, service, running)


def assemble(
    table: Sequence[Route],
    service: GatedService,
    running: Callable[[], AbstractAsyncContextManager[None]],
    scope_problem: Callable[[Scope], Problem | None] = lambda scope: None,
) -> ASGIApp:
    """Return an application of some routes: errors in one shape, ids, logs and metrics. `running` spans its lifetime.

    `scope_problem` returns the error for a request that is refused before it is routed.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with running():
            yield

    handlers = {Problem: _on_problem, HTTPException: _on_refusal, ClientGone: _on_gone, Exception: _on_failure}
    inner = Starlette(routes=list(table), lifespan=lifespan, exception_handlers=handlers)
    return RequestMiddleware(inner, service, frozenset(route.path for route in table), scope_problem)


@dataclass(slots=True)
class RequestRecord:
    """The outcome of a request, for the log and the metrics. `notes` are what its route adds to the log line."""

    method: str
    path: str
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    code: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


class RequestMiddleware:
    """The outermost layer of every request: id, host and token, log line and metrics."""

    def __init__(
        self,
        app: ASGIApp,
        service: GatedService,
        paths: frozenset[str],
        scope_problem: Callable[[Scope], Problem | None],
    ) -> None:
        """`paths` are those that the metrics name; `scope_problem` as in `assemble`."""
        self._app, self._service, self._paths, self._scope_problem = app, service, paths, scope_problem
        token = service.settings.token
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(name.lower() for name in service.settings.hosts)
        self._origins = frozenset(origin.lower() for origin in service.settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        identity = request_id(headers.get("x-request-id"))
        method = scope["method"] if scope["method"] in METHODS else "other"
        record = RequestRecord(method, scope["path"] if scope["path"] in self._paths else "other")
        scope.setdefault("state", {})["record"] = record

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                response_headers = MutableHeaders(scope=message)
                response_headers.setdefault("X-Request-ID", identity)
                if self._service.draining:
                    response_headers["Connection"] = "close"
            await send(message)

        token = REQUEST_ID.set(identity)
        try:
            if (problem := self._refusal(method, headers, scope)) is not None:
                await _problem_response(problem, record)(scope, receive, send_with_headers)
            else:
                await self._answer(scope, receive, send_with_headers, record)
        finally:
            self._note(record)
            REQUEST_ID.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 (`_on_failure` has already answered the client)
            log("unexpected", logging.ERROR, error=error)
            record.code = record.code or INTERNAL.code

    def _refusal(self, method: str, headers: Headers, scope: Scope) -> Problem | None:
        """Return the error for a wrong host name, a page of another origin, a wrong token, and a refused path.

        The health and the page's own files need no token: they contain nothing of the index.
        """
        path, name = scope["path"], host_name(headers.get("host", ""))
        if name not in self._hosts if self._hosts else self._token is None and is_rebindable(headers):
            return Problem(403, "host_not_allowed", "the name in the Host header is not allowed: see --allow-host")
        if is_foreign_page(headers, self._origins) and not (is_public(path) and is_navigation(method, headers)):
            message = (
                "a web page of another origin may not call this server: "
                "ctx1 proxy and ctx1 mcp admit those that --allow-origin names"
            )
            return Problem(403, "origin_not_allowed", message)
        if self._token is None or path == HEALTH or is_public(path):
            return self._scope_problem(scope)
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(credentials.strip().encode("latin-1"), self._token):
            return self._scope_problem(scope)
        reason = "the bearer token is wrong" if credentials else "a bearer token is needed"
        return Problem(401, "invalid_api_key", reason, headers={"WWW-Authenticate": "Bearer"})

    def _note(self, record: RequestRecord) -> None:
        seconds, metrics = time.perf_counter() - record.started, self._service.metrics
        status = record.status or CLIENT_CLOSED
        metrics.requests.add(record.path, str(status))
        metrics.seconds.add(record.path, seconds)
        code = {"code": record.code} if record.code else {}
        if record.code:
            metrics.errors.add(record.code)
        fields: dict[str, Any] = {"method": record.method, "path": record.path, "status": status, **code}
        log("request", **fields, seconds=round(seconds, 4), **record.notes)


def _problem_response(problem: Problem, record: RequestRecord) -> Response:
    """Return the response for a problem, which is noted in the record."""
    record.code = problem.code
    body = {**problem.to_json(), "request_id": REQUEST_ID.get()}
    return Json(body, problem.status, headers=dict(problem.headers))


def _on_failure(request: Request, error: Exception) -> Response:
    """Return the response to an unexpected exception; Starlette raises it again, so that it is logged."""
    return _problem_response(INTERNAL, request.state.record)


def _on_gone(request: Request, error: Exception) -> Response:
    """Return a response that nobody reads."""
    request.state.record.code = CLIENT_GONE
    return Response(status_code=CLIENT_CLOSED)


def _on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return _problem_response(problem, request.state.record)


def _on_refusal(request: Request, error: Exception) -> Response:
    """Return the response to what Starlette refuses: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)
    reasons = {
        404: ("not_found", "there is no such path"),
        405: ("method_not_allowed", "the path does not support this method"),
    }
    code, message = reasons.get(error.status_code, ("refused", error.detail))
    return _problem_response(
        Problem(error.status_code, code, message, headers=dict(error.headers or {})), request.state.record
    )


class Routes:
    """The endpoints of one service."""

    def __init__(self, service: Service, peers: WorkerPeers) -> None:
        self._service, self._peers = service, peers
        self._settings = service.settings
        self._judging = asyncio.Lock()
        self._pruners = ConversationPruners()
        peers.handlers |= {"metrics": self._samples, "prune": self._prune_for_peer}

    async def retrieve(self, request: Request) -> Response:
        """`POST /v1/retrieve`."""
        body = await self._read(request, RetrieveRequest)
        search = self._service.admit(
            SearchRequest(body.question, body.k, request.scope["path"], body.where, body.deadline, body.id, body.effort)
        )
        record: RequestRecord = request.state.record
        if body.stream or "text/event-stream" in request.headers.get("accept", ""):
            return EventResponse(self._stream(search, record, search_events, error_event), _leave(search, record))
        answer = await self._answer(request, search)
        return Json(answer.to_json())

    async def complete(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        body = await self._read(request, ChatRequest)
        self._check_model(body.model)
        search = self._service.admit(
            SearchRequest(question_of(body), body.k, request.scope["path"], body.where, body.deadline)
        )
        completion = Completion(f"chatcmpl-{REQUEST_ID.get()}", body.model)
        if body.stream:
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            chunks = partial(completion.chunks, with_usage=with_usage)
            record: RequestRecord = request.state.record
            stream = self._stream(search, record, chunks, completion.failure, [completion.opening()])
            return EventResponse(stream, _leave(search, record))
        return Json(completion.whole(await self._answer(request, search)))

    async def judge(self, request: Request) -> Response:
        """`POST /v1/feedback`."""
        body = await self._read(request, FeedbackRequest)
        feedback = self._service.feedback
        if feedback is None:
            raise Problem(404, "no_trajectories", "this server writes no trajectories, so searches cannot be judged")
        try:
            # One at a time: the log has one writer, and waiting judgements must not block the threads of searches.
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
        return Json({"id": entry.id, "trajectory": entry.trajectory, "created": created}, 201 if created else 200)

    async def judge_relevance(self, request: Request) -> Response:
        """`POST /v1/systemone`."""
        body = await self._read(request, RelevanceRequest)
        async with self._service.step(request.scope["path"]):
            settings = self._settings
            answer = await asyncio.to_thread(judge, body, settings.model, budget=settings.guardrail_budget)
        return Json(answer.model_dump())

    async def prune(self, request: Request) -> Response:
        """`POST /v1/prune`."""
        body = await self._read(request, PruneRequest)
        if self._peers.count == 1:
            answer = await self._prune(body)
        else:
            # The worker that remembers what it removed from the conversation.
            owner = self._peers.owner(await asyncio.to_thread(conversation_digest, body.messages))
            answer = await self._peers.call(owner, "prune", body.model_dump(), seconds=self._settings.deadline)
        if (report := answer["report"]) is not None:
            request.state.record.notes |= {name: report[name] for name in ("outcome", "freed", "cached_lost")}
        return Json(answer)

    async def _prune(self, body: PruneRequest) -> Any:
        async with self._service.step(PRUNE):
            try:
                answer = await asyncio.to_thread(prune_conversation, self._pruners, body)
            except ConfigError as error:
                raise Problem(400, "unknown_passage", str(error), "restore") from None
        return answer.model_dump()

    async def _prune_for_peer(self, fields: Any) -> Any:
        return await self._prune(PruneRequest.model_validate(fields))

    async def agent(self, request: Request) -> Response:
        """`GET /v1/agent`."""
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

    async def trajectory(self, request: Request) -> Response:
        """`GET /v1/trajectories/{name}`."""
        if self._service.feedback is None:
            raise Problem(404, "no_trajectories", "this server writes no trajectories: start it with --trajectories")
        try:
            data = await asyncio.to_thread(episode_data, self._service.feedback, request.path_params["name"])
        except DataError as error:
            raise Problem(404, "unknown_trajectory", str(error)) from None
        return Json(data, headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        return Json({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{name}`."""
        self._check_model(request.path_params["name"])
        return Json(self._model())

    async def health(self, request: Request) -> Response:
        """`GET /health`: 503 while no questions are accepted."""
        service = self._service
        state = Health(live=True, ready=service.ready, draining=service.draining)
        return Json(state.model_dump(), 200 if service.ready else 503)

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`: of several workers, those that answer in time."""
        if self._peers.count == 1:
            text = self._service.metrics.text()
        else:
            text = exposition(by_worker(await self._peers.call_all("metrics", None, seconds=METRICS_TIMEOUT)))
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def _samples(self, _: Any) -> Any:
        return self._peers.number, self._service.metrics.samples()

    async def schema(self, request: Request) -> Response:
        """`GET /openapi.json`."""
        return Response(self._document, media_type="application/json")

    @cached_property
    def _document(self) -> bytes:
        """The OpenAPI document; cached, because no other answer without a search takes as long."""
        return encode(document(self._settings.model, secured=self._settings.token is not None))

    def _model(self) -> dict[str, Any]:
        return {"id": self._settings.model, "object": "model", "created": MODEL_CREATED, "owned_by": "context-agent"}

    def _check_model(self, name: str) -> None:
        if name != self._settings.model:
            raise Problem(404, "model_not_found", f"the only model here is {self._settings.model!r}", "model")

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
        """Yield a search as a stream: the `opening`, the `parts` of its progress and answer, heartbeats, and any
        failure.
        """
        for part in opening:
            yield part
        try:
            async with aclosing(with_heartbeat(self._service.stream(search), self._settings.heartbeat)) as stream:
                async for item in stream:
                    if isinstance(item, ServedAnswer):
                        _note(record, item)
                    for part in [HEARTBEAT] if item is None else parts(item):
                        yield part
        except Exception as error:  # noqa: BLE001 (the response has started: the failure is its last part)
            if not isinstance(error, Problem):
                log("unexpected", logging.ERROR, error=error)
            problem = error if isinstance(error, Problem) else INTERNAL
            record.code = problem.code
            yield failure(problem)

    async def _read(self, request: Request, model: type[M]) -> M:
        """Return the request's body as the model. Raises `Problem`."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(415, "unsupported_media_type", "the body must be application/json")
        body = await read_body(request, self._settings.max_body)
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise invalid_body(error) from None


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of at most `limit` bytes. Raises `Problem`, and `ClientGone`."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await _bounded_body(request, limit)
    except TimeoutError:
        message = f"the request's body did not arrive within {BODY_TIMEOUT} s"
        raise Problem(408, "slow_body", message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientGone from None


async def _bounded_body(request: Request, limit: int) -> bytes:
    message = f"the body is larger than {limit:,} bytes: send less, or raise --max-body of the server"
    too_large = Problem(413, "too_large", message, headers={"Connection": "close"})
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise too_large
    return bytes(body)


def _judge(feedback: FeedbackLog, body: FeedbackRequest) -> tuple[Judgement, bool]:
    """Return the judgement, and whether it is new to the log."""
    trajectory = feedback.trajectory_of(body.request_id) if body.request_id is not None else body.trajectory or ""
    entry = judgement(trajectory=trajectory, **body.model_dump(exclude={"trajectory", "request_id"}))
    return entry, feedback.add(entry)


def _leave(search: AdmittedSearch, record: RequestRecord) -> Callable[[bool], None]:
    """Return a function that ends the search of a stream, and notes whether the client left early."""

    def leave(complete: bool) -> None:
        search.leave()
        if not complete:
            record.status, record.code = CLIENT_CLOSED, CLIENT_GONE

    return leave


def _note(record: RequestRecord, answer: ServedAnswer) -> None:
    """Adds what the log line has about a search."""
    result = answer.result
    record.notes |= {"stop_reason": result.stop_reason, "documents": len(result.documents), **answer.usage()}
    record.notes["seconds_searched"] = round(record.notes.pop("seconds") - answer.queued, 4)
    if answer.trajectory is not None:
        record.notes["trajectory"] = answer.trajectory
