"""Chat requests as requests of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from context_agent.harness.profile import Profile
from context_agent.harness.tools import schemas
from context_agent.policies.chat.messages import Message

LEAST_THINKING = 1_024
"""The smallest `budget_tokens` that the API accepts, in tokens."""
CACHE = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of a prefix to be cached. A request may have four marks."""


def prompt_fields(conversation: Sequence[Message], profile: Profile | None) -> dict[str, Any]:
    """Return the system message, the other messages, and the tools of the profile.

    The fields mark where a cached prefix ends: at the end of what all episodes of the profile share, at the messages
    with `cache`, and at the last message.
    """
    system = [_text(message["content"]) for message in conversation if message["role"] == "system"]
    tools = [] if profile is None else [_tool(schema) for schema in schemas(profile)]
    # Tools come before the system message in the prefix that every episode of a profile shares.
    (system or tools)[-1] |= CACHE
    return {
        **({"system": system} if system else {}),
        "messages": _merged([message for message in conversation if message["role"] != "system"]),
        **({"tools": tools} if tools else {}),
    }


def _merged(conversation: Iterable[Message]) -> list[Message]:
    """Return the messages of the API.

    All content between two replies becomes one message. The last message also ends a cached prefix.
    """
    merged: list[Message] = []
    for message in conversation:
        role = "assistant" if message["role"] == "assistant" else "user"
        if not merged or merged[-1]["role"] != role:
            merged.append({"role": role, "content": []})
        content: list[dict[str, Any]] = merged[-1]["content"]
        content += _content(message)
        if message.get("cache"):
            content[-1] |= CACHE
    merged[-1]["content"][-1] |= CACHE
    return merged


def _content(message: Message) -> list[dict[str, Any]]:
    """Return the blocks of a chat message."""
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}]
    texts = [_text(message["content"])] if message["content"].strip() else []
    uses = {call["id"]: _tool_use(call) for call in message.get("tool_calls", ())}
    blocks: list[dict[str, Any]] = []
    for block in message.get("blocks", ()):
        if block["type"] == "tool_use":
            blocks += [uses.pop(block["id"])] if block["id"] in uses else []
        else:
            blocks.append(dict(block))
    if any(block["type"] == "text" for block in blocks):
        texts = []
    return [*blocks, *texts, *uses.values()]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": json.loads(function["arguments"]),
    }


def _tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": schema["name"], "description": schema["description"], "input_schema": schema["parameters"]}


def sampling_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling fields under the names that the API uses.

    A thinking budget must be below `max_tokens`. If `max_tokens` leaves no room for a budget, thinking is turned off.
    """
    effort = fields.pop("reasoning_effort", None)
    if effort is not None:
        fields = {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}, **fields}
    thinking = fields.get("thinking")
    if isinstance(thinking, Mapping) and isinstance(thinking.get("budget_tokens"), int):
        budget = min(thinking["budget_tokens"], fields["max_tokens"] - 1)
        fields["thinking"] = {**thinking, "budget_tokens": budget} if budget >= LEAST_THINKING else {"type": "disabled"}
    return fields
