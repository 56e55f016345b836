"""A pool of threads that also works in a forked process."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from context_agent.errors import ConfigError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ThreadPool(Executor):
    """A `ThreadPoolExecutor` that starts new threads in a forked process.

    A fork copies the pool but none of its threads, so work that is submitted in the child would wait forever.
    """

    def __init__(self, workers: int | None = None, *, name: str) -> None:
        self._workers, self._name = workers, name
        self._started = self._start()
        self._is_ended = False

    def _start(self) -> tuple[int, ThreadPoolExecutor]:
        """Return a new pool, and the process that its threads belong to."""
        return os.getpid(), ThreadPoolExecutor(self._workers, thread_name_prefix=self._name)

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Run a call in a thread, and return the future of its result.

        Raises:
            ConfigError: If the pool was shut down.
        """
        process, pool = self._started
        if process != os.getpid():
            # One assignment of both, so that no other thread submits to the pool without threads.
            process, pool = self._started = self._start()
        try:
            return pool.submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if self._is_ended:
                raise closed_in_use() from error
            raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads. Do nothing in a forked process that has submitted no work."""
        self._is_ended = True
        process, pool = self._started
        # The fork may have copied a lock of the pool that another thread held.
        if process == os.getpid():
            pool.shutdown(wait, cancel_futures=cancel_futures)


def closed_in_use() -> ConfigError:
    """Return the error for work whose threads were ended before it was done."""
    return ConfigError("the agent or its corpus was closed during a search. Close it after its last search has ended.")
