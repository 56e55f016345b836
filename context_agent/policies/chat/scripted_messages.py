"""A scripted answer as Anthropic's Messages API sends it: a whole message, or the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
"""A chat completion's finish reasons in the words of the API; any other one is sent as it is."""
PIECE = 12
"""Characters in a streamed event."""


def anthropic_message(message: Mapping[str, Any], model: str, finish: str, usage: Mapping[str, Any] | None) -> Any:
    """The body of a whole message. `blocks` of a chat message are sent as they are, before its text and its calls."""
    texts = [{"type": "text", "text": message["content"], "citations": None}] if message.get("content") else []
    uses = [_tool_use(call) for call in message.get("tool_calls", ())]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*message.get("blocks", ()), *texts, *uses],
        "stop_reason": STOP_REASONS.get(finish, finish),
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0} if usage is None else usage,
    }


def anthropic_events(message: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a stream's events, each with its name: the official client reads no event without one."""
    for event in _events(message):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}"


def _events(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The message, its blocks in pieces, the stop reason, and the end."""
    usage = {**message["usage"], "output_tokens": 0}
    start = {**message, "content": [], "stop_reason": None, "usage": usage}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        empty, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "ping"}
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    """The call as a block. A message holds an object as the input; broken JSON only arrives in a stream."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    return {"type": "tool_use", "id": f"toolu_{call['id']}", "name": name, "input": value}


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
    """A block as it begins, and the deltas that complete it."""
    kind = block["type"]
    if kind == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in cut(block["text"])]
    if kind == "thinking":
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"])]
        return {**block, "thinking": "", "signature": ""}, [
            *thoughts,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if kind == "tool_use":
        text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in cut(text)]
    return dict(block), ()


def cut(text: str) -> Iterator[str]:
    """The text in pieces, as a stream sends it."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
