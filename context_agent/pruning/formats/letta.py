"""Messages of Letta's API, which have a `message_type` in place of a role."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_texts, text_of

_CALLS = ("tool_call_message", "approval_request_message")
_RETURN = "tool_return_message"
_AUTHORS = {
    "system_message": "system", "user_message": "user", "assistant_message": "assistant",
    "reasoning_message": "assistant", "hidden_reasoning_message": "assistant", "summary_message": "user",
    **dict.fromkeys(_CALLS, "assistant"), _RETURN: "tool",
}  # fmt: skip
_WORDS = ("content", "reasoning", "summary")
"""The fields that have what the author wrote."""


def is_letta(message: Any) -> bool:
    """Return True if a message without a role has a type like those of Letta's messages."""
    return text_field(message, "message_type").endswith("_message")


def read_letta(message: Any, index: int) -> MessageContent:
    """Return the content of a message. After a summary, the model does not see the messages before it.

    The first item of its list of calls or of results may also be in the fields of older clients.
    """
    reading, kind = ContentCollector(index, "openai"), text_field(message, "message_type")
    if kind not in _AUTHORS:
        return MessageContent("unknown")
    reading.is_compaction = kind == "summary_message"
    for name in _WORDS:
        said = get_field(message, name)
        reading.words += [said] if isinstance(said, str) else [text_of(part) for part in items(said)]
    if kind in _CALLS:
        older = get_field(message, "tool_call")
        calls = items(get_field(message, "tool_calls"))
        for number, call in enumerate(calls or [older]):
            path: Path = ("tool_calls", number) if calls else ("tool_call",)
            own = Call(text_field(call, "tool_call_id"), text_field(call, "name"))
            reading.add_call(own, get_field(call, "arguments"), (*path, "arguments"), "json")
            if calls and number == 0 and older == call:
                reading.arguments = [replace(it, repeats=(("tool_call", "arguments"),)) for it in reading.arguments]
    elif kind == _RETURN:
        results = items(get_field(message, "tool_returns"))
        for number, result in enumerate(results or [message]):
            path = ("tool_returns", number) if results else ()
            output = get_field(result, "tool_return")
            texts, unknown = result_texts(output, (*path, "tool_return"), "openai")
            if results and number == 0 and output == get_field(message, "tool_return"):
                texts = [replace(text, repeats=(text.path[2:],)) for text in texts]
            answer = Call(text_field(result, "tool_call_id"), text_field(message, "name"))
            reading.unknown += unknown
            reading.add_results(answer, texts, flagged=text_field(result, "status") == "error")
    return reading.content(_AUTHORS[kind])
