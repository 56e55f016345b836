"""Messages of Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path, ResultText
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import first_key, get_field, items, text_field
from context_agent.pruning.formats.parts import (
    file_texts,
    image_texts,
    is_citable,
    result_text,
    texts_at,
    value_texts,
)

_BEDROCK_OPAQUE = (
    "image", "document", "video", "audio", "reasoningContent", "cachePoint", "guardContent", "searchResult",
    "citationsContent", "toolAddition", "toolRemoval",
)  # fmt: skip
"""Known parts without a text that pruning may change. Citations refer to the texts of what is cited."""

_CHAT_FIELDS = ("tool_calls", "function_call", "tool_call_id")
"""The fields of calls and results in OpenAI's chat completions."""
_DOCUMENT_TEXTS = (("source", "text"), ("source", "content", "*", "text"))
"""The paths of the texts in a document. A document may have the bytes of a file instead."""


def is_bedrock(message: Any) -> bool:
    """Return True if the parts of a message have the form of Bedrock's Converse API, with keys instead of types.

    The messages of DashScope and of Qwen-Agent have such parts, too, but calls and results as OpenAI's.
    """
    if any(get_field(message, name) for name in _CHAT_FIELDS) or get_field(message, "role") in ("tool", "function"):
        return False
    parts = items(get_field(message, "content"))
    named = {"toolUse", "toolResult", "text", *_BEDROCK_OPAQUE}
    return all(isinstance(part, Mapping) and "type" not in part for part in parts) and any(
        not named.isdisjoint(part) for part in parts
    )


def read_bedrock(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message of Bedrock's Converse API."""
    reading = ContentCollector(index, None)
    parts = items(get_field(message, "content"))
    # A tool that Bedrock runs has its result in the assistant's message.
    answered = {text_field(get_field(part, "toolResult"), "toolUseId") for part in parts if role == "assistant"} - {""}
    for number, part in enumerate(parts):
        if use := get_field(part, "toolUse"):
            call = Call(text_field(use, "toolUseId"), text_field(use, "name"))
            if call.id in answered:
                reading.add_words(call.name, get_field(use, "input"))
            else:
                reading.add_call(call, get_field(use, "input"), ("content", number, "toolUse", "input"), "value")
            reading.kind = "bedrock"
        elif result := get_field(part, "toolResult"):
            path: Path = ("content", number, "toolResult", "content")
            texts, more = _bedrock_texts(get_field(result, "content"), path)
            failed, call_id = get_field(result, "status") == "error", text_field(result, "toolUseId")
            if call_id in answered:
                reading.add_own_results(call_id, texts, flagged=failed)
            else:
                reading.add_results(Call(call_id), texts, flagged=failed)
            reading.unknown += more
            reading.kind = "bedrock"
        elif isinstance(text := get_field(part, "text"), str):
            reading.add_text(("content", number, "text"), text)
        elif not any(get_field(part, name) is not None for name in _BEDROCK_OPAQUE):
            reading.unknown.append(first_key(part))
    return reading.authored(role)


def _bedrock_texts(content: Any, path: Path) -> tuple[list[ResultText], list[str]]:
    texts: list[ResultText] = []
    unknown: list[str] = []
    for number, part in enumerate(items(content)):
        here = (*path, number)
        if isinstance(text := get_field(part, "text"), str):
            texts.append(result_text((*here, "text"), text))
        elif (value := get_field(part, "json")) is not None:
            texts += value_texts((*here, "json"), value)
        elif (found := get_field(part, "searchResult")) and not is_citable(found):
            texts += texts_at(found, ("content", "*", "text"), (*here, "searchResult"))
        elif (document := get_field(part, "document")) and not is_citable(document):
            found = [text for steps in _DOCUMENT_TEXTS for text in texts_at(document, steps, (*here, "document"))]
            texts += found or file_texts(here, part, "")
        elif image := get_field(part, "image"):
            texts += image_texts(here, part, get_field(get_field(image, "source"), "bytes"), "bedrock", "")
        elif not any(get_field(part, name) is not None for name in _BEDROCK_OPAQUE):
            unknown.append(first_key(part))
    return texts, unknown
