"""Objects that contain one message, such as an event or a saved message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Path
from context_agent.pruning.formats.fields import get_field, items, text_field

_SAVED_TYPES = ("human", "ai", "system", "tool", "function", "chat")
"""The types of LangChain's messages."""


_CODEX_RECORDS = frozenset((
    "session_meta", "turn_context", "world_state", "event_msg", "compacted", "inter_agent_communication",
    "inter_agent_communication_metadata",
))  # fmt: skip
_CLAUDE_CODE_RECORDS = frozenset((
    "summary", "file-history-snapshot", "queue-operation", "progress", "last-prompt", "custom-title", "ai-title",
    "agent-name", "pr-link", "permission-mode", "mode",
))  # fmt: skip
_GEMINI_CLI_FIELDS = ("$set", "$rewindTo", "projectHash")


def is_session_record(message: Any) -> bool:
    """Return True if a line of a saved session is not a message that the model gets.

    The sessions are those of Claude Code, Codex and Gemini CLI. Some records of Codex repeat a result for its display.
    """
    if not isinstance(message, Mapping) or "role" in message:
        return False
    if "type" not in message:
        return any(name in message for name in _GEMINI_CLI_FIELDS)
    kind = text_field(message, "type")
    return kind in _CLAUDE_CODE_RECORDS or (kind in _CODEX_RECORDS and isinstance(message.get("payload"), Mapping))


def unwrapped(message: Any) -> tuple[Path, Any]:
    """Return the path to the message in an object, and the message. A message by itself has an empty path.

    The objects are LangChain's saved messages, the records of Claude Code and of Codex, and the events of Google's
    Agent Development Kit.
    """
    kind = text_field(message, "type")
    if text_field(message, "role") or not (kind or get_field(message, "content") is not None):
        return (), message
    arguments, data = (get_field(message, name) for name in ("kwargs", "data"))
    if kind == "constructor" and isinstance(arguments, Mapping):
        name = next(reversed(items(get_field(message, "id"))), "")
        return ("kwargs",), {"type": name, **arguments}
    if kind in _SAVED_TYPES and isinstance(data, Mapping) and "content" in data:
        return ("data",), {"type": kind, **data}
    holder = "payload" if kind == "response_item" else "message"
    inner = get_field(message, holder)
    if kind and (text_field(inner, "role") or (holder == "payload" and isinstance(inner, Mapping))):
        return (holder,), inner
    content = get_field(message, "content")
    if not kind and isinstance(get_field(content, "parts"), list | tuple):
        role = text_field(content, "role") or ("user" if text_field(message, "author") == "user" else "model")
        return ("content",), {"role": role, "parts": get_field(content, "parts")}
    return (), message
