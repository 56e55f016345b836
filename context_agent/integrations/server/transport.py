"""Connections of the HTTP servers, bounded in number, in time and in the size of a request's header.

A client holds a connection open for as long as it sends nothing, unless the server ends it. `BoundedConnection` gives
each phase of a request a deadline, and `ConnectionTable` bounds how many connections there are: where the table is
full, the connection that has waited longest for its client makes room for the next one. A request that is being
answered is never cut off.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any, Protocol, cast

from context_agent._support.extras import extra
from context_agent.errors import ConfigError
from context_agent.integrations.server.observability import Counter
from context_agent.integrations.server.responses import Problem, encode
from context_agent.integrations.server.service import Service

with extra("serve"):
    import h11
    import uvicorn
    from starlette.types import ASGIApp
    from uvicorn.config import Config
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
    from uvicorn.server import ServerState

MAX_HEADER = 16_384
"""Bytes of a request line and its header fields."""
HEADER_TIMEOUT = 10
"""Seconds in which a request's header must arrive, from the opening of the connection or the end of the last answer."""
BODY_TIMEOUT = 30
"""Seconds in which a request's body must arrive."""
WRITE_TIMEOUT = 30
"""Seconds in which a client must read on when the server has more to send than the buffers hold."""
ANSWER_MARGIN = 5
"""Seconds after `BODY_TIMEOUT` in which the application can still answer that the body is late."""
ACCEPT_BATCH = 32
"""Connections accepted in one turn of the event loop. It takes four turns until an evicted one is closed."""
SPARE_DESCRIPTORS = 4 * ACCEPT_BATCH + 128
"""File descriptors left to connections outside the table, to the index and to trajectories."""
ACCEPT_QUEUE = 1_024
"""Connections that wait in the kernel to be accepted."""
GOODBYE = 2
"""Seconds that connections get to close when all is answered."""


class Connection(Protocol):
    """What the table knows of a connection."""

    def evict(self) -> None:
        """Closes it at once."""


class ConnectionTable:
    """The open connections of a server, at most `limit`. Used from one event loop."""

    def __init__(self, limit: int, refusals: Counter) -> None:
        """`refusals` counts the connections that a limit ended, by the limit's code."""
        self.limit, self.refusals = limit, refusals
        self._open: set[Connection] = set()
        # Connections whose client has the next move, the one that has waited longest first.
        self._waiting: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Adds a connection, in place of the longest waiting one if the table is full.

        False where it is full and the server is busy with every connection in it.
        """
        if len(self._open) >= self.limit:
            longest_waiting = next(iter(self._waiting), None)
            if longest_waiting is None:
                return False
            self.remove(longest_waiting)
            self.refusals.add("evicted")
            longest_waiting.evict()
        self._open.add(connection)
        self.wait(connection)
        return True

    def wait(self, connection: Connection) -> None:
        """The client has the next move from now on."""
        self._waiting.pop(connection, None)
        if connection in self._open:
            self._waiting[connection] = None

    def serve(self, connection: Connection) -> None:
        """The server has the next move: the connection cannot be evicted."""
        self._waiting.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        """Forgets a connection. Idempotent."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)


class BoundedConnection(H11Protocol):
    """uvicorn's connection with a deadline for each phase, and a place in the table of the server's connections."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        table: ConnectionTable,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._table = table
        self._phase: object = None
        self._phase_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes its place in the table, or refuses the connection."""
        super().connection_made(transport)
        if self._table.admit(self):
            self._follow_phase()
        else:
            wrong = f"all {self._table.limit} connections of the server are busy"
            message = f"{wrong}: try again, or raise --max-connections of the server"
            self._refuse(Problem(503, "too_many_connections", message, headers={"Retry-After": "1"}))

    def data_received(self, data: bytes) -> None:
        """As uvicorn's, in pieces: h11 does not bound a header that arrives as a whole."""
        for start in range(0, len(data), MAX_HEADER):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + MAX_HEADER])
        self._follow_phase()

    def on_response_complete(self) -> None:
        """As uvicorn's; then the next request begins."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._table.wait(self)
            self._expire_after(WRITE_TIMEOUT, "slow_reader")
        else:
            self._phase = None
            self._follow_phase()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP, and a header beyond the limit."""
        if len(self.conn.trailing_data[0]) > MAX_HEADER:
            message = f"the request's header has more than {MAX_HEADER:,} bytes: send fewer or shorter header fields"
            self._refuse(Problem(431, "header_too_large", message))
        else:
            self._refuse(Problem(400, "invalid_http", "the request is not valid HTTP/1.1"))

    def pause_writing(self) -> None:
        """As uvicorn's; the client must read on within `WRITE_TIMEOUT`."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_TIMEOUT, self._expire, "slow_reader")

    def resume_writing(self) -> None:
        """As uvicorn's."""
        super().resume_writing()
        _cancel(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """As uvicorn's; leaves the table."""
        self._table.remove(self)
        _cancel(self._phase_timer)
        _cancel(self._write_timer)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Closes it at once, to make room for another one."""
        self.transport.abort()

    def _follow_phase(self) -> None:
        """Starts the deadline of the phase that the request is in, unless it runs already."""
        phase = self.conn.their_state
        if phase is self._phase or self.transport.is_closing():
            return
        self._phase = phase
        _cancel(self._phase_timer)
        if phase not in (h11.IDLE, h11.SEND_BODY):
            self._table.serve(self)
            return
        self._table.wait(self)
        if phase is h11.IDLE:
            self._phase_timer = self.loop.call_later(HEADER_TIMEOUT, self._end_slow_header)
        else:
            self._expire_after(BODY_TIMEOUT + ANSWER_MARGIN, "slow_body")

    def _end_slow_header(self) -> None:
        if self.conn.trailing_data[0]:
            message = f"the request's header did not arrive within {HEADER_TIMEOUT} s"
            self._refuse(Problem(408, "slow_header", message))
        else:
            self.transport.abort()

    def _refuse(self, problem: Problem) -> None:
        """Answers in place of the application, and closes the connection."""
        self._table.refusals.add(problem.code)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        self.transport.write(_whole_answer(problem))
        self.transport.close()
        self._expire_after(WRITE_TIMEOUT, "slow_reader")

    def _expire_after(self, seconds: float, code: str) -> None:
        _cancel(self._phase_timer)
        self._phase_timer = self.loop.call_later(seconds, self._expire, code)

    def _expire(self, code: str) -> None:
        self._table.refusals.add(code)
        self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _whole_answer(problem: Problem) -> bytes:
    body = encode({**problem.to_json(), "request_id": None})
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"{name}: {value}" for name, value in {**headers, **problem.headers}.items()]
    start = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"
    return "\r\n".join([start, *lines, "", ""]).encode() + body


def affordable(limit: int) -> int:
    """As many of `limit` connections as the process has file descriptors for; raises the soft limit where it may."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limit + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limit
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return min(limit, max(1, raised - SPARE_DESCRIPTORS))


class Process(uvicorn.Server):
    """A uvicorn server whose first signal drains the service; a second one ends it at once."""

    def __init__(self, service: Service, app: ASGIApp, on_ready: Callable[[str], None] = lambda url: None) -> None:
        """`on_ready` is called with the address once the server listens."""
        table = ConnectionTable(affordable(service.settings.max_connections), service.metrics.refusals)
        service.metrics.gauge("ctx1_connections", "Open connections.", lambda: len(table))
        config = uvicorn.Config(
            app,
            http=cast("Any", partial(BoundedConnection, table=table)),
            # uvloop accepts all connections that wait before any of them is counted.
            loop="asyncio",
            backlog=ACCEPT_BATCH,
            h11_max_incomplete_event_size=MAX_HEADER,
            timeout_keep_alive=HEADER_TIMEOUT,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=GOODBYE,
        )
        super().__init__(config)
        self.signalled: int | None = None
        self._service, self._on_ready = service, on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if sockets:
            for listener in sockets:
                listener.listen(ACCEPT_QUEUE)
            self._on_ready(address(sockets[0]))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Takes a signal."""
        if self.signalled is not None or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self.signalled = sig
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ending = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await self._service.drain()
        self.should_exit = True


def serve(
    service: Service, app: ASGIApp, host: str, port: int, on_ready: Callable[[str], None] = lambda url: None
) -> bool:
    """Serves until a signal; whether that was an interrupt from the keyboard. Raises `ConfigError`."""
    process = Process(service, app, on_ready)
    with listening(host, port) as bound:
        process.run(sockets=[bound])
    return process.signalled == signal.SIGINT


def listening(host: str, port: int) -> socket.socket:
    """A socket bound there; port 0 takes a free one. Raises `ConfigError` where that can't be."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except OSError as error:
        bound.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}: choose another with --port") from error
    return bound


def address(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
