"""Requests to Cohere's first chat API, whose last messages are fields of their own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from context_agent.pruning.bundles import find_conversation
from context_agent.pruning.messages import Transcript
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
