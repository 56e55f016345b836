"""Arguments of a hostile client of `ctx1 mcp`: each call is answered or refused, quickly and in few words."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent.policies.bridge.candidates import analyze_question
from context_agent.types import Document
from tests.support.growth import growth
from tests.support.hostile_texts import repeated

pytest.importorskip("mcp")
from mcp import Client
from mcp.types import CallToolResult

from context_agent.integrations.mcp.server import make_server

LONGEST_REFUSAL = 6_000


def agent() -> SearchAgent:
    return SearchAgent(MemoryCorpus([Document("d0", "The harbour pilot kept a ledger of tides.", "Pilot")]))


async def call(tool: str, **arguments: Any) -> CallToolResult:
    async with Client(make_server(agent())) as client:
        return await client.call_tool(tool, arguments)


def said(result: CallToolResult) -> str:
    return "".join(getattr(part, "text", "") for part in result.content)


def nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = {"a": [leaf]}
    return leaf


def messages(text: Any = "x", user: Any = "Which?", call_id: Any = "c") -> list[dict[str, Any]]:
    use = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": user},
        {"role": "assistant", "content": None, "tool_calls": [use]},
        {"role": "tool", "tool_call_id": call_id, "content": text},
        {"role": "assistant", "content": "done"},
    ]


ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "an empty conversation": ("prune", {"messages": []}),
    "messages that are none": ("prune", {"messages": [{}, {"role": 1}, {"type": []}, {"content": "x"}]}),
    "a role of control characters": ("prune", {"messages": [{"role": "\x1b[2J\u202e", "content": "x"}]}),
    "more messages than allowed": ("prune", {"messages": [{"role": "user", "content": "x"}] * 10_001}),
    "a conversation nested deeply": ("prune", {"messages": [nested(60)]}),
    "arguments nested deeply": ("prune", {"messages": messages(text=[nested(40)])}),
    "a content of every type": ("prune", {"messages": [*messages(1), *messages(None), *messages({"a": 1})]}),
    "a call id that is a list": ("prune", {"messages": messages(call_id=["c"])}),
    "a long call id": ("prune", {"messages": messages(call_id="c" * 500_000)}),
    "a result without a call": ("prune", {"messages": messages()[2:]}),
    "the same call a thousand times": ("prune", {"messages": messages() * 1_000}),
    "surrogates": ("prune", {"messages": messages("\ud800" * 1_000), "budget": 1}),
    "a task of one long word": ("prune", {"messages": messages("a. " * 5_000), "task": "x" * 20_000, "budget": 1}),
    "a task that is too long": ("prune", {"messages": messages(), "task": "x" * 20_001}),
    "no budget": ("prune", {"messages": messages(), "budget": 0}),
    "an endless budget": ("prune", {"messages": messages(), "budget": 10**30}),
    "a budget that is no number": ("prune", {"messages": messages(), "budget": "all"}),
    "an effort that does not exist": ("prune", {"messages": messages(), "effort": "x" * 100_000}),
    "ids of another conversation": ("prune", {"messages": messages(), "restore": ["p1", "p2"]}),
    "a long id": ("prune", {"messages": messages(), "restore": ["p" * 500_000]}),
    "more ids than allowed": ("prune", {"messages": messages(), "restore": [f"p{n}" for n in range(1_001)]}),
    "an id of control characters": ("prune", {"messages": messages(), "restore": ["\x1b]0;t\x07"]}),
    "a text that looks like a stub": ("prune", {"messages": messages("[1 passage pruned, 9 tokens; restore: p1]")}),
    "a request for a billion ids": ("prune", {"messages": messages(user="restore: p1-p999999999"), "budget": 1}),
    "tags between blank lines": ("prune", {"messages": messages("<a>\n\n" * 40_000), "budget": 1, "effort": "fast"}),
    "marks out of order": ("prune", {"messages": messages("a" + "\u0301\u0316" * 40_000), "budget": 1}),
    "a question of marks": ("retrieve", {"question": "Which " + "\u0301\u0316" * 9_000}),
    "a question of spaces": ("retrieve", {"question": " " * 20_000}),
    "a question of quotes": ("retrieve", {"question": "Which " + '"' * 10_000 + " or " * 2_000}),
    "a question of brackets": ("retrieve", {"question": "Which " + "(" * 19_000}),
    "a question that is too long": ("retrieve", {"question": "x" * 20_001}),
    "a filter nested deeply": ("retrieve", {"question": "Which?", "where": nested(60)}),
    "a filter of many names": ("search", {"query": "pilot", "where": {"$or": [{f"n{n}": n} for n in range(5_000)]}}),
    "no results": ("search", {"query": "pilot", "k": 0}),
    "half a result": ("search", {"query": "pilot", "k": 1.5}),
    "an exponential pattern": ("grep", {"pattern": "(a+)+" * 900}),
    "a pattern of a billion states": ("grep", {"pattern": "(((a{99}){99}){99}){99}"}),
    "a path for an id": ("read", {"document_id": "../../etc/passwd"}),
    "an id of zeros": ("read", {"document_id": "\0" * 20_000}),
    "a chunk that does not exist": ("read", {"document_id": "d0", "first_chunk": 10**18}),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_call_is_answered_or_refused(name: str) -> None:
    tool, arguments = ATTACKS[name]
    start = time.process_time()
    result = await call(tool, **arguments)
    assert time.process_time() - start < 60
    if result.is_error:
        assert len(said(result)) < LONGEST_REFUSAL
        assert "Traceback" not in said(result)
        assert "\x1b" not in said(result)
        assert "unexpected" not in said(result)


async def test_a_conversation_restores_nothing_of_another() -> None:
    long = "\n\n".join(f"Paragraph {number} of a secret: {'rain ' * 30}" for number in range(40))
    mine, theirs = messages(long, user="My question about rain?"), messages("x", user="Another question?")
    async with Client(make_server(agent())) as client:
        options = {"budget": 1, "effort": "fast"}
        pruned = await client.call_tool("prune", {"messages": [*mine, *messages(call_id="d")[1:]], **options})
        ids = [passage["id"] for passage in pruned.structured_content["report"]["removed"]]
        assert ids
        stub = pruned.structured_content["messages"][2]
        stolen = await client.call_tool("prune", {"messages": [*theirs[:2], stub, theirs[3]], "restore": ids[:1]})
    assert stolen.is_error
    assert "secret" not in json.dumps([part.model_dump() for part in stolen.content])


@pytest.mark.parametrize(
    "unit", ['"', " or ", " and the ", ", ", "(", "A ", "A of ", "Bo, ", "«a ", "漢", "or漢 ", "1-"]
)
def test_a_question_is_analyzed_in_linear_time(unit: str) -> None:
    def analyze(text: str) -> object:
        return analyze_question(text, lambda terms: np.ones(len(terms), dtype=np.float32))

    assert growth(analyze, lambda size: "Which " + repeated(unit, size), 3_000) < 9
