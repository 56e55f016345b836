"""Messages of ShareGPT's format, in which data sets and exported chats are saved. They have `from` and `value`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, Form, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import MOST_READ, text_field
from context_agent.pruning.formats.parts import result_text
from context_agent.pruning.formats.text_results import section_texts, tagged_sections

_CALL = "function_call"
_AUTHORS = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "model": "assistant", _CALL: "assistant", "observation": "tool", "tool": "tool", "function_response": "tool",
}  # fmt: skip


def is_sharegpt(message: Any) -> bool:
    """Return True if a message says who wrote it in the field `from`."""
    is_mapping = isinstance(message, Mapping)
    return is_mapping and bool(text_field(message, "from")) and isinstance(message.get("value"), str)


def read_sharegpt(message: Any, index: int) -> MessageContent:
    """Return the content of a message. The value of a call has its name and arguments as JSON."""
    author, value = text_field(message, "from"), text_field(message, "value")
    reading = ContentCollector(index, "openai")
    if author not in _AUTHORS:
        return MessageContent("unknown", unknown=(author,))
    if author == _CALL:
        form: Form = "json" if value.lstrip().startswith(("{", "[")) else "text"
        reading.add_call(Call("", _name(value)), value, ("value",), form)
        return reading.content("assistant")
    if _AUTHORS[author] == "tool":
        sections = tagged_sections(value)
        texts = section_texts(("value",), value, sections) if sections else [result_text(("value",), value)]
        reading.add_results(Call(), texts, flagged=False)
        return reading.content("tool")
    reading.add_text(("value",), value)
    return reading.authored(_AUTHORS[author])


def _name(call: str) -> str:
    """Return the name of the tool that a call as JSON names. Several calls have no common name."""
    try:
        return text_field(json.loads(call), "name") if len(call) <= MOST_READ else ""
    except (ValueError, RecursionError):
        return ""
