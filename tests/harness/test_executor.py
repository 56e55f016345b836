"""The executor: which room a result has, where its chunks and its note stand, and how the calls of a turn run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from context_agent import Document, MemoryCorpus
from context_agent.budget import Budget
from context_agent.errors import CorpusError
from context_agent.harness.profile import Profile, default
from context_agent.harness.rendering import Renderer
from context_agent.harness.tools import SPAWN
from context_agent.harness.tools.executor import RefusedCall, ToolExecutor
from context_agent.harness.tools.tool import ReadContext, ToolOutput
from context_agent.pruning.view import Block, Role, Source, SubAgentRecord, Text, View
from context_agent.testing.embedders import HashEmbedder
from context_agent.types import Chunk, Hit, ToolCall


class LetterCounter:
    """A counter for which each letter is a token."""

    name = "letters"

    def count(self, text: str) -> int:
        return len(text)


CORPUS = MemoryCorpus([Document("d", "Comets have tails.")], embedder=HashEmbedder())
PROFILE = replace(default(), tools=(*default().tools, SPAWN))


def executor(profile: Profile = PROFILE, corpus: Any = CORPUS, **more: Any) -> ToolExecutor:
    context = ReadContext(
        corpus, profile, Renderer(profile, LetterCounter()), Budget(8_000), "Which comets?", None, frozenset(), **more
    )
    return ToolExecutor(context)


def view_with(room: int, tokens: int = 1_000) -> View:
    """A view in which a call may emit `room` tokens."""
    budget = Budget(8_000, soft=5_000, hard=7_000, per_call=room, reserve=8)
    return View("Which comets?", budget, (Text(Role.QUESTION, "q", tokens, 0),), tokens=tokens)


def hits(*places: int) -> tuple[Hit, ...]:
    chunks = [Chunk(f"d_{place}", "d", place, f"Part {place} of it.", 0, 10, 5) for place in places]
    return tuple(Hit(chunk, 1.0 / rank, rank) for rank, chunk in enumerate(chunks, start=1))


def result(output: ToolOutput, view: View, profile: Profile = PROFILE, **arguments: Any) -> Sequence[Text | Block]:
    return executor(profile).result(view, RefusedCall(0, "search_corpus", arguments, ""), output).segments


def size_of(number: int) -> int:
    """The tokens of this many blocks."""
    blocks = result(ToolOutput(Source.SEARCH, hits(*range(number)), number), view_with(4_000))
    assert len(blocks) == number
    return sum(block.tokens for block in blocks)


def test_what_is_read_stands_in_the_order_of_its_document() -> None:
    blocks = result(ToolOutput(Source.READ, hits(7, 2, 5), 3, in_order=True), view_with(4_000))
    assert [block.hit.chunk.index for block in blocks if isinstance(block, Block)] == [2, 5, 7]
    blocks = result(ToolOutput(Source.SEARCH, hits(7, 2, 5), 3), view_with(4_000))
    assert [block.hit.chunk.index for block in blocks if isinstance(block, Block)] == [7, 2, 5]


@pytest.mark.parametrize(
    ("arguments", "query"), [({"query": "tails"}, "tails"), ({"pattern": "t."}, "t."), ({}, "Which comets?")]
)
def test_a_document_remembers_the_query_that_first_brought_it_up(arguments: dict[str, str], query: str) -> None:
    runs = executor()
    for later in (arguments, {"query": "later"}):
        runs.result(view_with(4_000), RefusedCall(0, "search_corpus", later, ""), ToolOutput(Source.READ, hits(1), 1))
    assert runs.context.surfacing_queries == {"d": query}


def test_a_note_beside_chunks_stands_whole_or_not_at_all() -> None:
    output = ToolOutput(Source.SEARCH, hits(0, 1), 2, repeated_ids=("d_9",))
    size, note = size_of(2), "(pruned: d_9)\n"
    assert [segment.text for segment in result(output, view_with(size + len(note)))][2:] == [note]
    assert len(result(output, view_with(size + len(note) - 1))) == 2


def test_a_mistake_beside_chunks_is_told_in_any_case() -> None:
    output = ToolOutput(Source.SPAWN, hits(0, 1), 2, message="Error: one failed.", mistake="failed")
    assert [segment.text for segment in result(output, view_with(size_of(2)))][2:] == ["Error: one failed.\n"]


@pytest.mark.parametrize("notes", [True, False])
def test_without_chunks_the_note_says_where_the_matches_are(notes: bool) -> None:
    profile = replace(PROFILE, notes=notes)
    (note,) = result(ToolOutput(Source.GREP, repeated_ids=("d_9",)), view_with(400), profile)
    assert note.text == "(pruned: d_9)\n"
    (note,) = result(ToolOutput(Source.GREP), view_with(400), profile)
    assert note.text == f"{profile.nothing}\n"
    beside = result(ToolOutput(Source.SEARCH, hits(0), 1, repeated_ids=("d_9",)), view_with(400), profile)
    assert len(beside) == (2 if notes else 1)


def test_the_message_about_sub_agents_has_its_room_beside_what_they_found() -> None:
    message = "(1 searcher; 1 finished)"
    room = size_of(3) + len(message) + 1
    output = ToolOutput(Source.SPAWN, hits(0, 1, 2), 3, message=message)
    delegated = replace(output, delegated=(SubAgentRecord("1", "comets", "finished"),))
    assert len(result(delegated, view_with(room))) == 4
    assert len(result(delegated, view_with(room - 1))) == 3
    assert result(delegated, view_with(room - 1))[-1].text == f"{message}\n"
    assert len(result(output, view_with(room - 1))) == 3, "nobody was started, so no room is kept"


@pytest.mark.parametrize(("left", "kept"), [(20, 20), (19, 18), (1, 0), (0, 0), (-5, 0)])
def test_an_error_is_cut_to_the_room_of_the_window(left: int, kept: int) -> None:
    """It has 20 tokens, its newline included. Room for the usage line stays."""
    view = view_with(400, tokens=8_000 - 6 - left)
    (text,) = executor().result(view, RefusedCall(0, "x", {}, ""), ToolOutput(Source.SEARCH)).segments[:1]
    assert text.tokens <= max(0, left)
    edited = executor()._text(view, 0, "x" * 19)
    assert edited.tokens == kept == len(edited.text)


def test_arguments_of_a_refused_call_stay_as_they_were_written() -> None:
    calls = [ToolCall("search_corpus", {"limit": 3}), ToolCall("search_corpus", "no JSON")]
    checked = executor().check(calls, 16)
    assert [call.arguments for call in checked] == [{"limit": 3}, {"raw": "no JSON"}]


class Watched(MemoryCorpus):
    """A corpus that keeps the thread of each search, and fails for the query `broken`."""

    def __init__(self, *, blocking: bool) -> None:
        super().__init__([Document("d", "Comets have tails.")], embedder=HashEmbedder())
        self.blocking = blocking  # type: ignore[misc]
        self.threads: set[int] = set()

    def search(self, query: str, **options: Any) -> list[Hit]:
        self.threads.add(threading.get_ident())
        if query == "broken":
            raise CorpusError("the disk is gone")
        return super().search(query, **options)


@pytest.mark.parametrize("blocking", [True, False])
async def test_only_a_corpus_that_waits_is_read_in_threads(blocking: bool) -> None:
    corpus = Watched(blocking=blocking)
    runs = executor(corpus=corpus)
    await runs.run(runs.check([ToolCall("search_corpus", {"query": "tails"})], 16), tokens_left=None)
    assert (threading.get_ident() in corpus.threads) is not blocking


async def test_an_error_of_a_read_waits_for_the_sub_agents_of_the_turn() -> None:
    ended: list[str] = []

    class Slow:
        async def search(self, requests: Any, **options: Any) -> list[ToolOutput]:
            await asyncio.sleep(0.05)
            ended.append("searchers")
            return [ToolOutput(Source.SPAWN) for _ in requests]

    runs = executor(corpus=Watched(blocking=False), sub_agents=Slow())
    calls = [ToolCall("search_corpus", {"query": "broken"}), ToolCall(SPAWN, {"tasks": ["comets"]})]
    with pytest.raises(CorpusError, match="the disk is gone"):
        await runs.run(runs.check(calls, 16), tokens_left=None)
    assert ended == ["searchers"]
