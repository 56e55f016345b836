"""Messages of chats that Claude.ai exports. A message of the agent has its calls and their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import TEXT_PARTS, result_texts, text_of

_SENDERS = {"human": "user", "assistant": "assistant"}


def is_claude_ai(message: Any) -> bool:
    """Return True if a message without a role names its sender and has an id."""
    is_mapping = isinstance(message, Mapping)
    return is_mapping and text_field(message, "sender") in _SENDERS and bool(text_field(message, "uuid"))


def read_claude_ai(message: Any, index: int) -> MessageContent:
    """Return the content of a message. Older exports have the words in `text` alone."""
    reading = ContentCollector(index, "anthropic")
    parts = items(get_field(message, "content"))
    if not parts:
        reading.words.append(text_field(message, "text"))
    for number, part in enumerate(parts):
        name, path = text_field(part, "type"), ("content", number)
        if name == "tool_use":
            own = Call(text_field(part, "id"), text_field(part, "name"))
            reading.add_own_call(own, get_field(part, "input"), (*path, "input"))
        elif name == "tool_result":
            texts, unknown = result_texts(get_field(part, "content"), (*path, "content"), "anthropic")
            reading.unknown += unknown
            key = text_field(part, "tool_use_id") or text_field(part, "name")
            reading.add_own_results(key, texts, flagged=get_field(part, "is_error") is True)
        elif name in TEXT_PARTS:
            reading.words.append(text_of(part))
        else:
            reading.unknown += [] if name == "token_budget" else [name]
    return reading.content(_SENDERS[text_field(message, "sender")])
