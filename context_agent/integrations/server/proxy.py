"""A proxy before a model server that prunes conversations on their way, for `ctx1 proxy`.

The proxy prunes requests to `/v1/chat/completions`, `/v1/responses`, `/v1/messages`, Cohere's `/v1/chat` and
`/v2/chat`, Ollama's `/api/chat`, DashScope's own API, Gemini's `generateContent` and `interactions`, Bedrock's
`converse` and `invoke`, and Vertex AI's `rawPredict`. In a pruned body, only the texts that changed differ, and the
field that lets Anthropic's API drop thinking. Everything else passes through byte for byte. Answers are relayed as they
arrive, including their headers. The proxy adds no key, follows no redirect and keeps no cookie. Keys in headers pass
through, and are neither stored nor logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx

from context_agent._support.event_loops import run_cancellable
from context_agent._support.extras import extra
from context_agent.errors import reason_of
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.admission import Ticket
from context_agent.integrations.server.bodies import read_body
from context_agent.integrations.server.conversation_paths import (
    CONVERSATION_FIELDS,
    bedrock_operation,
    caching_api,
    conversation_field,
)
from context_agent.integrations.server.disconnects import ClientGone, unless_gone
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.headers import REPORT_HEADER
from context_agent.integrations.server.health import HEALTH_PATH, health_answer
from context_agent.integrations.server.limited_service import LimitedService
from context_agent.integrations.server.logs import log
from context_agent.integrations.server.middleware import (
    CLIENT_CLOSED,
    CLIENT_GONE,
    ERROR_HANDLERS,
    KNOWN_METHODS,
    RequestMiddleware,
    RequestRecord,
)
from context_agent.integrations.server.origins import host_name, is_loopback
from context_agent.integrations.server.pruned_bodies import BodyPruner, PrunedBody
from context_agent.integrations.server.request_targets import path_fault
from context_agent.integrations.server.savings import SavingsReport, model_in_path
from context_agent.integrations.server.settings import Settings
from context_agent.integrations.server.upstream import Upstream, UpstreamAnswer

with extra("serve"):
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_BODY = 32_000_000
"""Bytes: the limit of Anthropic's API."""
PAUSE_SECONDS = 600.0
"""Seconds that a model may be silent."""
REPORT_SECONDS = 60.0
"""Seconds between two times that the report is written."""
OWN_PATHS = "/_context"
"""The proxy's own paths begin with it. They are never sent to the upstream."""
KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
KEY_PARAMETERS = (b"key=", b"api_key=", b"api-key=", b"access_token=")
"""Header fields, and parameters of the query, in which clients send keys. Gemini's clients may use either."""
WEBSOCKET_MESSAGE = "the proxy does not relay WebSockets. Send the request over HTTP."
"""The message of status 426. Codex then sends its requests over HTTP at once, and after other errors it tries again."""
FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Header fields of a reverse proxy, which may run on this machine and serve others."""
HINT_HEADER, HINT_CHARACTERS = "x-context-looking-for", 2_000
"""The header in which an agent may say what it is looking for, and how much of it counts."""


def proxy_application(proxy: Proxy) -> ASGIApp:
    """Return the ASGI application of a proxy."""
    table = [
        Route(f"{OWN_PATHS}/report", proxy.show_report, methods=["GET"]),
        Route(f"{OWN_PATHS}{HEALTH_PATH}", proxy.show_health, methods=["GET"]),
        Route(f"{OWN_PATHS}/{{path:path}}", no_such_path, methods=sorted(KNOWN_METHODS)),
        # These routes give the paths of conversations their names in the log.
        *(Route(path, proxy.relay, methods=sorted(KNOWN_METHODS)) for path in CONVERSATION_FIELDS),
        Route("/{path:path}", proxy.relay, methods=sorted(KNOWN_METHODS)),
    ]
    app = Starlette(routes=table, lifespan=lambda _: proxy.connected(), exception_handlers=ERROR_HANDLERS)
    return RequestMiddleware(app, proxy, path_problem)


async def no_such_path(request: Request) -> ASGIApp:
    """Refuse a path below the proxy's own prefix, so that no upstream answers in its place."""
    raise HTTPException(404)


def path_problem(scope: Scope) -> Problem | None:
    """Return the error for a path that could lead out of the upstream's base path. For any other path, return None."""
    fault = path_fault(scope["raw_path"])
    return Problem(400, "invalid_path", f"the path is not relayed: {fault}") if fault else None


class Proxy(LimitedService):
    """A proxy that relays requests to one upstream, within the limits of its settings.

    Only one event loop may use it.
    """

    def __init__(
        self,
        upstream: str,
        pruners: ConversationPruners,
        settings: Settings | None = None,
        *,
        pause: float = PAUSE_SECONDS,
        savings: SavingsReport | None = None,
        report_file: Path | None = None,
        drop_thinking: bool = False,
    ) -> None:
        """Make a proxy.

        Args:
            upstream: The address of the server, with or without `/v1` at its end.
            pruners: The pruners of the conversations.
            settings: The settings. `settings.deadline` limits the wait in the queue.
            pause: Maximum number of seconds that the upstream may be silent.
            savings: The report to which the savings are added.
            report_file: The file for the report. It is written every minute and at the end.
            drop_thinking: True if a conversation is pruned even if Anthropic's API must then drop thinking. Otherwise,
                the conversation is pruned no more after the API refused its thinking.

        Raises:
            ConfigError: If the address is invalid, or if the environment names a web proxy or certificates that cannot
                be used.
        """
        super().__init__(settings or Settings(max_body=MAX_BODY))
        self._upstream = Upstream(upstream, connections=self.settings.concurrency, pause=pause)
        self._bodies = BodyPruner(pruners, self.settings.max_body, drop_thinking=drop_thinking)
        self.savings, self._report_file = savings or SavingsReport(), report_file

    @property
    def upstream(self) -> str:
        """The upstream's address."""
        return str(self._upstream.url)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Hold the connections to the upstream while the block runs."""
        async with self._upstream.connected():
            writing = asyncio.create_task(self._keep_writing())
            try:
                yield
            finally:
                writing.cancel()
                self._write_report()

    async def show_health(self, request: Request) -> ASGIApp:
        """Return whether the proxy accepts requests. The upstream is not asked."""
        return health_answer(self)

    async def show_report(self, request: Request) -> ASGIApp:
        """Return the page that shows the savings. Only programs and browsers on this machine can read it."""
        addresses = (request.client.host if request.client else "", host_name(request.headers.get("host", "")))
        is_forwarded = any(name in request.headers for name in FORWARDING_HEADERS)
        if is_forwarded or not all(map(is_loopback, addresses)):
            raise Problem(403, "host_not_allowed", "only this machine may read the report. Request it at 127.0.0.1.")
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(self.savings.html(), headers=headers)

    async def _keep_writing(self) -> None:
        while self._report_file is not None:
            await asyncio.sleep(REPORT_SECONDS)
            await asyncio.to_thread(self._write_report)

    def _write_report(self) -> None:
        if self._report_file is None:
            return
        try:
            self.savings.write(self._report_file)
        except OSError as error:
            log("report_not_written", logging.WARNING, reason=reason_of(error))

    async def relay(self, request: Request) -> ASGIApp:
        """Relay a request. If requests to its path have a conversation, prune it first."""
        if "websocket" in map(str.strip, request.headers.get("upgrade", "").lower().split(",")):
            raise Problem(426, "websocket_not_supported", WEBSOCKET_MESSAGE, headers={"Connection": "close"})
        body = await read_body(request, self.settings.max_body, request.state.held_body)
        field = conversation_field(request.scope["path"]) if request.method == "POST" else None
        if field is None or _is_signed(request.headers):
            return await self._answer(request, partial(self._upstream.send, request, body))
        return await self._answer(request, partial(self._prune_and_send, request, body, field))

    async def _answer(self, request: Request, exchange: Callable[[], Awaitable[UpstreamAnswer]]) -> ASGIApp:
        """Return the upstream's answer when it is the request's turn.

        When the answer has been relayed, it frees the slot of the request.
        """
        ticket = self.enter()
        try:
            return Relay(await unless_gone(request, self._in_turn(ticket, exchange)), ticket)
        except BaseException:
            ticket.leave()
            raise

    async def _in_turn(self, ticket: Ticket, exchange: Callable[[], Awaitable[UpstreamAnswer]]) -> UpstreamAnswer:
        await self.wait_for_turn(ticket, asyncio.timeout(self.settings.deadline))
        return await exchange()

    async def _prune_and_send(self, request: Request, body: bytes, field: str) -> UpstreamAnswer:
        prune = partial(
            self._bodies.prune,
            encodings=request.headers.get("content-encoding", ""),
            hint=_hint(request.headers),
            api=caching_api(self._upstream.url.host, request.scope["path"]),
            bedrock=bedrock_operation(request.scope["path"]),
        )
        caller = caller_of(request.headers, request.scope["query_string"])
        pruned = await run_cancellable(prune, body, field, caller)
        record: RequestRecord = request.state.record
        record.notes["prune"] = pruned.notes
        status = 0
        try:
            answer = await self._send_pruned(request, body, pruned)
            is_changed = pruned.body is not body and not pruned.drops_thinking
            if pruned.request is not None and is_changed and await self._upstream.has_refused(answer):
                self._bodies.note_refusal(pruned.request.conversation)
                again = await run_cancellable(prune, body, field, caller)
                # The report on the prune stays, if it is sent again.
                pruned = replace(pruned, body=again.body, betas=again.betas) if self._bodies.drop_thinking else again
                record.notes["prune"] = pruned.notes
                answer = await self._send_pruned(request, body, pruned)
            status = answer.response.status_code
        finally:
            if (saved := pruned.request) is not None:
                saved = replace(saved, model=saved.model or model_in_path(request.scope["path"]))
                self.savings.add(saved, accepted=200 <= status < 400)
        answer.headers.append((REPORT_HEADER, pruned.header))
        return answer

    async def _send_pruned(self, request: Request, body: bytes, pruned: PrunedBody) -> UpstreamAnswer:
        return await self._upstream.send(request, pruned.body, recoded=pruned.body is not body, betas=pruned.betas)


class Relay:
    """An ASGI response that sends the upstream's answer as it arrives.

    If the client disconnects, the relay ends and closes the upstream's response.
    """

    def __init__(self, answer: UpstreamAnswer, ticket: Ticket) -> None:
        self._answer, self._ticket = answer, ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        record: RequestRecord = scope["state"]["record"]
        try:
            await unless_gone(Request(scope, receive), self._relay(send))
        except ClientGone:
            record.status, record.code = CLIENT_CLOSED, CLIENT_GONE
        except httpx.TransportError as error:
            # The response stays incomplete, so the connection is closed and the client notices.
            record.code = "upstream_cut"
            log("upstream_failed", logging.WARNING, reason=type(error).__name__)
        finally:
            await self._answer.response.aclose()
            self._ticket.leave()

    async def _relay(self, send: Send) -> None:
        response = self._answer.response
        start = {"type": "http.response.start", "status": response.status_code, "headers": self._answer.headers}
        await send(start)
        async for chunk in self._answer.body():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _hint(headers: Headers) -> str:
    """Return what an agent says that it is looking for. Most clients encode it as UTF-8, and some as Latin-1."""
    sent = headers.get(HINT_HEADER, "").encode("latin-1")
    try:
        text = sent.decode("utf-8")
    except UnicodeDecodeError:
        text = sent.decode("latin-1")
    return text[:HINT_CHARACTERS]


def _is_signed(headers: Headers) -> bool:
    """Return True if an AWS signature covers the body. AWS would refuse a changed body."""
    return headers.get("authorization", "").startswith("AWS4-")


def caller_of(headers: Headers, query: bytes = b"") -> bytes:
    """Return bytes that identify the caller: the keys in the headers and in the query of the address."""
    sent = [headers.get(name, "").encode("latin-1") for name in KEY_HEADERS]
    return b"\n".join([*sent, *(part for part in query.split(b"&") if part.lower().startswith(KEY_PARAMETERS))])
