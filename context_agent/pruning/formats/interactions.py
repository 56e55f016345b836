"""Steps of Gemini's Interactions API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import OPAQUE_PARTS, result_texts, text_of, value_texts

_AUTHORS = {"user_input": "user", "model_output": "assistant"}
_OPAQUE_STEPS = frozenset((
    "thought", "code_execution_result", "file_search_result", "google_maps_result", "google_search_result",
    "mcp_server_tool_result", "processing_result", "retrieval_result", "url_context_result",
))  # fmt: skip
"""Thoughts, and results of tools that Google runs. They may be signed."""


def is_interaction_step(message: Any) -> bool:
    """Return True if a message without a role is a step of an interaction.

    A call in OpenAI's Responses API has the same type, but has a `call_id`, and its arguments are a text.
    """
    kind = text_field(message, "type")
    if kind == "function_call":
        return not text_field(message, "call_id") and isinstance(get_field(message, "arguments"), Mapping)
    return kind in _AUTHORS or kind in _OPAQUE_STEPS or kind == "function_result"


def read_interaction_step(message: Any, index: int) -> MessageContent:
    """Return the content of a step.

    The thought before a call has its signature, so the arguments of calls stay whole.
    """
    kind = text_field(message, "type")
    reading = ContentCollector(index, "gemini")
    if kind in _AUTHORS:
        for part in items(get_field(message, "content")):
            name = text_field(part, "type")
            if name == "text":
                reading.words.append(text_of(part))
            elif name not in OPAQUE_PARTS:
                reading.unknown.append(name)
        return reading.content(_AUTHORS[kind])
    if kind == "function_call":
        call = Call(text_field(message, "id"), text_field(message, "name"))
        reading.add_call(call, get_field(message, "arguments"), ("arguments",), "value", fixed=True)
        return reading.content("assistant")
    if kind == "function_result":
        output = get_field(message, "result")
        if isinstance(output, str | list | tuple):
            texts, reading.unknown = result_texts(output, ("result",), "gemini")
        else:
            texts = value_texts(("result",), output)
        answer = Call(text_field(message, "call_id"), text_field(message, "name"))
        reading.add_results(answer, texts, flagged=get_field(message, "is_error") is True)
        return reading.content("tool")
    return reading.content("assistant")
