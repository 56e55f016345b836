"""Messages of the Vercel AI SDK's user interface. A message of the assistant has all steps, with calls and results."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import first_field, get_field, is_of_program, is_signed, items, text_field
from context_agent.pruning.formats.parts import result_text, value_texts

_INVOCATION = "tool-invocation"
_OPAQUE = ("file", "source", "source-url", "source-document", "step-start")


def is_vercel_ui(message: Any) -> bool:
    """Return True if a message has the parts of the user interface, or the invocations of its older versions.

    A text in its parts has the field `text`. OpenTelemetry's messages have a field `content` instead.
    """
    parts = items(get_field(message, "parts"))
    return bool(items(get_field(message, "toolInvocations"))) or (bool(parts) and all(map(_is_part, parts)))


def _type(part: Any) -> str:
    return text_field(part, "type")


def _is_part(part: Any) -> bool:
    kind = _type(part)
    if not isinstance(part, dict) or (kind in ("text", "reasoning") and "content" in part):
        return False
    return kind in ("text", "reasoning", "dynamic-tool", *_OPAQUE) or kind.startswith(("tool-", "data-"))


def read_vercel_ui(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message of the user interface."""
    reading = ContentCollector(index, "vercel")
    parts = items(get_field(message, "parts"))
    for number, part in enumerate(parts):
        kind, path = _type(part), ("parts", number)
        if kind == _INVOCATION:
            _add_tool(reading, get_field(part, "toolInvocation"), "", (*path, "toolInvocation"))
        elif kind.startswith("tool-") or kind == "dynamic-tool":
            _add_tool(reading, part, kind.removeprefix("tool-"), path)
        elif text := text_field(part, "text") or text_field(part, "reasoning"):
            reading.words.append(text)
    if not any(_type(part) == "text" for part in parts):
        reading.words.append(text_field(message, "content"))
    # Older versions list each invocation here too. What is shown to the model are the parts.
    if not parts:
        for number, invocation in enumerate(items(get_field(message, "toolInvocations"))):
            _add_tool(reading, invocation, "", ("toolInvocations", number))
    return reading.content(role)


def _add_tool(reading: ContentCollector, tool: Any, name: str, path: Path) -> None:
    """Add the arguments and the result of a tool."""
    field, arguments = first_field(tool, "input", "args")
    if field:
        call = Call(text_field(tool, "toolCallId"), text_field(tool, "toolName") or name)
        if is_of_program(tool):
            reading.add_words(call.name, arguments)
            return
        if is_signed(tool):
            reading.add_words(call.name, arguments)
        else:
            reading.add_own_call(call, arguments, (*path, field))
    field, output = first_field(tool, "output", "result", "errorText")
    # The provider runs this tool. Its results are often signed.
    if not field or get_field(tool, "providerExecuted") is True:
        return
    texts = [result_text((*path, field), output)] if isinstance(output, str) else value_texts((*path, field), output)
    failed = text_field(tool, "state") == "output-error"
    reading.add_own_results(text_field(tool, "toolCallId"), texts, flagged=failed)
