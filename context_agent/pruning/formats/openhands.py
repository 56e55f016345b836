"""Events of OpenHands: those that its server saves, and those of its SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, has_failed, items, text_field
from context_agent.pruning.formats.parts import result_text, result_texts, text_of

_SOURCES = {"user": "user", "agent": "assistant", "environment": "system", "hook": "system"}
_ACTIONS = frozenset((
    "run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "call_tool_mcp", "recall", "think",
    "delegate", "task_tracking",
))  # fmt: skip
"""The actions that have an observation."""
_SILENT = frozenset(("agent_state_changed", "null", "loop_detection"))
"""Observations for the program that shows the conversation."""
_ERRORS = ("error", "rejection_reason")
"""The fields with the text of an error or of a refusal in place of an observation."""


def is_openhands(message: Any) -> bool:
    """Return True if a message without a role has a source, and is an action, an observation or another event."""
    has_source = text_field(message, "source") in _SOURCES
    return has_source and any(text_field(message, name) for name in ("kind", "action", "observation"))


def read_openhands(message: Any, index: int) -> MessageContent:
    """Return the content of an event. An event for display alone is passed through."""
    reading = ContentCollector(index, "openai")
    kind = text_field(message, "kind")
    if kind == "ActionEvent":
        return _action(reading, message)
    if kind in ("SystemPromptEvent", "CondensationSummaryEvent"):
        reading.words.append(text_of(get_field(message, "system_prompt")) or text_field(message, "summary"))
        return reading.content("system")
    if kind:
        return _observation(reading, message) if text_field(message, "tool_call_id") else MessageContent("unknown")
    return _saved(reading, message)


def _action(reading: ContentCollector, event: Any) -> MessageContent:
    reading.words += [text_of(part) for part in items(get_field(event, "thought"))]
    call = get_field(event, "tool_call")
    # Older versions have the arguments in a function, as chat completions do.
    path: Path = ("tool_call", "function") if get_field(call, "function") is not None else ("tool_call",)
    arguments = get_field(get_field(call, "function") or call, "arguments")
    own = Call(text_field(event, "tool_call_id"), text_field(event, "tool_name"))
    form = written_form("arguments", is_text=isinstance(arguments, str))
    reading.add_call(own, arguments, (*path, "arguments"), form)
    return reading.content("assistant")


def _observation(reading: ContentCollector, event: Any) -> MessageContent:
    answer = Call(text_field(event, "tool_call_id"), text_field(event, "tool_name"))
    errors = [result_text((name,), text_field(event, name)) for name in _ERRORS if text_field(event, name)]
    seen = get_field(event, "observation")
    name = "content" if get_field(seen, "content") is not None else "output"
    texts, reading.unknown = result_texts(get_field(seen, name), ("observation", name), "openai")
    failed = bool(errors) or get_field(seen, "is_error") is True or has_failed(get_field(seen, "exit_code"))
    reading.add_results(answer, [*texts, *errors], flagged=failed)
    return reading.content("tool")


def _saved(reading: ContentCollector, event: Any) -> MessageContent:
    """Return the content of an event of the server. An observation has the number of its action as its cause."""
    action, seen = text_field(event, "action"), text_field(event, "observation")
    if seen:
        if seen in _SILENT:
            return MessageContent("unknown")
        text, metadata = text_field(event, "content"), get_field(get_field(event, "extras"), "metadata")
        failed = seen == "error" or has_failed(get_field(metadata, "exit_code"))
        results = [result_text(("content",), text)] if text else []
        reading.add_results(Call(_number(get_field(event, "cause")), seen), results, flagged=failed)
        return reading.content("tool")
    arguments = get_field(event, "args")
    role = _SOURCES[text_field(event, "source")]
    if action in _ACTIONS and isinstance(arguments, Mapping):
        reading.words += filter(None, [text_field(arguments, "thought")])
        reading.add_call(Call(_number(get_field(event, "id")), action), arguments, ("args",), "value")
        return reading.content("assistant")
    if action not in ("message", "system", "finish"):
        return MessageContent("unknown")
    reading.words += filter(None, (text_field(arguments, name) for name in ("content", "final_thought")))
    return reading.content("system" if action == "system" else role)


def _number(value: Any) -> str:
    return "" if value is None else f"event {value}"
