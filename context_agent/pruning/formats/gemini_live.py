"""Messages between a client and Gemini's Live API."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import first_field, first_value, get_field, items, text_field
from context_agent.pruning.formats.gemini import response_texts

_CLIENT = ("clientContent", "client_content")
_SERVER = ("serverContent", "server_content")
_CALL = ("toolCall", "tool_call")
_RESPONSE = ("toolResponse", "tool_response")
_OTHERS = (
    "setup", "setupComplete", "setup_complete", "realtimeInput", "realtime_input", "toolCallCancellation",
    "tool_call_cancellation", "sessionResumptionUpdate", "session_resumption_update", "goAway", "go_away",
)  # fmt: skip


def is_gemini_live(message: Any) -> bool:
    """Return True if a message without a role or a type has a field of the Live API."""
    names = (*_CLIENT, *_SERVER, *_CALL, *_RESPONSE, *_OTHERS)
    return not text_field(message, "type") and first_value(message, *names) is not None


def read_gemini_live(message: Any, index: int) -> MessageContent:
    """Return the content of a message. Sound and settings are passed through."""
    reading = ContentCollector(index, "gemini")
    if (content := first_value(message, *_CLIENT)) is not None:
        turns = items(get_field(content, "turns"))
        reading.words += [text_field(part, "text") for turn in turns for part in items(get_field(turn, "parts"))]
        return reading.content("user")
    if (content := first_value(message, *_SERVER)) is not None:
        turn = first_value(content, "modelTurn", "model_turn")
        reading.words += [text_field(part, "text") for part in items(get_field(turn, "parts"))]
        return reading.content("assistant" if any(reading.words) else "unknown")
    name, body = first_field(message, *_CALL)
    if body is not None:
        field, calls = first_field(body, "functionCalls", "function_calls")
        for number, call in enumerate(items(calls)):
            own = Call(text_field(call, "id"), text_field(call, "name"))
            reading.add_call(own, get_field(call, "args"), (name, field, number, "args"), "value")
        return reading.content("assistant")
    name, body = first_field(message, *_RESPONSE)
    if body is None:
        return MessageContent("unknown")
    field, responses = first_field(body, "functionResponses", "function_responses")
    for number, response in enumerate(items(responses)):
        texts, failed = response_texts(response, (name, field, number))
        reading.add_results(Call(text_field(response, "id"), text_field(response, "name")), texts, flagged=failed)
    return reading.content("tool")
