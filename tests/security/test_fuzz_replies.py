"""Random and mutated replies: no parser raises, and none takes over more than its bounds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent._support.http_client import MalformedResponse
from context_agent.errors import PolicyError
from context_agent.harness.action_text import MAX_RANKED, parse_ranking
from context_agent.harness.episode import Episode
from context_agent.harness.tools import MAX_CALLS
from context_agent.policies.chat.replies import LONGEST_NAME, LONGEST_TEXT, read_arguments, read_reply, split_thoughts
from context_agent.policies.chat.text_calls import parse_calls
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.testing.embedders import HashEmbedder
from context_agent.testing.spoiled_replies import special_ids
from context_agent.types import Action, Document, ToolCall

PIECES = [
    "<tool_call>",
    "</tool_call>",
    "```json\n",
    "```",
    "<think>",
    "</think>",
    '{"name": "search_corpus", "arguments": {"query": "x"}}',
    '{"name": "multi_tool_use", "arguments": {"tool_calls": [',
    "<Document id=d1>",
    "<Justification>",
    "</Document>",
    "<|start|>assistant",
    "<|channel|>commentary to=functions.search_corpus",
    "<|message|>",
    "<|call|>",
    '"name": "',
    "[",
    "{",
    "}",
    "]",
    ",",
    "\\",
    "\ud800",
    "\x00",
    "9" * 5_000,
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=30).map("".join)
RUNS = st.tuples(st.sampled_from(PIECES), st.sampled_from([1, 50, 5_000])).map(lambda pair: pair[0] * pair[1])
REPLIES = st.tuples(TEXTS, RUNS, TEXTS).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
CORPUS = MemoryCorpus([Document("d1", "Comets are bright.")], embedder=HashEmbedder())


def sound(calls: tuple[ToolCall, ...]) -> None:
    assert len(calls) <= MAX_CALLS
    assert all(len(call.name) <= LONGEST_NAME for call in calls)
    json.dumps([call.arguments for call in calls], ensure_ascii=False).encode()


@settings(max_examples=150, deadline=None)
@given(REPLIES)
def test_text_replies(text: str) -> None:
    thoughts, rest = split_thoughts(text)
    assert len(thoughts) + len(rest) <= len(text)
    sound(parse_calls(rest)[1] if rest.isprintable() else parse_calls(rest.encode(errors="replace").decode())[1])
    assert len(parse_ranking(text)) <= MAX_RANKED
    assert isinstance(read_arguments(text), dict | str)


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_harmony_replies(text: str) -> None:
    action = HarmonyRenderer().parse(special_ids(text.encode(errors="replace").decode()))
    sound(action.calls)
    assert len(action.text) <= LONGEST_TEXT


def field(name: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.just({}) | value.map(lambda drawn: {name: drawn})


def merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda drawn: {key: value for part in drawn for key, value in part.items()})


FUNCTION = merged(field("name", TEXTS | VALUES), field("arguments", TEXTS | VALUES))
CALLS = st.lists(merged(field("index", VALUES), field("id", TEXTS | VALUES), field("function", FUNCTION | VALUES)))
MESSAGE = merged(field("content", TEXTS | VALUES), field("reasoning", VALUES), field("tool_calls", CALLS | VALUES))
CHOICE = merged(field("delta", MESSAGE | VALUES), field("message", MESSAGE | VALUES), field("finish_reason", VALUES))
EVENT = merged(field("choices", st.lists(CHOICE, max_size=2) | VALUES), field("usage", VALUES), field("model", VALUES))


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENT, max_size=4))
def test_native_replies(events: list[dict[str, Any]]) -> None:
    try:
        reply = read_reply(events)
    except MalformedResponse:
        return
    sound(reply.calls)
    assert max(len(reply.text), len(reply.reasoning)) <= LONGEST_TEXT


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["search_corpus", "multi_tool_use", "x"]), VALUES), min_size=1, max_size=80))
def test_an_episode_answers_whatever_calls_a_reply_holds(calls: list[tuple[str, Any]]) -> None:
    result = tuple(ToolCall(name, value if isinstance(value, dict) else str(value)) for name, value in calls)
    episode = Episode("comets?", CORPUS)
    try:
        asyncio.run(episode.step(Action(calls=result, tokens=10)))
    except PolicyError:
        return
    assert episode.view.tokens <= episode.budget.window
