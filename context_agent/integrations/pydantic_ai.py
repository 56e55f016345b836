"""Pruning for pydantic-ai as a capability or as a history processor, and the search agent as a tool.

Needs the extra `pydantic-ai`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.integrations.functions import DEFAULT_K, TOOL_DESCRIPTION, TOOL_NAME, SearchTool
from context_agent.integrations.pruning import ConversationPruners
from context_agent.pruning.pruner import DEFAULT_BUDGET
from context_agent.retrieval.filters import Where

with extra("pydantic-ai"):
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        RetryPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext

Position = tuple[int, int]
"""The index of a message, and of a part in it."""


class HistoryPruner:
    """A pruner of a run's messages. It is a function for `ProcessHistory`, which also replaces the run's history.

    Any number of runs can share one pruner.
    """

    def __init__(self, budget: int = DEFAULT_BUDGET, **options: Any) -> None:
        """Make a history processor with a pruner for each conversation.

        Args:
            budget: The tokens of tool results to keep.
            options: Further options for `ContextPruner`.
        """
        self._pruners = ConversationPruners.of(budget, **options)

    def __call__(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the pruned messages. Messages that change are copied. The others are the same objects."""
        rows = [*_rows(messages)]
        pruned = self._pruners.prune([row for _, row in rows]).messages
        texts = {
            position: after["content"]
            for (position, before), after in zip(rows, pruned, strict=True)
            if after["content"] != before["content"]
        }
        return [_with_texts(message, index, texts) for index, message in enumerate(messages)]


class ContextPruning(AbstractCapability[Any]):  # type: ignore[misc]
    """A capability that prunes the messages of each model request. The run's history keeps all messages.

    Any number of runs can share one object.

    Example:
        ```python
        Agent(model, capabilities=[ContextPruning(budget=8_000)])
        ```
    """

    def __init__(self, budget: int = DEFAULT_BUDGET, **options: Any) -> None:
        """Make a capability with a pruner for each conversation.

        Args:
            budget: The tokens of tool results to keep.
            options: Further options for `ContextPruner`.
        """
        self._prune = HistoryPruner(budget, **options)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with pruned messages."""
        return replace(request_context, messages=await asyncio.to_thread(self._prune, request_context.messages))


def search_tool(
    agent: SearchAgent,
    *,
    name: str = TOOL_NAME,
    description: str = TOOL_DESCRIPTION,
    k: int = DEFAULT_K,
    where: Where | None = None,
) -> Tool[Any]:
    """Return the search agent as a tool for `Agent(tools=[...])`.

    Args:
        agent: The agent. The caller closes it.
        name: The name of the tool.
        description: The description that the model reads.
        k: The number of documents.
        where: A filter in Chroma's syntax. No call can remove it.
    """
    tool = SearchTool(agent, k=k, where=where, name=name, description=description)

    async def run(**arguments: Any) -> str:
        return (await tool.conversation().arun(arguments)).text

    schema = tool.definition("openai-responses")["parameters"]
    return Tool.from_schema(run, tool.name, tool.description, schema)


def _rows(messages: Sequence[ModelMessage]) -> Iterator[tuple[Position, dict[str, Any]]]:
    """Yield each response and each part of a request as a chat message, with its position."""
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            yield (index, 0), _answered(message)
        else:
            yield from (((index, number), _part(part)) for number, part in enumerate(message.parts))


def _answered(message: ModelResponse) -> dict[str, Any]:
    calls = [
        {"id": part.tool_call_id, "function": {"name": part.tool_name, "arguments": part.args_as_json_str()}}
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    text = "\n".join(part.content for part in message.parts if isinstance(part, TextPart))
    return {"role": "assistant", "content": text, "tool_calls": calls}


def _part(part: Any) -> dict[str, Any]:
    """Return a part of a request as a chat message.

    If a result has files or is of a special kind, it has no text to prune.
    """
    if isinstance(part, ToolReturnPart):
        is_opaque = part.tool_kind is not None or bool(part.files)
        text = "" if is_opaque else part.model_response_str(wrap_if_error=False)
        status = "success" if part.outcome == "success" else "error"
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text, "status": status}
    if isinstance(part, UserPromptPart):
        items = [part.content] if isinstance(part.content, str) else part.content
        return {"role": "user", "content": "\n".join(item for item in items if isinstance(item, str))}
    if isinstance(part, RetryPromptPart) and part.tool_name is not None:
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": "", "status": "error"}
    return {"role": "system", "content": str(getattr(part, "content", ""))}


def _with_texts(message: ModelMessage, index: int, texts: dict[Position, str]) -> ModelMessage:
    """Return the message, or a copy with new texts in some of its tool results."""
    if not isinstance(message, ModelRequest) or not any(position[0] == index for position in texts):
        return message
    parts = [
        replace(part, content=texts[index, number]) if (index, number) in texts else part
        for number, part in enumerate(message.parts)
    ]
    return replace(message, parts=parts)
