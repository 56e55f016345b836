"""A model's reply is outside data: however large or malformed, it is read in linear time and taken over in part."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from context_agent import MemoryCorpus
from context_agent.harness.action_text import MAX_RANKED, parse_ranking
from context_agent.harness.episode import Episode
from context_agent.harness.tools import MAX_CALLS, UNREAD_CALLS
from context_agent.policies.chat.replies import LONGEST_NAME, LONGEST_TEXT, read_reply
from context_agent.policies.chat.text_calls import parse_calls, written
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.pruning.view import ToolResult
from context_agent.testing.spoiled_replies import special_ids
from context_agent.types import Action, ToolCall

SEARCH = ToolCall("search_corpus", {"query": "comets"})


class Counted(int):
    """An index that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


def body(calls: list[dict[str, Any]], **message: Any) -> list[dict[str, Any]]:
    return [{"choices": [{"message": {"tool_calls": calls, **message}, "finish_reason": "stop"}]}]


def native(count: int, index: type[int] = int) -> list[dict[str, Any]]:
    function = {"name": "search_corpus", "arguments": json.dumps(SEARCH.arguments)}
    return body([{"index": index(n), "id": f"call{n}", "function": function} for n in range(count)])


@pytest.mark.parametrize("count", [2_000, 40_000])
def test_the_calls_of_a_reply_are_gathered_in_linear_time(count: int) -> None:
    Counted.compared = 0
    assert len(read_reply(native(count, Counted)).calls) == MAX_CALLS
    assert Counted.compared <= 4 * count


@pytest.mark.parametrize("count", [1, MAX_CALLS, MAX_CALLS + 1, 40_000])
def test_of_a_reply_with_many_calls_the_first_are_read_and_the_rest_are_counted(count: int) -> None:
    harmony = f"<|channel|>commentary to=functions.search_corpus<|message|>{json.dumps(SEARCH.arguments)}<|call|>"
    replies = [read_reply(native(count)).calls]
    if count <= 1_000:
        text = "".join(written(SEARCH) for _ in range(count))
        replies += [parse_calls(text)[1], parse_calls(json.dumps([{"name": "search_corpus", "args": {}}] * count))[1]]
        replies.append(HarmonyRenderer().parse(special_ids("<|start|>assistant".join([harmony] * count))).calls)
    for calls in replies:
        assert len(calls) == min(count, MAX_CALLS)
        unread = [call.arguments for call in calls if call.name == UNREAD_CALLS]
        assert unread == ([{"count": count - MAX_CALLS + 1}] if count > MAX_CALLS else [])


def test_a_policy_is_told_that_calls_were_not_read(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus)
    asyncio.run(episode.step(Action(calls=read_reply(native(40_000)).calls)))
    results = [event for event in episode.trajectory.events if isinstance(event, ToolResult)]
    assert len(results) == MAX_CALLS
    assert (results[-1].name, results[-1].arguments) == (UNREAD_CALLS, {"count": 40_000 - MAX_CALLS + 1})
    assert "only the first 63 tool calls of a reply are read" in results[-1].segments[0].text


def test_wrapped_calls_are_bounded_together(corpus: MemoryCorpus) -> None:
    wrapped = ToolCall("multi_tool_use", {"tool_calls": [{"tool_name": "x"}] * 4_000})
    episode = Episode("comets?", corpus)
    asyncio.run(episode.step(Action(calls=(wrapped,) * 16, tokens=10)))
    results = [event for event in episode.trajectory.events if isinstance(event, ToolResult)]
    assert len(results) == MAX_CALLS
    assert results[-1].arguments == {"count": 64_000 - MAX_CALLS + 1}


def test_a_stream_of_many_small_pieces_is_joined_once() -> None:
    """Half a million pieces: joining each to what came before would move 30 GB."""
    delta = {"content": "word", "tool_calls": [{"index": 0, "function": {"arguments": " "}}]}
    event = {"choices": [{"delta": delta}]}
    reply = read_reply([*([event] * 500_000), {"choices": [{"delta": {}, "finish_reason": "stop"}]}])
    assert len(reply.text) == LONGEST_TEXT
    assert isinstance(reply.calls[0].arguments, str)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("depth", [65, 900, 100_000])
def test_deeply_nested_arguments_are_refused_as_such(depth: int) -> None:
    calls = [{"function": {"name": "search_corpus", "arguments": nested(depth)}}]
    (call,) = read_reply(body(calls)).calls
    assert str(call.arguments).startswith("nested more than 64 levels deep")
    (call,) = read_reply(body([{"function": {"name": "x", "arguments": '{"a":' * depth + "1" + "}" * depth}}])).calls
    assert isinstance(call.arguments, str)


def test_an_index_of_no_number_is_no_error() -> None:
    calls = [{"index": index, "function": {"name": "search_corpus"}} for index in ([], {}, "0", None, 1.5)]
    assert [call.name for call in read_reply(body(calls)).calls] == ["search_corpus"] * 5


def test_a_long_name_is_cut() -> None:
    (call,) = read_reply(body([{"function": {"name": "x" * 1_000_000, "arguments": "{}"}}])).calls
    assert len(call.name) == LONGEST_NAME


def test_a_ranking_of_many_entries_is_read_in_part() -> None:
    assert len(parse_ranking("<Document id=a></Document>" * 30_000)) == MAX_RANKED


@pytest.mark.parametrize(
    "unit", ["<document id=", "<document ", "<document id=a>", "<justification>", "<document id='a "]
)
def test_a_hostile_ranking_takes_linear_time(unit: str) -> None:
    """A million characters; a quadratic search would take hours."""
    assert len(parse_ranking(unit * (1_000_000 // len(unit)))) <= MAX_RANKED
