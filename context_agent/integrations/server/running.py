"""The process: it listens, and when told to end it refuses what is new and answers what it has taken."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, cast

from context_agent.errors import ConfigError
from context_agent.integrations.extras import extra
from context_agent.integrations.server.app import application_of
from context_agent.integrations.server.service import Service

with extra("serve"):
    import uvicorn
    from starlette.types import ASGIApp

    from context_agent.integrations.server.connections import (
        ACCEPT_BATCH,
        ACCEPT_QUEUE,
        HEADER_TIMEOUT,
        MAX_HEADER,
        BoundedConnection,
        ConnectionTable,
        affordable,
    )

GOODBYE = 2
"""Seconds that connections get to close when all is answered."""


class Process(uvicorn.Server):
    """A uvicorn server whose first signal drains the service; a second one ends it at once."""

    def __init__(
        self, service: Service, on_ready: Callable[[str], None] = lambda url: None, app: ASGIApp | None = None
    ) -> None:
        """`on_ready` is told the address once it listens. `app` is the service's application unless given."""
        table = ConnectionTable(affordable(service.settings.max_connections), service.metrics.refusals)
        service.metrics.gauge("ctx1_connections", "Open connections.", lambda: len(table))
        config = uvicorn.Config(
            application_of(service) if app is None else app,
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
    service: Service,
    host: str,
    port: int,
    on_ready: Callable[[str], None] = lambda url: None,
    app: ASGIApp | None = None,
) -> bool:
    """Serves until a signal; whether that was an interrupt from the keyboard. Raises `ConfigError`."""
    process = Process(service, on_ready, app)
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
