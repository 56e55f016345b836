"""Replies of Anthropic's Messages API as chat completions.

Some parts of a message, such as thinking blocks with their signatures, have no counterpart in a chat completion. They
stay in the reply's `blocks`, because the API demands that they come back unchanged and in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from context_agent._support.http_client import Events, MalformedResponse
from context_agent.policies.chat.replies import without_surrogates

THINKING = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks that are sent back as they came."""
FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
"""A message's stop reasons in the words of chat completions. Others are kept as they are."""
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The field of a block that each kind of streamed piece extends."""


def whole_message(events: Events) -> Mapping[str, Any]:
    """Return the message from a complete response body or from the events of a stream.

    If the response is not a message, or is truncated, raise `MalformedResponse`.
    """
    message = _assembled(events) if events[0].get("type") != "message" else dict(events[0])
    content = message.get("content")
    if not isinstance(content, list) or not message.get("stop_reason"):
        raise MalformedResponse("the server sent an incomplete message")
    message["content"] = [block for block in content if isinstance(block, dict)]
    return message


def _assembled(events: Events) -> dict[str, Any]:
    """Return the message that a stream's events describe. A truncated message has no stop reason."""
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: dict[Any, dict[str, list[Any]]] = {}
    for event in events:
        kind = event.get("type")
        source = _mapping(event.get({"message_start": "message", "message_delta": "delta"}.get(str(kind), "")))
        message |= source
        usage |= {
            key: value
            for part in (source, event)
            for key, value in _mapping(part.get("usage")).items()
            if value is not None
        }
        if kind == "content_block_start":
            start = _mapping(event.get("content_block"))
            blocks[event.get("index")] = {key: [value] for key, value in start.items()}
        elif kind == "content_block_delta" and event.get("index") in blocks:
            _extend(blocks[event.get("index")], _mapping(event.get("delta")))
    content = [{key: _joined(parts) for key, parts in block.items()} for block in blocks.values()]
    return {**message, "content": content, "usage": usage}


def _extend(block: dict[str, list[Any]], delta: Mapping[str, Any]) -> None:
    """Add a streamed piece to its block.

    A tool's input starts as an empty object and then arrives in pieces of JSON.
    """
    kind = str(delta.get("type"))
    if kind == "input_json_delta":
        if not isinstance(block.get("input", [None])[0], str):
            block["input"] = [""]
        block["input"].append(delta.get("partial_json"))
    elif kind in _DELTAS:
        block.setdefault(_DELTAS[kind], [""]).append(delta.get(_DELTAS[kind]))


def _joined(parts: list[Any]) -> Any:
    return "".join(part for part in parts if isinstance(part, str)) if isinstance(parts[0], str) else parts[0]


def chat_completion(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message as a chat completion."""
    content = message["content"]
    calls = [
        {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": block.get("input")}}
        for block in content
        if block.get("type") == "tool_use"
    ]
    finish = message["stop_reason"]
    chat = {
        "content": _texts(content, "text"),
        "reasoning": _texts(content, "thinking"),
        "tool_calls": calls,
    }
    return {
        "model": message.get("model"),
        "choices": [{"message": chat, "finish_reason": FINISH.get(str(finish), finish)}],
        "usage": _usage(_mapping(message.get("usage"))),
    }


def _texts(content: Sequence[Mapping[str, Any]], kind: str) -> str:
    texts = (block.get(kind) for block in content if block.get("type") == kind)
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage in the form of a chat completion.

    The prompt tokens include those read from the cache and those written to it.
    """
    fresh, read, written = (
        usage.get(name) or 0 for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    counts = all(type(count) is int for count in (fresh, read, written))
    details = _mapping(usage.get("output_tokens_details"))
    return {
        "prompt_tokens": fresh + read + written if counts and "input_tokens" in usage else None,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens": usage.get("output_tokens"),
        "completion_tokens_details": {"reasoning_tokens": details.get("thinking_tokens")},
    }


def kept_blocks(content: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the blocks to keep from a message with thoughts, in their order.

    Thoughts and texts are kept unchanged. Of a call, only the id is kept.
    """
    if not any(block.get("type") in THINKING for block in content):
        return ()
    return tuple(_kept(block) for block in content if _is_kept(block))


def _kept(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if block["type"] == "tool_use":
        return {"type": "tool_use", "id": str(block.get("id"))}
    if block["type"] == "text":
        return without_surrogates({"type": "text", "text": block["text"]})
    return without_surrogates(dict(block))


def _is_kept(block: Mapping[str, Any]) -> bool:
    """Return True if the API accepts the block back. The API refuses texts without a visible character."""
    if block.get("type") == "text":
        return isinstance(block.get("text"), str) and bool(block["text"].strip())
    return block.get("type") in {*THINKING, "tool_use"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
