"""The tools that a policy may call.

To add a tool, write its file in this folder and name it in `registry`. A profile then offers it by name.
"""

from __future__ import annotations

from context_agent.harness.tools.batch import BATCH
from context_agent.harness.tools.calls import (
    MAX_ARGUMENT_CHARACTERS,
    MAX_CALLS,
    UNREAD_CALLS,
    ToolCallError,
    bounded_calls,
    check_call,
    flatten_calls,
)
from context_agent.harness.tools.registry import EDITS, TOOLS, schemas
from context_agent.harness.tools.spawn import SPAWN

__all__ = [
    "BATCH",
    "EDITS",
    "MAX_ARGUMENT_CHARACTERS",
    "MAX_CALLS",
    "SPAWN",
    "TOOLS",
    "UNREAD_CALLS",
    "ToolCallError",
    "bounded_calls",
    "check_call",
    "flatten_calls",
    "schemas",
]
