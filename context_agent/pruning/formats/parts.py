"""Texts, images and other files in the content of tool results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_agent.pruning.contents import IMAGE_RULES, MessageKind, Path, ResultText
from context_agent.pruning.files import file_tokens
from context_agent.pruning.formats.fields import first_value, get_field, items, json_text, text_field
from context_agent.pruning.images import LOW_DETAIL, image_tokens

LONGEST_PATH = 8
"""Maximum number of steps from a message to a list of parts. Deeper parts are passed through without being read."""
TEXT_PARTS = frozenset(("text", "input_text", "output_text", "summary_text", "refusal", "thinking"))
_RESULT_TEXTS = ("text-plain", "knowledge")
"""Types of text parts that only results have: of LangChain, and of searches in chats that Claude.ai exports."""
_STREAMS = ("stdout", "stderr")
"""The outputs of a shell. A command may print nothing."""
_IMAGE_PARTS = frozenset(("image", "image_url", "input_image", "image-data", "image-url"))
_FILE_PARTS = frozenset((
    "document", "file", "input_file", "media", "file-data", "file-url", "file-id", "document_url", "resource",
))  # fmt: skip
_FILE_HOLDERS = ("source", "file", "document", "resource")
_FILE_DATA = (
    "data", "base64", "file_data", "blob", "bytes", "url", "file_url", "document_url", "file_id", "fileId",
)  # fmt: skip
_MEDIA_TYPES = ("media_type", "mime_type", "mediaType", "mimeType")
_FILE_NAMES = ("title", "filename", "name", "document_name", "uri")
_PLAYED_FILES = ("audio/", "video/")
"""The beginnings of media types whose tokens depend on the time that they take to play."""
OPAQUE_PARTS = frozenset((
    *_IMAGE_PARTS, "audio", "input_audio", "video", "file", "input_file", "document", "reasoning", "redacted_thinking",
    "container_upload", "tool_reference", "tool_call", "search_result", "media", "file-data", "file-url", "file-id",
    "image-file-id", "tool_file", "document_url", "resource_link", "fallback", "mcp_tool_listing", "tool_addition",
    "tool_removal", "browser_state", "reference", "custom", "file-reference", "non_standard", "text-plain",
    "think", "function", "output_audio",
))  # fmt: skip
"""Known parts without a text to judge, or without a text that pruning may change."""


def result_texts(content: Any, path: Path, kind: MessageKind) -> tuple[list[ResultText], list[str]]:
    """Return the texts, images and files in the content of a tool result, and the types of unknown parts."""
    if isinstance(content, str):
        return [result_text(path, content)], []
    texts: list[ResultText] = []
    unknown: list[str] = []
    text_type = "input_text" if kind == "responses" else "text"
    for number, part in enumerate(items(content)):
        here, name = (*path, number), text_field(part, "type")
        if isinstance(part, str):
            texts.append(result_text(here, part))
        elif (not name or name in TEXT_PARTS or name in _RESULT_TEXTS) and isinstance(
            text := get_field(part, "text"), str
        ):
            texts.append(result_text((*here, "text"), text))
        elif name in _IMAGE_PARTS or _first_text([part], _MEDIA_TYPES).startswith("image/"):
            texts += image_texts(here, part, _image_data(part, name), kind, text_type)
        elif name == "search_result" and len(path) < LONGEST_PATH and not is_citable(part):
            texts += result_texts(get_field(part, "content"), (*here, "content"), kind)[0]
        elif name == "resource" and isinstance(text := get_field(get_field(part, "resource"), "text"), str):
            texts.append(result_text((*here, "resource", "text"), text))
        elif name == "document" and len(path) < LONGEST_PATH and (found := document_texts(part, here)):
            texts += found
        elif name in _FILE_PARTS:
            texts += file_texts(here, part, text_type)
        elif not name and (own := _untyped_texts(here, part)) is not None:
            texts += own
        elif name not in OPAQUE_PARTS:
            unknown.append(name)
    return texts, unknown


def _untyped_texts(path: Path, part: Any) -> list[ResultText] | None:
    """Return the texts of a part without a type: the output of a shell, or a JSON object. For another one return None.

    Objects are read one by one, because an object stays one without its texts. A list of them could become a list of
    texts.
    """
    if first_value(part, *_STREAMS) is not None:
        return [result_text((*path, stream), text) for stream in _STREAMS if (text := text_field(part, stream))]
    return (value_texts(path, part) or None) if isinstance(part, Mapping) else None


def texts_at(value: Any, steps: Sequence[str], path: Path) -> Iterator[ResultText]:
    """Yield the texts at the end of these steps. If a document is there, yield the texts of its source.

    A result with an encrypted part must stay whole.
    """
    if text_field(value, "file_type") not in ("", "text") or get_field(value, "encrypted_stdout") is not None:
        return
    if not steps:
        yield from [result_text(path, value)] if isinstance(value, str) else document_texts(value, path)
    elif steps[0] != "*":
        yield from texts_at(get_field(value, steps[0]), steps[1:], (*path, steps[0]))
    else:
        for number, item in enumerate(items(value)):
            yield from texts_at(item, steps[1:], (*path, number))


def is_citable(part: Any) -> bool:
    """Return True if the model may cite a document or a search result.

    Citations refer to its characters by their numbers, or repeat the whole text of its blocks.
    """
    return bool(get_field(get_field(part, "citations"), "enabled"))


def document_texts(part: Any, path: Path) -> list[ResultText]:
    """Return the texts of a document part.

    If the document can be cited, return nothing.
    """
    source, own = get_field(part, "source"), get_field(part, "document")
    if own is not None:
        # Cohere's documents have a data object. Older ones have a text.
        data = get_field(own, "data")
        here = (*path, "document", "data")
        return [result_text(here, data)] if isinstance(data, str) else value_texts(here, data)
    if text_field(part, "type") != "document" or is_citable(part):
        return []
    if text_field(source, "type") == "text" and isinstance(text := get_field(source, "data"), str):
        return [result_text((*path, "source", "data"), text)]
    return result_texts(get_field(source, "content"), (*path, "source", "content"), "anthropic")[0]


def result_text(path: Path, text: str) -> ResultText:
    """Return a text at a path. The collector adds the message and the call."""
    return ResultText(0, path, "", text)


def value_texts(path: Path, value: Any) -> list[ResultText]:
    """Return a JSON value as its text. If the value is not JSON, return nothing."""
    text = None if value is None else json_text(value)
    return [] if text is None else [ResultText(0, path, "", text, form="value")]


def image_texts(path: Path, part: Any, data: Any, kind: MessageKind, text_type: str) -> Iterator[ResultText]:
    """Yield the image of a part. Pruning can replace the part only if it is a dict, so otherwise nothing is yielded."""
    if not isinstance(part, Mapping):
        return
    data = data if isinstance(data, str | bytes) else ""
    has_low_detail = "low" in (text_field(holder, "detail") for holder in (part, get_field(part, "image_url")))
    tokens = LOW_DETAIL if has_low_detail else image_tokens(data, IMAGE_RULES[kind])
    yield ResultText(0, path, "", f"image {_digest(data)}", form="image", part=part, tokens=tokens, text_type=text_type)


def file_texts(path: Path, part: Any, text_type: str) -> Iterator[ResultText]:
    """Yield the file of a part. If the file can be cited, or if pruning cannot replace it, nothing is yielded."""
    holders = [part, *(get_field(part, name) for name in _FILE_HOLDERS)]
    holders += [get_field(holder, "source") for holder in holders]
    media_type = _first_text(holders, _MEDIA_TYPES)
    data = _file_data(holders)
    if not isinstance(part, Mapping) or any(map(is_citable, holders)) or not data:
        return
    if media_type.startswith(_PLAYED_FILES):
        return
    tokens = file_tokens(data, media_type)
    text = f"file {_first_text(holders, _FILE_NAMES)} {_digest(data)}"
    yield ResultText(0, path, "", text, form="file", part=part, tokens=tokens, text_type=text_type)


def _file_data(holders: Sequence[Any]) -> str | bytes:
    found = (get_field(holder, name) for name in _FILE_DATA for holder in holders)
    return next((data for data in found if isinstance(data, str | bytes) and data), "")


def _first_text(holders: Sequence[Any], names: Sequence[str]) -> str:
    return next((text for holder in holders for name in names if (text := text_field(holder, name))), "")


def _digest(data: str | bytes) -> str:
    seen = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    return hashlib.blake2b(seen, digest_size=16).hexdigest()


def _image_data(part: Any, name: str) -> Any:
    """Return the image in a part: its bytes, its base64 text or its address."""
    source = get_field(part, "source")
    if source is not None and not isinstance(source, str):
        return first_value(source, "data", "url", "bytes")
    value = get_field(part, name if name == "image_url" else "image_url")
    if value is not None and not isinstance(value, str):
        value = get_field(value, "url")
    return value if value is not None else first_value(part, "data", "base64", "url")


def text_of(part: Any) -> str:
    """Return the words in a text part."""
    text = first_value(part, "text", "thinking", "refusal", "transcript")
    return text if isinstance(text, str) else ""
