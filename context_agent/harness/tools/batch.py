"""`multi_tool_use`: several calls in one, for models that write one call a turn."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from context_agent.harness.tools.base import Tool, ToolArguments, ToolKind
from context_agent.types import ToolCall

BATCH = "multi_tool_use"


class InnerCall(BaseModel):
    """One call inside `multi_tool_use`."""

    model_config = ConfigDict(frozen=True)
    tool_name: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class BatchArguments(ToolArguments):
    """Run several tool calls at the same time."""

    tool_calls: list[InnerCall] = Field(min_length=1)


def run(arguments: BatchArguments, call_id: str) -> list[ToolCall]:
    """Return the calls that it wraps. Some models write the namespace of their format before a tool's name."""
    return [
        ToolCall(inner.tool_name.removeprefix("functions."), inner.parameters, id=f"{call_id}.{index}")
        for index, inner in enumerate(arguments.tool_calls)
    ]


TOOL = Tool(BATCH, ToolKind.BATCH, BatchArguments, run)
