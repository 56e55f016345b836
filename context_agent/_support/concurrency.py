"""Work shared between event loops and threads: a semaphore for all of them, and a loop for synchronous callers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]


class SharedSemaphore:
    """A semaphore for coroutines of any event loop and thread (asyncio's own belongs to one loop)."""

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
        """Removes a cancelled waiter. If it was granted a slot at the same moment, the slot goes to the next one."""
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


class BackgroundLoop:
    """An event loop on a daemon thread, started at its first use, and again in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[int, asyncio.AbstractEventLoop] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine to its end and returns its result. Call it from any thread but the loop's own."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop())
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
"""The loop that serves all synchronous callers in this process."""
