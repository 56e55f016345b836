"""Events in the sessions of GitHub's Copilot CLI and of its SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_text

_AUTHORS = {"system.message": "system", "user.message": "user", "assistant.message": "assistant"}
_RESULT = "tool.execution_complete"
_DOMAINS = ("system", "user", "assistant", "tool", "session", "subagent", "skill", "hook", "permission", "abort")


def is_copilot_cli(message: Any) -> bool:
    """Return True if a message without a role has a dotted type and data."""
    domain, dot, _ = text_field(message, "type").partition(".")
    return domain in _DOMAINS and (bool(dot) or domain == "abort") and isinstance(get_field(message, "data"), Mapping)


def read_copilot_cli(message: Any, index: int) -> MessageContent:
    """Return the content of an event.

    An event that only the user sees is passed through. So is the longer form of a result, which is for display.
    """
    kind, data = text_field(message, "type"), get_field(message, "data")
    reading = ContentCollector(index, "openai")
    if kind == _RESULT:
        result, error = get_field(data, "result"), text_field(get_field(data, "error"), "message")
        if text := text_field(result, "content"):
            texts = [result_text(("data", "result", "content"), text)]
        else:
            texts = [result_text(("data", "error", "message"), error)] if error else []
        answer = Call(text_field(data, "toolCallId"), text_field(data, "toolName"))
        reading.add_results(answer, texts, flagged=get_field(data, "success") is False)
        return reading.content("tool")
    if kind not in _AUTHORS:
        return MessageContent("unknown")
    reading.words.append(text_field(data, "content"))
    for number, call in enumerate(items(get_field(data, "toolRequests"))):
        arguments = get_field(call, "arguments")
        form = written_form("arguments", is_text=isinstance(arguments, str))
        own = Call(text_field(call, "toolCallId"), text_field(call, "name"))
        reading.add_call(own, arguments, ("data", "toolRequests", number, "arguments"), form)
    return reading.content(_AUTHORS[kind])
