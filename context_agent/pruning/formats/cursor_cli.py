"""Events of Cursor's command-line agent, as `--output-format stream-json` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, has_failed, text_field
from context_agent.pruning.formats.parts import result_text, value_texts

_TOOL_END = "ToolCall"
_TEXTS = ("content", "stdout", "stderr")
"""The fields of a result that have the text of a file, or the output of a command."""


def is_cursor_event(message: Any) -> bool:
    """Return True if a message without a role is an event of a call, which has the call under the name of its tool."""
    return text_field(message, "type") == "tool_call" and isinstance(get_field(message, "tool_call"), Mapping)


def read_cursor_event(message: Any, index: int) -> MessageContent:
    """Return the content of an event.

    Only finished calls count. They repeat the arguments of the event of their start.
    """
    held = get_field(message, "tool_call")
    name = next((name for name in held if str(name).endswith(_TOOL_END)), "")
    body = held.get(name)
    if text_field(message, "subtype") != "completed" or not isinstance(body, Mapping):
        return MessageContent("unknown")
    reading = ContentCollector(index, "openai")
    own, path = Call(text_field(message, "call_id"), name.removesuffix(_TOOL_END)), ("tool_call", name)
    reading.add_own_call(own, get_field(body, "args"), (*path, "args"))
    result = get_field(body, "result")
    outcome = next(iter(result), "") if isinstance(result, Mapping) else ""
    value = get_field(result, outcome) if outcome else None
    here: Path = (*path, "result", outcome)
    texts = [result_text((*here, field), text) for field in _TEXTS if (text := text_field(value, field))]
    failed = outcome != "success" or has_failed(get_field(value, "exitCode"))
    reading.add_own_results(own.id, texts or value_texts(here, value), flagged=failed)
    return reading.content("assistant")
