"""Objects that contain one message, such as an event or a saved message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Path
from context_agent.pruning.formats.fields import first_value, get_field, items, text_field

_SAVED_TYPES = ("human", "ai", "system", "tool", "function", "chat")
"""The types of LangChain's messages."""


_CODEX_RECORDS = frozenset((
    "session_meta", "turn_context", "world_state", "event_msg", "compacted", "inter_agent_communication",
    "inter_agent_communication_metadata",
))  # fmt: skip
_CLAUDE_CODE_RECORDS = frozenset((
    "summary", "file-history-snapshot", "queue-operation", "progress", "last-prompt", "custom-title", "ai-title",
    "agent-name", "pr-link", "permission-mode", "mode", "attachment", "rate_limit_event", "stream_event",
))  # fmt: skip
_PI_RECORDS = frozenset((
    "session", "session_info", "model_change", "thinking_level_change", "custom", "label", "branch_summary",
))  # fmt: skip
_COMPACTIONS = ("compact_boundary", "chat_compression")
_DROID_RECORDS = frozenset(("session_start", "session_end", "todo_state"))
_OPENING_FIELDS = ("$set", "$rewindTo", "projectHash", "working_dir", "record_type")
"""Fields of lines that begin or change a session of Gemini CLI, of Goose or of older versions of Codex."""


def is_session_record(message: Any) -> bool:
    """Return True if a line of a saved session is not a message that the model gets.

    The sessions are those of Claude Code, Codex, Gemini CLI, Pi, Goose, Droid and Kimi CLI. Some records of Codex
    repeat a result for its display. Claude Code has a subtype for each note to the user. Older versions of Codex begin
    with a line that has the instructions, and save their state between the messages. Kimi CLI has roles such as
    `_usage`. An event of Google's Agent Development Kit may only change the state or say that the model failed.
    """
    role = text_field(message, "role")
    is_event = not role and first_value(message, "invocation_id", "invocationId") is not None
    if is_event and get_field(message, "content") is None:
        return True
    if not isinstance(message, Mapping) or "role" in message:
        return role.startswith("_")
    if "type" not in message:
        # The messages that Pydantic AI saves have both fields, too, beside their parts.
        is_opening = "timestamp" in message and "instructions" in message and "parts" not in message
        return is_opening or any(name in message for name in _OPENING_FIELDS)
    kind = text_field(message, "type")
    # A new kind of record of Claude Code, such as one with a copy of a request. Its messages have a `uuid`.
    if "sessionId" in message and "uuid" not in message:
        return True
    if kind in _CLAUDE_CODE_RECORDS | _PI_RECORDS | _DROID_RECORDS or (
        kind in ("system", "result") and "subtype" in message
    ):
        return True
    return kind in _CODEX_RECORDS and isinstance(message.get("payload"), Mapping)


def is_compaction_record(record: Any) -> bool:
    """Return True if a record says that the agent replaced all earlier messages with a summary.

    Claude Code notes a boundary before the summary. The records of Codex and of Qwen Code contain what remains.
    """
    return text_field(record, "type") == "compacted" or text_field(record, "subtype") in _COMPACTIONS


def unwrapped(message: Any) -> tuple[Path, Any]:
    """Return the path to the message in an object, and the message. A message by itself has an empty path.

    The objects are LangChain's saved messages, the records of Claude Code and of Codex, the events of Google's Agent
    Development Kit and of OpenHands, the saved messages of Continue and of Strands, and the messages in traces of
    OpenInference.
    """
    kind = text_field(message, "type")
    holders = () if kind else ("message", "llm_message")
    held = next((name for name in holders if text_field(get_field(message, name), "role")), "")
    if text_field(message, "role") or not (kind or held or get_field(message, "content") is not None):
        return (), message
    arguments, data = (get_field(message, name) for name in ("kwargs", "data"))
    if kind == "constructor" and isinstance(arguments, Mapping):
        name = next(reversed(items(get_field(message, "id"))), "")
        return ("kwargs",), {"type": name, **arguments}
    if kind in _SAVED_TYPES and isinstance(data, Mapping) and "content" in data:
        return ("data",), {"type": kind, **data}
    holder = held or ("payload" if kind == "response_item" else "message")
    inner = get_field(message, holder)
    if (kind or held) and (text_field(inner, "role") or (holder == "payload" and isinstance(inner, Mapping))):
        return (holder,), inner
    content = get_field(message, "content")
    if not kind and isinstance(get_field(content, "parts"), list | tuple):
        role = text_field(content, "role") or ("user" if text_field(message, "author") == "user" else "model")
        return ("content",), {"role": role, "parts": get_field(content, "parts")}
    return (), message
