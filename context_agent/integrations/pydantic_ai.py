"""Pruning for pydantic-ai as a capability or as a history processor, and the search agent as a tool.

Needs the extra `pydantic-ai`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.functions import DEFAULT_K, TOOL_DESCRIPTION, TOOL_NAME, SearchTool
from context_agent.pruning.pruner import DEFAULT_BUDGET
from context_agent.retrieval.filters import Where

with extra("pydantic-ai"):
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        RetryPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext


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
        # `ProcessHistory` replaces the history, so pruned texts come back.
        self._pruners = ConversationPruners.of(budget, **{"originals_only": False} | options)

    def __call__(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the pruned messages. Messages that change are copied. The others are the same objects."""
        changed = self._pruners.changed_parts([*_rows(messages)])
        return [
            _with_texts(message, changed[index]) if index in changed else message
            for index, message in enumerate(messages)
        ]


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
        self._prune = HistoryPruner(budget, **{"originals_only": True} | options)

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


def _rows(messages: Sequence[ModelMessage]) -> Iterator[tuple[dict[str, Any], int, list[int]]]:
    """Yield each response and each part of a request as a chat message.

    With it come the number of its message, and the numbers of its calls or of the part.
    """
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            calls = [number for number, part in enumerate(message.parts) if isinstance(part, ToolCallPart)]
            yield _answered(message), index, calls
        else:
            yield from ((_part(part), index, [number]) for number, part in enumerate(message.parts))


def _answered(message: ModelResponse) -> dict[str, Any]:
    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            arguments = part.args_as_json_str()
            if "thought_signature" in (part.provider_details or {}):
                # Google checks the call, so it must stay. It counts as words of the agent.
                texts.append(f"{part.tool_name} {arguments}")
                arguments = ""
            calls.append({"id": part.tool_call_id, "function": {"name": part.tool_name, "arguments": arguments}})
    return {"role": "assistant", "content": "\n".join(texts), "tool_calls": calls}


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


def _with_texts(message: ModelMessage, texts: Mapping[int, str]) -> ModelMessage:
    """Return a copy of the message with new texts in some tool results, or in the arguments of some calls.

    `texts` are the new texts, by the number of the part.
    """
    parts: list[Any] = list(message.parts)
    for number, text in texts.items():
        if isinstance(part := parts[number], ToolCallPart):
            parts[number] = replace(part, args=text if isinstance(part.args, str) else json.loads(text))
        else:
            parts[number] = replace(part, content=text)
    return replace(message, parts=parts)
