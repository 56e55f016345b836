"""The tools of the harness by name."""

from __future__ import annotations

from typing import Any

from context_agent.harness.profile import Profile
from context_agent.harness.tools import batch, grep, prune, read, restore, search, spawn, summarize
from context_agent.harness.tools.tool import EditTool, Tool, schema

TOOLS: dict[str, Tool] = {
    module.TOOL.name: module.TOOL for module in (search, grep, read, prune, summarize, restore, spawn, batch)
}
"""The tools by name. The edits of a turn are applied in this order."""
EDITS = tuple(name for name, tool in TOOLS.items() if isinstance(tool, EditTool))
"""The names of the tools that edit the view."""


def schemas(profile: Profile) -> list[dict[str, Any]]:
    """Return the profile's tools as `{"name", "description", "parameters"}`.

    Parameters are JSON Schema without references. Every profile accepts `limit` of a search and `all_but` of a prune.
    The schemas declare them only if the profile says so.
    """
    return [schema(TOOLS[name], extended=profile.extended_arguments) for name in profile.tools]
