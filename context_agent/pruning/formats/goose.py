"""Messages in the sessions of Goose, whose parts have types in camel case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import TEXT_PARTS, result_text, result_texts, text_of

_REQUESTS = ("toolRequest", "frontendToolRequest")
_RESPONSE = "toolResponse"
_OPAQUE = (
    "image", "redactedThinking", "toolConfirmationRequest", "actionRequired", "systemNotification",
    "conversationCompacted",
)  # fmt: skip
_OWN_TYPES = frozenset((*_REQUESTS, _RESPONSE, *_OPAQUE)) - {"image"}


def is_goose(message: Any) -> bool:
    """Return True if a part of a message has a type that only Goose uses."""
    return any(text_field(part, "type") in _OWN_TYPES for part in items(get_field(message, "content")))


def read_goose(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message of Goose.

    After a compaction, Goose keeps earlier messages for the user, but does not send them. Their results are left out.
    """
    reading = ContentCollector(index, "goose")
    for number, part in enumerate(items(get_field(message, "content"))):
        path, kind, call_id = ("content", number), text_field(part, "type"), text_field(part, "id")
        if kind in _REQUESTS:
            body = get_field(get_field(part, "toolCall"), "value")
            arguments, signed = get_field(body, "arguments"), bool(get_field(part, "thoughtSignature"))
            call = Call(call_id, text_field(body, "name"))
            reading.add_call(call, arguments, (*path, "toolCall", "value", "arguments"), "value", fixed=signed)
        elif kind == _RESPONSE:
            _add_result(reading, get_field(part, "toolResult"), (*path, "toolResult"), Call(call_id))
        elif kind in TEXT_PARTS:
            reading.words.append(text_of(part))
        elif kind not in _OPAQUE:
            reading.unknown.append(kind)
    content = reading.authored(role)
    if get_field(get_field(message, "metadata"), "agentVisible") is False:
        return replace(content, results=(), arguments=(), result_owner=())
    return content


def _add_result(reading: ContentCollector, result: Any, path: Path, answer: Call) -> None:
    """Add the result of a call. Older versions have the parts of a result without an object around them."""
    if error := text_field(result, "error"):
        reading.add_results(answer, [result_text((*path, "error"), error)], flagged=True)
        return
    value = get_field(result, "value")
    content, path = value, (*path, "value")
    if isinstance(value, Mapping):
        content, path = value.get("content"), (*path, "content")
    texts, unknown = result_texts(content, path, "goose")
    reading.add_results(answer, texts, flagged=get_field(value, "isError") is True)
    reading.unknown += unknown
