"""Processes that start with the trainer already imported: forks of one server process that does nothing else.

A spawned process imports torch and trl again, which takes longer than most tests.
"""

from __future__ import annotations

from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from typing import Any

IMPORTED = ["context_agent.train.reinforcement", "context_agent.train.experimental.async_rollouts.rollout_process"]


def prepared() -> ForkServerContext:
    """Start the fork server, and return the context of its forks. The server ends with this process.

    If this process uses the fork server of another one, no second server is started.
    """
    forkserver.set_forkserver_preload(IMPORTED)
    # The function `forkserver.ensure_running` would start a second one.
    fork_server: Any = forkserver._forkserver  # noqa: SLF001
    fork_server.ensure_running()
    return get_context("forkserver")


def inherited() -> None:
    """Let a child of `os.fork` use its parent's fork server.

    Only the parent can check whether the server still runs, so the child skips that check.
    """
    fork_server: Any = forkserver._forkserver  # noqa: SLF001
    fork_server.ensure_running = lambda: None
