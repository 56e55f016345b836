"""`multi_tool_use`: wrap several calls in one, for models that write one call per turn."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from context_agent.harness.tools.tool import BatchTool, ToolArguments
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


def unwrap(arguments: BatchArguments, call_id: str) -> list[ToolCall]:
    """Return the wrapped calls.

    Some models write the namespace of their format before a tool's name. It is removed.
    """
    return [
        ToolCall(inner.tool_name.removeprefix("functions."), inner.parameters, id=f"{call_id}.{index}")
        for index, inner in enumerate(arguments.tool_calls)
    ]


TOOL = BatchTool(BATCH, BatchArguments, unwrap)
