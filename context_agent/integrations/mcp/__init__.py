"""The agent and its corpus as tools of the Model Context Protocol: `ctx1 mcp`. Needs the extra `mcp`.

    make_server(agent).run("stdio")

The server is here, and serving it on this process's stdin and stdout or over HTTP; `tools` has the tools.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import AnyHttpUrl

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.version import __version__

with extra("mcp"):
    from mcp.server import MCPServer
    from mcp.server.auth.provider import AccessToken, TokenVerifier
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver.resources import ResourceSecurity
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.types import ToolAnnotations
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

    from context_agent.integrations.mcp.tools import Tools
    from context_agent.integrations.server.origins import LOOPBACK, is_foreign_page
    from context_agent.integrations.server.service import Service, Settings
    from context_agent.integrations.server.transport import serve

NAME = "context-agent"
INSTRUCTIONS = (
    "A corpus of documents. `retrieve` answers one question, also one that takes several facts, by searching in "
    "several steps on its own: ask the whole question and use the documents that come back. `search` (one query), "
    "`grep` (a regular expression) and `read` (a document by id) are single steps. Cite documents by their ids. "
    "`prune` needs no documents: it removes from a conversation what no longer matters in its tool results."
)


READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


NO_ISSUER = AnyHttpUrl("http://localhost")
"""An issuer, which the SDK's settings for OAuth require. Nothing is requested from there."""
PATH = "/mcp"
INTERRUPT_GRACE = 1.0
"""Seconds for searches to end after an interrupt."""


def make_server(agent: SearchAgent, settings: Settings | None = None) -> MCPServer[Any]:
    """Return an MCP server on an agent, which the caller closes. `settings` has limits, and a token for HTTP."""
    return server_on(Service.of(agent, settings))


def server_on(service: Service) -> MCPServer[Any]:
    """Return an MCP server on a service, whose index the caller follows and closes."""
    token = service.settings.token
    server: MCPServer[Any] = MCPServer(
        NAME,
        title="Context agent",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        # The tools and documents never change, so no client needs to hold a connection open for changes.
        subscriptions=False,
        auth=None if token is None else AuthSettings(issuer_url=NO_ISSUER, resource_server_url=None),
        token_verifier=None if token is None else SharedToken(token),
    )
    tools = Tools(service)
    for tool, title in (
        (tools.retrieve, "Answer a question with documents"),
        (tools.search, "Search once"),
        (tools.grep, "Find a pattern"),
        (tools.read, "Read a document"),
        (tools.prune, "Prune a conversation"),
    ):
        server.add_tool(tool, title=title, description=inspect.getdoc(tool), annotations=READ_ONLY)
    server.resource(
        "ctx1://document/{+document_id}",
        name="document",
        title="Document",
        description="The whole text of a document, by its id.",
        mime_type="text/plain",
        # The id is looked up in the corpus; it never names a file.
        security=ResourceSecurity(exempt_params={"document_id"}),
    )(tools.document)
    return server


def serve_stdio(service: Service) -> bool:
    """Serves the client that started this process until it closes stdin; True if an interrupt came first.

    Meanwhile everything that is printed goes to stderr, because stdout carries the protocol. After an interrupt a
    thread still waits for stdin, which cannot be cancelled: end the process without waiting for its threads.
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
    """Serves over HTTP until a signal; True if that was SIGINT (Ctrl-C). Raises `ConfigError`.

    The first signal lets running searches end, the second one does not. `hosts` and `origins` as in `application`.
    """
    app = application(service, host, hosts=hosts, origins=origins)
    return serve(service, app, host, port, lambda url: on_ready(url + PATH))


def application(
    service: Service, host: str = "127.0.0.1", *, hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> Starlette:
    """Return the ASGI application of streamable HTTP, at the path `/mcp`.

    `hosts` are allowed names in the Host header besides those of the loopback, `origins` allowed origins of web pages,
    such as `https://app.example`. On another address than the loopback's, empty `hosts` allow any name.

    The server is stateless: no tool depends on an earlier call, and clients that never end their sessions cost no
    memory. A client cancels a call by closing its connection.
    """
    is_loopback = host in ("127.0.0.1", "localhost", "::1")
    names = [*LOOPBACK, *hosts]
    pages = [*(f"http://{name}:*" for name in LOOPBACK), *(origin.lower() for origin in origins)]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=is_loopback or bool(hosts) or bool(origins),
        allowed_hosts=[pattern for name in names for pattern in (name, f"{name}:*")],
        allowed_origins=pages,
    )
    app = server_on(service).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=service.settings.max_body,
        transport_security=security,
        host=host,
    )
    sessions = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with service.following(), sessions(app) as state:
            yield state

    app.router.lifespan_context = lifespan
    app.add_middleware(OwnPosts, origins=frozenset(pages))
    return app


class OwnPosts:
    """A layer that refuses all methods but POST, and web pages of other origins than `origins`.

    A stateless server has no stream to GET and no session to DELETE. The SDK checks the origin only where it also
    checks the host, and does not know `Sec-Fetch-Site`.
    """

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if scope["method"] != "POST":
            return PlainTextResponse("use POST", 405, headers={"Allow": "POST"})
        if is_foreign_page(Headers(scope=scope), self._origins):
            return PlainTextResponse("web pages of other origins may not call this server: see --allow-origin", 403)
        return None


class SharedToken(TokenVerifier):
    """Accepts one bearer token; everyone who has it counts as one client."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access of the token; None for a wrong one. Compares in constant time."""
        is_valid = hmac.compare_digest(token.strip().encode("latin-1", "replace"), self._token)
        return AccessToken(token=token, client_id="shared", scopes=[]) if is_valid else None
