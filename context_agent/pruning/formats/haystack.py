"""Messages of Haystack, as objects and as dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_texts

_CALL, _RESULT = "tool_call", "tool_call_result"


def is_haystack(message: Any) -> bool:
    """Return True if a message is an object of Haystack, or if its parts have the keys of a call or of a result."""
    parts = items(get_field(message, "content"))
    has_keys = any(isinstance(part, Mapping) and (_CALL in part or _RESULT in part) for part in parts)
    return has_keys or isinstance(get_field(message, "_content"), list | tuple)


def read_haystack(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message of Haystack."""
    reading = ContentCollector(index, "haystack")
    field = "content" if isinstance(message, Mapping) and "content" in message else "_content"
    for number, part in enumerate(items(get_field(message, field))):
        path: Path = (field, number)
        name = next((name for name in (_CALL, _RESULT) if isinstance(part, Mapping) and name in part), "")
        held = part[name] if name else part
        path = (*path, name) if name else path
        if (origin := get_field(held, "origin")) is not None:
            texts, reading.unknown = result_texts(get_field(held, "result"), (*path, "result"), "haystack")
            answer = Call(text_field(origin, "id"), text_field(origin, "tool_name"))
            reading.add_results(answer, texts, flagged=get_field(held, "error") is True)
        elif call_name := text_field(held, "tool_name"):
            arguments = get_field(held, "arguments")
            form = written_form("arguments", is_text=isinstance(arguments, str))
            reading.add_call(Call(text_field(held, "id"), call_name), arguments, (*path, "arguments"), form)
        else:
            reading.words.append(text_field(held, "text"))
    return reading.authored(role)
