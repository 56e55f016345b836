"""Processes that begin with the trainer imported: forks of one process that has imported it and does nothing else.

A process that is spawned imports torch and trl anew, which takes longer than most of what tests have it do.
"""

from __future__ import annotations

from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext

IMPORTED = ["context_agent.train.rl.loop", "context_agent.train.rl.rollout_workers"]


def prepared() -> ForkServerContext:
    """Starts the process, which ends with this one; gives the context of its forks."""
    forkserver.set_forkserver_preload(IMPORTED)
    forkserver.ensure_running()
    return get_context("forkserver")


def inherited() -> None:
    """Has a process that `os.fork` made use the forks of its parent; only the parent can ask whether they still run."""
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]
