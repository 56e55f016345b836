"""Random conversations that adapters and interrupts have damaged: never an exception, exact restore, idempotent.

`CTX1_PRUNE_CASES` sets the number of conversations of each kind, 40 by default.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.pruning import ContextPruner
from context_agent.tokens import CharCounter
from tests.support.conversations import Turn, conversations, rendered
from tests.support.framework_conversations import FRAMEWORKS
from tests.support.long_conversation import TASK, noises, pruner
from tests.support.provider_cases import ALWAYS, CASES

DAMAGES = ("drop", "twice", "swap", "no id", "same id", "odd id", "no content", "odd content", "odd message", "image")
CONTENTS = (
    "content", "output", "text", "parts", "blocks", "items", "result", "response", "value", "kwargs", "outputs", "data",
    "tool_results", "tool_call_result", "role", "type", "state", "info", "payload", "toolCalls", "toolResult",
    "functionResponse",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (None, 3, "x", [], {}, ["a"], {"type": "tool_result"}, {"text": 5}, [[[]]], True)


@st.composite
def damaged(draw: st.DrawFn, kind: str) -> list[Any]:
    """A conversation of that kind with up to six damages."""
    turns: list[Turn] = draw(conversations())
    framework = draw(st.sampled_from([*FRAMEWORKS])) if kind == "a framework" else ""
    messages = copy.deepcopy(FRAMEWORKS[framework](turns) if framework else rendered(kind, turns))
    for damage in draw(st.lists(st.sampled_from(DAMAGES), max_size=6)):
        if not messages:
            break
        at = draw(st.integers(0, len(messages) - 1))
        other = draw(st.integers(0, len(messages) - 1))
        odd = draw(st.sampled_from(ODD_VALUES))
        if damage == "drop":
            del messages[at]
        elif damage == "twice":
            messages.insert(other, copy.deepcopy(messages[at]))
        elif damage == "swap":
            messages[at], messages[other] = messages[other], messages[at]
        elif damage == "odd message":
            messages[at] = odd if isinstance(odd, dict) else {"role": "user", "content": odd}
        else:
            _damage_part(messages[at], damage, odd)
    return messages


def _damage_part(message: Any, damage: str, odd: Any) -> None:
    for holder in _holders(message):
        for name in list(holder):
            if name in ("id", "tool_call_id", "call_id", "tool_use_id", "toolCallId") and damage.endswith(" id"):
                holder[name] = {"no id": None, "same id": "call_0", "odd id": odd}[damage]
            if name in CONTENTS and damage.endswith("content"):
                holder[name] = None if damage == "no content" else copy.deepcopy(odd)
            if name in ("content", "output") and damage == "image" and isinstance(holder[name], list):
                holder[name] = [*holder[name], {"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}}]


def _holders(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(holder for item in value.values() for holder in _holders(item))]
    return [holder for item in value for holder in _holders(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic", "a framework"])
@CASES
@given(data=st.data(), budget=st.integers(1, 400), strategy=st.sampled_from(["reader", "random", "age"]))
def test_a_damaged_conversation_is_pruned_where_it_is_sound(
    kind: str, data: st.DataObject, budget: int, strategy: str
) -> None:
    messages = data.draw(damaged(kind))
    before = copy.deepcopy(messages)
    pruner = ContextPruner(budget, strategy=strategy, effort="fast", prices=ALWAYS, counter=CharCounter())
    pruned = pruner.prune(messages)
    assert messages == before, "changed in place"
    assert len(pruned.messages) == len(messages)
    assert pruner.prune(messages).messages == pruned.messages
    assert pruner.prune(pruned.messages).messages == pruned.messages
    ids = [item.id for item in pruned.report.removed]
    assert len(ids) == len(set(ids))
    assert pruner.restore(pruned.messages, ids) == before


def test_one_warning_names_all_entries_that_are_no_messages() -> None:
    entries: list[Any] = [{"role": "user", "content": "Hi"}, {"id": 1}, 3, {"id": 2}, {"id": 3}]
    report = pruner().prune(entries).report
    assert report.outcome == "passed through"
    first, second = report.warnings
    assert first.startswith("message 1, like 2 more, must be a dict or an object with a role")
    assert second.startswith("message 2 must be a dict")
    assert second.endswith("got int")


@pytest.mark.parametrize("levels", [490, 5_000])
def test_a_deep_json_result_is_counted_up_to_a_limit(levels: int) -> None:
    value: Any = noises(0, 6)
    for _ in range(levels):
        value = {"value": value}
    call = {"functionCall": {"name": "search", "args": {}}}
    response = {"functionResponse": {"name": "search", "response": {"result": value}}}
    turn = [{"role": "model", "parts": [call]}, {"role": "user", "parts": [response]}]
    messages = [{"role": "user", "parts": [{"text": TASK}]}, *turn, *turn, {"role": "model", "parts": [{"text": "x"}]}]
    keeper = pruner(50)
    pruned = keeper.prune(messages)
    assert (pruned.report.tokens_before > 0) == (levels == 490)
    assert keeper.prune(pruned.messages).messages == pruned.messages
    restored = keeper.restore(pruned.messages, [item.id for item in pruned.report.removed])
    assert (restored == messages) if levels == 490 else (restored[2] is messages[2])


def test_a_value_that_contains_itself_is_passed_through() -> None:
    value: dict[str, Any] = {}
    value["value"] = [value, value]
    call, response = {"name": "search", "args": value}, {"name": "search", "response": value}
    messages = [
        {"role": "user", "parts": [{"text": TASK}]},
        {"role": "model", "parts": [{"functionCall": call}]},
        {"role": "user", "parts": [{"functionResponse": response}]},
    ]
    assert pruner(1).prune(messages).report.tokens_before == 0
