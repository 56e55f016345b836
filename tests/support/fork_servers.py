"""Servers that fork processes. All test processes of a run share them.

A server imports packages once, when a test first asks for it. Each process that it starts has them from the beginning.
The servers end with the process that calls `hold_folder`.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from context_agent.errors import MissingExtraError
from tests.support.garbage import collect_rarely

ENVIRONMENT = "CTX1_TEST_FORK_SERVERS"
"""The variable that names the folder of the servers."""
HELD, STARTING, HUB, ROWS = "held", "starting", "hub", "rows"
PROGRAMS, MODELS, TESTS = "programs", "models", "tests"
IMPORTED = {
    PROGRAMS: [
        "chromadb.api.rust",
        "chromadb.telemetry.product.posthog",
        "context_agent.cli.eval",
        "context_agent.cli.index",
        "context_agent.cli.search",
        "context_agent.eval.runner",
        "context_agent.integrations.mcp.serving",
        "context_agent.integrations.server.app",
        "context_agent.integrations.server.proxy",
        "context_agent.policies.bridge.policy",
        "context_agent.retrieval.chroma.corpus",
        "context_agent.retrieval.chroma.indexing",
        "context_agent.retrieval.embedders.minilm",
        "context_agent.retrieval.memory",
        "filelock",
        "openai_harmony",
        "pytest",
        "tantivy",
        "tests.support.warm",
    ],
    MODELS: [
        "accelerate.commands.launch",
        "context_agent.train.reinforcement",
        "context_agent.train.experimental.async_rollouts.rollout_process",
        "context_agent.train.rl.row_trainer",
        "tests.support.warm",
        "transformers.cli.transformers",
        "transformers.models.gpt_oss.modeling_gpt_oss",
    ],
    TESTS: [
        "anthropic",
        "chromadb.api.rust",
        "context_agent.integrations.mcp.serving",
        "context_agent.integrations.server.proxy",
        "dspy",
        "haystack",
        "hypothesis",
        "langchain_chroma",
        "llama_index.core",
        "matplotlib.backends.backend_svg",
        "matplotlib.figure",
        "openai",
        "openpyxl",
        "selenium.webdriver.chromium.webdriver",
    ],
}
"""What each server imports. `programs` leaves out onnxruntime, which starts a thread: a fork would lose it.
`tests` also has what `models` imports, since it is a fork of it."""
STARTED_TOGETHER = [(PROGRAMS,), (MODELS, TESTS)]
"""Servers that one process starts. Each but the first is a fork of the one before, made when a test first asks it."""

_STARTED: list[subprocess.Popen[bytes]] = []
"""Servers that this process started. They may outlive it."""


def hold_folder() -> None:
    """Make the folder of the servers, unless a process that started this one has made it. It ends with this process."""
    if ENVIRONMENT in os.environ:
        return
    folder = Path(tempfile.mkdtemp(prefix="ctx1-forks-"))
    (folder / HUB).mkdir()
    fcntl.flock(os.open(folder / HELD, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    os.environ[ENVIRONMENT] = str(folder)
    atexit.register(_remove, folder, os.getpid())


def rows_folder() -> Path:
    """Return the folder of the rows that the processes of this run share."""
    return Path(os.environ[ENVIRONMENT], ROWS)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def fork_server(name: str) -> forkserver.ForkServer:
    """Return the server with this name. The first test process that asks starts it."""
    server = forkserver.ForkServer()
    attach(server, name)
    return server


def attach(client: Any, name: str) -> None:
    """Let a client of fork servers, such as the one that `multiprocessing` has, use the server with this name."""
    folder = Path(os.environ[ENVIRONMENT])
    address = folder / name
    with (folder / STARTING).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            _start(folder, name)
    # A process of the server asks for further ones at the same address.
    client._forkserver_address, client._forkserver_alive_fd = str(address), os.open(os.devnull, os.O_RDONLY)
    client.ensure_running = lambda: None


def _start(folder: Path, name: str) -> None:
    (names,) = (names for names in STARTED_TOGETHER if name in names)
    paths = os.pathsep.join(sys.path)
    environment = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # Packages of models read these when they are imported.
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder / HUB)}
    with ExitStack() as stack:
        log = stack.enter_context((folder / f"{names[0]}.log").open("w"))
        listeners = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in names]
        for server, listener in zip(names, listeners, strict=True):
            listener.bind(str(folder / server))
            listener.listen(64)
        numbers = [listener.fileno() for listener in listeners]
        served = [f"{server}={number}" for server, number in zip(names, numbers, strict=True)]
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder / HELD), *served],
            pass_fds=numbers,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _STARTED.append(process)


def _serve(held: str, listeners: dict[str, int]) -> None:
    """Serve in children. This process waits until the folder's owner has ended, and the servers end with it."""
    alive, ending = os.pipe()
    if os.fork() == 0:
        os.close(ending)
        _serve_each(listeners, alive)
        return
    os.close(alive)
    for listener in listeners.values():
        os.close(listener)
    with Path(held).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def _serve_each(listeners: dict[str, int], alive: int) -> None:
    # The script `ctx1` of tests imports this module, and needs no numpy.
    from tests.support.remembered_rows import remembered_rows

    with remembered_rows(rows_folder()):
        later = list(listeners.values())
        for name, listener in listeners.items():
            gc.disable()
            for module in IMPORTED[name]:
                # Without an extra, what needs it is not there.
                with suppress(ImportError, MissingExtraError):
                    import_module(module)
            collect_rarely()
            later.remove(listener)
            if not later or os.fork() == 0:
                forkserver.main(listener, alive, [])
            os.close(listener)
            asked, _, _ = select.select([*later, alive], [], [])
            if alive in asked:
                return


if __name__ == "__main__":
    _serve(sys.argv[1], {name: int(number) for name, number in (served.split("=") for served in sys.argv[2:])})
