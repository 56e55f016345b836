"""The agent on the index as it stands now: an index that changed is read anew without losing a request.

An index on a server is opened a second time beside the first; searches that run end on the state they began with. A
folder can be open once in a process, so there a reload waits for what runs, and what comes meanwhile waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from context_agent.agent import SearchAgent
from context_agent.errors import ContextAgentError
from context_agent.integrations.server.observability import log
from context_agent.integrations.server.responses import INDEX, Problem
from context_agent.retrieval.corpus import Corpus


@runtime_checkable
class Changing(Protocol):
    """A corpus over something that others write to."""

    def stale(self) -> bool:
        """Whether it has changed since it was read."""

    def close(self) -> None:
        """Lets go of it."""


@dataclass(slots=True, eq=False)
class _Edition:
    """The index in one state, and the searches that stand on it."""

    agent: SearchAgent
    users: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        self.agent.close()
        if isinstance(self.agent.corpus, Changing):
            self.agent.corpus.close()


class Served:
    """Hands out the agent. Used from one event loop; opening and closing happen in threads."""

    def __init__(self, agent: SearchAgent, reopen: Callable[[], Corpus] | None = None, *, beside: bool = False) -> None:
        """`reopen` opens the index's present state: None for one that stays as it is, and is the caller's to close.

        `beside` says that it may be open twice at a time.
        """
        self._edition: _Edition | None = _Edition(agent)
        self._template = agent
        self._reopen, self._beside = reopen, beside
        self._there = asyncio.Event()
        self._there.set()
        self._retired: set[asyncio.Task[None]] = set()
        self.stale = False
        """Whether the index is known to have changed since it was read."""
        self.checked = time.time()
        """When the index was last known to be as it was read, or was read; in seconds since the epoch."""

    @property
    def ready(self) -> bool:
        """Whether there is an index to search."""
        return self._edition is not None or not self._there.is_set()

    @property
    def name(self) -> str:
        """The corpus's name, with the revision that is served; empty while there is none."""
        return self._edition.agent.corpus.name if self._edition else ""

    @property
    def chunks(self) -> int:
        """Chunks of that revision."""
        return self._edition.agent.corpus.count() if self._edition else 0

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[SearchAgent]:
        """The agent, which stays as it is until the block ends. Raises `Problem` where the index is gone."""
        await self._there.wait()
        edition = self._edition
        if edition is None:
            raise Problem(503, "index_error", INDEX, headers={"Retry-After": "5"})
        edition.users += 1
        try:
            yield edition.agent
        finally:
            edition.users -= 1
            if not edition.users:
                edition.unused.set()

    async def follow(self) -> bool | None:
        """Reads the index anew if it has changed: True if so, None if it could not be told or read."""
        if self._reopen is None:
            return False
        try:
            if not await self._changed():
                return False
            self.stale = True
            await (self._swap(self._reopen) if self._beside else self._replace(self._reopen))
        except ContextAgentError as error:
            log("index", logging.ERROR, reason=str(error))
            return None
        self.stale, self.checked = False, time.time()
        log("index", corpus=self.name, chunks=self.chunks)
        return True

    async def close(self) -> None:
        """Closes what was opened here."""
        if self._retired:
            await asyncio.wait(self._retired, timeout=1.0)
        if self._reopen is not None and self._edition is not None:
            await asyncio.to_thread(self._edition.close)

    async def _changed(self) -> bool:
        if self._edition is None:
            return True
        corpus = self._edition.agent.corpus
        if not isinstance(corpus, Changing) or not await asyncio.to_thread(corpus.stale):
            self.checked = time.time()
            return False
        return True

    async def _swap(self, reopen: Callable[[], Corpus]) -> None:
        """The new state beside the old one, which is closed when its last search is over."""
        fresh = await self._opened(reopen)
        former, self._edition = self._edition, fresh
        if former is not None:
            task = asyncio.create_task(_retire(former))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def _replace(self, reopen: Callable[[], Corpus]) -> None:
        """The new state after the old one is closed."""
        self._there.clear()
        try:
            if self._edition is not None:
                await _retire(self._edition)
                self._edition = None
            self._edition = await self._opened(reopen)
        finally:
            self._there.set()

    async def _opened(self, reopen: Callable[[], Corpus]) -> _Edition:
        return _Edition(self._template.on(await asyncio.to_thread(reopen)))


async def _retire(edition: _Edition) -> None:
    edition.unused.clear()
    if edition.users:
        await edition.unused.wait()
    await asyncio.to_thread(edition.close)
