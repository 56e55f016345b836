"""Events of `codex exec --json`. A finished call and its result are one event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import asked, first_value, get_field, items, text_field
from context_agent.pruning.formats.parts import result_text, result_texts

_DOMAINS = ("thread", "turn", "item")
_FINISHED = "item.completed"


def is_codex_exec(message: Any) -> bool:
    """Return True if a message without a role is an event of a thread, of a turn, or of an item of a turn."""
    domain, dot, _ = text_field(message, "type").partition(".")
    is_item = isinstance(get_field(message, "item"), Mapping)
    return bool(dot) and domain in _DOMAINS and (is_item or domain != "item")


def read_codex_exec(message: Any, index: int) -> MessageContent:
    """Return the content of an event.

    Only finished items count. Events before them repeat parts of them, and the other events have no text.
    """
    item = get_field(message, "item")
    kind = text_field(item, "type") or text_field(item, "item_type")
    if text_field(message, "type") != _FINISHED:
        return MessageContent("unknown")
    reading = ContentCollector(index, "openai")
    key, failed = text_field(item, "id"), text_field(item, "status") in ("failed", "declined")
    if kind == "command_execution":
        command = {"command": get_field(item, "command")}
        reading.add_words("shell", command)
        output = result_text(("item", "aggregated_output"), text_field(item, "aggregated_output"))
        reading.add_own_results(key, [replace(output, asked=asked(command))], flagged=failed)
    elif kind == "mcp_tool_call":
        own = Call(key, text_field(item, "tool"))
        reading.add_own_call(own, get_field(item, "arguments"), ("item", "arguments"))
        texts, unknown = result_texts(
            get_field(get_field(item, "result"), "content"), ("item", "result", "content"), "openai"
        )
        error = text_field(get_field(item, "error"), "message")
        texts += [result_text(("item", "error", "message"), error)] if error else []
        reading.unknown += unknown
        reading.add_own_results(key, texts, flagged=failed or bool(error))
    elif kind in ("agent_message", "assistant_message", "reasoning"):
        reading.words.append(text_field(item, "text"))
    elif kind == "user_message":
        reading.words.append(str(first_value(item, "text", "message") or ""))
        return reading.content("user")
    elif kind in ("file_change", "web_search", "todo_list"):
        planned = [text_field(entry, "text") for entry in items(get_field(item, "items"))]
        changed = [text_field(entry, "path") for entry in items(get_field(item, "changes"))]
        reading.words += filter(None, [text_field(item, "query"), *changed, *planned])
    else:
        return MessageContent("unknown")
    return reading.authored("assistant")
