"""Deadlines of searches."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from context_agent._support.arguments import real_number


class Deadline:
    """A deadline for searches, in addition to their agent's own limit.

    At the deadline, a search ends with its best ranking so far.

    Several searches may share a deadline. To end them at once, call `expire` in the
    event loop that runs them.

    Args:
        seconds: Seconds from the creation of the deadline. If it is None, the deadline comes when
            `expire` is called.

    Raises:
        ConfigError: If `seconds` is not a number.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._clock = asyncio.get_running_loop().time
        self._ends = math.inf if seconds is None else self._clock() + real_number(seconds, "seconds")
        self._running: set[asyncio.Timeout] = set()

    @property
    def left(self) -> float:
        """The seconds until the deadline, never negative. If only `expire` ends the searches, they are infinite."""
        return max(0.0, self._ends - self._clock())

    def expire(self) -> None:
        """End all running searches now. Searches that start later end before their first turn."""
        self._ends = min(self._ends, self._clock())
        for timeout in self._running:
            if not timeout.expired():
                timeout.reschedule(self._ends)

    @asynccontextmanager
    async def within(self, limit: float | None) -> AsyncIterator[asyncio.Timeout]:
        """Raise `TimeoutError` in the block at the deadline, or after `limit` seconds if that comes first.

        The yielded timeout tells this error from one that the block itself raises.
        """
        ends = min(self._ends, math.inf if limit is None else self._clock() + limit)
        async with asyncio.timeout_at(ends if math.isfinite(ends) else None) as timeout:
            self._running.add(timeout)
            try:
                yield timeout
            finally:
                self._running.discard(timeout)
