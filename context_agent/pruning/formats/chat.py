"""Messages of OpenAI's chat completions, of Anthropic, of Cohere, of harmony, of LangChain and of AG-UI.

AG-UI has OpenAI's messages with names such as `toolCallId`. So has Continue. Pi and OpenClaw have such results too, and
calls as parts of the content. The messages of MCP's sampling are like Anthropic's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import Call, Form, MessageContent, MessageKind, Path
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import first_field, get_field, is_of_program, is_signed, items, text_field
from context_agent.pruning.formats.parts import (
    OPAQUE_PARTS,
    TEXT_PARTS,
    result_text,
    result_texts,
    text_of,
    value_texts,
)
from context_agent.pruning.formats.responses import is_item
from context_agent.pruning.formats.server_tools import OWN_RESULTS, SERVER_CALLS, add_server_tool
from context_agent.pruning.formats.text_results import section_texts, tagged_sections

TOOL_CALL_ROLE = "tool-call"
"""The role of a message of smolagents that has only the text of a call."""


def read_tool_message(message: Any, index: int, kind: MessageKind | None) -> MessageContent:
    """Return the result in a tool message of OpenAI's chat, of Cohere, of harmony or of LangChain.

    The older role `function` is accepted too. In harmony, the author of the message has the name of the tool.
    """
    content, author = get_field(message, "content"), get_field(message, "author")
    if kind is None:
        kind = "cohere" if any(get_field(part, "document") is not None for part in items(content)) else "openai"
    reading = ContentCollector(index, kind)
    texts, reading.unknown = result_texts(content, ("content",), kind)
    if isinstance(content, Mapping):
        reading.unknown = ["content that is neither a text nor a list"]
    own_names = (text_field(message, name) for name in ("name", "tool_name", "toolName"))
    names = (*own_names, text_field(author, "name"))
    camel_id = text_field(message, "toolCallId")
    answer = Call(text_field(message, "tool_call_id") or camel_id, next(filter(None, names), ""))
    if not answer.id and isinstance(content, str) and (sections := tagged_sections(content)):
        texts = section_texts(("content",), content, sections)
    has_error = bool(camel_id and (get_field(message, "error") or get_field(message, "isError") is True))
    reading.add_results(answer, texts, flagged=get_field(message, "status") == "error" or has_error)
    return reading.content("tool")


def read_authored(message: Any, index: int, role: str, kind: MessageKind | None) -> MessageContent:
    """Return the content of a system, user or assistant message. Anthropic's user messages have the tool results."""
    reading = ContentCollector(index, kind)
    content = get_field(message, "content")
    answered = {text_field(part, "tool_use_id") for part in items(content)}
    # The messages of MCP's sampling may have a single part in place of a list.
    is_single = isinstance(content, str) or bool(text_field(content, "type"))
    for number, part in enumerate([content] if is_single else items(content)):
        path: Path = ("content",) if is_single else ("content", number)
        name = "text" if isinstance(part, str) else text_field(part, "type")
        if kind == "langchain" and is_of_program(part):
            # The call itself is outside the content.
            reading.program_calls |= {text_field(part, "id"), text_field(part, "call_id")} - {""}
        if name == "tool_use":
            call = Call(text_field(part, "id"), text_field(part, "name"), is_of_program(part))
            if kind != "langchain":
                reading.add_call(call, get_field(part, "input"), (*path, "input"), "value")
                reading.kind = reading.kind or "anthropic"
        elif name == "toolCall":
            call = Call(text_field(part, "id"), text_field(part, "name"))
            signed = bool(get_field(part, "thoughtSignature"))
            reading.add_call(call, get_field(part, "arguments"), (*path, "arguments"), "value", fixed=signed)
        elif name == "tool_result":
            _add_result(reading, path, part)
            reading.kind = reading.kind or "anthropic"
        elif name in TEXT_PARTS or text_field(part, "transcript") or (not name and _has_text(part)):
            _add_text(reading, path, part)
        elif role == "assistant" and (name in OWN_RESULTS or name in SERVER_CALLS):
            is_waiting = name in SERVER_CALLS and text_field(part, "id") not in answered
            add_server_tool(reading, part, name, path, is_waiting=is_waiting)
            reading.kind = reading.kind or "anthropic"
        elif name == "compaction":
            summary = get_field(part, "content")
            # Without a summary, the compaction failed.
            if isinstance(summary, str):
                reading.words.append(summary)
                reading.is_compaction = True
        elif not _is_opaque(name, kind):
            reading.unknown.append(name)
    _add_calls(reading, message)
    return reading.authored(role)


def _is_opaque(name: str, kind: MessageKind | None) -> bool:
    """Return True if a part of this type is known, but has no text that pruning may change."""
    return name in OPAQUE_PARTS or name.endswith("_tool_result") or (kind == "langchain" and is_item(name))


def _has_text(part: Any) -> bool:
    return isinstance(get_field(part, "text"), str)


def _add_text(reading: ContentCollector, path: Path, part: Any) -> None:
    """Add a text part, which is a text or has one."""
    if isinstance(part, str):
        reading.add_text(path, part)
    elif _has_text(part):
        reading.add_text((*path, "text"), text_of(part))
    else:
        reading.words.append(text_of(part))


def _add_result(reading: ContentCollector, path: Path, part: Any) -> None:
    """Add the result in a part. The threads of Amp have the run of the tool in place of a content."""
    run = get_field(part, "run")
    if run is None:
        texts, unknown = result_texts(get_field(part, "content"), (*path, "content"), "anthropic")
        reading.unknown += unknown
        answer, failed = Call(text_field(part, "tool_use_id")), get_field(part, "is_error") is True
    else:
        name, result = first_field(run, "result", "progress")
        here = (*path, "run", name)
        texts = [result_text(here, result)] if isinstance(result, str) else value_texts(here, result)
        answer, failed = Call(text_field(part, "toolUseID")), text_field(run, "status") in _FAILED_RUNS
    reading.add_results(answer, texts, flagged=failed)


_FAILED_RUNS = ("error", "cancelled", "rejected-by-user")


def is_harmony_call(message: Any) -> bool:
    """Return True if a message of harmony calls a tool. Its channel distinguishes it from other formats."""
    recipient = text_field(message, "recipient") if text_field(message, "channel") else ""
    return recipient not in ("", "all", "user", "assistant")


def read_harmony_call(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message of harmony whose text has the arguments of a call."""
    reading = ContentCollector(index, "openai")
    content = get_field(message, "content")
    part = content if isinstance(content, str) else next(iter(items(content)), "")
    path: Path = ("content",) if isinstance(content, str) else ("content", 0, "text")
    arguments = part if isinstance(part, str) else text_of(part)
    form: Form = "json" if arguments.lstrip().startswith("{") else "text"
    reading.add_call(Call("", text_field(message, "recipient")), arguments, path, form)
    return reading.content(role)


def _add_calls(reading: ContentCollector, message: Any) -> None:
    """Add the calls that are outside the content of a message."""
    parts = items(get_field(message, "content")) if reading.kind == "langchain" else ()
    sent = {text_field(part, "call_id"): number for number, part in enumerate(parts) if _is_sent_call(part)}
    for name in ("tool_calls", "toolCalls"):
        for number, call in enumerate(items(get_field(message, name))):
            if (item := sent.get(text_field(call, "id"))) is None:
                add_tool_call(reading, call, (name, number))
            else:
                _add_sent_call(reading, call, (name, number, "args"), parts[item], ("content", item, "arguments"))
    if (plan := get_field(message, "tool_plan")) is not None:
        reading.words += [plan] if isinstance(plan, str) else []
        reading.kind = "cohere"
    if text_field(message, "role") == TOOL_CALL_ROLE and not reading.calls:
        reading.calls.append(Call())
    if (body := get_field(message, "function_call")) and text_field(body, "name") and not reading.calls:
        path: Path = ("function_call", "arguments")
        reading.add_call(Call("", text_field(body, "name")), get_field(body, "arguments"), path, "json")
        reading.kind = reading.kind or "openai"


def _is_sent_call(part: Any) -> bool:
    return text_field(part, "type") in ("function_call", "custom_tool_call") and bool(text_field(part, "call_id"))


def _add_sent_call(reading: ContentCollector, call: Any, path: Path, item: Any, item_path: Path) -> None:
    """Add a call of LangChain that the content has, too, as an item of OpenAI's Responses API.

    LangChain sends the item. The arguments of both change together. If they differ, as those of a custom tool do, they
    stay whole.
    """
    value, text = get_field(call, "args"), text_field(item, "arguments")
    try:
        is_same = bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        is_same = False
    call_id = text_field(call, "id")
    own = Call(call_id, text_field(call, "name"), call_id in reading.program_calls)
    count = len(reading.arguments)
    reading.add_call(own, text if is_same else value, item_path, "json", fixed=not is_same)
    reading.arguments[count:] = [replace(arguments, repeats=(path,)) for arguments in reading.arguments[count:]]


def add_tool_call(reading: ContentCollector, call: Any, path: Path) -> None:
    """Add a call of OpenAI's chat, of Cohere or of LangChain."""
    holder = next((name for name in ("function", "custom") if get_field(call, name)), "")
    body = get_field(call, holder) if holder else call
    names = ("arguments", "args", "input", "parameters")
    name = next((name for name in names if get_field(body, name) is not None), "arguments")
    arguments = get_field(body, name)
    form = written_form(name, is_text=isinstance(arguments, str))
    own_path = (*path, *((holder,) if holder else ()), name)
    call_id = text_field(call, "id")
    own = Call(call_id, text_field(body, "name"), call_id in reading.program_calls or is_of_program(call))
    reading.add_call(own, arguments, own_path, form, fixed=is_signed(call))
    reading.kind = reading.kind or "openai"
