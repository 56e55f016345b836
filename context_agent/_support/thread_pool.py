"""A pool of threads that also works in a forked process."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ThreadPool(Executor):
    """A `ThreadPoolExecutor` that starts new threads in a forked process.

    A fork copies the pool but none of its threads, so work that is submitted in the child would wait forever.
    """

    def __init__(self, workers: int | None = None, *, name: str) -> None:
        self._workers, self._name = workers, name
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix=self._name)

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Run a call in a thread, and return its future result."""
        if os.getpid() != self._process:
            self._start()
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads. In a forked process, there are none to wait for."""
        self._pool.shutdown(wait=wait and os.getpid() == self._process, cancel_futures=cancel_futures)
