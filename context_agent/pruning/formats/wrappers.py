"""Objects that contain one message, such as an event or a saved message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Path
from context_agent.pruning.formats.fields import get_field, items, text_field

_SAVED_TYPES = ("human", "ai", "system", "tool", "function", "chat")
"""The types of LangChain's messages."""


def unwrapped(message: Any) -> tuple[Path, Any]:
    """Return the path to the message in an object, and the message. A message by itself has an empty path.

    The objects are LangChain's saved messages, the records of Claude Code, and the events of Google's Agent Development
    Kit.
    """
    kind = text_field(message, "type")
    if text_field(message, "role") or not (kind or get_field(message, "content") is not None):
        return (), message
    arguments, data, inner = (get_field(message, name) for name in ("kwargs", "data", "message"))
    if kind == "constructor" and isinstance(arguments, Mapping):
        name = next(reversed(items(get_field(message, "id"))), "")
        return ("kwargs",), {"type": name, **arguments}
    if kind in _SAVED_TYPES and isinstance(data, Mapping) and "content" in data:
        return ("data",), {"type": kind, **data}
    if kind and text_field(inner, "role"):
        return ("message",), inner
    content = get_field(message, "content")
    if not kind and isinstance(get_field(content, "parts"), list | tuple):
        role = text_field(content, "role") or ("user" if text_field(message, "author") == "user" else "model")
        return ("content",), {"role": role, "parts": get_field(content, "parts")}
    return (), message
