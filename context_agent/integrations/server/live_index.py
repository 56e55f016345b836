"""An agent that always searches the current state of an index. A changed index is reloaded without losing a request.

If the index is on a server, it is opened a second time while the first stays open. Running searches finish on the state
that they started with. If the index is a folder, a process can open it only once. Its reload waits for running
searches, and new searches wait for the reload. If another program empties its collection, nothing is found until the
collection has records again.
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
from context_agent.budget import Budget
from context_agent.errors import ContextAgentError
from context_agent.harness.policy import Policy
from context_agent.integrations.server.errors import index_problem
from context_agent.integrations.server.logs import log
from context_agent.retrieval.chroma.database import EmptyCollectionError
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.empty_corpus import EmptyCorpus


@runtime_checkable
class ChangingCorpus(Protocol):
    """A corpus on an index that other programs may write to."""

    def stale(self) -> bool:
        """Return True if the index has changed since it was opened."""

    def close(self) -> None:
        """Close the index."""


@dataclass(slots=True, eq=False)
class _Revision:
    """One state of the index, and the number of searches that use it."""

    agent: SearchAgent
    users: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        self.agent.close()
        if isinstance(self.agent.corpus, ChangingCorpus):
            self.agent.corpus.close()


class LiveIndex:
    """The agent on the current revision of its index.

    Only one event loop may use it. Indexes are opened and closed in threads.
    """

    def __init__(
        self, agent: SearchAgent, reopen: Callable[[], Corpus] | None = None, *, concurrent: bool = False
    ) -> None:
        """Make an index that follows changes.

        Args:
            agent: The agent on the first revision. Later revisions have its policy and its budget.
            reopen: A function that opens the current state of the index. If it is None, the index never changes, and
                the caller closes it.
            concurrent: True if the index may be open twice at a time.
        """
        self._revision: _Revision | None = _Revision(agent)
        self._template = agent
        self._reopen, self._concurrent = reopen, concurrent
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._retired: set[asyncio.Task[None]] = set()
        self.stale = False
        """True while the index is known to have changed since it was loaded."""
        self.checked = time.time()
        """The time when the index was last loaded or found unchanged, in seconds since the epoch."""
        self._reachable = True
        """False while the server of the index does not answer."""

    @property
    def ready(self) -> bool:
        """True if there is an index to search whose server answers, or one is being loaded."""
        return (self._revision is not None and self._reachable) or not self._loaded.is_set()

    @property
    def policy(self) -> Policy:
        """The policy that searches every revision."""
        return self._template.policy

    @property
    def budget(self) -> Budget:
        """The budget of every search."""
        return self._template.budget

    @property
    def name(self) -> str:
        """The name of the corpus and its revision. While no index is open, it is an empty string."""
        return self._revision.agent.corpus.name if self._revision else ""

    @property
    def chunks(self) -> int:
        """The number of chunks in the current revision."""
        return self._revision.agent.corpus.count() if self._revision else 0

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[SearchAgent]:
        """Yield the agent. Its index stays open until the block ends.

        Raises:
            Problem: If no index could be loaded.
        """
        await self._loaded.wait()
        revision = self._revision
        if revision is None:
            raise index_problem()
        revision.users += 1
        try:
            yield revision.agent
        finally:
            revision.users -= 1
            if not revision.users:
                revision.unused.set()

    async def follow(self) -> bool | None:
        """Reload the index if it has changed.

        Returns:
            True if the index was reloaded, False if it has not changed, and None if checking or loading failed.
        """
        if self._reopen is None:
            return False
        was_empty = self._empty
        try:
            if not await self._changed():
                return False
            self.stale = not self._empty
            await (self._swap(self._reopen) if self._concurrent else self._replace(self._reopen))
        except ContextAgentError as error:
            log("index", logging.ERROR, reason=str(error))
            return None
        except Exception as error:  # noqa: BLE001 (the index must still be followed after it)
            log("unexpected", logging.ERROR, error=error)
            return None
        self.stale, self.checked = False, time.time()
        if was_empty and self._empty:
            return False
        log("index", corpus=self.name, chunks=self.chunks)
        return True

    async def close(self) -> None:
        """Close the revisions that this object opened."""
        if self._retired:
            await asyncio.wait(self._retired, timeout=1.0)
        if self._reopen is not None and self._revision is not None:
            await asyncio.to_thread(self._revision.close)

    @property
    def _empty(self) -> bool:
        """True if the collection had no records when it was last opened."""
        return self._revision is not None and isinstance(self._revision.agent.corpus, EmptyCorpus)

    async def _changed(self) -> bool:
        if self._revision is None or self._empty:
            return True
        corpus = self._revision.agent.corpus
        if isinstance(corpus, ChangingCorpus):
            try:
                is_stale = await asyncio.to_thread(corpus.stale)
            except ContextAgentError:
                # An open folder can be searched even if it was removed since. An index on a server cannot.
                self._reachable = not self._concurrent
                raise
            self._reachable = True
            if is_stale:
                return True
        self.checked = time.time()
        return False

    async def _swap(self, reopen: Callable[[], Corpus]) -> None:
        """Open the new revision. The old one is closed when its last search ends."""
        fresh = await self._opened(reopen)
        former, self._revision = self._revision, fresh
        if former is not None:
            task = asyncio.create_task(_retire(former))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def _replace(self, reopen: Callable[[], Corpus]) -> None:
        """Close the old revision, then open the new one."""
        self._loaded.clear()
        try:
            if self._revision is not None:
                await _retire(self._revision)
                self._revision = None
            self._revision = await self._opened(reopen)
        finally:
            self._loaded.set()

    async def _opened(self, reopen: Callable[[], Corpus]) -> _Revision:
        try:
            corpus = await asyncio.to_thread(reopen)
        except EmptyCollectionError:
            corpus = EmptyCorpus(f"{self._template.corpus.name.partition('@')[0]}@empty")
        return _Revision(self._template.on(corpus))


async def _retire(revision: _Revision) -> None:
    revision.unused.clear()
    if revision.users:
        await revision.unused.wait()
    await asyncio.to_thread(revision.close)
