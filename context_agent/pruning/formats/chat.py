"""Messages of OpenAI's chat completions, of Anthropic and of LangChain."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent, MessageKind, Path
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import OPAQUE_PARTS, TEXT_PARTS, result_texts, text_of
from context_agent.pruning.formats.server_tools import OWN_RESULTS, SERVER_CALLS, add_server_tool


def read_tool_message(message: Any, index: int, kind: MessageKind) -> MessageContent:
    """Return the result in a tool message of OpenAI's chat or of LangChain.

    The older role `function` is accepted too.
    """
    reading = ContentCollector(index, kind)
    texts, reading.unknown = result_texts(get_field(message, "content"), ("content",), kind)
    answer = Call(text_field(message, "tool_call_id"), text_field(message, "name") or text_field(message, "tool_name"))
    reading.add_results(answer, texts, flagged=get_field(message, "status") == "error")
    return reading.content("tool")


def read_authored(message: Any, index: int, role: str, kind: MessageKind | None) -> MessageContent:
    """Return the content of a system, user or assistant message. Anthropic's user messages contain the tool results."""
    reading = ContentCollector(index, kind)
    content = get_field(message, "content")
    for number, part in enumerate([content] if isinstance(content, str) else items(content)):
        name = "text" if isinstance(part, str) else text_field(part, "type")
        if name == "tool_use":
            call = Call(text_field(part, "id"), text_field(part, "name"))
            if kind != "langchain":
                reading.add_call(call, get_field(part, "input"), ("content", number, "input"), "value")
                reading.kind = reading.kind or "anthropic"
        elif name == "tool_result":
            texts, more = result_texts(get_field(part, "content"), ("content", number, "content"), "anthropic")
            answer = Call(text_field(part, "tool_use_id"))
            reading.add_results(answer, texts, flagged=get_field(part, "is_error") is True)
            reading.unknown += more
            reading.kind = reading.kind or "anthropic"
        elif name in TEXT_PARTS:
            reading.words.append(part if isinstance(part, str) else text_of(part))
        elif role == "assistant" and (name in OWN_RESULTS or name in SERVER_CALLS):
            add_server_tool(reading, part, name, ("content", number))
            reading.kind = reading.kind or "anthropic"
        elif name not in OPAQUE_PARTS and not name.endswith("_tool_result"):
            reading.unknown.append(name)
    for number, call in enumerate(items(get_field(message, "tool_calls"))):
        _add_tool_call(reading, call, number)
    if (body := get_field(message, "function_call")) and text_field(body, "name") and not reading.calls:
        path: Path = ("function_call", "arguments")
        reading.add_call(Call("", text_field(body, "name")), get_field(body, "arguments"), path, "json")
        reading.kind = reading.kind or "openai"
    return reading.content("tool" if reading.answers and not any(reading.words) else role)


def _add_tool_call(reading: ContentCollector, call: Any, number: int) -> None:
    """Add a call of OpenAI's chat or of LangChain."""
    holder = next((name for name in ("function", "custom") if get_field(call, name)), "")
    body = get_field(call, holder) if holder else call
    name = next((name for name in ("arguments", "args", "input") if get_field(body, name) is not None), "arguments")
    arguments = get_field(body, name)
    path: Path = ("tool_calls", number, *((holder,) if holder else ()), name)
    form = written_form(name, is_text=isinstance(arguments, str))
    reading.add_call(Call(text_field(call, "id"), text_field(body, "name")), arguments, path, form)
    reading.kind = reading.kind or "openai"
