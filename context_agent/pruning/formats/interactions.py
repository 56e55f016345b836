"""Steps of Gemini's Interactions API, and its older turns, whose contents are lists of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import OPAQUE_PARTS, result_texts, text_of, value_texts

_AUTHORS = {"user_input": "user", "model_output": "assistant"}
_OPAQUE_STEPS = frozenset((
    "thought", "code_execution_result", "file_search_result", "google_maps_result", "google_search_result",
    "mcp_server_tool_result", "processing_result", "retrieval_result", "tool_search_result", "url_context_result",
))  # fmt: skip
"""Thoughts, and results of tools that Google runs. They may be signed."""


def is_interaction_step(message: Any) -> bool:
    """Return True if a message without a role is a step of an interaction.

    A call in OpenAI's Responses API has the same type, but has a `call_id`, and its arguments are a text.
    """
    kind = text_field(message, "type")
    if kind == "function_call":
        return _is_call(message)
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
    _add_step(reading, message, ())
    return reading.content("tool" if kind == "function_result" else "assistant")


def is_interaction_turn(message: Any) -> bool:
    """Return True if the content of a message with a role has calls, results or thoughts of the Interactions API."""
    parts = items(get_field(message, "content"))
    return any(text_field(part, "type") in ("function_result", *_OPAQUE_STEPS) or _is_call(part) for part in parts)


def read_interaction_turn(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a turn."""
    reading = ContentCollector(index, "gemini")
    for number, part in enumerate(items(get_field(message, "content"))):
        name = text_field(part, "type")
        if name == "text":
            reading.words.append(text_of(part))
        elif name == "function_result" or _is_call(part):
            _add_step(reading, part, ("content", number))
        elif name not in _OPAQUE_STEPS and name not in OPAQUE_PARTS and not name.endswith("_call"):
            reading.unknown.append(name)
    return reading.authored(role)


def _is_call(part: Any) -> bool:
    is_call = text_field(part, "type") == "function_call" and not text_field(part, "call_id")
    return is_call and isinstance(get_field(part, "arguments"), Mapping)


def _add_step(reading: ContentCollector, step: Any, path: Path) -> None:
    """Add the call or the result of a step."""
    kind = text_field(step, "type")
    if kind == "function_call":
        call = Call(text_field(step, "id"), text_field(step, "name"))
        reading.add_call(call, get_field(step, "arguments"), (*path, "arguments"), "value", fixed=True)
    elif kind == "function_result":
        output = get_field(step, "result")
        path = (*path, "result")
        if isinstance(output, str | list | tuple):
            texts, unknown = result_texts(output, path, "gemini")
            reading.unknown += unknown
        else:
            texts = value_texts(path, output)
        answer = Call(text_field(step, "call_id"), text_field(step, "name"))
        reading.add_results(answer, texts, flagged=get_field(step, "is_error") is True)
