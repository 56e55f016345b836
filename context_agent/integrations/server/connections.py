"""Bounded connections, with a deadline for each phase of a request and a limit on the number of open connections.

A client can hold a connection open by sending nothing. `BoundedConnection` therefore sets a deadline for each phase of
a request, and `ConnectionTable` limits the number of connections. If the table is full, it closes the connection that
has waited longest for its client. The next connection takes its place. The table never cuts off a request that is being
answered.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Protocol, cast

from context_agent._support.extras import extra
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.json_encoding import encode

with extra("serve"):
    import h11
    from prometheus_client import Counter
    from uvicorn.config import Config
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
    from uvicorn.server import ServerState


MAX_HEADER = 16_384
"""Bytes of a request line and its header fields."""
HEADER_TIMEOUT = 10
"""Seconds for a request's header, from the opening of the connection or the end of the last answer."""
BODY_TIMEOUT = 30
"""Seconds for a request's body."""
WRITE_TIMEOUT = 30
"""Seconds that a client may stop reading while the buffers of the server are full."""
ANSWER_MARGIN = 5
"""Seconds after `BODY_TIMEOUT` in which the application answers that the body is late."""


class Connection(Protocol):
    """A connection in the form that the table needs."""

    def evict(self) -> None:
        """Close the connection at once."""


class ConnectionTable:
    """The open connections of a server, at most `limit`. Only one event loop may use the table."""

    def __init__(self, limit: int, refusals: Counter) -> None:
        """Make an empty table. `refusals` counts the connections that a limit ends, by the code of the limit."""
        self.limit, self.refusals = limit, refusals
        self._open: set[Connection] = set()
        # Connections that wait for their client, the longest waiting first.
        self._waiting: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Add a connection. If the table is full, close the one that has waited longest for its client.

        Returns:
            False if the table is full and the server is answering on every connection.
        """
        if len(self._open) >= self.limit:
            longest_waiting = next(iter(self._waiting), None)
            if longest_waiting is None:
                return False
            self.remove(longest_waiting)
            self.refusals.labels("evicted").inc()
            longest_waiting.evict()
        self._open.add(connection)
        self.wait(connection)
        return True

    def wait(self, connection: Connection) -> None:
        """Mark the connection as waiting for its client. From now on it can be evicted."""
        self._waiting.pop(connection, None)
        if connection in self._open:
            self._waiting[connection] = None

    def serve(self, connection: Connection) -> None:
        """Mark the connection as being answered. From now on it cannot be evicted."""
        self._waiting.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        """Remove a connection. Removing it twice does nothing."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)


class StrictHttp(h11.Connection):
    """h11's parser, made stricter. It also refuses a request that two servers could read in different ways."""

    reason = ""
    """The reason for a refusal, with a colon before it. Empty for a fault that h11 found."""
    has_large_header = False
    """True if the header of the request exceeds the limit, though it arrived whole."""

    def __init__(self, max_header: int | None) -> None:
        super().__init__(h11.SERVER, max_header or MAX_HEADER)

    def next_event(self) -> Any:
        """Return the next event, as h11 does.

        Raises:
            h11.RemoteProtocolError: If the request is invalid or ambiguous.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.has_large_header = _header_size(event) > MAX_HEADER
            reason = _ambiguity(event)
            if reason or self.has_large_header:
                self.reason = f": {reason}"
                raise h11.RemoteProtocolError(reason)
        return event


def _header_size(request: h11.Request) -> int:
    """Return the bytes of a request line and its header fields, with one space and two line ends where they belong."""
    line = len(request.method) + len(request.target) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in request.headers) + len("\r\n")


def _ambiguity(request: h11.Request) -> str:
    """Return the reason why the end or the version of a request is ambiguous, or an empty string.

    If a message has both fields of length, it may be an attempt at request smuggling (RFC 9112, section 6.1). A version
    before 1.1 has no chunked bodies.
    """
    names = {name for name, _ in request.headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        return "the request has both Content-Length and Transfer-Encoding"
    if request.http_version not in (b"1.0", b"1.1"):
        return "the version is neither 1.0 nor 1.1"
    if b"transfer-encoding" in names and request.http_version == b"1.0":
        return "the request has Transfer-Encoding, which HTTP/1.0 does not know"
    return ""


class BoundedConnection(H11Protocol):
    """A uvicorn connection with a deadline for each phase and an entry in the server's table of connections."""

    conn: StrictHttp

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
        self.conn = StrictHttp(config.h11_max_incomplete_event_size)
        self._table = table
        self._phase: object = None
        self._phase_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Enter the table, or refuse the connection if the table has no room."""
        super().connection_made(transport)
        if self._table.admit(self):
            self._follow_phase()
        else:
            limit = self._table.limit
            message = f"all {limit} connections of the server are busy. Try again, or raise its --max-connections."
            self._refuse(Problem(503, "too_many_connections", message, headers={"Retry-After": "1"}))

    def data_received(self, data: bytes) -> None:
        """Pass the data on in pieces, because h11 does not limit a header that arrives at once."""
        for start in range(0, len(data), MAX_HEADER):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + MAX_HEADER])
        self._follow_phase()

    def on_response_complete(self) -> None:
        """End the answer as uvicorn does. Then the next request begins."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._table.wait(self)
            self._expire_after(WRITE_TIMEOUT, "slow_reader")
        else:
            self._phase = None
            self._follow_phase()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP, or a header that exceeds the limit."""
        if self.conn.has_large_header or len(self.conn.trailing_data[0]) > MAX_HEADER:
            message = f"the request's header has more than {MAX_HEADER:,} bytes. Send fewer or shorter header fields."
            self._refuse(Problem(431, "header_too_large", message))
        else:
            self._refuse(Problem(400, "invalid_http", f"the request is not valid HTTP/1.1{self.conn.reason}"))

    def pause_writing(self) -> None:
        """Stop writing as uvicorn does. The client must continue reading within `WRITE_TIMEOUT`."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_TIMEOUT, self._expire, "slow_reader")

    def resume_writing(self) -> None:
        """Continue to write as uvicorn does, and end the client's deadline."""
        super().resume_writing()
        _cancel(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the table, and end the connection as uvicorn does."""
        self._table.remove(self)
        _cancel(self._phase_timer)
        _cancel(self._write_timer)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close the connection at once to make room for another one."""
        self.transport.abort()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing. uvicorn would advise to install a library for WebSockets, which these servers do not use."""

    def _follow_phase(self) -> None:
        """Start the deadline of the request's current phase, unless it is already running."""
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
        """Answer instead of the application, and close the connection."""
        self._table.refusals.labels(problem.code).inc()
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
        self._table.refusals.labels(code).inc()
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
