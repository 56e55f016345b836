"""Values with a conversation: Cohere's first chat API, whose last messages are fields, and traces of any form."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from context_agent.pruning.bundles import MOST_FOUND, conversations, find_conversation
from context_agent.pruning.messages import Transcript
from tests.support.conversations import rendered
from tests.support.framework_conversations import FRAMEWORKS
from tests.support.long_conversation import LONG, TASK, noises, pruner


def results(*texts: str) -> list[dict[str, Any]]:
    return [{"call": {"name": "search", "parameters": {}}, "outputs": [{"text": text}]} for text in texts]


def many_steps() -> dict[str, Any]:
    """A request after several steps, whose last results are not in the history."""
    history = FRAMEWORKS["cohere 1"](LONG)
    return {"message": "", "chat_history": history[:-1], "tool_results": history[-1]["tool_results"], "model": "m"}


REQUESTS: dict[str, dict[str, Any]] = {
    "many steps": many_steps(),
    "one step": {"message": TASK, "tool_results": results(noises(0, 30), noises(40, 30))},
    "a step after a history": {
        "message": TASK,
        "chat_history": [{"role": "USER", "message": "Hello."}, {"role": "CHATBOT", "message": "Hello!"}],
        "tool_results": results(noises(0, 30), noises(40, 30)),
    },
    "a new question": {"message": TASK, "chat_history": FRAMEWORKS["cohere 1"](LONG), "tool_results": []},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_to_the_first_chat_of_cohere_keeps_its_form(name: str) -> None:
    request = REQUESTS[name]
    before = copy.deepcopy(request)
    bundle = find_conversation(request)
    assert bundle is not None
    assert Transcript(bundle.messages).task == TASK
    keeper = pruner()
    pruned = keeper.prune(bundle.messages)
    assert pruned.report.outcome == "pruned"
    assert pruned.report.warnings == ()
    after = bundle.with_messages(pruned.messages)
    assert after != request == before
    assert after.keys() == request.keys()
    again = find_conversation(after)
    assert again is not None
    assert keeper.prune(again.messages).messages == pruned.messages
    ids = [item.id for item in pruned.report.removed]
    assert again.with_messages(keeper.restore(again.messages, ids)) == before


@pytest.mark.parametrize(
    "value", [{"message": TASK}, {"message": TASK, "tool_results": []}, {"message": {"role": "user", "content": TASK}}]
)
def test_a_request_without_a_history_has_no_conversation(value: dict[str, Any]) -> None:
    assert find_conversation(value) is None


CHAT = rendered("openai", LONG)
NESTED: dict[str, Any] = {
    "the steps of a trajectory": {"schema_version": "ATIF-v1.4", "steps": FRAMEWORKS["trajectory"](LONG)},
    "the log of an evaluation": {"eval": {"tools": [{"type": "function"}] * 2}, "samples": [{"messages": CHAT}]},
    "OpenInference": {"attributes": {"llm": {"input_messages": [{"message": message} for message in CHAT]}}},
    "spans": {
        "spans": [
            {
                "attributes": [
                    {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                    {"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps(CHAT)}},
                ]
            }
        ]
    },
    "lines": [{"id": 1}, {"inputs": {"messages": CHAT}}],
}


@pytest.mark.parametrize("name", NESTED)
def test_the_only_conversation_in_a_value_is_found_at_any_path(name: str) -> None:
    value = NESTED[name]
    before = copy.deepcopy(value)
    bundle = find_conversation(value)
    assert bundle is not None
    assert bundle.path
    keeper = pruner()
    pruned = keeper.prune(bundle.messages)
    assert pruned.report.outcome == "pruned"
    after = bundle.with_messages(pruned.messages)
    assert after != value == before
    again = find_conversation(after)
    assert again is not None
    assert again.path == bundle.path
    restored = keeper.restore(again.messages, [item.id for item in pruned.report.removed])
    assert again.with_messages(restored) == before


def test_of_requests_that_repeat_each_other_the_longest_counts() -> None:
    trace = {"observations": [{"input": CHAT[:3]}, {"input": CHAT}, {"input": CHAT[:5]}, {"input": CHAT}]}
    bundle = find_conversation(trace)
    assert bundle is not None
    assert bundle.path == ("observations", 1, "input")


def test_of_several_conversations_none_is_chosen() -> None:
    value = {"samples": [{"messages": CHAT}, {"messages": CHAT[1:]}]}
    assert find_conversation(value) is None
    assert [bundle.path for bundle in conversations(value)] == [("samples", n, "messages") for n in range(2)]


def test_what_a_conversation_contains_is_no_conversation() -> None:
    inner = [{"role": "user", "content": json.dumps(CHAT)}, {"role": "assistant", "content": "Thanks."}]
    for value in (inner, {"messages": inner}, {"a": [{"b": inner}]}):
        (bundle,) = conversations(value)
        assert bundle.messages == inner
    assert conversations([{"type": "text", "text": "a"}] * 3) == []
    assert find_conversation({"a": [1, 2], "b": "[{"}) is None


def test_the_search_ends_at_so_many_different_conversations() -> None:
    def conversation(number: int) -> list[dict[str, str]]:
        return [{"role": "user", "content": f"task {number}"}, {"role": "assistant", "content": "done"}]

    assert len(conversations({"runs": [conversation(number) for number in range(3 * MOST_FOUND)]})) == MOST_FOUND


def test_a_trace_of_many_requests_is_its_last_one() -> None:
    turns = [{"role": role, "content": f"{role} {number}"} for number in range(150) for role in ("user", "assistant")]
    trace = {"spans": [{"input": turns[: 2 * count]} for count in range(1, 151)]}
    (found,) = conversations(trace)
    assert found.path == ("spans", 149, "input")
