"""Messages of LlamaIndex, whose content is a list of blocks."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.chat import add_tool_call
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_text

_OPAQUE = ("image", "audio", "video", "document", "cache", "citable", "citation")


def is_llamaindex(message: Any) -> bool:
    """Return True if a message has blocks."""
    return isinstance(get_field(message, "blocks"), list | tuple)


def read_llamaindex(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message of LlamaIndex. Older models have their calls outside the blocks."""
    reading = ContentCollector(index, "llamaindex")
    more = get_field(message, "additional_kwargs")
    texts = []
    for number, block in enumerate(items(get_field(message, "blocks"))):
        kind, path = text_field(block, "block_type"), ("blocks", number)
        if kind == "text":
            texts.append(result_text((*path, "text"), text_field(block, "text")))
        elif kind == "thinking":
            reading.words.append(text_field(block, "content"))
        elif kind == "tool_call":
            arguments = get_field(block, "tool_kwargs")
            call = Call(text_field(block, "tool_call_id"), text_field(block, "tool_name"))
            form = written_form("arguments", is_text=isinstance(arguments, str))
            reading.add_call(call, arguments, (*path, "tool_kwargs"), form)
        elif kind not in _OPAQUE:
            reading.unknown.append(kind)
    if role == "tool":
        reading.add_results(Call(text_field(more, "tool_call_id"), text_field(more, "name")), texts, flagged=False)
    else:
        for text in texts:
            reading.add_text(text.path, text.text)
    if not reading.calls:
        for number, call in enumerate(items(get_field(more, "tool_calls"))):
            add_tool_call(reading, call, ("additional_kwargs", "tool_calls", number))
        reading.kind = "llamaindex"
    return reading.content(role)
