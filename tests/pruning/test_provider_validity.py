"""Pruned conversations are valid for their provider: random ones, by its published rules and its client's own types.

`CTX1_PRUNE_CASES` sets the number of conversations, 40 by default.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.pruning import ContextPruner
from context_agent.tokens import CharCounter
from tests.support.conversations import KINDS, Turn, conversations, problem, rendered
from tests.support.provider_cases import ALWAYS, CASES


@cache
def validator(kind: str) -> Callable[[list[Any]], Any] | None:
    """Return the check by the types of the official client. If the client is not installed, return None."""
    if kind == "langchain":
        return None
    pydantic = pytest.importorskip("pydantic")
    try:
        if kind == "bedrock":
            return _converse_validator()
        if kind == "openai":
            from openai.types.chat import ChatCompletionMessageParam as Item
        elif kind == "responses":
            from openai.types.responses import ResponseInputItemParam as Item
        elif kind == "gemini":
            from google.genai.types import Content as Item
        else:
            from anthropic.types import MessageParam as Item
    except ImportError:
        return None
    return pydantic.TypeAdapter(list[Item]).validate_python


def _converse_validator() -> Callable[[list[Any]], Any]:
    """Return the check that a Bedrock client makes before it sends a request."""
    import botocore.session
    from botocore.validate import ParamValidator

    model = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse")

    def validate(messages: list[Any]) -> None:
        report = ParamValidator().validate({"modelId": "m", "messages": messages}, model.input_shape)
        if report.has_errors():
            raise ValueError(f"validation error: {report.generate_report()}")

    return validate


def check(kind: str, messages: list[Any]) -> None:
    assert problem(kind, messages) == ""
    if (validate := validator(kind)) is not None:
        _exhaust(validate(messages))


def _exhaust(value: Any) -> None:
    """Read what pydantic validates only when it is read."""
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            _exhaust(item)


@pytest.mark.parametrize("kind", KINDS)
@CASES
@given(turns=conversations(), budget=st.integers(1, 400), strategy=st.sampled_from(["reader", "random", "age"]))
def test_pruned_conversations_are_valid_and_come_back(kind: str, turns: list[Turn], budget: int, strategy: str) -> None:
    if kind == "langchain":
        pytest.importorskip("langchain_core")
    messages = rendered(kind, turns)
    check(kind, messages)
    before = copy.deepcopy(messages)
    pruner = ContextPruner(budget, strategy=strategy, effort="fast", prices=ALWAYS, counter=CharCounter())
    pruned = pruner.prune(messages)
    report = pruned.report
    assert messages == before, "changed in place"
    assert report.outcome != "passed through", report.warnings
    check(kind, pruned.messages)
    assert [type(m) for m in pruned.messages] == [type(m) for m in messages]
    assert report.tokens_after <= report.tokens_before
    first = min((item.message for item in report.removed), default=len(messages))
    assert all(a is b for a, b in zip(pruned.messages[:first], messages[:first], strict=True))
    pruned_again = pruner.prune(pruned.messages)
    assert pruned_again.messages == pruned.messages
    assert not pruned_again.report.removed
    assert pruner.prune(messages).messages == pruned.messages
    ids = [item.id for item in report.removed]
    assert pruner.restore(pruned.messages, ids) == messages
    assert pruner.restore(pruner.restore(pruned.messages, ids[::2]), ids[1::2]) == messages


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "langchain"])
def test_a_broken_conversation_is_refused_by_the_check(kind: str) -> None:
    messages = rendered(kind, [Turn("a", "b")])
    broken = {
        "openai": [*messages, {"role": "tool", "tool_call_id": "x", "content": "y"}],
        "responses": [*messages, {"type": "function_call_output", "call_id": "x", "output": "y"}],
        "anthropic": [
            *messages,
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "y"}]},
        ],
        "bedrock": [
            *messages,
            {"role": "user", "content": [{"toolResult": {"toolUseId": "x", "content": [{"text": "y"}]}}]},
        ],
        "gemini": [
            *messages,
            {"role": "user", "parts": [{"functionResponse": {"id": "x", "name": "f", "response": {"output": "y"}}}]},
        ],
    }[kind]
    assert problem(kind, broken)


def test_the_clients_types_refuse_a_wrong_result() -> None:
    pytest.importorskip("openai")
    with pytest.raises(ValueError, match="validation error"):
        check("openai", [{"role": "user", "content": [{"type": "text", "text": 3}]}])
