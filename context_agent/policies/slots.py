"""How many requests run at once, whoever asks."""

from __future__ import annotations

import asyncio
import threading
from collections import deque


class Slots:
    """A semaphore for coroutines of any event loop and thread (asyncio's own belongs to one loop)."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            mine = (loop, loop.create_future())
            self._waiting.append(mine)
        try:
            await mine[1]
        except asyncio.CancelledError:
            self._forget(mine)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _forget(self, mine: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]) -> None:
        """Leaves the queue; a slot that was handed over in the same moment goes on to the next."""
        with self._lock:
            waiting = mine in self._waiting
            if waiting:
                self._waiting.remove(mine)
        if not waiting and not mine[1].cancelled():
            self._release()

    def _release(self) -> None:
        with self._lock:
            while self._waiting:
                loop, future = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(self._hand_over, future)
                except RuntimeError:  # its loop was closed while it waited
                    continue
                return
            self._free += 1

    def _hand_over(self, future: asyncio.Future[None]) -> None:
        if future.done():
            self._release()
        else:
            future.set_result(None)
