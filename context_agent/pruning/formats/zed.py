"""Messages in the threads of Zed. A message of the agent has its calls and their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path, ResultText
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_text

_AUTHORS = {"User": "user", "Agent": "assistant"}
_COMPACTION = "Compaction"
_RESUME = "Resume"
"""A message that stands for the user's request to go on."""


def is_zed(message: Any) -> bool:
    """Return True if a message has only the name of its author as a key, or says that the agent went on."""
    if not isinstance(message, Mapping):
        return isinstance(message, str) and message == _RESUME
    names = [name for name in (*_AUTHORS, _COMPACTION) if isinstance(message.get(name), Mapping)]
    return len(names) == len(message) == 1


def read_zed(message: Any, index: int) -> MessageContent:
    """Return the content of a message. The contents of files that a user mentioned are not the user's words."""
    reading = ContentCollector(index, "openai")
    if isinstance(message, str):
        return reading.content("user")
    ((author, held),) = message.items()
    if author == _COMPACTION:
        reading.words.append(text_field(held, "Summary"))
        reading.is_compaction = True
        return reading.content("assistant")
    for number, part in enumerate(items(get_field(held, "content"))):
        reading.words += [text_field(part, "Text"), text_field(get_field(part, "Thinking"), "text")]
        if use := get_field(part, "ToolUse"):
            _add_call(reading, use, (author, "content", number, "ToolUse"))
    results = get_field(held, "tool_results")
    for name, result in results.items() if isinstance(results, Mapping) else ():
        texts = _texts(get_field(result, "content"), (author, "tool_results", name, "content"))
        reading.add_own_results(name, texts, flagged=get_field(result, "is_error") is True)
    return reading.content(_AUTHORS[author])


def is_older_zed(message: Any) -> bool:
    """Return True if a message with a role has the segments of an older thread."""
    return isinstance(get_field(message, "segments"), list)


def read_older_zed(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message of a thread before version 0.3. The oldest have results in the next message."""
    reading = ContentCollector(index, "openai")
    reading.words += [text_field(segment, "text") for segment in items(get_field(message, "segments"))]
    results = items(get_field(message, "tool_results"))
    answered = {text_field(result, "tool_use_id") for result in results}
    own: set[str] = set()
    for number, use in enumerate(items(get_field(message, "tool_uses"))):
        path: Path = ("tool_uses", number)
        call = Call(text_field(use, "id"), text_field(use, "name"))
        if call.id in answered:
            own.add(call.id)
            _add_call(reading, use, path)
        else:
            reading.add_call(call, get_field(use, "input"), (*path, "input"), "value")
    for number, result in enumerate(results):
        texts = _texts(get_field(result, "content"), ("tool_results", number, "content"))
        failed, name = get_field(result, "is_error") is True, text_field(result, "tool_use_id")
        if name in own:
            reading.add_own_results(name, texts, flagged=failed)
        else:
            reading.add_results(Call(name), texts, flagged=failed)
    return reading.authored(role)


def _add_call(reading: ContentCollector, use: Any, path: Path) -> None:
    """Add a call whose result is in the same message. Newer threads have its arguments with their type."""
    call, arguments = Call(text_field(use, "id"), text_field(use, "name")), get_field(use, "input")
    if get_field(use, "thought_signature"):
        reading.add_words(call.name, arguments)
    elif text_field(arguments, "type") == "json" and "value" in arguments:
        reading.add_own_call(call, arguments["value"], (*path, "input", "value"))
    else:
        reading.add_own_call(call, arguments, (*path, "input"))


def _texts(content: Any, path: Path) -> list[ResultText]:
    """Return the texts of a result. Older threads have one text in place of the list of parts."""
    if isinstance(content, str):
        return [result_text(path, content)]
    if isinstance(content, Mapping):
        texts = [(name, text) for name in ("Text", "text") if (text := text_field(content, name))]
        return [result_text((*path, name), text) for name, text in texts[:1]]
    return [text for number, part in enumerate(items(content)) for text in _texts(part, (*path, number))]
