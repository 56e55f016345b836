"""Worker processes that start as forks of a process that has already imported the package.

A spawned worker spends a second of the processor on imports, more than most tests spend on its jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import TYPE_CHECKING, Any

from context_agent._support import child_process
from tests.support.fork_servers import PROGRAMS, fork_server

if TYPE_CHECKING:
    import pytest


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


def fork_workers(patch: pytest.MonkeyPatch, server: str = PROGRAMS) -> None:
    """Let workers be forks. Only the tests of the processes themselves need spawned ones."""
    patch.setattr(forkserver, "connect_to_new_process", lambda fds: fork_server(server).connect_to_new_process(fds))
    patch.setattr(child_process, "get_context", lambda _: ForkedContext())


def start_fork(target: Callable[..., object], *arguments: Any, server: str = PROGRAMS) -> ForkedProcess:
    """Start a fork that calls a function of a module. It ends with this process."""
    import pytest

    process = ForkedContext().Process(target=target, args=arguments, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        fork_workers(patch, server)
        process.start()
    return process
