"""Tools for a model without native tool calls: what it is told, and how its calls are read."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from context_agent import ToolCall
from context_agent.harness.tools import MAX_CALLS
from context_agent.policies.chat.replies import read_arguments, read_reply, split_thoughts
from context_agent.policies.chat.scripted_server import says
from context_agent.policies.chat.text_calls import LONGEST_REPLY, UNREADABLE, parse_calls, written
from context_agent.pruning.view import ActionTaken
from tests.support.chatting import DONE, ask, serving
from tests.support.growth import no_collections

SEARCH = ToolCall("search_corpus", {"query": "comets"})
CALL = '{"name": "search_corpus", "arguments": {"query": "comets"}}'


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        (f"<tool_call>{CALL}</tool_call>", ""),
        (f"I search.\n<tool_call>\n{CALL}\n</tool_call>", "I search."),
        (f"<tool_call>{CALL}", ""),
        (f"<tool_call>{CALL}}}</tool_call>", ""),
        (f"First:\n```json\n{CALL}\n```\n", "First:"),
        (f"```tool_call\n{CALL}\n", ""),
        (f"```\n[{CALL}]\n```", ""),
        (CALL, ""),
        (f" {CALL} ", ""),
        (f"I search [the corpus].\n{CALL}\nThen I read.", "I search [the corpus]."),
        (f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>", ""),
        (f"<tool_call>\n<tool_call>{CALL}</tool_call>", ""),
        (f"[TOOL_CALLS][{CALL}]", "[TOOL_CALLS]"),
        ('{"tool": "search_corpus", "parameters": {"query": "comets"}}', ""),
        ('{"function": {"name": "functions.search_corpus", "arguments": "{\\"query\\": \\"comets\\"}"}}', ""),
        ('<tool_call>{"name": "search_corpus", "query": "comets"}</tool_call>', ""),
        ('<tool_call>{"tool_name": "search_corpus", "args": {"query": "comets"}}</tool_call>', ""),
    ],
)
def test_a_call_in_any_of_the_usual_spellings(text: str, prose: str) -> None:
    assert parse_calls(text) == (prose, (SEARCH,))


@pytest.mark.parametrize("quoted", [CALL, f"```json\n{CALL}\n```"])
def test_a_call_that_a_ranking_quotes_is_not_made(quoted: str) -> None:
    ranking = f'Found.\n<document id="a"><justification>It has {quoted} in it.</justification></document>'
    assert parse_calls(ranking) == (ranking, ())
    assert parse_calls(f"First I search. {CALL} {ranking}") == ("First I search.", (SEARCH,))


def test_several_calls_keep_their_order() -> None:
    text = "".join(written(ToolCall("search_corpus", {"query": str(n)})) + "\n" for n in range(5))
    assert [call.arguments for call in parse_calls(text)[1]] == [{"query": str(n)} for n in range(5)]
    two_calls = f"[{CALL}, {CALL}]"
    assert parse_calls(two_calls)[1] == (SEARCH, SEARCH)
    for form in ("{}", "<tool_call>{}</tool_call>", "```json\n{}\n```", "Two searches: {}"):
        assert parse_calls(form.replace("{}", f"{CALL}\n{CALL}"))[1] == (SEARCH, SEARCH)
    assert len(parse_calls(written(SEARCH) * 500)[1]) == MAX_CALLS


@pytest.mark.parametrize(
    "text",
    [
        "The answer is Halley.",
        "<Document id=d1><Justification>names the comet</Justification></Document>",
        '{"name": "Halley", "year": 1758}',
        '```json\n{"name": "Halley", "year": 1758}\n```',
        "",
        "[1, 2, 3]",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert parse_calls(text) == (text, ())


def test_a_call_that_cannot_be_read_is_handed_on_with_its_name() -> None:
    (call,) = parse_calls('<tool_call>{"name": "search_corpus", "arguments": {"query": com</tool_call>')[1]
    assert call.name == "search_corpus"
    assert isinstance(call.arguments, str)
    (call,) = parse_calls("<tool_call>search for comets</tool_call>")[1]
    assert call == ToolCall(UNREADABLE, "search for comets")


def test_a_written_call_reads_back() -> None:
    for call in (SEARCH, ToolCall("prune_chunks", {"chunk_ids": ["a_0", 'b"<_1']}), ToolCall("x", {})):
        assert parse_calls(written(call)) == ("", (call,))


def test_a_reply_too_long_is_refused_by_its_length() -> None:
    text = f"<tool_call>{CALL}</tool_call>" + "x" * LONGEST_REPLY
    assert parse_calls(text) == (text, ())


MARKS = ["<tool_call>", "</tool_call>", "```", "\\", '"', "\\ud800", "\x00", "\n", "\ud800"]
RUNS = ["<tool_call>", "```json\n", '"name": "', "<think>", " \n", "`", "{", "[", '{"a":']


def corrupted(text: str, start: int, byte: int) -> str:
    """One byte changed, which may leave bad UTF-8."""
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    data[start] = byte
    return data.decode("utf-8", "surrogateescape")


def mutated(text: str, draw: random.Random) -> str:
    """Cut, doubled, shuffled, corrupted, or nested out of all bounds."""
    start, end = sorted((draw.randrange(len(text)), draw.randrange(len(text))))
    run = draw.choice(RUNS) * draw.choice([3, 1000, 20_000])
    return draw.choice(
        [
            lambda: text[:start],
            lambda: text[:end] + text[start:],
            lambda: text * draw.randint(2, 200),
            lambda: corrupted(text, start, draw.randrange(256)),
            lambda: text[:start] + run + text[start:],
            lambda: text[:start] + draw.choice(MARKS) + text[end:],
            lambda: "".join(draw.sample(text, len(text))),
        ]
    )()


def read_reply_text(text: str) -> tuple[str, Sequence[ToolCall], float]:
    """Return the prose and the calls of a reply, and the seconds of the processor for reading it."""
    start = time.thread_time()
    prose, calls = parse_calls(split_thoughts(text)[1])
    return prose, calls, time.thread_time() - start


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    with no_collections():
        yield


@pytest.mark.usefixtures("no_garbage_collection")
def test_three_thousand_mutations_never_raise_and_take_no_quadratic_time() -> None:
    draw = random.Random(11)
    good = [
        f"<tool_call>{CALL}</tool_call>",
        f"I look.\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
        f"```json\n{CALL}\n```",
        f"[{CALL}, {CALL}]",
        f"<think>first {CALL}</think><tool_call>{CALL}",
        written(ToolCall("multi_tool_use", {"tool_calls": [{"tool_name": "x", "parameters": {}}]})),
    ]
    for _ in range(3_000):
        text = mutated(draw.choice(good), draw)
        if draw.random() < 0.3:
            text = mutated(text or "x", draw)
        prose, calls, seconds = read_reply_text(text)
        # Quadratic time would be seconds, since the texts have runs of 20,000 characters. Slow code is slow every
        # time; a busy machine is slow only sometimes.
        assert seconds < 0.5 or any(read_reply_text(text)[2] < 0.5 for _ in range(2)), text[:200]
        assert isinstance(prose, str)
        for call in calls:
            assert isinstance(call.name, str)
            assert isinstance(call.arguments, str | dict)
            json.dumps(call.arguments).encode()


@pytest.mark.usefixtures("no_garbage_collection")
def test_ten_thousand_mutations_of_native_calls_never_raise() -> None:
    draw = random.Random(12)
    arguments = '{"query": "comets", "limit": 3, "more": [1, {"deep": null}]}'
    for _ in range(10_000):
        raw = mutated(arguments, draw)
        function = {"name": mutated("search_corpus", draw), "arguments": raw}
        event = {"choices": [{"message": {"content": None, "tool_calls": [{"function": function}]}}]}
        start = time.thread_time()
        (call,) = read_reply([event]).calls
        assert time.thread_time() - start < 0.5, raw[:200]
        assert isinstance(call.arguments, str | dict)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": 3},
        {"content": [{"type": "text", "text": "a"}, {"type": "thinking"}, 7]},
        {"tool_calls": "no"},
        {"tool_calls": [None, {}, {"function": None}, {"function": {"name": 3, "arguments": 4}}]},
        {"tool_calls": [{"index": [1], "function": {"name": "x", "arguments": {"a": 1}}}]},
        {"reasoning": {"text": "x"}, "content": "\ud800"},
    ],
)
def test_messages_of_odd_shapes_are_read(message: dict[str, Any]) -> None:
    for name in ("message", "delta"):
        reply = read_reply(
            [{"choices": [{name: message, "finish_reason": "stop"}], "usage": {"prompt_tokens": "many"}}]
        )
        reply.text.encode()
        assert reply.usage == {}


def test_streamed_calls_with_the_same_index_are_told_apart_by_their_ids() -> None:
    def event(call_id: str, name: str, arguments: str) -> dict[str, Any]:
        piece = {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments}}
        return {"choices": [{"delta": {"tool_calls": [piece]}}]}

    events = [event("a", "x", '{"n":'), event("z", "", "1}"), event("b", "x", '{"n":'), event("", "", "2}")]
    reply = read_reply([*events, {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}])
    assert [(call.id, call.arguments) for call in reply.calls] == [("a", {"n": 1}), ("b", {"n": 2})]


def test_streamed_calls_without_an_index_are_told_apart() -> None:
    """Some servers number no calls, and some send each call whole."""
    pieces = [
        {"id": "a", "function": {"name": "search_corpus", "arguments": '{"query":'}},
        {"function": {"arguments": ' "comets"}'}},
        {"id": "b", "function": {"name": "search_corpus", "arguments": '{"query": "operas"}'}},
        {"function": {"name": "read_document", "arguments": '{"doc_id": "d1"}'}},
    ]
    events = [{"choices": [{"delta": {"tool_calls": [piece]}}]} for piece in pieces]
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    calls = read_reply([*events, end]).calls
    assert [(call.id, call.arguments) for call in calls] == [
        ("a", {"query": "comets"}),
        ("b", {"query": "operas"}),
        ("", {"doc_id": "d1"}),
    ]


@pytest.mark.parametrize(
    ("text", "thoughts", "rest"),
    [
        ("<think>a</think>b", "a", "b"),
        ("\n<think>a", "a", ""),
        ("a</think>b", "a", "b"),
        ("b", "", "b"),
        ("text first <think>a</think>", "", "text first <think>a</think>"),
    ],
)
def test_thoughts_are_told_from_text(text: str, thoughts: str, rest: str) -> None:
    assert split_thoughts(text) == (thoughts, rest)


def test_arguments_as_other_json_are_left_raw() -> None:
    assert read_arguments("") == {}
    assert read_arguments("[1]") == "[1]"
    assert read_arguments("null") == "null"
    assert read_arguments('"{\\"a\\": 1}"') == {"a": 1}


# Whole episodes ---------------------------------------------------------------------------------------------------


def test_an_episode_in_text() -> None:
    steps = [
        says(
            f"I look.\n<tool_call>{CALL}</tool_call>\n" + written(ToolCall("grep_corpus", {"pattern": "SENTINEL-0007"}))
        ),
        says(written(ToolCall("prune_chunks", {"chunk_ids": ["d7_0"]}))),
    ]
    with serving(*steps) as server:
        result = ask(server, tools="text")
    assert result.stop_reason == "finished"
    first, second, third = server.chat_bodies()
    assert "tools" not in first
    assert "<tool_call>" in first["messages"][0]["content"]
    assert '"search_corpus"' in first["messages"][0]["content"]
    assert [message["role"] for message in third["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    results = second["messages"][3]["content"]
    assert results.count("<tool_response>") == 2
    assert "d7_0" in results
    assert "[Token usage:" in results
    assert "d7_0 (" not in third["messages"][3]["content"]
    assert second["messages"][2]["content"].startswith("I look.\n<tool_call>")
    event = next(event for event in result.trajectories[0].events if isinstance(event, ActionTaken))
    assert event.action.text == "I look."


def test_an_unreadable_call_is_answered() -> None:
    with serving(says("<tool_call>search: comets</tool_call>"), DONE) as server:
        result = ask(server, tools="text")
    assert "no tool 'unreadable'" in server.chat_bodies()[1]["messages"][3]["content"]
    assert result.turns == 1


def test_a_reply_over_the_length_is_told_so() -> None:
    with serving(says(f"<tool_call>{CALL}</tool_call>" + "x" * LONGEST_REPLY), DONE) as server:
        ask(server, tools="text", window=262_144)
    assert "longer than 100,000 characters" in server.chat_bodies()[1]["messages"][-1]["content"]


def test_calls_are_found_wherever_the_server_put_them() -> None:
    """A server may leave a declared tool's call in the text, and parse one that nothing was declared for."""
    in_text = says(f"I look. <tool_call>{CALL}</tool_call>")
    native = says("I look.", calls=[("search_corpus", {"query": "comets"})])
    for tools, reply in (("native", in_text), ("text", native)):
        with serving(reply) as server:
            result = ask(server, tools=tools)
        assert result.turns == 1
        event = next(event for event in result.trajectories[0].events if isinstance(event, ActionTaken))
        assert (event.action.text, event.action.calls[0].name) == ("I look.", "search_corpus")
