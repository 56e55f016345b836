"""The tools a policy may call, and their registration.

To add a tool, write its file beside this one and name it below. A profile then offers it by name. Edits are applied in
the order of registration.
"""

from __future__ import annotations

from typing import Any

from context_agent.harness.profile import Profile
from context_agent.harness.tools import batch, grep, prune, read, restore, search, spawn, summarize
from context_agent.harness.tools.base import (
    LONGEST_ARGUMENTS,
    MOST_CALLS,
    TOOLS,
    UNREAD,
    Tool,
    ToolCallError,
    ToolKind,
    bounded,
    check,
    flatten,
)
from context_agent.harness.tools.batch import BATCH
from context_agent.harness.tools.spawn import SPAWN

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

for _module in (search, grep, read, prune, summarize, restore, spawn, batch):
    TOOLS[_module.TOOL.name] = _module.TOOL
EDITS = tuple(name for name, tool in TOOLS.items() if tool.kind is ToolKind.EDIT)
"""Tools that edit the view, in the order in which a turn's edits are applied."""


def schemas(profile: Profile) -> list[dict[str, Any]]:
    """Return the profile's tools as `{"name", "description", "parameters"}`, parameters in JSON Schema without
    references.

    `limit` of a search and `all_but` of a prune are accepted in every profile and declared if the profile says so.
    """
    return [TOOLS[name].schema(extended=profile.extended_arguments) for name in profile.tools]
