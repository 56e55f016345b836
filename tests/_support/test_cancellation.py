"""Work in a thread ends soon after nobody waits for it, also while it waits for a lock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from context_agent._support.cancellation import WorkCancelled, check_cancelled
from context_agent._support.event_loops import acquire, run_cancellable

PATIENCE = 60.0
"""Seconds that a thread may take on a busy machine."""


async def abandoned(work: Callable[[], None]) -> bool:
    """Return True if the work notices that its caller was cancelled."""
    started, noticed = threading.Event(), threading.Event()

    def watched() -> None:
        started.set()
        try:
            work()
        except WorkCancelled:
            noticed.set()
            raise

    task = asyncio.create_task(run_cancellable(watched))
    assert await asyncio.to_thread(started.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return await asyncio.to_thread(noticed.wait, PATIENCE)


async def test_work_that_nobody_waits_for_ends_at_its_next_check() -> None:
    def work() -> None:
        while True:
            check_cancelled()
            time.sleep(0.01)

    assert await abandoned(work)
    check_cancelled()  # This task was not cancelled.


async def test_work_that_waits_for_a_lock_ends_too() -> None:
    lock = threading.Lock()
    with lock:
        assert await abandoned(lambda: acquire(lock))
    acquire(lock)
    assert lock.locked()


async def test_a_result_and_an_error_pass_through() -> None:
    check_cancelled()
    assert await run_cancellable(int, "11", base=3) == 4
    with pytest.raises(ValueError, match="invalid literal"):
        await run_cancellable(int, "x")
