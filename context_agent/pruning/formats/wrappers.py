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
_REMOVAL = "remove"
"""The type of LangChain's message that removes another one."""
_REALTIME_DOMAINS = frozenset((
    "session", "conversation", "response", "input_audio_buffer", "output_audio_buffer", "rate_limits",
))  # fmt: skip
_NEW_ITEMS = ("conversation.item.created", "conversation.item.added")
_TRANSCRIPTION = "conversation.item.input_audio_transcription.completed"
_NO_NODES = frozenset(("inputs", "outputs", "input", "output", "values", "state", "request", "response", "body"))
"""Keys that hold a whole conversation in logs of requests and of states."""
_COMPACTIONS = ("compact_boundary", "chat_compression")
_DROID_RECORDS = frozenset(("session_start", "session_end", "todo_state"))
_OPENING_FIELDS = ("$set", "$rewindTo", "projectHash", "working_dir", "record_type")
"""Fields of lines that begin or change a session of Gemini CLI, of Goose or of older versions of Codex."""


def is_session_record(message: Any) -> bool:
    """Return True if a line of a saved session is not a message that the model gets.

    The sessions are those of Claude Code, Codex, Gemini CLI, Pi, Goose, Droid and Kimi CLI. Some records of Codex
    repeat a result for its display. Claude Code has a subtype for each note to the user. Older versions of Codex begin
    with a line that has the instructions, and save their state between the messages. Kimi CLI has roles such as
    `_usage`. An event of Google's Agent Development Kit may only change the state or say that the model failed. Most
    events of OpenAI's Realtime API repeat parts of an item, and a node of LangGraph may change nothing.
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
        return is_opening or _is_empty_update(message) or any(name in message for name in _OPENING_FIELDS)
    kind = text_field(message, "type")
    # A new kind of record of Claude Code, such as one with a copy of a request. Its messages have a `uuid`.
    if _is_realtime_event(message) or ("sessionId" in message and "uuid" not in message):
        return True
    if kind in _CLAUDE_CODE_RECORDS | _PI_RECORDS | _DROID_RECORDS | {_REMOVAL} or (
        kind in ("system", "result") and "subtype" in message
    ):
        return True
    return kind in _CODEX_RECORDS and isinstance(message.get("payload"), Mapping)


def is_compaction_record(record: Any) -> bool:
    """Return True if a record says that the agent replaced all earlier messages with a summary.

    Claude Code notes a boundary before the summary. The records of Codex and of Qwen Code contain what remains. An
    agent of LangChain removes all messages and repeats those that remain.
    """
    is_removal = text_field(record, "type") == _REMOVAL and text_field(record, "id") == "__remove_all__"
    return is_removal or text_field(record, "type") == "compacted" or text_field(record, "subtype") in _COMPACTIONS


def held_messages(message: Any) -> list[tuple[Path, Any]]:
    """Return the messages in an event that may have several, each with its path.

    The events are updates of LangGraph's streams, and events of OpenAI's Realtime API. For any other message, the list
    is empty.
    """
    if not isinstance(message, Mapping) or "role" in message:
        return []
    return _realtime_items(message) if _is_realtime_event(message) else _updated_messages(message)


def _is_realtime_event(message: Mapping[str, Any]) -> bool:
    """Return True for an event of the Realtime API. Events of the Responses API have a number and no id."""
    kind = text_field(message, "type")
    domain, dot, _ = kind.partition(".")
    has_id = bool(text_field(message, "event_id"))
    return (has_id and kind == "error") or (
        bool(dot) and domain in _REALTIME_DOMAINS and (has_id or domain != "response")
    )


def _realtime_items(event: Mapping[str, Any]) -> list[tuple[Path, Any]]:
    """Return the items that an event adds to the conversation.

    The server repeats each item. An item of the client counts when it is new, and one of the model when its response is
    done.
    """
    kind, item = text_field(event, "type"), get_field(event, "item")
    if kind == "response.done":
        output = items(get_field(get_field(event, "response"), "output"))
        return [(("response", "output", number), entry) for number, entry in enumerate(output)]
    if kind == _TRANSCRIPTION:
        return [((), {"role": "user", "content": text_field(event, "transcript")})]
    is_started = text_field(item, "status") == "in_progress" or not (
        get_field(item, "content") or get_field(item, "arguments") or get_field(item, "output") is not None
    )
    return [(("item",), item)] if kind in _NEW_ITEMS and not is_started else []


def _is_empty_update(message: Mapping[str, Any]) -> bool:
    """Return True for an update of LangGraph without a change, or for an interruption."""
    is_empty = all(update is None or get_field(update, "messages") == [] for update in message.values())
    return "__interrupt__" in message or (bool(message) and is_empty)


def _updated_messages(update: Mapping[str, Any]) -> list[tuple[Path, Any]]:
    """Return the messages that the nodes of a graph added in an update of LangGraph.

    A list that begins with a message of the user is a whole conversation, not an update, unless it has no other.
    """
    found: list[tuple[Path, Any]] = []
    for node, changes in update.items():
        if node in _NO_NODES or not (changes is None or isinstance(changes, Mapping)):
            return []
        added = get_field(changes, "messages")
        path: Path = (node, "messages")
        entries = [((*path, number), entry) for number, entry in enumerate(items(added))] or [(path, added)]
        kind = _langchain_type(entries[0][1])
        if added and (not kind or (kind in ("human", "system") and len(entries) > 1)):
            return []
        found += entries if added else []
    return found


def _langchain_type(message: Any) -> str:
    """Return the type of a message of LangChain. If the message has another format, return an empty string."""
    kind = text_field(message, "type")
    if kind == "constructor":
        kind = str(next(reversed(items(get_field(message, "id"))), "")).removesuffix("Message").lower()
    return kind if kind in (*_SAVED_TYPES, _REMOVAL) and not text_field(message, "role") else ""


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
