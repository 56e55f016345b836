"""Running the calls of one turn against a corpus: all at once, with an outcome that does not depend on their timing."""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from context_agent.errors import PatternError
from context_agent.harness.profile import Profile
from context_agent.harness.rendering import Renderer, escape_markers
from context_agent.harness.tools import (
    GrepArguments,
    ReadArguments,
    SearchArguments,
    SpawnArguments,
    ToolArguments,
)
from context_agent.harness.trajectory import SubAgentRecord, ToolResult
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import Block, Source, View
from context_agent.retrieval.protocol import Corpus, Where
from context_agent.types import Chunk, Hit

LISTED = 5
"""Ids that a note names at most."""
FRESH = (Source.SEARCH, Source.SPAWN)
"""Sources that show no chunk a second time."""


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A checked call and its index in the turn."""

    index: int
    name: str
    arguments: ToolArguments


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A call that cannot run, with what the policy is told about it."""

    index: int
    name: str
    arguments: dict[str, Any]
    told: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What the corpus answered, before it is decided what of it is shown.

    `limit` is how many blocks may be shown; `known` are chunks that match but were shown before; `order` puts what
    fits back into document order. `calls` is how many calls' room it may fill, `room` its own bound where it has one.
    `delegated` are sub-agents that found it; room for the `words` on them is kept free of blocks.
    """

    source: Source
    hits: tuple[Hit, ...] = ()
    limit: int = 0
    known: tuple[str, ...] = ()
    in_order: bool = False
    words: str = ""
    mistake: str | None = None
    seconds: float = 0.0
    calls: int = 1
    room: int | None = None
    delegated: tuple[SubAgentRecord, ...] = ()


class SubAgents(Protocol):
    """Starts sub-agents for one episode."""

    async def search(
        self, requests: Sequence[Sequence[str]], *, left: int | None, shown: frozenset[str]
    ) -> list[ToolOutput]:
        """The outcome of each request for sub-agents, a list of tasks, of one turn; all run at the same time.

        `left` bounds the tokens of all of them together, `shown` are the chunks that the episode has shown. What goes
        wrong in a sub-agent is told in the outcome.
        """


class ToolExecutor:
    """Runs the calls of one episode; remembers what was shown and which query first brought a document up."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        profile: Profile,
        renderer: Renderer,
        budget: Budget,
        question: str,
        where: Where | None,
        executor: Executor | None,
        searchers: SubAgents | None = None,
        excluded_ids: AbstractSet[str] = frozenset(),
    ) -> None:
        """`excluded_ids` are chunks that no search brings up, because another episode has shown them."""
        self._corpus = corpus
        self._elsewhere = excluded_ids
        self._searchers = searchers
        self._profile = profile
        self._renderer = renderer
        self._budget = budget
        self._question = question
        self._where = where
        self._executor = executor
        self._shown: set[str] = set()
        self._surfaced: dict[str, str] = {}

    async def run(self, calls: Sequence[CheckedCall], *, left: int | None = None) -> dict[int, ToolOutput]:
        """The outcome of each call by its index. In worker threads where the corpus waits for disk or network.

        `left` bounds the tokens of sub-agents. A corpus error of any call is raised after all have ended.
        """
        spawning = {call.index: call.arguments for call in calls if isinstance(call.arguments, SpawnArguments)}
        if not spawning:
            return await self._run(calls)
        own = [call for call in calls if call.index not in spawning]
        found, spawned = await asyncio.gather(self._run(own), self._spawn(spawning, left))
        return found | spawned

    async def _spawn(self, spawning: Mapping[int, SpawnArguments], left: int | None) -> dict[int, ToolOutput]:
        """The outcomes of the calls for sub-agents, which share one clock."""
        if self._searchers is None:
            told = ToolOutput(Source.SPAWN, words="Error: no searchers can be started here.", mistake="no_searchers")
            return dict.fromkeys(spawning, told)
        started = time.perf_counter()
        requests = [one.tasks for one in spawning.values()]
        outcomes = await self._searchers.search(requests, left=left, shown=frozenset(self._shown))
        seconds = time.perf_counter() - started
        return {index: replace(one, seconds=seconds) for index, one in zip(spawning, outcomes, strict=True)}

    async def _run(self, calls: Sequence[CheckedCall]) -> dict[int, ToolOutput]:
        jobs = [self._job(call, earlier) for earlier, call in enumerate(calls)]
        if self._corpus.blocking and jobs:
            loop = asyncio.get_running_loop()
            # Each in a copy of this context: a request's id and its trace reach what the corpus calls.
            contexts = [contextvars.copy_context() for _ in jobs]
            waiting = [
                loop.run_in_executor(self._executor, context.run, _timed, job)
                for context, job in zip(contexts, jobs, strict=True)
            ]
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            outcomes = [_raised(item) for item in ended]
        else:
            outcomes = [_timed(job) for job in jobs]
        return {call.index: outcome for call, outcome in zip(calls, outcomes, strict=True)}

    def blocks(self, call: CheckedCall, outcome: ToolOutput, view: View) -> tuple[Block, ...]:
        """The hits that fit, as blocks: in rank order until the call's token budget is full.

        A first hit that does not fit whole is cut to the room there is, so that a small window still shows something.
        """
        room = self._budget.call_room(view.tokens, outcome.calls)
        if outcome.room is not None:
            room = min(room, outcome.room)
        if outcome.delegated:
            room -= self._renderer.counter.count(f"{outcome.words}\n")
        found: list[Block] = []
        for hit in outcome.hits:
            if len(found) >= outcome.limit:
                break
            if hit.chunk.id in self._shown and outcome.source in FRESH:
                continue
            made = self._renderer.chunk(hit.chunk)
            if made.tokens > room:
                cut = None if found else self._renderer.fit(hit.chunk, room)
                if cut is None:
                    break
                made = cut
            room -= made.tokens
            block = Block(
                0, made.header, made.body, made.tokens, view.turn, call.index, outcome.source, hit, made.whole
            )
            found.append(block)
        if outcome.in_order:
            found.sort(key=lambda block: block.hit.chunk.index)
        return tuple(replace(block, key=key) for key, block in enumerate(found, start=view.next_key))

    def words(self, outcome: ToolOutput, blocks: Sequence[Block], view: View) -> str:
        """What is said beside the blocks: the error, that nothing was found, or what was left out."""
        if outcome.mistake or outcome.delegated:
            return outcome.words
        if not outcome.hits and not outcome.known:
            return outcome.words or self._profile.nothing
        fresh = [hit for hit in outcome.hits if hit.chunk.id not in self._shown or outcome.source not in FRESH]
        notes = []
        if len(blocks) < min(len(fresh), outcome.limit):
            notes.append("more match")
        for label, ids in self._known(outcome, view):
            notes.append(f"{label}: {', '.join(ids[:LISTED])}")
        if not blocks and not notes:
            return self._profile.nothing
        return f"({'; '.join(notes)})" if notes and (self._profile.notes or not blocks) else ""

    def remember(self, event: ToolResult) -> None:
        """Takes note of the blocks that an event showed."""
        for segment in event.segments:
            if isinstance(segment, Block):
                self._shown.add(segment.id)
                query = event.arguments.get("query") or event.arguments.get("pattern") or self._question
                self._surfaced.setdefault(segment.document_id, query)

    def _known(self, outcome: ToolOutput, view: View) -> list[tuple[str, list[str]]]:
        """The chunks that match but were shown before, by where they are now."""
        covered = {block.id for block in view.standing} if view.summaries else frozenset()
        places: dict[str, list[str]] = {"in view": [], "in a summary": [], "pruned": []}
        for item in outcome.known:
            place = "in view" if view.shows(item) else "in a summary" if item in covered else "pruned"
            places[place].append(escape_markers(item))
        return [(label, ids) for label, ids in places.items() if ids]

    def _job(self, call: CheckedCall, earlier: int) -> Callable[[], ToolOutput]:
        """The work of one call. `earlier` calls of the turn may show up to a limit each, so more is asked for.

        What was shown does not change while the calls of a turn run, so all see the same.
        """
        arguments = call.arguments
        if isinstance(arguments, SearchArguments):
            limit = arguments.limit or self._profile.search_limit
            asked = limit + 1 + self._profile.search_limit * earlier
            return lambda: self._search(arguments.query, limit, asked)
        if isinstance(arguments, GrepArguments):
            return lambda: self._grep(arguments.pattern)
        assert isinstance(arguments, ReadArguments)
        return lambda: self._read(arguments.doc_id)

    def _search(self, query: str, limit: int, asked: int) -> ToolOutput:
        hits = self._corpus.search(query, limit=asked, exclude=self._shown | self._elsewhere, where=self._where)
        return ToolOutput(Source.SEARCH, tuple(hits), limit)

    def _grep(self, pattern: str) -> ToolOutput:
        limit = self._profile.grep_limit
        try:
            hits = self._corpus.grep(pattern, limit=limit, exclude=self._shown, where=self._where)
            known = [] if hits else self._corpus.grep(pattern, limit=LISTED, where=self._where)
        except PatternError as error:
            return ToolOutput(Source.GREP, words=f"Error: {error}", mistake="bad_pattern")
        return ToolOutput(Source.GREP, tuple(hits), limit, known=tuple(hit.chunk.id for hit in known))

    def _read(self, doc_id: str) -> ToolOutput:
        chunks = self._corpus.read(doc_id) or self._owner(doc_id)
        if not chunks:
            close = difflib.get_close_matches(doc_id, list(self._surfaced), n=3)
            hint = f" Similar ids: {', '.join(map(escape_markers, close))}." if close else ""
            words = f"Error: there is no document {escape_markers(doc_id[:80])!r}.{hint}"
            return ToolOutput(Source.READ, words=words, mistake="unknown_document")
        fresh = [chunk for chunk in chunks if chunk.id not in self._shown]
        hits = self._by_relevance(doc_id, fresh)
        known = tuple(chunk.id for chunk in chunks if chunk.id in self._shown)
        return ToolOutput(Source.READ, hits, limit=len(fresh), known=known, in_order=True)

    def _owner(self, chunk_id: str) -> list[Chunk]:
        found = self._corpus.get([chunk_id])
        return self._corpus.read(found[0].document_id) if found else []

    def _by_relevance(self, doc_id: str, chunks: list[Chunk]) -> tuple[Hit, ...]:
        """The chunks as hits; reranked against the query that first surfaced the document where not all will fit."""
        if sum(self._renderer.chunk(chunk).tokens for chunk in chunks) <= self._budget.per_call:
            return tuple(Hit(chunk, 1.0 / rank, rank) for rank, chunk in enumerate(chunks, start=1))
        query = self._surfaced.get(doc_id, self._question)
        scores = self._corpus.rerank(query, chunks)
        order = sorted(range(len(chunks)), key=lambda i: (-float(scores[i]), i))
        return tuple(Hit(chunks[i], float(scores[i]), rank) for rank, i in enumerate(order, start=1))


def _raised(item: ToolOutput | BaseException) -> ToolOutput:
    if isinstance(item, BaseException):
        raise item
    return item


def _timed(job: Callable[[], ToolOutput]) -> ToolOutput:
    started = time.perf_counter()
    return replace(job(), seconds=time.perf_counter() - started)
