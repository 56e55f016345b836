"""Saved conversations of Kiro CLI, and of Amazon Q Developer CLI before it.

A saved conversation has entries of an input, which is from the user or from tools, and the response of the agent. A
line of a session of Kiro CLI has one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path, ResultText
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_text, value_texts

_INPUTS = ("Prompt", "ToolUseResults", "CancelledToolUses")
_RESPONSES = ("Response", "ToolUse")
_LINES = {"Prompt": "user", "AssistantMessage": "assistant", "ToolResults": "tool"}
_FAILED = ("error", "failure")


def is_kiro_entry(message: Any) -> bool:
    """Return True if a message is an entry: an object with `user` and `assistant`, or a list of both."""
    content = get_field(_of_entry(message, "user")[1], "content")
    return isinstance(content, Mapping) and any(isinstance(content.get(name), Mapping) for name in _INPUTS)


def read_kiro_entry(message: Any, index: int) -> MessageContent:
    """Return the content of the input of an entry. The response of the agent is a later content."""
    path, user = _of_entry(message, "user")
    content = get_field(user, "content")
    name = next(name for name in _INPUTS if isinstance(content.get(name), Mapping))
    held, path = content[name], (*path, "content", name)
    reading = ContentCollector(index, "bedrock")
    reading.words.append(text_field(held, "prompt"))
    for number, result in enumerate(items(get_field(held, "tool_use_results"))):
        here = (*path, "tool_use_results", number, "content")
        texts = [
            text
            for row, block in enumerate(items(get_field(result, "content")))
            for kind in ("Text", "Json")
            for text in _texts((*here, row, kind), get_field(block, kind))
        ]
        failed = text_field(result, "status").lower() in _FAILED
        reading.add_results(Call(text_field(result, "tool_use_id")), texts, flagged=failed)
    response = _read_response(message, index + 1)
    return replace(reading.authored("user"), later=(response,) if response else ())


def is_kiro_line(message: Any) -> bool:
    """Return True if a message without a role is a line of a session of Kiro CLI."""
    return text_field(message, "kind") in _LINES and isinstance(get_field(message, "data"), Mapping)


def read_kiro_line(message: Any, index: int) -> MessageContent:
    """Return the content of a line of a session."""
    reading = ContentCollector(index, "bedrock")
    for number, part in enumerate(items(get_field(get_field(message, "data"), "content"))):
        kind, held, path = text_field(part, "kind"), get_field(part, "data"), ("data", "content", number, "data")
        if kind == "text" and isinstance(held, str):
            reading.words.append(held)
        elif kind == "toolUse":
            own = Call(text_field(held, "toolUseId"), text_field(held, "name"))
            reading.add_call(own, get_field(held, "input"), (*path, "input"), "value")
        elif kind == "toolResult":
            failed = text_field(held, "status").lower() in _FAILED
            texts = _line_texts(get_field(held, "content"), (*path, "content"))
            reading.add_results(Call(text_field(held, "toolUseId")), texts, flagged=failed)
    return reading.authored(_LINES[text_field(message, "kind")])


def _line_texts(content: Any, path: Path) -> list[ResultText]:
    if isinstance(content, str):
        return [result_text(path, content)]
    blocks = [(row, block) for row, block in enumerate(items(content)) if text_field(block, "kind") in ("text", "json")]
    return [text for row, block in blocks for text in _texts((*path, row, "data"), get_field(block, "data"))]


def _of_entry(message: Any, name: str) -> tuple[Path, Any]:
    """Return the path to the input or to the response in an entry, and the value there."""
    if isinstance(message, list | tuple) and len(message) == len(("user", "assistant")):
        place = ("user", "assistant").index(name)
        return (place,), message[place]
    return (name,), get_field(message, name)


def _texts(path: Path, value: Any) -> list[ResultText]:
    return [result_text(path, value)] if isinstance(value, str) else value_texts(path, value)


def _read_response(message: Any, index: int) -> MessageContent | None:
    path, response = _of_entry(message, "assistant")
    name = next((name for name in _RESPONSES if isinstance(get_field(response, name), Mapping)), "")
    if not name:
        return None
    held = get_field(response, name)
    reading = ContentCollector(index, "bedrock")
    reading.words.append(text_field(held, "content"))
    for number, call in enumerate(items(get_field(held, "tool_uses"))):
        own, here = Call(text_field(call, "id"), text_field(call, "name")), (*path, name, "tool_uses", number, "args")
        reading.add_call(own, get_field(call, "args"), here, "value")
    return reading.content("assistant")
