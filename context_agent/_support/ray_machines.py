"""Workers on the machines of a Ray cluster, for the same pool as processes of this machine.

Each worker is an actor on a free CPU. Its messages go through Ray, so this process listens on no port, and Ray's own
settings decide who can reach the workers. The pool reads and writes a pipe, as for a local process, and two threads
carry the messages between the pipe and the actor. If a machine dies, its actors end, and the pool repeats the jobs that
were in progress there. Needs the extra `ray`.
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

from context_agent._support.child_process import ChildProcess, ParentPipe
from context_agent._support.extras import extra
from context_agent._support.worker_pool import ONE_THREAD, Worker, WorkerSetup, run_worker
from context_agent.errors import ConfigError, reason_of
from context_agent.version import __version__

with extra("ray"):
    import ray
    from ray.exceptions import RayError

CURRENT = "auto"
"""The address that stands for the cluster in RAY_ADDRESS, or else for the cluster that runs on this machine.

This module never starts a cluster. By default, Ray lets anyone who reaches its ports run code.
"""
START_TIMEOUT = 120.0
"""Maximum number of seconds for a worker to start."""
CONNECT_TIMEOUT = 10.0
"""Maximum number of seconds for the head of the cluster to accept a connection."""


@dataclass(slots=True)
class RayProcess:
    """A worker's actor with the interface of a process, for the pool."""

    actor: Any
    exitcode: int | None = None

    def kill(self) -> None:
        """End the actor on its machine."""
        ray.kill(self.actor)

    def join(self, timeout: float | None = None) -> None:
        """Do nothing, because Ray waits for its actors."""


class RayMachines:
    """The machines of a Ray cluster. Close the object after the run.

    Args:
        address: The address of the cluster.

    Attributes:
        cores: The number of processors of all machines.

    Raises:
        ConfigError: If the connection fails.
    """

    def __init__(self, address: str = CURRENT) -> None:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            if host and port.isdecimal():
                # Ray itself would try for minutes.
                socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
            ray.init(address, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError, RayError) as error:
            raise ConfigError(
                f"cannot use the Ray cluster {address!r} ({reason_of(error)}). Start one with `RAY_AUTH_MODE=token "
                "ray start --head`, and check that it has this machine's versions of Python and Ray."
            ) from error
        self.cores = max(1, int(ray.cluster_resources().get("CPU", 0)))

    def start(self, setup: WorkerSetup[Any, Any], slots: int) -> Worker | None:
        """Start a worker on a free CPU. If no machine has one, return None.

        Raises:
            ConfigError: If a machine lacks this version of the package, or lacks this process's current folder.
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
        return Worker(ChildProcess(RayProcess(actor), Connection(near.detach())))

    def close(self) -> None:
        """Disconnect from the cluster."""
        ray.shutdown()


def _carry_to(actor: Any, far: socket.socket) -> None:
    """Pass the pool's messages to the actor, until the pool closes its end."""
    with Connection(os.dup(far.fileno())) as pipe, suppress(EOFError, OSError, RayError):
        while True:
            actor.send.remote(pipe.recv_bytes())


def _carry_from(actor: Any, far: socket.socket) -> None:
    """Pass the actor's messages to the pool, until the actor ends. The pool then sees the end of the pipe."""
    with far, Connection(os.dup(far.fileno())) as pipe, suppress(OSError, RayError):
        while True:
            try:
                pipe.send_bytes(ray.get(actor.receive.remote()))
            except RayError:
                # Closing the socket would not wake the other thread, which waits for a message from the pool.
                far.shutdown(socket.SHUT_RDWR)
                return


def _failure(error: Any) -> ConfigError:
    reason = str(error.cause or error).strip().splitlines()[-1]
    return ConfigError(
        f"a worker on the Ray cluster failed ({reason}). Install context-agent {__version__} on every machine, and "
        f"give every machine the folder {Path.cwd()}."
    )


@ray.remote(num_cpus=1, concurrency_groups={"to": 1, "from": 1}, runtime_env={"env_vars": ONE_THREAD})
class _RemoteWorker:
    """The process of a worker. Each concurrency group has one thread, so messages keep their order."""

    def start(self, work: tuple[WorkerSetup[Any, Any], int], version: str, folder: str) -> None:
        """Start to run the jobs of a worker. Relative paths are relative to `folder`."""
        # Ray sends this class with its globals, so the version of the worker's machine has to be imported there.
        from context_agent import version as installed

        if version != installed.__version__:
            raise ConfigError(f"the worker's machine must have context-agent {version}; got {installed.__version__}")
        os.chdir(folder)
        self._pipe, pipe = Pipe()
        threading.Thread(target=run_worker, args=(*work, ParentPipe(pipe)), daemon=True).start()

    @ray.method(concurrency_group="to")  # type: ignore[untyped-decorator]
    def send(self, message: bytes) -> None:
        """Pass a message to the job runner."""
        self._pipe.send_bytes(message)

    @ray.method(concurrency_group="from")  # type: ignore[untyped-decorator]
    def receive(self) -> bytes:
        """Wait for the next message of the job runner, and return it."""
        return self._pipe.recv_bytes()
