"""Values that contain a conversation, such as the body of a request, a saved state or a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONVERSATION_PATHS: tuple[tuple[str, ...], ...] = (
    ("messages",),
    ("input",),
    ("contents",),
    ("history",),
    ("chat_history",),
    ("events",),
    ("values", "messages"),
    ("inputs", "messages"),
    ("input", "messages"),
    ("gen_ai.input.messages",),
    ("attributes", "gen_ai.input.messages"),
)
"""The keys that lead to the messages: in bodies of requests, saved sessions, LangGraph's states, and traces."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A value and the conversation in it.

    Attributes:
        value: The value.
        path: The keys and the index that lead to the messages. It is empty if the value is the list of messages.
        messages: The messages.
        is_text: True if the value has the messages as a JSON text, as the attributes of traces have.
    """

    value: Any
    path: tuple[str | int, ...]
    messages: list[Any]
    is_text: bool = False

    def with_messages(self, messages: list[Any]) -> Any:
        """Return the value with other messages. What contains them is copied."""
        return _replaced(self.value, self.path, json.dumps(messages, ensure_ascii=False) if self.is_text else messages)


def find_conversation(value: Any) -> Bundle | None:
    """Return the conversation in a value. If there is none, return None.

    LangSmith has a list of conversations. If it has one conversation, that is returned.
    """
    if isinstance(value, list):
        return Bundle(value, (), value)
    for path in CONVERSATION_PATHS:
        found = value
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        is_text = isinstance(found, str) and path[-1].startswith("gen_ai.")
        messages = _decoded(found) if is_text else found
        if isinstance(messages, list):
            is_nested = len(messages) == 1 and isinstance(messages[0], list) and not is_text
            return Bundle(value, (*path, 0), messages[0]) if is_nested else Bundle(value, path, messages, is_text)
    return None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    key, *rest = path
    inner = _replaced(value[key], tuple(rest), new)
    return [inner] if isinstance(value, list) else {**value, key: inner}
