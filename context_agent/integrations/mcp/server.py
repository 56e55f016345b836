"""A server that runs: on this process's stdin and stdout, or at an address."""

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
from context_agent.integrations.feedback import FeedbackLog
from context_agent.version import __version__

with extra("mcp"):
    from mcp.server import MCPServer
    from mcp.server.auth.provider import AccessToken, TokenVerifier
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver.resources import ResourceSecurity
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.types import ToolAnnotations
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

    from context_agent.integrations.mcp.tools import Tools
    from context_agent.integrations.server.live_index import Served
    from context_agent.integrations.server.service import Service, Settings
    from context_agent.integrations.server.transport import serve

NAME = "context-agent"
INSTRUCTIONS = (
    "A corpus of documents. `retrieve` answers one question, also one that takes several facts, by searching in "
    "several steps on its own: ask the whole question and use the documents that come back. `search` (one query), "
    "`grep` (a regular expression) and `read` (a document by id) are single steps. Cite documents by their ids."
)


READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


NO_ISSUER = AnyHttpUrl("http://localhost")
"""The SDK's settings are made for OAuth. Nothing is fetched from there or told of it: the token is known beforehand."""
PATH = "/mcp"
LAST_WORDS = 1.0
"""Seconds that searches get to end after an interrupt."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names that only this machine's programs can mean. With them, a page in a browser that had its own name point here
is told apart by the Host header it sends."""


def make_server(agent: SearchAgent, settings: Settings | None = None) -> MCPServer[Any]:
    """An MCP server on an agent, which stays the caller's to close. `settings` hold limits and a token for HTTP."""
    feedback = None if agent.trajectories is None else FeedbackLog(agent.trajectories)
    return server_on(Service(Served(agent), settings or Settings(), feedback))


def server_on(service: Service) -> MCPServer[Any]:
    """An MCP server on a service, for whoever looks after that: see `serving`."""
    token = service.settings.token
    server: MCPServer[Any] = MCPServer(
        NAME,
        title="Context agent",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        # The tools and documents of a server stay the same: nobody needs to hold a connection open for news of them.
        subscriptions=False,
        # The SDK's settings are made for OAuth; nothing is fetched from the issuer, and no metadata are published.
        auth=None if token is None else AuthSettings(issuer_url=NO_ISSUER, resource_server_url=None),
        token_verifier=None if token is None else SharedToken(token),
    )
    tools = Tools(service)
    for tool, title in (
        (tools.retrieve, "Answer a question with documents"),
        (tools.search, "Search once"),
        (tools.grep, "Find a pattern"),
        (tools.read, "Read a document"),
    ):
        server.add_tool(tool, title=title, description=inspect.getdoc(tool), annotations=READ_ONLY)
    server.resource(
        "ctx1://document/{+document_id}",
        name="document",
        title="Document",
        description="The whole text of a document, by its id.",
        mime_type="text/plain",
        # An id is looked up among the corpus's ids; no file is named by it.
        security=ResourceSecurity(exempt_params={"document_id"}),
    )(tools.document)
    return server


def serve_stdio(service: Service) -> bool:
    """Serves the client that started this process, until it closes stdin; whether an interrupt came before.

    While it serves, whatever else is printed goes to stderr: stdout carries the protocol alone. After an interrupt a
    thread still waits for stdin, which nothing can call off: end the process without waiting for its threads.
    """
    failures: list[BaseException] = []
    loop = asyncio.new_event_loop()
    serving = loop.create_task(_stdio(service))

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serving)
        except BaseException as error:  # noqa: BLE001 (raised again by whoever waits)
            failures.append(error)

    thread = threading.Thread(target=run, name="ctx1-mcp", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(LAST_WORDS)
        return True
    loop.close()
    if failures:
        raise failures[0]
    return False


async def _stdio(service: Service) -> None:
    async with _following(service):
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
    """Serves at an address until a signal; whether that was an interrupt from the keyboard. Raises `ConfigError`.

    The first signal lets running searches end, a second one does not. For `hosts` and `origins` see `application`.
    """
    app = application(service, host, hosts=hosts, origins=origins)
    return serve(service, app, host, port, lambda url: on_ready(url + PATH))


def application(
    service: Service, host: str = "127.0.0.1", *, hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> Starlette:
    """The ASGI application of streamable HTTP, at the path `/mcp`.

    `hosts` are names beside the loopback's by which clients may call it, `origins` those of web pages that may, as
    `https://app.example`. On an address that is not the loopback's, any name will do where `hosts` is empty.

    The server keeps no session: no tool depends on an earlier call, and a client that never ends its sessions costs no
    memory. A client gives up a call by closing its connection.
    """
    local = host in ("127.0.0.1", "localhost", "::1")
    names = [*LOOPBACK, *hosts]
    allowed = TransportSecuritySettings(
        enable_dns_rebinding_protection=local or bool(hosts) or bool(origins),
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[*(f"http://{name}:*" for name in LOOPBACK), *origins],
    )
    app = server_on(service).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=service.settings.max_body,
        transport_security=allowed,
        host=host,
    )
    sessions = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with _following(service), sessions(app) as state:
            yield state

    app.router.lifespan_context = lifespan
    app.add_middleware(PostOnly)
    return app


class PostOnly:
    """Refuses all methods but POST: without sessions there is no stream to open by GET, nor a session to DELETE."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "http" and scope["method"] != "POST":
            refusal = PlainTextResponse("use POST", 405, headers={"Allow": "POST"})
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


@asynccontextmanager
async def _following(service: Service) -> AsyncIterator[None]:
    """Keeps the service on the index's present state while the block runs."""
    task = asyncio.create_task(service.follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await service.served.close()


class SharedToken(TokenVerifier):
    """Lets in whoever knows the token; all of them are one client."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """What the token allows; None for a wrong one. Takes as long for one that is nearly right."""
        right = hmac.compare_digest(token.strip().encode("latin-1", "replace"), self._token)
        return AccessToken(token=token, client_id="shared", scopes=[]) if right else None
