"""Several processes that serve one address: the workers, the calls between them, and the supervisor that runs them.

The supervisor binds the address and starts the workers with the spawn method: a fork would inherit locks that other
threads hold. The workers accept connections from one socket, which outlives them, so a worker that dies loses only the
requests that it was answering. uvicorn's supervisor does not fit: its workers do not drain a `GatedService`, and would
take Ctrl-C in a terminal, which reaches every process, and the supervisor's own signal for two.

What must be in one process, such as the memory of a conversation that was pruned, belongs to one worker, and the others
call it, over Unix sockets in a folder that only their user can open. A call is a connection with one JSON value in each
direction.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from context_agent._support.extras import extra
from context_agent._support.processes import THREAD_VARIABLES, available_cores, environment, exit_reason
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.integrations.server.observability import REQUEST_ID, log
from context_agent.integrations.server.responses import INTERNAL, Problem, encode
from context_agent.integrations.server.service import FINAL_GRACE, GatedService
from context_agent.integrations.server.transport import CLOSE_TIMEOUT, ServerProcess

with extra("serve"):
    from starlette.types import ASGIApp

STOPPING = (signal.SIGINT, signal.SIGTERM)
RESTART_PAUSE = 5.0
"""Seconds until a worker that ended before it listened is started again."""
TICK = 0.5
"""Seconds between the supervisor's looks at the clock."""
END_MARGIN = 5.0
"""Seconds for a process to end after it has drained."""
CALL_QUEUE = 128
"""Calls of other workers that may wait in the kernel."""
Handler = Callable[[Any], Awaitable[Any]]
"""The answer to a request, both JSON values. It may raise `Problem`."""


class WorkerPeers:
    """The workers of a server, as one of them calls the others. Used from one event loop."""

    def __init__(self, number: int = 0, addresses: Sequence[str] = (), listener: socket.socket | None = None) -> None:
        """`addresses` are the sockets of all workers by number, `listener` is this one's; without them it is alone."""
        self.number = number
        self.handlers: dict[str, Handler] = {}
        """What this worker answers, by name."""
        self._addresses, self._listener = tuple(addresses), listener

    @property
    def count(self) -> int:
        """Number of workers, this one included."""
        return max(1, len(self._addresses))

    def owner(self, digest: bytes) -> int:
        """Return the worker that owns what has this digest."""
        return int.from_bytes(digest, "big") % self.count

    async def call(self, worker: int, name: str, request: Any, *, seconds: float) -> Any:
        """Return the answer of a worker's handler. Raises its `Problem`, and one of status 503 without an answer in
        time.

        The call of a worker that died waits for the process that replaces it.
        """
        if worker == self.number:
            return await self.handlers[name](request)
        try:
            async with asyncio.timeout(seconds):
                reply = await _exchange(self._addresses[worker], [name, REQUEST_ID.get(), request])
        except (OSError, ValueError):  # A time-out is an OSError; a worker that dies leaves an incomplete value.
            message = "the server process that holds this conversation ended or is overloaded: try again"
            raise Problem(503, "worker_unavailable", message, headers={"Retry-After": "1"}) from None
        if "problem" in reply:
            raise Problem(**reply["problem"])
        return reply["answer"]

    async def call_all(self, name: str, request: Any, *, seconds: float) -> list[Any]:
        """Return the answers of all workers, in their order, without those that raise a `Problem`."""

        async def answer(worker: int) -> list[Any]:
            with suppress(Problem):
                return [await self.call(worker, name, request, seconds=seconds)]
            return []

        return [item for items in await asyncio.gather(*map(answer, range(self.count))) for item in items]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Answers the calls of the other workers while the block runs."""
        if self._listener is None:
            yield
            return
        # `start_unix_server` would remove the socket's file at the end, which the next process of this worker needs.
        server = await asyncio.start_server(self._answer, sock=self._listener)
        try:
            yield
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, ValueError):  # A caller that died sends an incomplete value.
            name, request_id, request = json.loads(await reader.read())
            REQUEST_ID.set(request_id)
            writer.write(encode(await self._reply(name, request)))
            await writer.drain()

    async def _reply(self, name: str, request: Any) -> dict[str, Any]:
        try:
            return {"answer": await self.handlers[name](request)}
        except Problem as problem:
            return {"problem": asdict(problem)}
        except Exception as error:  # noqa: BLE001 (the caller answers its client; the stack trace is here)
            log("unexpected", logging.ERROR, error=error)
            return {"problem": asdict(INTERNAL)}


async def _exchange(address: str, request: Any) -> Any:
    """Sends a JSON value and returns the one that comes back. Raises `OSError`, and `ValueError` for half a value."""
    reader, writer = await asyncio.open_unix_connection(address)
    with closing(writer):
        writer.write(encode(request))
        writer.write_eof()
        return json.loads(await reader.read())


@dataclass(frozen=True, slots=True)
class ServerWorker:
    """A worker as its own process sees it: its sockets for clients and for the other workers, and their addresses."""

    number: int
    bound: socket.socket
    listener: socket.socket
    addresses: tuple[str, ...]
    started: Connection
    """Tells the supervisor that the worker listens."""

    def peers(self) -> WorkerPeers:
        """Return the workers, as this one calls them."""
        return WorkerPeers(self.number, self.addresses, self.listener)

    def serve(self, service: GatedService, app: ASGIApp, description: Any) -> None:
        """Serves until SIGTERM or the end of the supervisor, which gets the description once the worker listens."""
        server = _WorkerServer(service, app, lambda url: self.started.send(description), accept_batch=1)
        server.run(sockets=[self.bound])


class _WorkerServer(ServerProcess):
    """Drains at SIGTERM, however often it comes: only the supervisor ends a worker at once, by killing it."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        supervisor = parent_process()
        assert supervisor is not None
        asyncio.get_running_loop().add_reader(supervisor.sentinel, self._outlive, supervisor.sentinel)
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.signalled is None:
            super().handle_exit(sig, frame)

    def _outlive(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self.handle_exit(signal.SIGTERM, None)


WorkerTarget = Callable[[ServerWorker], None]
"""The work of a worker's process. It is pickled."""


@dataclass(slots=True, eq=False)
class _Child:
    """A worker as the supervisor sees it."""

    number: int
    process: BaseProcess
    started: Connection
    listens: bool = False


class ServerSupervisor:
    """Runs workers until a signal, and restarts those that end before. Used from the main thread."""

    def __init__(self, target: WorkerTarget, count: int, grace: float, on_ready: Callable[[Any], None]) -> None:
        """`on_ready` gets a worker's description once all listen. `grace` is that of the workers' settings.

        Raises `ConfigError` on Windows.
        """
        if not hasattr(socket, "AF_UNIX"):
            raise ConfigError(
                "--workers needs Linux or macOS: start several servers on ports of their own, behind a load balancer"
            )
        self._target, self._count, self._on_ready = target, count, on_ready
        self._patience = grace + FINAL_GRACE + CLOSE_TIMEOUT + END_MARGIN
        self._threads = str(max(1, available_cores() // count))
        self._children: dict[int, _Child] = {}
        # The number of each worker to start, and when, on the monotonic clock.
        self._due: dict[int, float] = {0: 0.0}
        self._is_ready = False
        self._signal: int | None = None
        self._kill_at = math.inf
        self._failure: int | None = None

    def run(self, bound: socket.socket) -> int:
        """Serves on a bound socket. The exit code is 0, 130 after SIGINT, or that of a worker that cannot start.

        Raises `ConfigError`, and `ContextAgentError` if a signal ended a worker before all listened.
        """
        ensure_running()  # When `_start` calls it for the first time, it unblocks signals.
        with ExitStack() as stack:
            self._bound, self._listeners = bound, _call_listeners(self._count, stack)
            stack.callback(self._kill)
            stack.enter_context(_handling(self._stop))
            # The first worker starts alone: what it cannot open, the others need not try.
            while self._children or self._due:
                self._step()
        if self._failure is None:
            return 128 + signal.SIGINT if self._signal == signal.SIGINT else 0
        if self._failure > 0:
            return self._failure
        raise ContextAgentError(f"a server process ended while it started: {exit_reason(self._failure)}")

    @property
    def _is_stopping(self) -> bool:
        return self._signal is not None or self._failure is not None

    def _step(self) -> None:
        """Starts the workers that are due, and handles what happens within a tick."""
        now = time.monotonic()
        for number in [number for number, due in list(self._due.items()) if due <= now]:
            self._start(number)
        if now >= self._kill_at:
            self._kill()
        events = wait([event for child in self._children.values() for event in _events(child)], TICK)
        for child in list(self._children.values()):
            if child.started in events:
                self._note_start(child)
            if child.process.sentinel in events:
                self._note_end(child)

    def _start(self, number: int) -> None:
        context = get_context("spawn")
        started, worker_end = context.Pipe(duplex=False)
        addresses = tuple(listener.getsockname() for listener in self._listeners)
        worker = ServerWorker(number, self._bound, self._listeners[number], addresses, worker_end)
        process = context.Process(target=_work, args=(self._target, worker), name=f"ctx1-worker-{number}")
        threads = {name: os.environ.get(name, self._threads) for name in THREAD_VARIABLES}
        # The process inherits the mask. It never gets SIGINT, which a terminal sends to every process.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._due.pop(number, None)
            if not self._is_stopping:  # A signal may have come before it was blocked.
                with environment(threads):
                    process.start()
                self._children[number] = _Child(number, process, started)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            worker_end.close()

    def _note_start(self, child: _Child) -> None:
        """A worker listens, or it has closed the pipe because it ends."""
        try:
            description = child.started.recv()
        except EOFError:
            return
        child.listens = True
        log("worker_started", worker=child.number, process=child.process.pid)
        if self._is_ready:
            return
        if child.number == 0:
            self._due |= dict.fromkeys(range(1, self._count), 0.0)
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
        if not self._is_ready:
            self._failure = code or -signal.SIGTERM
            self._kill()
            return
        reason = exit_reason(code)
        log("worker_ended", logging.ERROR, worker=child.number, process=child.process.pid, reason=reason)
        self._due[child.number] = time.monotonic() + (0.0 if child.listens else RESTART_PAUSE)

    def _stop(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal: the first lets the workers drain, the second kills them."""
        is_first = self._signal is None
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


def _work(target: WorkerTarget, worker: ServerWorker) -> None:
    """The main function of a worker's process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    target(worker)


def _events(child: _Child) -> list[Any]:
    """Return what to wait for: the end of the process, and before that its start."""
    return [child.process.sentinel] if child.listens else [child.process.sentinel, child.started]


def _call_listeners(count: int, stack: ExitStack) -> list[socket.socket]:
    """Return a Unix socket for each worker, in a new folder that is removed with the stack. Raises `ConfigError`."""
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="ctx1-")))
    listeners = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(count)]
    for number, listener in enumerate(listeners):
        try:
            listener.bind(str(folder / str(number)))
        except OSError as error:
            raise ConfigError(
                f"cannot make a socket in {folder}: {error}. Set TMPDIR to a folder with a short path"
            ) from error
        listener.listen(CALL_QUEUE)
    return listeners


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles the signals that stop a server while the block runs."""
    before = {sig: signal.signal(sig, handler) for sig in STOPPING}
    try:
        yield
    finally:
        for sig, former in before.items():
            signal.signal(sig, former)
