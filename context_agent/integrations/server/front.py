"""What every request passes through: an id, the token, a log line, the metrics, and an answer when all else fails."""

from __future__ import annotations

import hmac
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from context_agent.integrations.server.encoding import Json
from context_agent.integrations.server.logs import REQUEST_ID, log, request_id
from context_agent.integrations.server.problems import Problem
from context_agent.integrations.server.service import Service

HEALTH = "/health"
METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))
"""Methods that the log names; a client may make up others, as long as a header can be."""
HUNG_UP, GONE = 499, "client_gone"
"""The status and the code that are counted for a client that left before it had its whole answer."""
INTERNAL = Problem(500, "internal", "something went wrong in the server")


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
