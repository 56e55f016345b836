"""The layer that every request passes.

It gives the request its id, checks host, origin and token, and writes the log line and the metrics.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from context_agent._support.extras import extra
from context_agent.integrations.server.body_room import HeldBody
from context_agent.integrations.server.disconnects import ClientGone
from context_agent.integrations.server.errors import INTERNAL_ERROR, Problem, shutting_down
from context_agent.integrations.server.health import HEALTH_PATH
from context_agent.integrations.server.json_encoding import Json
from context_agent.integrations.server.limited_service import LimitedService
from context_agent.integrations.server.logs import REQUEST_ID, log, request_id
from context_agent.integrations.server.origins import (
    allowed_host,
    host_name,
    is_foreign_page,
    is_navigation,
    is_rebindable,
)
from context_agent.integrations.server.pages import is_public

with extra("serve"):
    from starlette.applications import Starlette
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Message, Receive, Scope, Send


KNOWN_METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))
"""Methods that the log and the metrics name. A client can invent others, as long as a header may be."""
CLIENT_CLOSED, CLIENT_GONE = 499, "client_gone"
"""The status and the code of a request whose client left before it had the complete answer."""

NOT_A_WEB_PROXY = (
    "the path is not relayed: the request is one to a web proxy. Set the client's base URL to the address of this "
    "server, and not HTTP_PROXY or HTTPS_PROXY."
)


@dataclass(slots=True)
class RequestRecord:
    """The outcome of a request, for the log and the metrics.

    Attributes:
        method: The method, or `other`.
        path: The path of the route, or `other`.
        started: The time when the request began, by `time.perf_counter`.
        status: The status of the response. Until the response starts, it is 0.
        code: The code of the error, or an empty text.
        notes: Facts that the endpoint adds to the log line.
    """

    method: str
    path: str
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    code: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


def route_path(scope: Scope) -> str:
    """Return the path of a request inside this application, which may be mounted below a path of another one."""
    path: str = scope["path"]
    inside = path.removeprefix(scope.get("root_path", ""))
    return inside if not inside or inside.startswith("/") else path


class RequestMiddleware:
    """The outermost layer of an application. It handles id, host and token, the log line and the metrics of a request.

    The metrics name the paths of the application's routes. Any other path is counted as `other`.
    """

    def __init__(
        self,
        app: Starlette,
        service: LimitedService,
        scope_problem: Callable[[Scope], Problem | None] = lambda scope: None,
    ) -> None:
        """Wrap an application.

        Args:
            app: The application. Its error handlers are `ERROR_HANDLERS`.
            service: The service, which has the settings and the metrics.
            scope_problem: A function that returns the error for a request that is refused before it is routed. For
                other requests it returns None.
        """
        self._app, self._service, self._scope_problem = app, service, scope_problem
        self._paths = {route.path for route in app.routes if isinstance(route, Route)}
        token = service.settings.token
        # An environment variable may have bytes that are not UTF-8.
        self._token = None if token is None else token.encode(errors="surrogateescape")
        self._hosts = frozenset(map(allowed_host, service.settings.hosts))
        self._origins = frozenset(origin.lower() for origin in service.settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        identity = request_id(headers.get("x-request-id"))
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
        path = route_path(scope)
        record = RequestRecord(method, path if path in self._paths else "other")
        held = HeldBody(self._service.bodies)
        scope.setdefault("state", {}).update(record=record, held_body=held)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                held.release()
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
            held.release()
            self._note(record)
            REQUEST_ID.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._service.draining:
                raise
            # The server ends and cancels what still runs. uvicorn would answer with an internal error.
            problem = shutting_down()
            record.code = problem.code
            if not record.status:
                await _problem_response(problem, record)(scope, receive, send)
        except Exception as error:  # noqa: BLE001 (`_on_failure` has already answered the client)
            log("unexpected", logging.ERROR, error=error)
            record.code = record.code or INTERNAL_ERROR.code

    def _refusal(self, method: str, headers: Headers, scope: Scope) -> Problem | None:
        """Return the error for a wrong target, host name or token, a page of another origin or a refused path.

        The health endpoint and the files of the page need no token, because they contain nothing from the index.
        """
        path = route_path(scope)
        if scope["path"][:1] not in ("", "/"):
            return Problem(400, "invalid_path", NOT_A_WEB_PROXY, headers={"Connection": "close"})
        if self._has_wrong_host(headers):
            return Problem(
                403, "host_not_allowed", "the name in the Host header is not allowed. Allow it with --allow-host."
            )
        if is_foreign_page(headers, self._origins) and not (is_public(path) and is_navigation(method, headers)):
            message = (
                "a web page of another origin may not call this server. Only `ctx1 proxy` and `ctx1 mcp` accept "
                "origins, which --allow-origin names."
            )
            return Problem(403, "origin_not_allowed", message)
        if self._token is None or path == HEALTH_PATH or is_public(path):
            return self._scope_problem(scope)
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(credentials.strip(" \t").encode("latin-1"), self._token):
            return self._scope_problem(scope)
        reason = (
            "the bearer token is wrong. Send the server's token in the header Authorization."
            if credentials
            else "a bearer token is needed. Send the server's token in the header Authorization."
        )
        return Problem(401, "invalid_api_key", reason, headers={"WWW-Authenticate": "Bearer"})

    def _has_wrong_host(self, headers: Headers) -> bool:
        if not self._hosts:
            return self._token is None and is_rebindable(headers)
        # Every browser sends the field. Some load balancers check the health in HTTP/1.0 without it.
        return "host" in headers and host_name(headers["host"]) not in self._hosts

    def _note(self, record: RequestRecord) -> None:
        seconds, metrics = time.perf_counter() - record.started, self._service.metrics
        status = record.status or CLIENT_CLOSED
        metrics.requests.labels(record.path, status).inc()
        metrics.seconds.labels(record.path).observe(seconds)
        code = {"code": record.code} if record.code else {}
        if record.code:
            metrics.errors.labels(record.code).inc()
        fields: dict[str, Any] = {"method": record.method, "path": record.path, "status": status, **code}
        log("request", **fields, seconds=round(seconds, 4), **record.notes)


def _problem_response(problem: Problem, record: RequestRecord) -> Response:
    """Return the response for a problem, and note its code in the record."""
    record.code = problem.code
    body = {**problem.to_json(), "request_id": REQUEST_ID.get()}
    return Json(body, problem.status, headers=dict(problem.headers))


async def _on_failure(request: Request, error: Exception) -> Response:
    """Return the response to an unexpected exception. Starlette raises the exception again, so it is logged."""
    return _problem_response(INTERNAL_ERROR, request.state.record)


async def _on_gone(request: Request, error: Exception) -> Response:
    """Return a response for a client that has disconnected. Nobody reads the response."""
    request.state.record.code = CLIENT_GONE
    return Response(status_code=CLIENT_CLOSED)


async def _on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return _problem_response(problem, request.state.record)


async def _on_refusal(request: Request, error: Exception) -> Response:
    """Return the response to a request that Starlette refuses because of its path or its method."""
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow", "another method")
    reasons = {
        404: ("not_found", "there is no such path. Check its spelling."),
        405: ("method_not_allowed", f"the path does not support {request.method}. Use {allowed}."),
    }
    code, message = reasons.get(error.status_code, ("refused", error.detail))
    return _problem_response(
        Problem(error.status_code, code, message, headers=dict(error.headers or {})), request.state.record
    )


ERROR_HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    Problem: _on_problem,
    HTTPException: _on_refusal,
    ClientGone: _on_gone,
    Exception: _on_failure,
}
"""The handlers of an application that `RequestMiddleware` wraps."""
