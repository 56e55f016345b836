"""Each tool by itself: which chunks it asks a corpus for, what it returns, and its schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent import Document, MemoryCorpus
from context_agent.budget import Budget
from context_agent.harness.profile import Profile, context_1, default, summary
from context_agent.harness.rendering import Renderer
from context_agent.harness.tools import (
    SPAWN,
    ToolCallError,
    check_call,
    flatten_calls,
    grep,
    prune,
    read,
    restore,
    schemas,
    search,
    spawn,
    summarize,
)
from context_agent.harness.tools.batch import InnerCall
from context_agent.harness.tools.calls import MAX_CALLS, UNREAD_CALLS, bounded_calls
from context_agent.harness.tools.grep import GrepArguments
from context_agent.harness.tools.prune import PruneArguments
from context_agent.harness.tools.read import ReadArguments
from context_agent.harness.tools.registry import EDITS
from context_agent.harness.tools.restore import RestoreArguments
from context_agent.harness.tools.search import SearchArguments
from context_agent.harness.tools.spawn import SpawnArguments
from context_agent.harness.tools.summarize import SummarizeArguments
from context_agent.harness.tools.tool import LISTED_IDS, EditContext, EditReply, ReadContext, ToolOutput
from context_agent.pruning.view import NO_EDIT, Block, Edit, Role, Source, Text, View
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import CharCounter
from context_agent.types import Chunk, Hit, ToolCall

SCHEMAS = Path(__file__).parent / "schemas.json"


class RecordingCorpus(MemoryCorpus):
    """A corpus of twelve documents that keeps the calls that it gets."""

    def __init__(self) -> None:
        documents = [
            Document(f"d{number}", f"Lighthouse {number} was lit in {1800 + number}.", "Light", {"year": 1800 + number})
            for number in range(12)
        ]
        super().__init__(documents, embedder=HashEmbedder())
        self.calls: list[tuple[Any, ...]] = []

    def search(self, query: str, **options: Any) -> list[Any]:
        self.calls.append((query, options))
        return super().search(query, **options)

    def grep(self, pattern: str, **options: Any) -> list[Any]:
        self.calls.append((pattern, options))
        return super().grep(pattern, **options)

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> Any:
        self.calls.append((query, [chunk.id for chunk in chunks]))
        return [len(chunk.text) for chunk in chunks]


def context_of(corpus: MemoryCorpus, profile: Profile | None = None, **more: Any) -> ReadContext:
    profile = profile or default()
    renderer = Renderer(profile, CharCounter())
    fields = {"question": "When?", "where": None, "excluded_ids": frozenset(), "budget": Budget(8_192), **more}
    return ReadContext(corpus, profile, renderer, **fields)


def test_the_schemas_are_those_that_policies_were_trained_with() -> None:
    """They are a part of the prompt. If they change, so do the tokens that a trained policy reads."""
    stored = json.loads(SCHEMAS.read_text(encoding="utf-8"))
    assert schemas(context_1()) == stored["context-1"]
    assert schemas(replace(summary(), tools=(*summary().tools, SPAWN))) == stored["all tools"]


def test_arguments_cannot_be_changed() -> None:
    for arguments, name in ((SearchArguments(query="light"), "query"), (InnerCall(tool_name="light"), "tool_name")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(arguments, name, "other")


def test_arguments_of_the_greatest_length_are_read() -> None:
    frame = '{"query": ""}'
    longest = frame.replace('""', f'"{"x" * (100_000 - len(frame))}"')
    assert check_call(ToolCall("search_corpus", longest), default().tools)
    with pytest.raises(ToolCallError, match="100,001 characters"):
        check_call(ToolCall("search_corpus", longest.replace("x", "xx", 1)), default().tools)


def shown(*, hidden: bool) -> View:
    """A view of 100 tokens with a chunk of 20 tokens, and with one that may be hidden."""
    chunks = [Chunk(f"d_{number}", "d", number, "text", 0, 4, 1) for number in range(2)]
    blocks = [
        Block(number, "header", "text", 20, 0, 0, Source.SEARCH, Hit(chunk, 1.0, 1))
        for number, chunk in enumerate(chunks)
    ]
    question = Text(Role.QUESTION, "q", 60, 0)
    view = View("q", Budget(800, soft=100, hard=120, per_call=50, reserve=8), (question, *blocks), tokens=100)
    return view.apply(Edit(pruned=(1,))) if hidden else view


def edit_context(view: View, *, protects: bool) -> EditContext:
    profile = summary() if protects else default()
    return EditContext(view, 0, Renderer(profile, CharCounter()), view.budget, protects)


@pytest.mark.parametrize("protects", [True, False])
def test_only_with_summaries_are_chunks_protected(protects: bool) -> None:
    reply = restore.run(RestoreArguments(chunk_ids=["d_1"]), edit_context(shown(hidden=True), protects=protects))
    assert (reply.edit.restored, reply.edit.protected) == ((1,), (1,) if protects else ())
    reply = prune.run(PruneArguments(all_but=["d_0"]), edit_context(shown(hidden=False), protects=protects))
    assert (reply.edit.pruned, reply.edit.protected) == ((1,), (0,) if protects else ())


@pytest.mark.parametrize(("hard", "left"), [(100, None), (99, 19), (80, 0), (70, 0)])
def test_a_restore_may_fill_the_view_up_to_the_hard_cutoff(hard: int, left: int | None) -> None:
    budget = Budget(800, soft=60, hard=hard, per_call=50, reserve=8)
    context = replace(edit_context(shown(hidden=True), protects=False), budget=budget)
    reply = restore.run(RestoreArguments(chunk_ids=["d_1"]), context)
    if left is None:
        assert reply.mistake is None
        assert reply.edit.restored == (1,)
    else:
        assert reply.mistake == "no_room"
        assert f"take 20 tokens; {left} are left" in reply.message


def test_a_summary_replaces_only_what_is_longer() -> None:
    question, chunk, other = shown(hidden=False).segments

    def reply(size: int) -> EditReply:
        view = replace(shown(hidden=False), segments=(question, replace(chunk, tokens=size), other))
        arguments = SummarizeArguments(summary="It was lit.", chunk_ids=["d_0"])
        return summarize.run(arguments, edit_context(view, protects=True))

    (written,) = reply(1_000).edit.summaries
    assert reply(written.tokens + 1).edit.replaced == (0,)
    assert (reply(written.tokens).edit, reply(written.tokens).mistake) == (NO_EDIT, "too_long")


def test_the_editing_tools_are_named_in_the_order_in_which_they_apply() -> None:
    assert EDITS == ("prune_chunks", "summarize_context", "restore_chunks")


def test_an_output_shows_nothing_and_took_no_time_unless_it_says_so() -> None:
    output = ToolOutput(Source.SEARCH)
    assert (output.hits, output.limit, output.seconds, output.mistake) == ((), 0, 0.0, None)


def test_a_search_leaves_out_what_was_shown_and_asks_for_enough_beside_the_other_reads_of_its_turn() -> None:
    corpus = RecordingCorpus()
    where = {"year": {"$gte": 1805}}
    context = context_of(corpus, where=where, excluded_ids={"d11_0"}, shown_ids={"d10_0"})
    output = search.run(SearchArguments(query="lighthouse", limit=2), context, 3)
    others = context.profile.search_limit * 3
    assert corpus.calls == [("lighthouse", {"k": 3 + others, "exclude": {"d10_0", "d11_0"}, "where": where})]
    assert {hit.chunk.document_id for hit in output.hits} == {"d5", "d6", "d7", "d8", "d9"}
    assert (output.limit, output.new_only, output.source) == (2, True, Source.SEARCH)


def test_a_search_without_a_limit_shows_as_many_chunks_as_the_profile_says() -> None:
    corpus = RecordingCorpus()
    output = search.run(SearchArguments(query="lighthouse"), context_of(corpus), 0)
    assert output.limit == default().search_limit
    assert corpus.calls[0][1]["k"] == default().search_limit + 1
    with pytest.raises(ValueError, match="less than or equal to 10"):
        SearchArguments(query="lighthouse", limit=11)


def test_grep_finds_new_chunks_within_the_filter() -> None:
    corpus, where = RecordingCorpus(), {"year": {"$lt": 1804}}
    context = context_of(corpus, where=where, shown_ids={"d0_0"})
    output = grep.run(GrepArguments(pattern="Lighthouse"), context, 0)
    assert corpus.calls == [
        ("Lighthouse", {"limit": context.profile.grep_limit, "exclude": {"d0_0"}, "where": where}),
    ]
    assert [hit.chunk.document_id for hit in output.hits] == ["d1", "d2", "d3"]
    assert output.limit == context.profile.grep_limit
    assert output.repeated_ids == ()


def test_grep_names_a_few_of_the_chunks_that_match_and_were_shown() -> None:
    corpus, where = RecordingCorpus(), {"year": {"$lt": 1808}}
    context = context_of(corpus, where=where, shown_ids={f"d{number}_0" for number in range(8)})
    output = grep.run(GrepArguments(pattern="l"), context, 0)
    assert output.hits == ()
    assert output.repeated_ids == tuple(f"d{number}_0" for number in range(5))
    assert corpus.calls[1] == ("l", {"limit": LISTED_IDS, "where": where})


def test_a_wrong_pattern_is_a_mistake_that_says_what_is_wrong() -> None:
    output = grep.run(GrepArguments(pattern="("), context_of(RecordingCorpus()), 0)
    assert output.mistake == "bad_pattern"
    assert output.message.startswith("Error: ")
    assert "(" in output.message


def in_parts() -> RecordingCorpus:
    """A corpus with one document of six chunks, each longer than the one before."""
    corpus = RecordingCorpus()
    texts = [f"Part {'x' * (40 + number)} of it." for number in range(6)]
    chunks = [Chunk(f"long_{number}", "long", number, text, 0, len(text), 1) for number, text in enumerate(texts)]
    corpus.read = lambda document: chunks if document == "long" else []  # type: ignore[method-assign]
    corpus.get = lambda ids: [chunk for chunk in chunks if chunk.id in ids]  # type: ignore[method-assign, assign, misc]
    return corpus


@pytest.mark.parametrize("named", ["long", "long_0", "long_3"])
def test_a_document_is_read_by_its_id_or_that_of_a_chunk(named: str) -> None:
    output = read.run(ReadArguments(doc_id=named), context_of(in_parts(), shown_ids={"long_1", "long_4"}), 0)
    assert [hit.chunk.id for hit in output.hits] == ["long_0", "long_2", "long_3", "long_5"]
    assert [(hit.rank, hit.score) for hit in output.hits] == [(1, 1.0), (2, 1 / 2), (3, 1 / 3), (4, 1 / 4)]
    assert (output.limit, output.in_order, output.mistake) == (4, True, None)
    assert output.repeated_ids == ("long_1", "long_4")


def test_of_a_document_that_does_not_fit_the_most_relevant_chunks_come_first() -> None:
    corpus = in_parts()
    renderer = Renderer(default(), CharCounter())
    size = sum(renderer.chunk(chunk).tokens for chunk in corpus.read("long"))
    fitting, smaller = Budget(8 * size, reserve=8, per_call=size), Budget(8 * size, reserve=8, per_call=size - 1)
    context = context_of(corpus, budget=fitting, surfacing_queries={"long": "parts"})
    assert [hit.chunk.index for hit in read.run(ReadArguments(doc_id="long"), context, 0).hits] == [0, 1, 2, 3, 4, 5]
    assert corpus.calls == []
    output = read.run(ReadArguments(doc_id="long"), replace(context, budget=smaller), 0)
    assert [hit.chunk.index for hit in output.hits] == [5, 4, 3, 2, 1, 0], "the longest first, as rerank says"
    assert [hit.rank for hit in output.hits] == [1, 2, 3, 4, 5, 6]
    assert [name for name, _ in corpus.calls] == ["parts"]


def test_an_unknown_document_is_a_mistake_that_names_up_to_three_like_it() -> None:
    context = context_of(
        RecordingCorpus(), surfacing_queries=dict.fromkeys(["weir.md", "weir2.md", "weir3.md", "weirs.md"], "q")
    )
    output = read.run(ReadArguments(doc_id="weir1.md"), context, 0)
    assert output.mistake == "unknown_document"
    assert output.message.startswith("Error: there is no document 'weir1.md'. Similar ids: ")
    assert output.message.count("weir") == 4
    output = read.run(ReadArguments(doc_id="zzz"), context, 0)
    assert output.message == "Error: there is no document 'zzz'."
    long = "weir" * 1_000
    output = read.run(ReadArguments(doc_id=f"{long}1"), context_of(RecordingCorpus(), surfacing_queries={long: "q"}), 0)
    assert "Similar ids" not in output.message, "ids of great length are not compared"


async def test_without_sub_agents_each_call_for_searchers_is_a_mistake() -> None:
    requests = [SpawnArguments(tasks=["a"]), SpawnArguments(tasks=["b"])]
    outputs = await spawn.run(requests, context_of(RecordingCorpus()), None)
    assert [output.mistake for output in outputs] == ["no_searchers"] * 2
    assert all("no searchers can be started" in output.message for output in outputs)


async def test_the_calls_for_searchers_of_a_turn_have_one_time() -> None:
    class Searchers:
        async def search(
            self, requests: Any, *, tokens_left: int | None, shown_ids: frozenset[str]
        ) -> list[ToolOutput]:
            self.asked = (requests, tokens_left, shown_ids)
            return [ToolOutput(Source.SPAWN, seconds=1e9) for _ in requests]

    searchers = Searchers()
    context = context_of(RecordingCorpus(), shown_ids={"d1_0"}, sub_agents=searchers)
    outputs = await spawn.run([SpawnArguments(tasks=["a", "b"]), SpawnArguments(tasks=["c"])], context, 500)
    assert searchers.asked == ([["a", "b"], ["c"]], 500, frozenset({"d1_0"}))
    assert len({output.seconds for output in outputs}) == 1
    assert 0 <= outputs[0].seconds < 60


def test_a_turn_keeps_the_calls_that_it_may_have_and_counts_the_others() -> None:
    calls = [ToolCall("search_corpus", {"query": str(number)}) for number in range(MAX_CALLS + 3)]
    assert bounded_calls(calls[:MAX_CALLS]) == tuple(calls[:MAX_CALLS])
    bounded = bounded_calls(calls)
    assert bounded[:-1] == tuple(calls[: MAX_CALLS - 1])
    assert bounded[-1] == ToolCall(UNREAD_CALLS, {"count": 4})
    assert bounded_calls(calls[:MAX_CALLS], MAX_CALLS + 10)[-1] == ToolCall(UNREAD_CALLS, {"count": 11})


def test_wrapped_calls_may_have_no_parameters_and_get_ids_of_their_own() -> None:
    inner = [{"tool_name": "functions.search_corpus", "parameters": {"query": "x"}}, {"tool_name": "read_document"}]
    calls = flatten_calls([ToolCall("multi_tool_use", {"tool_calls": inner}, id="c1")], default().tools)
    assert calls == [
        ToolCall("search_corpus", {"query": "x"}, id="c1.0"),
        ToolCall("read_document", {}, id="c1.1"),
    ]
