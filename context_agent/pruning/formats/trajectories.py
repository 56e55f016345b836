"""Steps of the Agent Trajectory Interchange Format, in which Harbor saves the runs of coding agents."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_texts, text_of

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


def is_trajectory_step(message: Any) -> bool:
    """Return True if a message without a role is a numbered step with a source."""
    return get_field(message, "step_id") is not None and text_field(message, "source") in _ROLES


def read_trajectory_step(message: Any, index: int) -> MessageContent:
    """Return the content of a step. A step of the agent has its calls with their results."""
    reading = ContentCollector(index, "openai")
    said = get_field(message, "message")
    reading.words += [said] if isinstance(said, str) else [text_of(part) for part in items(said)]
    for number, call in enumerate(items(get_field(message, "tool_calls"))):
        own = Call(text_field(call, "tool_call_id"), text_field(call, "function_name"))
        reading.add_own_call(own, get_field(call, "arguments"), ("tool_calls", number, "arguments"))
    for number, result in enumerate(items(get_field(get_field(message, "observation"), "results"))):
        path = ("observation", "results", number, "content")
        texts, unknown = result_texts(get_field(result, "content"), path, "openai")
        reading.unknown += unknown
        reading.add_own_results(text_field(result, "source_call_id"), texts, flagged=False)
    return reading.content(_ROLES[text_field(message, "source")])
