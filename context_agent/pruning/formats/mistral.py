"""Entries of Mistral's Conversations API that are not messages."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, text_field
from context_agent.pruning.formats.parts import result_texts

MISTRAL_ENTRIES = frozenset(("function.call", "function.result", "tool.execution", "agent.handoff"))
MISTRAL_MESSAGES = frozenset(("message.input", "message.output"))
"""The types of entries that are messages. They have a role and a content."""


def read_mistral(entry: Any, index: int) -> MessageContent:
    """Return the content of an entry that is not a message. Results of Mistral's own tools are not in the entries."""
    reading, kind = ContentCollector(index, "mistral"), text_field(entry, "type")
    call = Call(text_field(entry, "tool_call_id"), text_field(entry, "name"))
    if kind == "function.result":
        texts, reading.unknown = result_texts(get_field(entry, "result"), ("result",), "mistral")
        reading.add_results(call, texts, flagged=False)
        return reading.content("tool")
    arguments = get_field(entry, "arguments")
    if kind == "function.call":
        form = written_form("arguments", is_text=isinstance(arguments, str))
        reading.add_call(call, arguments, ("arguments",), form)
    elif arguments:
        reading.add_words(call.name, arguments)
    return reading.content("assistant")
