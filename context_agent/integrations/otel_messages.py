"""What an action says, in the words of OpenTelemetry's GenAI conventions: messages, and what a server reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from context_agent.policies.tokens.prompt import KEY as SAMPLED
from context_agent.types import Action


def reported(extra: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Token counts, and the rest of what an action's `extra` holds from a chat server or a token engine."""
    if isinstance(usage := extra.get("usage"), Mapping):
        counts = {
            "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
            "gen_ai.usage.cache_read.input_tokens": usage.get("cached_tokens"),
            "gen_ai.usage.reasoning.output_tokens": usage.get("reasoning_tokens"),
        }
        rest = {"gen_ai.response.model": extra.get("model")}
        finish = extra.get("finish_reason")
    elif isinstance(sampled := extra.get(SAMPLED), Mapping):
        counts = {
            "gen_ai.usage.input_tokens": sampled["kept"] + len(sampled["new"]),
            "gen_ai.usage.output_tokens": len(sampled["output"]),
            "gen_ai.usage.cache_read.input_tokens": sampled["cached"],
        }
        rest = {"gen_ai.response.model": sampled["version"]}
        finish = sampled["finish"]
    else:
        return {}, {}
    told: dict[str, Any] = {name: value for name, value in rest.items() if value}
    if finish:
        told["gen_ai.response.finish_reasons"] = [finish]
    return {name: count for name, count in counts.items() if count is not None}, told


def message_of(action: Action) -> dict[str, Any]:
    """The action as an output message of the conventions."""
    parts: list[dict[str, Any]] = []
    if action.reasoning:
        parts.append({"type": "reasoning", "content": action.reasoning})
    if action.text:
        parts.append(text_part(action.text))
    parts += [
        {"type": "tool_call", "id": call.id or None, "name": call.name, "arguments": call.arguments}
        for call in action.calls
    ]
    return {"role": "assistant", "parts": parts, "finish_reason": "tool_call" if action.calls else "stop"}


def text_part(text: str) -> dict[str, Any]:
    """A text in a message."""
    return {"type": "text", "content": text}


def as_json(value: Any) -> str:
    """As a span's attribute holds what has structure."""
    return json.dumps(value, ensure_ascii=False, default=str)
