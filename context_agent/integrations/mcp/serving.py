"""Functions that run the MCP server, on stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from context_agent._support.extras import extra
from context_agent.integrations.mcp.server import server_on
from context_agent.integrations.server.health import HEALTH_PATH, health_answer
from context_agent.integrations.server.middleware import route_path
from context_agent.integrations.server.origins import (
    LOOPBACK_NAMES,
    allowed_host,
    check_origins,
    host_name,
    is_foreign_page,
    is_loopback,
)
from context_agent.integrations.server.process import serve
from context_agent.integrations.server.service import Service

with extra("mcp"):
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send


MCP_PATH = "/mcp"
INTERRUPT_GRACE = 1.0
"""Seconds for searches to end after an interrupt."""


def serve_stdio(service: Service) -> bool:
    """Serve the client that started this process, until it closes stdin.

    Stdout carries the protocol, so everything that is printed goes to stderr. After an interrupt, a thread still waits
    for stdin, and nothing can cancel it. End the process without waiting for its threads.

    Returns:
        True if an interrupt came before the end of stdin.
    """
    failures: list[BaseException] = []
    loop = asyncio.new_event_loop()
    serving_task = loop.create_task(_stdio(service))

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serving_task)
        except BaseException as error:  # noqa: BLE001 (the caller's thread raises it again)
            failures.append(error)

    thread = threading.Thread(target=run, name="ctx1-mcp", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(serving_task.cancel)
        thread.join(INTERRUPT_GRACE)
        return True
    loop.close()
    if failures:
        raise failures[0]
    return False


async def _stdio(service: Service) -> None:
    async with service.following():
        await server_on(service).run_stdio_async()


def serve_http(
    service: Service,
    host: str,
    port: int,
    on_ready: Callable[[str], None] = lambda url: None,
    *,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> bool:
    """Serve over HTTP until a signal arrives.

    Running searches finish after the first signal, and end at once at the second.

    Args:
        service: The service, which has the settings and the index.
        host: The address to listen on.
        port: The port, or 0 for any free one.
        on_ready: A function that is called with the URL of the endpoint when the server listens.
        hosts: As in `application`.
        origins: As in `application`.

    Returns:
        True if the signal was SIGINT (Ctrl-C).

    Raises:
        ConfigError: If the address cannot be used, or for a name or an origin that `application` refuses.
    """
    app = application(service, host, hosts=hosts, origins=origins)
    return serve(service, app, host, port, lambda url: on_ready(url + MCP_PATH))


def application(
    service: Service, host: str = "127.0.0.1", *, hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> Starlette:
    """Return the ASGI application of streamable HTTP, at the path `/mcp`.

    The server is stateless. No tool depends on an earlier call, and clients that never end their sessions cost no
    memory. A client cancels a call by closing its connection. `/health` answers without a token whether the server
    accepts calls.

    Args:
        service: The service. The application follows its index and closes it.
        host: The address that the server listens on.
        hosts: Names that the Host header may have besides those of the loopback. If there are neither `hosts` nor
            `origins`, a server on another address than the loopback's accepts any name.
        origins: Origins of web pages that may call, such as `https://app.example`.

    Raises:
        ConfigError: If no Host header can have one of the names, or if no browser sends one of the origins.
    """
    check_origins(origins)
    names = [*LOOPBACK_NAMES, *map(allowed_host, hosts)]
    pages = [*(f"http://{name}:*" for name in LOOPBACK_NAMES), *(origin.lower() for origin in origins)]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=is_loopback(host) or bool(hosts) or bool(origins),
        allowed_hosts=names,
        allowed_origins=pages,
    )

    async def health(_: Request) -> Response:
        return health_answer(service)

    app = server_on(service).streamable_http_app(
        streamable_http_path=MCP_PATH,
        stateless_http=True,
        max_request_body_size=service.settings.max_body,
        transport_security=security,
        host=host,
    )
    app.router.routes.append(Route(HEALTH_PATH, health))
    # The address of a redirect would lack the port, and behind a proxy also the proxy's scheme and prefix.
    app.router.redirect_slashes = False
    sessions = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with service.following(), sessions(app) as state:
            yield state

    app.router.lifespan_context = lifespan
    app.add_middleware(PostOnlyMiddleware, origins=frozenset(pages))
    if origins:
        # A browser sends the request of a page of another origin only after a preflight request that allows it.
        allowed = [origin.lower() for origin in origins]
        app.add_middleware(CORSMiddleware, allow_origins=allowed, allow_methods=["POST"], allow_headers=["*"])
    return app


class PostOnlyMiddleware:
    """A layer that accepts only POST requests and health checks.

    It refuses web pages unless their origin is in `origins`. It ignores a slash after `/mcp`, which many users write.

    A stateless server has no stream to GET and no session to DELETE. The SDK checks the origin only where it checks the
    host, and ignores `Sec-Fetch-Site`. It also compares the host as text. This layer therefore passes on the name
    alone, in the form of `host_name`.
    """

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        refusal = None
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            headers = MutableHeaders(raw=list(scope["headers"]))
            if "host" in headers:
                headers["host"] = host_name(headers["host"])
            path = scope["path"]
            scope = {
                **scope,
                "headers": headers.raw,
                "path": path.removesuffix("/") if route_path(scope) == f"{MCP_PATH}/" else path,
            }
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        is_health_check = route_path(scope) == HEALTH_PATH and scope["method"] in ("GET", "HEAD")
        if scope["method"] != "POST" and not is_health_check:
            return PlainTextResponse("use POST", 405, headers={"Allow": "POST"})
        if is_foreign_page(Headers(scope=scope), self._origins):
            return PlainTextResponse(
                "web pages of other origins may not call this server. Allow an origin with --allow-origin.", 403
            )
        return None
