"""Conversations of agent frameworks are pruned, keep their form, and come back exactly.

`CTX1_PRUNE_CASES` sets four times the number of random conversations of each format, which is 10 by default.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.pruning import ContextPruner
from context_agent.pruning.messages import Transcript
from context_agent.tokens import CharCounter
from tests.support.conversations import Call, Turn, conversations
from tests.support.framework_conversations import FRAMEWORKS
from tests.support.long_conversation import FILM, TASK, conversation, noises, pruner
from tests.support.provider_cases import ALWAYS, CASES

TEXTS = (noises(0, 6), f"{noises(10, 3)}\n\n{FILM}\n\n{noises(20, 3)}", noises(30, 6), "done")
KINDS = {
    "vercel": "vercel", "vercel 4": "vercel", "vercel ui": "vercel", "pydantic-ai": "pydantic-ai", "cohere": "cohere",
    "cohere 1": "cohere", "opentelemetry": "opentelemetry", "llamaindex": "llamaindex", "autogen": "autogen",
    "semantic-kernel": "semantic-kernel", "haystack": "haystack", "harmony": "openai", "google adk": "gemini",
    "saved langchain": "langchain", "smolagents": "openai", "hermes": "openai", "hermes with tool messages": "openai",
    "mini-swe-agent": "openai", "cline": "openai", "mistral": "mistral", "codex": "responses", "opencode": "opencode",
    "gemini cli": "gemini", "goose": "goose", "ag-ui": "openai", "sharegpt": "openai",
    "interaction turns": "gemini", "openhands": "openai", "saved openhands": "openai",
    "copilot cli": "openai", "pi": "openai", "gemini live": "gemini", "trajectory": "openai",
    "codex exec": "openai", "amp": "anthropic", "kiro": "bedrock", "kiro session": "bedrock", "amazon q": "bedrock",
    "agent framework": "agent-framework", "extensions ai": "agent-framework", "vs code": "openai", "crush": "openai",
    "cursor cli": "openai", "autogen task": "autogen", "claude.ai": "anthropic", "zed": "openai",
    "zed 0.2": "openai", "zed 0.1": "openai", "letta": "openai", "dashscope": "openai",
    "environment": "openai", "langgraph updates": "langchain", "semantic-kernel c#": "semantic-kernel",
    "realtime": "responses", "realtime 2": "responses", "smolagents steps": "openai", "dspy": "openai",
}  # fmt: skip


@cache
def validator(name: str) -> Any:
    """The framework's own type of a conversation. It is None if the framework is not installed."""
    try:
        if name == "pydantic-ai":
            from pydantic_ai.messages import ModelMessagesTypeAdapter

            return ModelMessagesTypeAdapter
        if name == "llamaindex":
            from llama_index.core.base.llms.types import ChatMessage
            from pydantic import TypeAdapter

            return TypeAdapter(list[ChatMessage])
    except ImportError:
        pass
    return None


def check(name: str, messages: list[Any]) -> None:
    json.dumps(messages)
    if (adapter := validator(name)) is not None:
        adapter.validate_python(messages)
    if name == "haystack":
        haystack = pytest.importorskip("haystack.dataclasses")
        for message in messages:
            haystack.ChatMessage.from_dict(message)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_results_of_a_framework_are_pruned(name: str) -> None:
    messages = FRAMEWORKS[name](conversation(*TEXTS))
    before = copy.deepcopy(messages)
    keeper = pruner()
    pruned = keeper.prune(messages)
    check(name, pruned.messages)
    assert pruned.report.kind == KINDS[name]
    assert pruned.report.outcome == "pruned"
    assert pruned.report.warnings == ()
    assert pruned.report.tokens_after <= 300
    assert "Ana Berg" in json.dumps(pruned.messages)
    assert Transcript(messages).task == TASK
    assert messages == before
    assert keeper.prune(messages).messages == pruned.messages
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == before


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(CASES, max_examples=max(10, CASES.max_examples // 4))
@given(turns=conversations(), budget=st.integers(1, 400), strategy=st.sampled_from(["reader", "random", "age"]))
def test_random_conversations_of_a_framework_come_back(
    name: str, turns: list[Turn], budget: int, strategy: str
) -> None:
    messages = FRAMEWORKS[name](turns)
    before = copy.deepcopy(messages)
    keeper = ContextPruner(budget, strategy=strategy, effort="fast", prices=ALWAYS, counter=CharCounter())
    pruned = keeper.prune(messages)
    report = pruned.report
    assert messages == before, "changed in place"
    assert report.outcome != "passed through", report.warnings
    assert not [warning for warning in report.warnings if "unknown type" in warning or " a call" in warning]
    check(name, pruned.messages)
    assert report.tokens_after <= report.tokens_before
    first = min((item.message for item in report.removed), default=len(messages))
    assert all(a is b for a, b in zip(pruned.messages[:first], messages[:first], strict=True))
    again = keeper.prune(pruned.messages)
    assert again.messages == pruned.messages
    assert not again.report.removed
    assert keeper.prune(messages).messages == pruned.messages
    ids = [item.id for item in report.removed]
    assert keeper.restore(keeper.restore(pruned.messages, ids[::2]), ids[1::2]) == messages


def test_an_error_whose_first_words_are_pruned_is_still_an_error() -> None:
    text = "\n\n".join(("error polar polar", *["polar"] * 3, *("polar " * count for count in (3, 7, 9))))
    calls = (Call("call_1", {"query": "polar"}, (text.strip(), "0"), is_error=True, with_image=True),)
    messages = FRAMEWORKS["codex"]([Turn("polar", "polar", calls), Turn("polar", "polar polar")])
    keeper = ContextPruner(76, effort="fast", prices=ALWAYS, counter=CharCounter())
    pruned = keeper.prune(messages)
    assert "error" not in str(pruned.messages[-4:])
    assert pruned.report.protected["error"] == 1
    assert keeper.prune(pruned.messages).messages == pruned.messages


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name not in ("smolagents", "interaction turns")])
def test_large_arguments_of_old_calls_are_pruned(name: str) -> None:
    """The arguments in the text of an agent are its own words, so they stay."""
    arguments = {"query": "\n\n".join(noises(100, 40).split("\n\n"))}
    turns = [Turn(TASK), Turn("", "", (Call("c0", arguments, ("done",)),)), *conversation("done", "done", user="")]
    messages = FRAMEWORKS[name](turns)
    keeper = pruner()
    pruned = keeper.prune(messages)
    has_fields = "tool_call>" not in json.dumps(messages)
    assert (pruned.report.outcome == "pruned") == has_fields
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


def test_a_message_of_mcps_sampling_may_have_a_single_part() -> None:
    def message(role: str, **part: Any) -> dict[str, Any]:
        return {"role": role, "content": part}

    result = [{"type": "text", "text": noises(0, 20)}]
    history = [
        message("user", type="text", text=TASK),
        message("assistant", type="tool_use", id="t", name="search", input={}),
        message("user", type="tool_result", toolUseId="t", content=result),
        message("assistant", type="text", text="done"),
        message("user", type="text", text="Go on."),
    ]
    keeper = pruner()
    pruned = keeper.prune(history)
    assert pruned.report.outcome == "pruned"
    assert pruned.report.warnings == ()
    assert pruned.messages[2]["content"].keys() == history[2]["content"].keys()
    assert keeper.restore(pruned.messages, [passage.id for passage in pruned.report.removed]) == history
