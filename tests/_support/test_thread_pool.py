"""A pool of threads in a process and in its fork. Another process id imitates the fork."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from context_agent._support import thread_pool
from context_agent._support.thread_pool import ThreadPool


def test_while_a_fork_starts_new_threads_no_other_thread_submits_to_the_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[ThreadPoolExecutor] = []
    used: list[ThreadPoolExecutor] = []

    class Recorded(ThreadPoolExecutor):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)
            if len(made) == 2:  # As another thread would at this moment.
                pool.submit(int)

        def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
            used.append(self)
            return super().submit(fn, *args, **options)

    monkeypatch.setattr(thread_pool, "ThreadPoolExecutor", Recorded)
    pool = ThreadPool(1, name="pool")
    monkeypatch.setattr(os, "getpid", lambda: 0)
    pool.submit(int)
    pool.submit(int)
    assert len(used) == 3
    assert made[0] not in used


def test_the_end_of_a_pool_in_a_fork_leaves_the_old_threads_and_their_locks_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[bool] = []

    class Recorded(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            ended.append(wait)
            super().shutdown(wait, cancel_futures=cancel_futures)

    monkeypatch.setattr(thread_pool, "ThreadPoolExecutor", Recorded)
    pool = ThreadPool(2, name="pool")
    pool.shutdown(wait=False)
    assert ended == [False]
    monkeypatch.setattr(os, "getpid", lambda: 0)
    pool.shutdown()
    assert ended == [False]
