"""Messages of AutoGen, whose calls and results are lists without types.

They are those of a model's context, and the messages and events in the result of a task.
"""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_text

AUTOGEN_ROLES = {
    "SystemMessage": "system", "UserMessage": "user", "AssistantMessage": "assistant",
    "FunctionExecutionResultMessage": "tool", "ToolCallRequestEvent": "assistant", "ToolCallExecutionEvent": "tool",
    "ThoughtEvent": "assistant", "ToolCallSummaryMessage": "assistant",
}  # fmt: skip
AUTOGEN_SPOKEN = ("TextMessage", "MultiModalMessage", "StructuredMessage", "HandoffMessage", "StopMessage")
"""The types of messages that the user or an agent says to others. They name their source."""
_REPEATING = "ToolCallSummaryMessage"
"""The type of a message that repeats results. They are not the words of the agent."""


def read_autogen(message: Any, index: int) -> MessageContent:
    """Return the content of a message of AutoGen. Images are passed through."""
    kind = text_field(message, "type")
    role = AUTOGEN_ROLES.get(kind) or ("user" if text_field(message, "source") == "user" else "assistant")
    reading = ContentCollector(index, "autogen")
    if kind == _REPEATING:
        return reading.content(role)
    reading.words += [text_field(message, "thought"), text_field(message, "content")]
    for number, part in enumerate(items(get_field(message, "content"))):
        path = ("content", number)
        if isinstance(part, str):
            reading.words.append(part)
        elif role == "assistant":
            call = Call(text_field(part, "id"), text_field(part, "name"))
            reading.add_call(call, get_field(part, "arguments"), (*path, "arguments"), "json")
        elif role == "tool":
            answer = Call(text_field(part, "call_id"), text_field(part, "name"))
            texts = [result_text((*path, "content"), text_field(part, "content"))]
            reading.add_results(answer, texts, flagged=get_field(part, "is_error") is True)
    return reading.content(role)
