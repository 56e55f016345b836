"""What threads and event loops of a process share: a semaphore, a loop for synchronous callers, and cancellation."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context, ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

from context_agent._support.cancellation import cancelled_if, check_cancelled

T = TypeVar("T")
Arguments = ParamSpec("Arguments")
LOCK_SECONDS = 0.2
"""Seconds between two checks for a cancellation while a thread waits for a lock."""
_BLOCKED_LOOPS: ContextVar[frozenset[asyncio.AbstractEventLoop]] = ContextVar("blocked_loops", default=frozenset())
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]


class SharedSemaphore:
    """A semaphore that coroutines of any event loop and thread can share.

    A semaphore of asyncio belongs to one loop.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiters: deque[_Waiter] = deque()

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            waiter = (loop, loop.create_future())
            self._waiters.append(waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            self._leave_queue(waiter)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _leave_queue(self, waiter: _Waiter) -> None:
        """Remove a cancelled waiter from the queue. If it was granted a slot at the same moment, pass the slot on."""
        with self._lock:
            queued = waiter in self._waiters
            if queued:
                self._waiters.remove(waiter)
        if not queued and not waiter[1].cancelled():
            self._release()

    def _release(self) -> None:
        with self._lock:
            while self._waiters:
                loop, future = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(self._grant, future)
                except RuntimeError:  # the waiter's loop is closed
                    continue
                return
            self._free += 1

    def _grant(self, future: asyncio.Future[None]) -> None:
        if future.done():
            self._release()
        else:
            future.set_result(None)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread. If there is none, return None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def context_blocking(loop: asyncio.AbstractEventLoop) -> Context:
    """Return a copy of this context for work in another thread, for which the thread of an event loop waits."""
    context = copy_context()
    context.run(_BLOCKED_LOOPS.set, _BLOCKED_LOOPS.get() | {loop})
    return context


def is_blocked(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True if the thread of this event loop waits for the caller, so that the loop runs nothing meanwhile."""
    return loop is running_loop() or loop in _BLOCKED_LOOPS.get()


class BackgroundLoop:
    """An event loop on a daemon thread. It starts when it is first used, and again in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[int, asyncio.AbstractEventLoop] | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the coroutine on the loop. Any thread may call this method."""
        return asyncio.run_coroutine_threadsafe(work, self._loop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop, and return its result.

        Any thread except the loop's own may call this method.
        """
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # also KeyboardInterrupt, which reaches only the waiting thread
            future.cancel()
            raise

    def _loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._running is None or self._running[0] != os.getpid():
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, daemon=True, name="context-agent-http").start()
                self._running = (os.getpid(), loop)
            return self._running[1]


BACKGROUND = BackgroundLoop()
"""The loop for all synchronous callers in this process."""


async def run_cancellable(work: Callable[Arguments, T], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> T:
    """Return the result of a function that runs in a thread.

    If this call is cancelled, the next `check_cancelled` of the function raises `WorkCancelled`.
    """
    cancelled = threading.Event()
    with cancelled_if(cancelled.is_set):
        try:
            return await asyncio.to_thread(work, *args, **kwargs)
        finally:
            cancelled.set()


def acquire(lock: threading.Lock) -> None:
    """Acquire a lock that other threads may hold for long. Meanwhile, check for a cancellation."""
    check_cancelled()
    while not lock.acquire(timeout=LOCK_SECONDS):
        check_cancelled()
