"""Several worker processes behind one address, and the supervisor that starts and restarts them.

The supervisor binds the address and starts the workers with the spawn method, because a fork would inherit locks that
other threads hold. The workers accept connections from one socket, which outlives them. A worker that dies loses only
the requests that it was answering.

uvicorn has a supervisor, too. Its workers do not drain a service. They would also count two signals when a user presses
Ctrl-C: the terminal's, which reaches every process, and the supervisor's own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from context_agent._support.child_process import ParentPipe, start_process, start_resource_tracker
from context_agent._support.extras import extra
from context_agent._support.processes import THREAD_VARIABLES, available_cores, exit_reason
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.integrations.server.limited_service import FINAL_GRACE_SECONDS, LimitedService
from context_agent.integrations.server.logs import log
from context_agent.integrations.server.process import CLOSE_TIMEOUT, ServerProcess
from context_agent.integrations.server.worker_calls import WorkerPeers, call_listeners

with extra("serve"):
    from starlette.types import ASGIApp


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
RESTART_PAUSE = 5.0
"""Seconds before a worker is started again that ended before it listened."""
TICK_SECONDS = 0.5
"""Seconds between the supervisor's looks at the clock."""
END_MARGIN = 5.0
"""Seconds for a process to end after it has drained."""


@dataclass(frozen=True, slots=True)
class ServerWorker:
    """A worker, from the point of view of its own process.

    Attributes:
        number: The number of the worker.
        bound: The socket for clients, which all workers share.
        listener: The socket on which the other workers call this one.
        addresses: The socket addresses of the workers, by number.
        supervisor: The pipe that tells the supervisor when the worker listens.
    """

    number: int
    bound: socket.socket
    listener: socket.socket
    addresses: tuple[str, ...]
    supervisor: ParentPipe

    def peers(self) -> WorkerPeers:
        """Return the workers of the server, which this worker can call."""
        return WorkerPeers(self.number, self.addresses, self.listener)

    def serve(self, service: LimitedService, app: ASGIApp, description: Any) -> None:
        """Serve until SIGTERM arrives or the supervisor ends.

        Args:
            service: The service, which has the settings and the metrics.
            app: The application.
            description: A description that the worker sends to the supervisor when it listens.
        """
        server = _WorkerServer(service, app, lambda url: self.supervisor.send(description), accept_batch=1)
        server.run(sockets=[self.bound])


class _WorkerServer(ServerProcess):
    """A server that drains at SIGTERM, no matter how often the signal arrives.

    Only the supervisor can end a worker at once, by killing it.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        supervisor = parent_process()
        assert supervisor is not None
        asyncio.get_running_loop().add_reader(supervisor.sentinel, self._outlive, supervisor.sentinel)
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.signaled is None:
            super().handle_exit(sig, frame)

    def _outlive(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self.handle_exit(signal.SIGTERM, None)


WorkerTarget = Callable[[ServerWorker], None]
"""The function that a worker's process runs. It is pickled."""


@dataclass(slots=True, eq=False)
class _Child:
    """A worker, from the point of view of the supervisor."""

    number: int
    process: BaseProcess
    started: Connection
    listens: bool = False


class ServerSupervisor:
    """A supervisor that runs workers until a signal arrives. If a worker ends before that, the supervisor restarts it.

    Use it from the main thread.
    """

    def __init__(self, target: WorkerTarget, count: int, grace: float, on_ready: Callable[[Any], None]) -> None:
        """Prepare to run the workers.

        Args:
            target: The function that each worker's process runs.
            count: The number of workers.
            grace: The seconds that the workers' settings grant to running searches.
            on_ready: A function that is called with a worker's description when all workers listen.

        Raises:
            ConfigError: If the system is Windows, which has no sockets for the calls between workers.
        """
        if not hasattr(socket, "AF_UNIX"):
            raise ConfigError(
                "--workers needs Linux or macOS. On other systems, start several servers on ports of their own behind "
                "a load balancer."
            )
        self._target, self._count, self._on_ready = target, count, on_ready
        self._patience = grace + FINAL_GRACE_SECONDS + CLOSE_TIMEOUT + END_MARGIN
        self._threads = str(max(1, available_cores() // count))
        self._children: dict[int, _Child] = {}
        # The number of each worker to start, and when, on the monotonic clock.
        self._due: dict[int, float] = {0: 0.0}
        self._is_ready = False
        self._signal: int | None = None
        self._kill_at = math.inf
        self._failure: int | None = None

    def run(self, bound: socket.socket) -> int:
        """Serve on a bound socket. A signal that stops the server closes it.

        Returns:
            The exit code. It is 0, or 130 after SIGINT. If a worker cannot start, it is the exit code of the worker.

        Raises:
            ConfigError: If the sockets for the calls between workers cannot be made.
            ContextAgentError: If a signal ends a worker before all of them listen.
        """
        start_resource_tracker()  # When `_start` calls it for the first time, it unblocks signals.
        with ExitStack() as stack:
            self._bound, self._listeners = bound, call_listeners(self._count, stack)
            stack.callback(self._kill)
            stack.enter_context(_handling(self._stop))
            # The first worker starts alone: what it cannot open, the others need not try.
            while self._children or self._due:
                self._step()
        if self._failure is None:
            return 128 + signal.SIGINT if self._signal == signal.SIGINT else 0
        if self._failure > 0:
            return self._failure
        raise ContextAgentError(
            f"a server process ended while it started ({exit_reason(self._failure)}). Its messages above give the "
            "reason."
        )

    @property
    def _is_stopping(self) -> bool:
        return self._signal is not None or self._failure is not None

    def _step(self) -> None:
        """Start the workers that are due, and handle the events that occur within a tick."""
        now = time.monotonic()
        for number in [number for number, due in list(self._due.items()) if due <= now]:
            self._start(number)
        if now >= self._kill_at:
            self._kill()
        events = wait([event for child in self._children.values() for event in _events(child)], TICK_SECONDS)
        for child in list(self._children.values()):
            if child.started in events:
                self._note_start(child)
            if child.process.sentinel in events:
                self._note_end(child)

    def _start(self, number: int) -> None:
        addresses = tuple(listener.getsockname() for listener in self._listeners)
        worker = partial(ServerWorker, number, self._bound, self._listeners[number], addresses)
        threads = {name: os.environ.get(name, self._threads) for name in THREAD_VARIABLES}
        # The process inherits the mask. It never gets SIGINT, which a terminal sends to every process.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._due.pop(number, None)
            if not self._is_stopping:  # A signal may have come before it was blocked.
                # A worker that outlives the supervisor still drains, so it must not be ended with the supervisor.
                name = f"ctx1-worker-{number}"
                process, pipe = start_process(_work, (self._target, worker), name=name, variables=threads, daemon=False)
                self._children[number] = _Child(number, process, pipe)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _note_start(self, child: _Child) -> None:
        """Note that a worker listens. If it closed the pipe, it is about to end."""
        try:
            description = child.started.recv()
        except EOFError:
            return
        child.listens = True
        log("worker_started", worker=child.number, process=child.process.pid)
        if self._is_ready:
            return
        if child.number == 0:
            self._due |= {number: 0.0 for number in range(1, self._count) if number not in self._children}
        if not self._is_stopping and not self._due and all(other.listens for other in self._children.values()):
            self._is_ready = True
            self._on_ready(description)

    def _note_end(self, child: _Child) -> None:
        child.process.join()
        child.started.close()
        del self._children[child.number]
        if self._is_stopping:
            return
        code = child.process.exitcode
        if not (self._is_ready or child.listens):
            self._failure = code or -signal.SIGTERM
            self._kill()
            return
        reason = exit_reason(code)
        log("worker_ended", logging.ERROR, worker=child.number, process=child.process.pid, reason=reason)
        self._due[child.number] = time.monotonic() + (0.0 if child.listens else RESTART_PAUSE)

    def _stop(self, sig: int, frame: FrameType | None) -> None:
        """Let the workers drain at the first signal, and kill them at the second one.

        Once the last worker has closed its copy of the socket, the system refuses connections. It would queue them for
        nobody if the supervisor kept its own copy.
        """
        is_first = self._signal is None
        self._bound.close()
        self._signal = self._signal or sig
        self._due.clear()
        self._kill_at = time.monotonic() + self._patience
        for child in list(self._children.values()):
            if is_first and child.listens:
                child.process.terminate()
            else:
                child.process.kill()

    def _kill(self) -> None:
        self._due.clear()
        for child in list(self._children.values()):
            child.process.kill()


def _work(target: WorkerTarget, worker: Callable[[ParentPipe], ServerWorker], supervisor: ParentPipe) -> None:
    """Run a worker in its own process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    target(worker(supervisor))


def _events(child: _Child) -> list[Any]:
    """Return the events that the supervisor waits for: the end of the process, and before that its start."""
    return [child.process.sentinel] if child.listens else [child.process.sentinel, child.started]


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that stop a server while the block runs.

    The signal that a closed terminal sends stops it, too, unless `nohup` ignores this signal.
    """
    hangup = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL else ()
    before = {sig: signal.signal(sig, handler) for sig in (*STOP_SIGNALS, *hangup)}
    try:
        yield
    finally:
        for sig, former in before.items():
            signal.signal(sig, former)
