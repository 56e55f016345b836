"""Tool schemas and the check of what a policy wrote."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from context_agent import Action, Document, Episode, MemoryCorpus
from context_agent.budget import Budget
from context_agent.errors import ConfigError, CorpusError
from context_agent.harness.episode import EpisodeRequest
from context_agent.harness.profile import context_1, default, named_profile, summary
from context_agent.harness.tools import SPAWN, ToolCallError, check_call, flatten_calls, schemas
from context_agent.harness.tools.prune import PruneArguments
from context_agent.harness.tools.tool import ToolOutput
from context_agent.pruning.view import Block, Role, Source, SubAgentRecord, ToolResult
from context_agent.retrieval.engines.corpus import EngineCorpus
from context_agent.testing.actions import call, prune, search, summarize
from context_agent.types import Hit, ToolCall


def test_the_published_profile_declares_the_published_tools() -> None:
    declared = {item["name"]: item["parameters"] for item in schemas(context_1())}
    assert list(declared) == ["search_corpus", "grep_corpus", "read_document", "prune_chunks", "multi_tool_use"]
    assert list(declared["search_corpus"]["properties"]) == ["query"]
    assert list(declared["prune_chunks"]["properties"]) == ["chunk_ids"]
    assert declared["prune_chunks"]["properties"]["chunk_ids"]["items"] == {"type": "string"}


def test_the_default_profile_adds_restore_and_limit() -> None:
    declared = {item["name"]: item for item in schemas(default())}
    assert "restore_chunks" in declared
    assert "limit" in declared["search_corpus"]["parameters"]["properties"]
    assert "all_but" in declared["prune_chunks"]["parameters"]["properties"]
    assert all(item["description"] for item in declared.values())


@pytest.mark.parametrize("written", [["a", "b"], '["a", "b"]'])
def test_ids_may_come_as_a_list_or_as_json_in_a_string(written: object) -> None:
    arguments = check_call(ToolCall("prune_chunks", {"chunk_ids": written}), default().tools)
    assert isinstance(arguments, PruneArguments)
    assert arguments.chunk_ids == ["a", "b"]


def test_one_id_stands_for_a_list_of_one() -> None:
    arguments = check_call(ToolCall("prune_chunks", '{"chunk_ids": "a"}'), default().tools)
    assert isinstance(arguments, PruneArguments)
    assert arguments.chunk_ids == ["a"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (ToolCall("search_corpu", {"query": "x"}), "Did you mean search_corpus"),
        (ToolCall("xyz", {}), "The tools are search_corpus, "),
        (ToolCall("search_corpus", {"query": ""}), "query: String should have at least 1 character"),
        (ToolCall("search_corpus", {"query": "x", "limit": 0}), "limit: Input should be greater than"),
        (ToolCall("search_corpus", '{"query"'), "not valid JSON"),
        (ToolCall("search_corpus", "3"), "must be a JSON object"),
        (ToolCall("search_corpus", '"' + "x" * 100_001), "at most 100,000 are read"),
        (ToolCall("prune_chunks", {"ids": ["a"]}), "ids: Extra inputs are not permitted"),
        (ToolCall("prune_chunks", {}), "give either chunk_ids or all_but"),
        (ToolCall("prune_chunks", {"chunk_ids": ["a"], "all_but": ["b"]}), "give either chunk_ids or all_but"),
    ],
)
def test_a_mistake_says_what_to_write_instead(call: ToolCall, told: str) -> None:
    with pytest.raises(ToolCallError, match=told.replace("(", r"\(")):
        check_call(call, default().tools)


def test_restore_is_no_tool_of_the_published_profile() -> None:
    with pytest.raises(ToolCallError, match="there is no tool 'restore_chunks'"):
        check_call(ToolCall("restore_chunks", {"chunk_ids": ["a"]}), context_1().tools)


def test_wrapped_calls_are_unwrapped_in_order() -> None:
    inner = [
        {"tool_name": "functions.search_corpus", "parameters": {"query": "a"}},
        {"tool_name": "grep_corpus", "parameters": {"pattern": "b"}},
    ]
    calls = flatten_calls(
        [ToolCall("multi_tool_use", {"tool_calls": inner}), ToolCall("read_document", {})], default().tools
    )
    assert [call.name for call in calls] == ["search_corpus", "grep_corpus", "read_document"]


async def test_a_batch_inside_a_batch_is_a_mistake_and_the_other_calls_run(corpus: MemoryCorpus) -> None:
    search = {"tool_name": "search_corpus", "parameters": {"query": "comets"}}
    inner = [{"tool_name": "multi_tool_use", "parameters": {"tool_calls": [search]}}, search]
    episode = Episode("Which comets?", corpus)
    await episode.step(Action(calls=(ToolCall("multi_tool_use", {"tool_calls": inner}),)))
    nested, plain = (event for event in episode.trajectory.events if isinstance(event, ToolResult))
    assert nested.segments[0].text == "Error: multi_tool_use cannot wrap multi_tool_use.\n"
    assert (nested.mistake, plain.mistake) == ("invalid_call", None)


async def test_arguments_that_are_no_object_are_a_mistake_on_record(corpus: MemoryCorpus) -> None:
    episode = Episode("Which comets?", corpus)
    await episode.step(Action(calls=(ToolCall("search_corpus", ["comets"]),)))  # type: ignore[arg-type]
    (result,) = (event for event in episode.trajectory.events if isinstance(event, ToolResult))
    assert (result.mistake, result.arguments) == ("invalid_call", {"raw": ["comets"]})


async def test_a_document_that_does_not_fit_is_read_where_the_search_found_it_and_in_its_order() -> None:
    parts = [
        f"Part {number}. " + f"Rain fell on hill {number} all day, and the wind rose. " * 12 for number in range(40)
    ]
    parts[30] += "The copper lamp was hung in the chapel in 1868."
    parts[35] += "The lamp was copper."
    corpus = MemoryCorpus([Document("log", "\n\n".join(parts)), Document("other", "A lamp is a lamp.")])
    episode = Episode("Where does it hang?", corpus, budget=Budget(8_192))
    view = await episode.step(search("copper lamp chapel 1868", limit=1))
    (found,) = (block.hit.chunk.index for block in view.blocks)
    view = await episode.step(call("read_document", doc_id="log"))
    read = [block.hit.chunk.index for block in view.blocks if block.source is Source.READ]
    assert 1 < len(read) < 30
    assert read == sorted(read)
    assert "The lamp was copper." in view.blocks[-1].text, "it is about the lamp too"
    assert found not in read, "it is in view"
    await episode.step(call("read_document", doc_id="logs"))
    assert "Similar ids: log." in episode.view.text()


async def test_a_result_says_where_the_chunks_are_that_were_shown_before(corpus: MemoryCorpus) -> None:
    def grep(*numbers: int) -> Action:
        return call("grep_corpus", pattern="|".join(f"SENTINEL-{number:04d}" for number in numbers))

    async def told(action: Action) -> str:
        view = await episode.step(action)
        return next(segment.text for segment in reversed(view.segments) if getattr(segment, "role", "") == Role.RESULT)

    episode = Episode("comets?", corpus, profile=summary())
    view = await episode.step(grep(1, 2, 3))
    first, second, third = (block.id for block in view.blocks)
    assert await told(grep(1, 2)) == f"(in view: {first}, {second})\n"
    await episode.step(prune(first))
    await episode.step(summarize("A comet.", second))
    assert await told(grep(1, 2, 3)) == f"(in view: {third}; in a summary: {second}; pruned: {first})\n"
    assert await told(grep(999)) == "No results found\n"


async def test_a_result_that_is_cut_says_that_more_matches() -> None:
    documents = [Document(f"d{number}", f"Comet {number}. " + "It has a tail. " * 60) for number in range(30)]
    episode = Episode("comets?", MemoryCorpus(documents), budget=Budget(4_096))
    view = await episode.step(search("comet tail", limit=10))
    assert 0 < len(view.blocks) < 10
    assert "(more match)\n" in view.text()


async def test_a_note_may_name_what_was_shown_before_and_say_that_more_matches() -> None:
    text = "\n\n".join(f"Comet {number} has a tail. " * 60 for number in range(9))
    episode = Episode("comets?", MemoryCorpus([Document("log", text)]), budget=Budget(4_096))
    shown = ", ".join(block.id for block in (await episode.step(search("comet 5", limit=1))).blocks)
    view = await episode.step(call("read_document", doc_id="log"))
    assert f"(more match; in view: {shown})\n" in view.text()


async def test_a_result_that_is_whole_and_new_has_no_note_and_took_some_time(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus)
    await episode.step(search("comets", limit=3))
    (result,) = [event for event in episode.trajectory.events if isinstance(event, ToolResult)]
    assert len(result.segments) == 3
    assert all(isinstance(segment, Block) for segment in result.segments), "passages alone"
    assert 0 < result.seconds < 600


async def test_the_result_of_a_search_has_the_best_passage_first() -> None:
    parts = [f"Rain fell on hill {number} all day, and the wind rose. " * 12 for number in range(9)]
    parts[5] += "The copper lamp was hung in the chapel in 1868."
    episode = Episode("Where does it hang?", MemoryCorpus([Document("log", "\n\n".join(parts))]))
    view = await episode.step(search("copper lamp chapel 1868 rain"))
    assert len(view.blocks) > 1
    assert "copper" in view.blocks[0].text
    assert view.blocks[0].hit.chunk.index > 0


class MergedSearchers:
    """Sub-agents that found these hits."""

    def __init__(self, hits: Sequence[Hit], room: int | None = None) -> None:
        self.hits, self.room = tuple(hits), room

    async def search(
        self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
    ) -> list[ToolOutput]:
        found = {"hits": self.hits, "limit": len(self.hits), "room": self.room, "message": "(1 searcher; 1 finished)"}
        return [ToolOutput(Source.SPAWN, **found, delegated=(SubAgentRecord("1", "comets", "finished"),))]


@pytest.mark.parametrize("room", [None, 400])
async def test_what_sub_agents_found_leaves_room_for_the_message_about_them(room: int | None) -> None:
    corpus = MemoryCorpus(
        [Document(f"d{number}", f"Comet {number}. " + "It has a tail. " * 20) for number in range(30)]
    )
    searchers = MergedSearchers(corpus.search("comet", k=30), room)
    profile = replace(default(), tools=(*default().tools, SPAWN))
    request = EpisodeRequest("comets?", sub_agents=searchers)
    episode = Episode(request, corpus, profile=profile, budget=Budget(8_192, per_call=1_000))
    view = await episode.step(call(SPAWN, tasks=["comets"]))
    (result,) = (event for event in episode.trajectory.events if isinstance(event, ToolResult))
    used = sum(segment.tokens for segment in result.segments)
    assert 0.75 * (room or 1_000) < used <= (room or 1_000)
    assert 1 < len(view.blocks) < 30
    assert result.segments[-1].text == "(1 searcher; 1 finished)\n"


async def test_an_error_of_the_corpus_waits_for_the_other_calls_of_the_turn() -> None:
    ended: list[str] = []

    class HalfBroken(MemoryCorpus):
        blocking = True

        def search(self, query: str, **options: Any) -> list[Hit]:
            if query == "broken":
                raise CorpusError("the disk is gone")
            time.sleep(0.2)
            ended.append(query)
            return super().search(query, **options)

    episode = Episode("Which comets?", HalfBroken([Document("d", "Comets have tails.")]))
    with pytest.raises(CorpusError, match="the disk is gone"):
        await episode.step(search("broken", "comets"))
    assert ended == ["comets"]


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="default, context-1"):
        named_profile("context-2")


async def test_a_document_that_the_filter_excludes_cannot_be_read() -> None:
    corpus = MemoryCorpus(
        [Document("ours", "Our comets.", metadata={"owner": "us"}), Document("theirs", "Their comets.")]
    )
    episode = Episode(EpisodeRequest("comets?", where={"owner": "us"}), corpus)
    for name in ("theirs", "theirs_0", "ours"):
        await episode.step(call("read_document", doc_id=name))
    assert [block.document_id for block in episode.view.blocks] == ["ours"]
    assert "Their comets" not in str(episode.view)


async def test_a_document_of_an_engine_that_filters_is_known_without_its_metadata() -> None:
    def search_filtered(query: str, limit: int, where: object = None) -> list[dict[str, str]]:
        return [{"id": "ours", "text": "Our comets."}]

    episode = Episode(EpisodeRequest("comets?", where={"owner": "us"}), EngineCorpus(search_filtered))
    (block,) = (await episode.step(search("comets"))).blocks
    view = await episode.step(call("read_document", doc_id="ours"))
    told = next(segment.text for segment in reversed(view.segments) if getattr(segment, "role", "") == Role.RESULT)
    assert told == f"(in view: {block.id})\n"
