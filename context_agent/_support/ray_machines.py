"""Workers on the machines of a Ray cluster, for the same pool as processes of this machine.

Each worker is an actor on a free CPU. Its messages go through Ray, so this process listens on no port of its own, and
who may reach the workers is what Ray's own settings say. The pool sees a pipe, as it does of a local process: two
threads carry its messages to the actor and back. A machine that dies ends its actors, so the pool repeats the jobs that
were in progress there, and no others. Needs the extra `ray`.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from context_agent._support.extras import extra
from context_agent._support.worker_pool import ONE_THREAD, Worker, WorkerSetup, run_jobs
from context_agent.errors import ConfigError
from context_agent.version import __version__

with extra("ray"):
    import ray
    from ray.exceptions import RayError

CURRENT = "auto"
"""The address of RAY_ADDRESS, else the cluster that runs on this machine.

None is started: unless Ray is told otherwise, it lets whoever reaches its ports run code.
"""
START_TIMEOUT = 120.0
"""Seconds for a worker to start."""
CONNECT_TIMEOUT = 10.0
"""Seconds for the head of the cluster to accept a connection."""


@dataclass(slots=True)
class RayProcess:
    """A worker's actor, as the pool sees a process."""

    actor: Any
    exitcode: int | None = None

    def kill(self) -> None:
        """End the worker, wherever it runs."""
        ray.kill(self.actor)

    def join(self) -> None:
        """Do nothing: Ray waits for its actors."""


class RayMachines:
    """The machines of a cluster. Close it after the run."""

    def __init__(self, address: str = CURRENT) -> None:
        """Connect to the cluster. Raises `ConfigError` if that fails."""
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            if host and port.isdecimal():
                # Ray itself would try for minutes.
                socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
            ray.init(address, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError, RayError) as error:
            raise ConfigError(
                f"cannot use the Ray cluster {address!r}: {error}. Start one with "
                "`RAY_AUTH_MODE=token ray start --head`, and check that it has this machine's versions of Python and "
                "Ray"
            ) from error
        self.cores = max(1, int(ray.cluster_resources().get("CPU", 0)))
        """Processors of all machines."""

    def start(self, setup: WorkerSetup[Any, Any], slots: int) -> Worker | None:
        """Start a worker on a free CPU. Return None if no machine has one.

        Raises `ConfigError` for a machine without this version of the package or without this process's current folder.
        """
        if ray.available_resources().get("CPU", 0) < 1:
            return None
        actor = cast("Any", _RemoteWorker).remote()
        started = actor.start.remote((setup, slots), __version__, str(Path.cwd()))
        try:
            ray.get(started, timeout=START_TIMEOUT)
        except ray.exceptions.RayTaskError as error:
            ray.kill(actor)
            raise _failure(error) from error
        except (RayError, TimeoutError):
            ray.kill(actor)
            return None
        near, far = socket.socketpair()
        for carry in (_carry_to, _carry_from):
            threading.Thread(target=carry, args=(actor, far), daemon=True, name="ctx1-ray").start()
        return Worker(RayProcess(actor), Connection(near.detach()))

    def close(self) -> None:
        """Disconnect from the cluster."""
        ray.shutdown()


def _carry_to(actor: Any, far: socket.socket) -> None:
    """Pass the pool's messages to the actor, until the pool closes its end."""
    with Connection(os.dup(far.fileno())) as pipe, suppress(EOFError, OSError, RayError):
        while True:
            actor.send.remote(pipe.recv_bytes())


def _carry_from(actor: Any, far: socket.socket) -> None:
    """Pass the actor's messages to the pool, until the actor ends, which the pool sees as the end of the pipe."""
    with far, Connection(os.dup(far.fileno())) as pipe, suppress(OSError, RayError):
        while True:
            try:
                pipe.send_bytes(ray.get(actor.receive.remote()))
            except RayError:
                # Closing would not wake the other thread, which waits for a message of the pool.
                far.shutdown(socket.SHUT_RDWR)
                return


def _failure(error: Any) -> ConfigError:
    reason = str(error.cause or error).strip().splitlines()[-1]
    return ConfigError(
        f"a worker on the Ray cluster failed: {reason}. Install context-agent {__version__} on every machine, and "
        f"give every machine the folder {Path.cwd()}"
    )


@ray.remote(num_cpus=1, concurrency_groups={"to": 1, "from": 1}, runtime_env={"env_vars": ONE_THREAD})
class _RemoteWorker:
    """The process of a worker. Both groups have one thread, so messages keep their order."""

    def start(self, work: tuple[WorkerSetup[Any, Any], int], version: str, folder: str) -> None:
        """Start the jobs of a worker. Relative paths mean those of `folder`."""
        # Ray sends this class with its globals, so the version of the worker's machine has to be imported there.
        from context_agent import version as installed

        if version != installed.__version__:
            raise ConfigError(f"a machine has context-agent {installed.__version__}, not {version}")
        os.chdir(folder)
        self._pipe, pipe = Pipe()
        threading.Thread(target=run_jobs, args=(work[0], pipe, work[1]), daemon=True).start()

    @ray.method(concurrency_group="to")  # type: ignore[untyped-decorator]
    def send(self, message: bytes) -> None:
        """Pass a message to the jobs."""
        self._pipe.send_bytes(message)

    @ray.method(concurrency_group="from")  # type: ignore[untyped-decorator]
    def receive(self) -> bytes:
        """Return the next message of the jobs, as soon as there is one."""
        return self._pipe.recv_bytes()
