"""The tools a policy may call: registration, declaration, and the check of what a policy wrote.

To add a tool, write its file beside this one and name it in `_TOOLS`. A profile then offers it by name. Edits are
applied in the order of registration. What comes from a model is outside data, so pydantic checks it; a mistake becomes
a `ToolCallError`, whose text is the result that the policy reads.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from context_agent.harness.profile import Profile
from context_agent.harness.tools import batch, grep, prune, read, restore, search, spawn, summarize
from context_agent.harness.tools.base import Tool, ToolArguments, ToolKind
from context_agent.harness.tools.batch import BATCH
from context_agent.harness.tools.spawn import SPAWN
from context_agent.types import ToolCall

__all__ = [
    "BATCH",
    "EDITS",
    "LONGEST_ARGUMENTS",
    "MOST_CALLS",
    "SPAWN",
    "TOOLS",
    "UNREAD",
    "Tool",
    "ToolCallError",
    "ToolKind",
    "bounded",
    "check",
    "flatten",
    "schemas",
]

LONGEST_ARGUMENTS = 100_000
"""Characters of raw arguments that are parsed; longer arguments are refused."""
MOST_CALLS = 64
"""Tool calls read from one reply; where it has more, the last call says how many were not read."""
UNREAD = "unread_calls"
"""Name of the call that stands for those that were not read."""
_REPORTED_PROBLEMS = 3

_TOOLS = (search, grep, read, prune, summarize, restore, spawn, batch)
TOOLS: Mapping[str, Tool] = {module.TOOL.name: module.TOOL for module in _TOOLS}
EDITS = tuple(name for name, tool in TOOLS.items() if tool.kind is ToolKind.EDIT)
"""Tools that edit the view, in the order in which a turn's edits are applied."""


class ToolCallError(Exception):
    """A call that cannot run; the text is what the policy is told."""


def schemas(profile: Profile) -> list[dict[str, Any]]:
    """The profile's tools as `{"name", "description", "parameters"}`, parameters in JSON Schema without references.

    `limit` of a search and `all_but` of a prune are accepted in every profile and declared if the profile says so.
    """
    return [TOOLS[name].schema(extended=profile.extended_arguments) for name in profile.tools]


def bounded(calls: Sequence[ToolCall], count: int | None = None) -> tuple[ToolCall, ...]:
    """The calls of a reply if they are at most `MOST_CALLS`, else the first of them and one that stands for the rest.

    `count` is how many the reply had, where `calls` are only its first ones.
    """
    count = len(calls) if count is None else count
    if count <= MOST_CALLS:
        return tuple(calls)
    first = calls[: MOST_CALLS - 1]
    return (*first, ToolCall(UNREAD, {"count": count - len(first)}))


def flatten(calls: Sequence[ToolCall], tools: Sequence[str]) -> list[ToolCall]:
    """The calls with every well-formed `multi_tool_use` replaced by what it wraps, where `tools` has it."""
    flat: list[ToolCall] = []
    for call in calls:
        flat += _unwrapped(call) if call.name == BATCH and BATCH in tools else [call]
    return flat


def check(call: ToolCall, tools: Sequence[str]) -> ToolArguments:
    """The call's arguments, checked against the profile's `tools`. Raises `ToolCallError`, which says what to write."""
    if call.name == UNREAD:
        raise ToolCallError(
            f"Error: only the first {MOST_CALLS - 1} tool calls of a reply are read; the rest did not run. Make fewer "
            "calls at a time."
        )
    if call.name not in tools:
        raise ToolCallError(f"Error: there is no tool {call.name[:80]!r}. {_suggestion(call.name, tools)}")
    arguments = call.arguments if not isinstance(call.arguments, str) else _parsed(call.arguments)
    try:
        return TOOLS[call.name].arguments.model_validate(arguments)
    except ValidationError as error:
        raise ToolCallError(f"Error: {call.name}: {_explained(error)}") from None


def _unwrapped(call: ToolCall) -> list[ToolCall]:
    try:
        wrapper = check(call, (BATCH,))
    except ToolCallError:
        return [call]
    calls: list[ToolCall] = TOOLS[BATCH].run(wrapper, call.id)
    return calls


def _parsed(arguments: str) -> Mapping[str, Any]:
    if len(arguments) > LONGEST_ARGUMENTS:
        raise ToolCallError(
            f"Error: arguments of {len(arguments):,} characters; at most {LONGEST_ARGUMENTS:,} are read."
        )
    try:
        value = json.loads(arguments or "{}")
    except RecursionError:
        raise ToolCallError("Error: the arguments are not valid JSON (nested too deeply).") from None
    except ValueError as error:
        raise ToolCallError(f"Error: the arguments are not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise ToolCallError(f"Error: the arguments must be a JSON object, not {type(value).__name__}.")
    return value


def _explained(error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False, include_input=False)[:_REPORTED_PROBLEMS]:
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        problems.append(f"{where}: {item['msg']}")
    return "; ".join(problems)


def _suggestion(name: str, tools: Sequence[str]) -> str:
    similar = difflib.get_close_matches(name, tools, n=1)
    return f"Did you mean {similar[0]}?" if similar else f"The tools are {', '.join(tools)}."
