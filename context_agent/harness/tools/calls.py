"""Tool calls as a policy writes them. This module limits their number, unwraps batches and checks arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from context_agent._support.suggest import closest
from context_agent._support.validation import explain
from context_agent.harness.tools.registry import TOOLS
from context_agent.harness.tools.tool import BatchTool, ToolArguments
from context_agent.types import ToolCall

MAX_ARGUMENT_CHARACTERS = 100_000
"""Maximum length of raw arguments, in characters. Longer arguments are refused."""
MAX_CALLS = 64
"""Maximum number of tool calls that are read from a reply. If it has more, the last call says so."""
UNREAD_CALLS = "unread_calls"
"""Name of the call that takes the place of those that were not read."""


class ToolCallError(Exception):
    """A call that cannot run. The policy reads the text."""


def bounded_calls(calls: Sequence[ToolCall], count: int | None = None) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, at most `MAX_CALLS` of them.

    If there are more, the last call is `UNREAD_CALLS` with the number of those left out. If `calls` are only
    the first calls of the reply, `count` is the number of all its calls.
    """
    count = len(calls) if count is None else count
    if count <= MAX_CALLS:
        return tuple(calls)
    first = calls[: MAX_CALLS - 1]
    return (*first, ToolCall(UNREAD_CALLS, {"count": count - len(first)}))


def flatten_calls(calls: Sequence[ToolCall], tools: Sequence[str]) -> list[ToolCall]:
    """Return the calls. Replace each well-formed call of a batch tool in `tools` with the calls that it wraps."""
    flat: list[ToolCall] = []
    for call in calls:
        tool = TOOLS[call.name] if call.name in tools else None
        flat += _unwrapped(call, tool) if isinstance(tool, BatchTool) else [call]
    return flat


def check_call(call: ToolCall, tools: Sequence[str]) -> ToolArguments:
    """Return the call's arguments, checked against the profile's `tools`.

    Raises:
        ToolCallError: If the call cannot run. The message says what to write instead.
    """
    if call.name == UNREAD_CALLS:
        raise ToolCallError(
            f"Error: only the first {MAX_CALLS - 1} tool calls of a reply are read. The rest did not run. Make fewer "
            "calls at a time."
        )
    if call.name not in tools:
        raise ToolCallError(f"Error: there is no tool {call.name[:80]!r}. {_suggestion(call.name, tools)}")
    arguments = call.arguments if not isinstance(call.arguments, str) else _parsed(call.arguments)
    try:
        checked: ToolArguments = TOOLS[call.name].arguments.model_validate(arguments)
    except ValidationError as error:
        raise ToolCallError(f"Error: {call.name}: {explain(error, whole='arguments')}") from None
    return checked


def _unwrapped(call: ToolCall, tool: BatchTool[Any]) -> list[ToolCall]:
    try:
        return tool.unwrap(check_call(call, (call.name,)), call.id)
    except ToolCallError:
        return [call]


def _parsed(arguments: str) -> Mapping[str, Any]:
    if len(arguments) > MAX_ARGUMENT_CHARACTERS:
        raise ToolCallError(
            f"Error: the arguments have {len(arguments):,} characters, but at most {MAX_ARGUMENT_CHARACTERS:,} are "
            "read. Shorten them."
        )
    try:
        value = json.loads(arguments or "{}")
    except RecursionError:
        raise ToolCallError("Error: the arguments are not valid JSON (nested too deeply).") from None
    except ValueError as error:
        raise ToolCallError(f"Error: the arguments are not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise ToolCallError(f"Error: the arguments must be a JSON object; got {type(value).__name__}.")
    return value


def _suggestion(name: str, tools: Sequence[str]) -> str:
    similar = closest(name, tools)
    return f"Did you mean {similar}?" if similar else f"The tools are {', '.join(tools)}."
