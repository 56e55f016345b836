"""The process that serves. It binds an address, listens, and drains before it ends."""

from __future__ import annotations

import asyncio
import errno
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, cast

from context_agent._support.arguments import whole_number
from context_agent._support.extras import extra
from context_agent.errors import ConfigError, reason_of
from context_agent.integrations.server.connections import HEADER_TIMEOUT, MAX_HEADER, BoundedConnection, ConnectionTable
from context_agent.integrations.server.limited_service import LimitedService

with extra("serve"):
    import uvicorn
    from prometheus_client import Gauge
    from starlette.types import ASGIApp


ACCEPT_BATCH = 32
"""Connections accepted in one turn of the event loop. An evicted connection is closed four turns later."""
SPARE_DESCRIPTORS = 4 * ACCEPT_BATCH + 128
"""File descriptors for connections outside the table, the index and trajectories."""
ACCEPT_QUEUE = 1_024
"""Connections that may wait in the kernel to be accepted."""
MAX_PORT = 65_535
CLOSE_TIMEOUT = 2
"""Seconds for connections to close when all requests are answered."""
ACCEPT_TIMEOUT = 1.0
"""Seconds in which a server that ends accepts the connections that wait for it."""
OPENING_TURNS = 4
"""Turns of the event loop after which an accepted connection is open. Until then, nothing would ever close it."""
REQUEST_PAUSE = 0.1
"""Seconds for the requests of these connections to arrive."""


def available_connections(limit: int) -> int:
    """Return how many connections, at most `limit`, the process has file descriptors for.

    The soft limit on descriptors is raised to the hard limit if necessary.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    required = limit + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= required:
        return limit
    new_limit = required if hard == resource.RLIM_INFINITY else min(required, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))
    return min(limit, max(1, new_limit - SPARE_DESCRIPTORS))


class ServerProcess(uvicorn.Server):
    """A uvicorn server that drains the service at the first signal and ends at the second one."""

    def __init__(
        self,
        service: LimitedService,
        app: ASGIApp,
        on_ready: Callable[[str], None] = lambda url: None,
        *,
        dated: bool = True,
        accept_batch: int = ACCEPT_BATCH,
    ) -> None:
        """Prepare to serve an application.

        Args:
            service: The service, which has the settings and the metrics.
            app: The application.
            on_ready: A function that is called with the address when the server listens.
            dated: True if the server adds a Date header to responses.
            accept_batch: The number of connections accepted in one turn of the event loop.
        """
        table = ConnectionTable(available_connections(service.settings.max_connections), service.metrics.refusals)
        open_connections = Gauge("ctx1_connections", "Open connections.", registry=service.metrics.registry)
        open_connections.set_function(lambda: len(table))
        config = uvicorn.Config(
            app,
            http=cast("Any", partial(BoundedConnection, table=table)),
            # uvloop accepts all waiting connections before any of them is counted.
            loop="asyncio",
            backlog=accept_batch,
            h11_max_incomplete_event_size=MAX_HEADER,
            timeout_keep_alive=HEADER_TIMEOUT,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=dated,
            ws="none",
            timeout_graceful_shutdown=CLOSE_TIMEOUT,
        )
        super().__init__(config)
        self.signaled: int | None = None
        self._service, self._on_ready = service, on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets, then call `on_ready`."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if sockets:
            for listener in sockets:
                listener.listen(ACCEPT_QUEUE)
            self._on_ready(socket_url(sockets[0]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that wait and let their requests arrive. Then end as uvicorn does.

        uvicorn resets these connections. A client cannot know whether a request that was reset has been answered.
        """
        end, idle_turns = time.monotonic() + ACCEPT_TIMEOUT, 0
        while idle_turns < OPENING_TURNS and time.monotonic() < end and not self.force_exit:
            idle_turns = 0 if _has_waiting(sockets or []) else idle_turns + 1
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        if self.server_state.connections and not self.force_exit:
            await asyncio.sleep(REQUEST_PAUSE)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the block runs. The end of the terminal is one, unless `nohup` ignores it."""
        hangup = getattr(signal, "SIGHUP", None)  # Windows has none.
        is_main = threading.current_thread() is threading.main_thread()
        if hangup is None or not is_main or signal.getsignal(hangup) != signal.SIG_DFL:
            with super().capture_signals():
                yield
            return
        signal.signal(hangup, self.handle_exit)
        try:
            with super().capture_signals():
                yield
        finally:
            signal.signal(hangup, signal.SIG_DFL)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, and end at the second one."""
        if self.signaled is not None or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self.signaled = sig
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ending = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await self._service.drain()
        self.should_exit = True


def _has_waiting(listeners: list[socket.socket]) -> bool:
    """Return True if a connection waits to be accepted."""
    with selectors.DefaultSelector() as selector:
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        return bool(listeners and selector.select(0))


def serve(
    service: LimitedService,
    app: ASGIApp,
    host: str,
    port: int,
    on_ready: Callable[[str], None] = lambda url: None,
    *,
    dated: bool = True,
) -> bool:
    """Serve until a signal arrives.

    Args:
        service: The service, which has the settings and the metrics.
        app: The application.
        host: The address to listen on.
        port: The port, or 0 for any free one.
        on_ready: A function that is called with the URL when the server listens.
        dated: True if the server adds a Date header to responses.

    Returns:
        True if the signal was SIGINT (Ctrl-C).

    Raises:
        ConfigError: If the address cannot be used.
    """
    process = ServerProcess(service, app, on_ready, dated=dated)
    with bind_socket(host, port) as bound:
        process.run(sockets=[bound])
    return process.signaled == signal.SIGINT


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address. Port 0 selects a free port.

    Raises:
        ConfigError: If the port is not a whole number from 0 to 65,535, or if the address cannot be used.
    """
    if not 0 <= (port := whole_number(port, "port")) <= MAX_PORT:
        raise ConfigError(f"`port` must be a whole number from 0 to {MAX_PORT:,}; got {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {host}:{port} ({reason_of(error)}). Choose another --host.") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        raise ConfigError(f"cannot listen on {host}:{port} ({reason_of(error)}). Choose another {option}.") from error
    return bound


def socket_url(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
