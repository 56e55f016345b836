"""Messages in the sessions of Gemini CLI. A message of the agent has its calls with their results."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.gemini import response_texts
from context_agent.pruning.formats.parts import result_text

_ROLES = {"user": "user", "gemini": "assistant", "info": "unknown", "error": "unknown", "warning": "unknown"}
"""The roles by type. Gemini CLI shows the other types to the user, and does not send them to the model."""


def is_gemini_cli(message: Any) -> bool:
    """Return True if a message without a role has a type of Gemini CLI, a time and a content."""
    is_typed = text_field(message, "type") in _ROLES
    return is_typed and all(get_field(message, name) is not None for name in ("timestamp", "content"))


def read_gemini_cli(message: Any, index: int) -> MessageContent:
    """Return the content of a message of Gemini CLI."""
    role = _ROLES[text_field(message, "type")]
    if role == "unknown":
        return MessageContent(role)
    reading = ContentCollector(index, "gemini")
    content = get_field(message, "content")
    for number, part in enumerate(items(content) or [content]):
        if isinstance(part, str):
            reading.words.append(part)
        elif isinstance(text := get_field(part, "text"), str):
            reading.words.append(text)
        else:
            _add_result(reading, part, ("content", number), "")
    for number, call in enumerate(items(get_field(message, "toolCalls"))):
        own, path = Call(text_field(call, "id"), text_field(call, "name")), ("toolCalls", number)
        reading.add_own_call(own, get_field(call, "args"), (*path, "args"))
        failed = text_field(call, "status") in ("error", "cancelled")
        result = get_field(call, "result")
        if isinstance(result, str):
            reading.add_own_results(own.id, [result_text((*path, "result"), result)], flagged=failed)
        for row, part in enumerate(items(result)):
            _add_result(reading, part, (*path, "result", row), own.id, failed=failed)
    return reading.authored(role)


def _add_result(reading: ContentCollector, part: Any, path: Path, key: str, *, failed: bool = False) -> None:
    """Add the result in one part. Files in other parts are passed through."""
    if isinstance(text := part if isinstance(part, str) else get_field(part, "text"), str):
        path = path if isinstance(part, str) else (*path, "text")
        reading.add_own_results(key, [result_text(path, text)], flagged=failed)
    elif (response := get_field(part, "functionResponse")) is not None:
        texts, has_error = response_texts(response, (*path, "functionResponse"))
        reading.add_own_results(key or text_field(response, "id"), texts, flagged=failed or has_error)
