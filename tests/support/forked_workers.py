"""Worker processes that start as forks of a process that has already imported the package.

A spawned worker spends a second of the processor on imports, more than most tests spend on its jobs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

import pytest

from context_agent._support import child_process
from context_agent._support.processes import environment
from context_agent._support.worker_pool import ONE_THREAD

IMPORTED = [
    "chromadb",
    "context_agent.cli.eval",
    "context_agent.eval.runner",
    "context_agent.policies.bridge.policy",
    "context_agent.retrieval.chroma.corpus",
    "context_agent.retrieval.chroma.indexing",
    "context_agent.retrieval.memory",
    "openai_harmony",
    "pytest",
    "tantivy",
    "tests.support.warm",
]
"""What the server imports. It leaves out onnxruntime, which starts a thread: a fork would lose it."""


class ForkedProcess(ForkServerProcess):
    """A fork with the environment of the process that starts it, as a spawned process has it."""

    def start(self) -> None:
        """Remember the environment, and start."""
        self._environment = dict(os.environ)
        super().start()

    def run(self) -> None:
        """Set the environment, and run the target."""
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class ForkedContext(ForkServerContext):
    """A context in place of the one of spawned processes."""

    Process = ForkedProcess


@cache
def _server() -> forkserver.ForkServer:
    """Return the server of this test process. It ends with the process."""
    server = forkserver.ForkServer()
    server.set_forkserver_preload(IMPORTED)
    # The server does not know the paths of this process. Its forks do.
    with environment({**ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)}):
        server.ensure_running()
    return server


def fork_workers(patch: pytest.MonkeyPatch) -> None:
    """Let workers be forks. Only the tests of the processes themselves need spawned ones."""
    patch.setattr(forkserver, "connect_to_new_process", lambda fds: _server().connect_to_new_process(fds))
    patch.setattr(child_process, "get_context", lambda _: ForkedContext())


def start_fork(target: Callable[..., object], *arguments: Any) -> ForkedProcess:
    """Start a fork that calls a function of a module. It ends with this process."""
    process = ForkedContext().Process(target=target, args=arguments, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        fork_workers(patch)
        process.start()
    return process
