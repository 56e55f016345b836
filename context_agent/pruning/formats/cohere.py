"""Entries of the chat history of Cohere's first chat API. Their roles have capital letters."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.chat import add_tool_call
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import value_texts

_ROLES = {"USER": "user", "CHATBOT": "assistant", "SYSTEM": "system", "TOOL": "tool"}


def is_cohere_entry(entry: Any, role: str) -> bool:
    """Return True if an object with this role has the fields of an entry of the chat history."""
    return role in _ROLES and any(
        get_field(entry, name) is not None for name in ("message", "tool_calls", "tool_results")
    )


def read_cohere(entry: Any, index: int) -> MessageContent:
    """Return the content of an entry of the chat history."""
    reading = ContentCollector(index, "cohere")
    reading.words.append(text_field(entry, "message"))
    for number, call in enumerate(items(get_field(entry, "tool_calls"))):
        add_tool_call(reading, call, ("tool_calls", number))
    for number, result in enumerate(items(get_field(entry, "tool_results"))):
        path = ("tool_results", number, "outputs")
        outputs = items(get_field(result, "outputs"))
        texts = [text for row, value in enumerate(outputs) for text in value_texts((*path, row), value)]
        reading.add_results(Call("", text_field(get_field(result, "call"), "name")), texts, flagged=False)
    return reading.authored(_ROLES[text_field(entry, "role")])
