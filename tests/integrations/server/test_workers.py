"""Several processes behind one address: their calls, their metrics, and failures during their start."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, ContextAgentError
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.logs import REQUEST_ID
from context_agent.integrations.server.metrics import Metrics, labeled_by_worker
from context_agent.integrations.server.process import bind_socket
from context_agent.integrations.server.supervisor import ServerSupervisor, ServerWorker
from context_agent.integrations.server.worker_calls import WorkerPeers, call_listeners

LATE = 0.2
"""Timeout in seconds of a call that gets no answer."""
LIFETIME = 30.0
"""Seconds after which a worker that nobody kills ends."""


@pytest.fixture
def listeners() -> Iterator[list[socket.socket]]:
    """The sockets of three workers."""
    with ExitStack() as stack:
        yield call_listeners(3, stack)


@pytest.fixture
async def peers(listeners: list[socket.socket]) -> AsyncIterator[list[WorkerPeers]]:
    """Three workers. The last one never accepts a call."""
    addresses = [listener.getsockname() for listener in listeners]
    workers = [WorkerPeers(number, addresses, listener) for number, listener in enumerate(listeners)]

    async def echo(request: Any, number: int) -> Any:
        if request == "refuse":
            raise Problem(429, "queue_full", "try again", headers={"Retry-After": "7"})
        if request == "fail":
            raise ZeroDivisionError
        return [number, REQUEST_ID.get(), request]

    async with AsyncExitStack() as stack:
        for worker in workers:
            worker.handlers["echo"] = partial(echo, number=worker.number)
        for worker in workers[:2]:
            await stack.enter_async_context(worker.listening())
        yield workers


async def test_a_call_is_answered_by_its_worker(peers: list[WorkerPeers]) -> None:
    token = REQUEST_ID.set("r1")
    request = {"text": "é" * 200_000}
    for number in (0, 1):
        assert await peers[0].call(number, "echo", request, seconds=10) == [number, "r1", request]
    REQUEST_ID.reset(token)


async def test_problems_pass_from_worker_to_worker(peers: list[WorkerPeers]) -> None:
    with pytest.raises(Problem) as refusal:
        await peers[0].call(1, "echo", "refuse", seconds=10)
    assert (refusal.value.status, refusal.value.headers) == (429, {"Retry-After": "7"})
    with pytest.raises(Problem) as failure:
        await peers[0].call(1, "echo", "fail", seconds=10)
    assert (failure.value.status, failure.value.code) == (500, "internal")


async def test_a_worker_that_does_not_answer(peers: list[WorkerPeers], listeners: list[socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    listeners[2].setblocking(False)
    assert await peers[0].call_all("echo", 1, seconds=LATE) == [[0, None, 1], [1, None, 1]]
    (await loop.sock_accept(listeners[2]))[0].close()
    call = asyncio.create_task(peers[0].call(2, "echo", 1, seconds=10))
    (await loop.sock_accept(listeners[2]))[0].close()  # The system does the same when a process dies.
    with pytest.raises(Problem, match="Try again") as unavailable:
        await call
    assert (unavailable.value.status, unavailable.value.code) == (503, "worker_unavailable")


async def test_a_call_that_nobody_waits_for_is_cancelled(peers: list[WorkerPeers]) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(_: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    peers[1].handlers["endless"] = endless
    call = asyncio.create_task(peers[0].call(1, "endless", {}, seconds=60))
    await asyncio.wait_for(started.wait(), 60)
    call.cancel()
    await asyncio.wait_for(cancelled.wait(), 60)


async def test_a_call_waits_for_the_process_that_replaces_its_worker(peers: list[WorkerPeers]) -> None:
    call = asyncio.create_task(peers[0].call(2, "echo", 1, seconds=10))
    await asyncio.sleep(0)
    async with peers[2].listening():
        assert await call == [2, None, 1]


def test_owners_are_spread_over_the_workers() -> None:
    workers = WorkerPeers(0, ("a", "b", "c"))
    assert {workers.owner(bytes([value])) for value in range(30)} == {0, 1, 2}
    assert WorkerPeers().owner(b"any") == 0


def test_metrics_of_several_workers_are_told_apart() -> None:
    workers = [Metrics(), Metrics()]
    for number, metrics in enumerate(workers):
        metrics.requests.labels('/a"{b}', 200).inc(number + 1)
        metrics.seconds.labels("/a").observe(0.3)
    text = labeled_by_worker((number, metrics.text()) for number, metrics in enumerate(workers))
    assert text.count("# TYPE ctx1_requests_total counter\n") == 1
    assert (
        'ctx1_requests_total{path="/a\\"{b}",status="200",worker="0"} 1.0\n'
        'ctx1_requests_total{path="/a\\"{b}",status="200",worker="1"} 2.0\n'
    ) in text
    assert 'ctx1_request_seconds_bucket{le="0.5",path="/a",worker="1"} 1.0\n' in text
    assert 'ctx1_turns_total{worker="0"} 0.0\n' in text


def exits(worker: ServerWorker, code: int) -> None:
    """A worker that cannot start."""
    raise SystemExit(code)


def is_killed(worker: ServerWorker) -> None:
    """A worker that the system kills, as it does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def supervise(target: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run two workers that end before they listen, and return the exit code."""
    # Only the first worker may be started.
    starts: list[int] = []
    start = ServerSupervisor._start

    def counting_start(supervisor: ServerSupervisor, number: int) -> None:
        starts.append(number)
        start(supervisor, number)

    monkeypatch.setattr(ServerSupervisor, "_start", counting_start)
    with bind_socket("127.0.0.1", 0) as listener:
        code = ServerSupervisor(target, 2, 0.0, print).run(listener)
    assert starts == [0]
    return code


def test_a_worker_that_cannot_start_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert supervise(partial(exits, code=2), monkeypatch) == 2


def test_a_worker_that_is_killed_while_it_starts_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContextAgentError, match=r"ended while it started \(SIGKILL"):
        supervise(is_killed, monkeypatch)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def ends_three_times(worker: ServerWorker, folder: Path) -> None:
    """A worker that ends after it listened, then before it listens. The third process stops the server."""
    count = len(list(folder.iterdir()))
    (folder / str(count)).touch()
    if count == 0:
        worker.supervisor.send("ready")
    if count == 2:
        os.kill(os.getppid(), signal.SIGTERM)


def test_a_worker_that_ends_before_it_listens_is_started_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    def timed(method: Any) -> Any:
        def noting(*arguments: Any) -> None:
            times.append(time.monotonic())
            method(*arguments)

        return noting

    for name in ("_start", "_note_end"):
        monkeypatch.setattr(ServerSupervisor, name, timed(getattr(ServerSupervisor, name)))
    pause = 1.0
    monkeypatch.setattr("context_agent.integrations.server.supervisor.RESTART_PAUSE", pause)
    with bind_socket("127.0.0.1", 0) as listener:
        assert ServerSupervisor(partial(ends_three_times, folder=tmp_path), 1, 0.0, str).run(listener) == 0
    start, end, restart, second_end, late_restart, last_end = times
    assert start < end <= restart < second_end <= late_restart - pause < last_end


def wait_for_file(path: Path) -> None:
    """Wait until another process has made a file."""
    end = time.monotonic() + LIFETIME
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)


def ends_while_another_starts(worker: ServerWorker, folder: Path) -> None:
    """The first of two workers is killed before the second one listens, which waits until the first one is replaced."""
    if worker.number == 1:
        (folder / "second").touch()
        wait_for_file(folder / "replacement")
    elif not (folder / "second").exists():
        worker.supervisor.send("ready")
        wait_for_file(folder / "second")
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        (folder / "replacement").touch()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    worker.supervisor.send("ready")
    signal.pause()


def test_a_listening_worker_that_dies_while_another_one_starts_is_replaced(tmp_path: Path) -> None:
    ready: list[object] = []

    def on_ready(description: object) -> None:
        ready.append(description)
        os.kill(os.getpid(), signal.SIGTERM)

    with bind_socket("127.0.0.1", 0) as listener:
        target = partial(ends_while_another_starts, folder=tmp_path)
        assert ServerSupervisor(target, 2, 0.0, on_ready).run(listener) == 0
    assert ready == ["ready"]


def connects_after_it_closed(worker: ServerWorker, folder: Path) -> None:
    """A worker that closes its socket at SIGTERM, and then tries to connect to the server."""
    address = worker.bound.getsockname()
    worker.bound.listen()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    worker.supervisor.send("ready")
    signal.sigwait([signal.SIGTERM])
    worker.bound.close()
    with socket.socket() as client:
        (folder / "refused").write_text(str(client.connect_ex(address) == errno.ECONNREFUSED))


def test_connections_are_refused_when_the_last_worker_has_closed_its_socket(tmp_path: Path) -> None:
    with bind_socket("127.0.0.1", 0) as listener:
        target = partial(connects_after_it_closed, folder=tmp_path)
        supervisor = ServerSupervisor(target, 1, 0.0, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        assert supervisor.run(listener) == 0
    assert (tmp_path / "refused").read_text() == "True"


def does_not_end(worker: ServerWorker, folder: Path, *, repeats_signal: bool) -> None:
    """A worker that does not drain. At SIGTERM, it may send the supervisor a second signal."""

    def on_signal(*_: object) -> None:
        if repeats_signal:
            os.kill(os.getppid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_signal)
    worker.supervisor.send("ready")
    end = time.monotonic() + LIFETIME
    while time.monotonic() < end:
        time.sleep(LATE)
    (folder / "outlived").touch()


@pytest.mark.parametrize(("repeats_signal", "grace"), [(True, 10 * LIFETIME), (False, 0.0)])
def test_a_worker_that_does_not_drain_is_killed_at_the_second_signal_or_after_the_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, repeats_signal: bool, grace: float
) -> None:
    for margin in ("FINAL_GRACE_SECONDS", "CLOSE_TIMEOUT", "END_MARGIN"):
        monkeypatch.setattr(f"context_agent.integrations.server.supervisor.{margin}", LATE)
    target = partial(does_not_end, folder=tmp_path, repeats_signal=repeats_signal)
    with bind_socket("127.0.0.1", 0) as listener:
        supervisor = ServerSupervisor(target, 1, grace, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        assert supervisor.run(listener) == 0
    assert not (tmp_path / "outlived").exists()


def test_a_folder_whose_path_is_too_long_for_sockets(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("long" * 30)))
    with ExitStack() as stack, pytest.raises(ConfigError, match="Set TMPDIR to a folder with a short path"):
        call_listeners(2, stack)


def test_without_a_folder_for_temporary_files_no_worker_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with ExitStack() as stack, pytest.raises(ConfigError, match="Set TMPDIR to a folder that is writable"):
        call_listeners(2, stack)


def test_a_system_without_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("socket.AF_UNIX")
    with pytest.raises(ConfigError, match="--workers needs Linux or macOS"):
        ServerSupervisor(is_killed, 2, 0.0, print)
