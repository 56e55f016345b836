"""Workers on the machines of a Ray cluster, for the same pool as processes of this machine.

Ray starts each worker as a task on a free CPU; the worker then connects back to this process and speaks to the pool
over that connection as a local process does over its pipe. A machine that dies closes its connections, so the pool
repeats the jobs that were in progress there, and no others. Needs the extra `ray`.

The connection is authenticated with a random key (HMAC, as in `multiprocessing.connection`) and not encrypted, as Ray's
own traffic.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from context_agent._support.extras import extra
from context_agent._support.worker_pool import ONE_THREAD, Worker, WorkerSetup, run_worker
from context_agent.errors import ConfigError
from context_agent.version import __version__

with extra("ray"):
    import ray
    from ray.exceptions import RayError

CURRENT = "auto"
"""The address of RAY_ADDRESS, else the cluster that runs on this machine, else a new one of this machine's cores."""
START_TIMEOUT = 120.0
"""Seconds for a worker to start and connect."""
CONNECT_TIMEOUT = 10.0
"""Seconds for the head of the cluster to accept a connection."""
_POLL_INTERVAL = 0.2


@dataclass(slots=True)
class RayTask:
    """A worker's task, as the pool sees a process."""

    reference: Any
    exitcode: int | None = None

    def kill(self) -> None:
        """Ends the worker, wherever it runs."""
        ray.cancel(self.reference, force=True)

    def join(self) -> None:
        """Does nothing: Ray waits for its tasks."""


class RayMachines:
    """The machines of a cluster. Close it after the run."""

    def __init__(self, address: str = CURRENT) -> None:
        """Connects to the cluster. Raises `ConfigError` if that fails."""
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            if host and port.isdecimal():
                # Ray itself would try for minutes.
                socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
            ray.init(None if address == CURRENT else address, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError, RayError) as error:
            raise ConfigError(
                f"cannot use the Ray cluster {address!r}: {error}. Start one with `ray start --head`, and check "
                "that it has this machine's versions of Python and Ray"
            ) from error
        self.cores = max(1, int(ray.cluster_resources().get("CPU", 0)))
        """Processors of all machines."""
        self._key = secrets.token_bytes(32)
        self._listener = socket.create_server(("", 0))
        self._listener.settimeout(_POLL_INTERVAL)
        self._address = (ray.util.get_node_ip_address(), self._listener.getsockname()[1])

    def start(self, setup: WorkerSetup[Any, Any], slots: int) -> Worker | None:
        """Starts a worker on a free CPU; None if no machine has one.

        Raises `ConfigError` for a machine without this version of the package or without this process's current folder.
        """
        if ray.available_resources().get("CPU", 0) < 1:
            return None
        reference = _task.remote(self._address, self._key, (setup, slots), __version__, str(Path.cwd()))
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if (connection := self._accepted()) is not None:
                return Worker(RayTask(reference), connection)
            if ray.wait([reference], timeout=0)[0]:
                _raise_failure(reference)
                return None
        ray.cancel(reference, force=True)
        return None

    def close(self) -> None:
        """Disconnects from the cluster."""
        self._listener.close()
        ray.shutdown()

    def _accepted(self) -> Connection | None:
        """The connection of a worker that has the key, if one arrives within the interval."""
        try:
            accepted, _ = self._listener.accept()
        except TimeoutError:
            return None
        accepted.setblocking(True)
        connection = Connection(accepted.detach())
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
        except Exception:  # noqa: BLE001 - whatever a stranger sends
            connection.close()
            return None
        return connection


def _raise_failure(reference: Any) -> None:
    """Says why a worker ended before it connected; a machine that died is no error."""
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        reason = str(error.cause or error).strip().splitlines()[-1]
        raise ConfigError(
            f"a worker on the Ray cluster failed: {reason}. Install context-agent {__version__} on every machine, and "
            f"give every machine the folder {Path.cwd()}"
        ) from error
    except RayError:
        return


@ray.remote(num_cpus=1, max_retries=0, runtime_env={"env_vars": ONE_THREAD})  # type: ignore[untyped-decorator]
def _task(
    address: tuple[str, int], key: bytes, work: tuple[WorkerSetup[Any, Any], int], version: str, folder: str
) -> None:
    """A worker until the pool closes the connection. Relative paths mean those of `folder`."""
    # Ray sends this function with its globals, so the version of the worker's machine has to be imported there.
    from context_agent import version as installed

    if version != installed.__version__:
        raise ConfigError(f"a machine has context-agent {installed.__version__}, not {version}")
    os.chdir(folder)
    setup, slots = work
    run_worker(setup, Client(address, authkey=key), slots)
