"""Pruning for the OpenAI Agents SDK as a filter of model input, and the search agent as a tool.

Needs the extra `openai-agents`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.functions import DEFAULT_K, TOOL_DESCRIPTION, TOOL_NAME, SearchTool
from context_agent.pruning.pruner import DEFAULT_BUDGET
from context_agent.retrieval.filters import Where

with extra("openai-agents"):
    from agents import FunctionTool
    from agents.run_config import CallModelData, ModelInputData
    from agents.tool_context import ToolContext


class ContextPruningFilter:
    """A filter that prunes the input of each model call. The run's items and its session keep everything.

    Any number of runs can share one filter.

    Example:
        ```python
        RunConfig(call_model_input_filter=ContextPruningFilter(budget=8_000))
        ```
    """

    def __init__(self, budget: int = DEFAULT_BUDGET, **options: Any) -> None:
        """Make a filter with a pruner for each conversation.

        Args:
            budget: The tokens of tool results to keep.
            options: Further options for `ContextPruner`.
        """
        self._pruners = ConversationPruners.of(budget, **options)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model call with pruned items."""
        model_input = data.model_data
        scope = (model_input.instructions or "").encode(errors="surrogatepass")
        pruned = await asyncio.to_thread(self._pruners.prune, model_input.input, scope=scope)
        return ModelInputData(input=pruned.messages, instructions=model_input.instructions)


def search_tool(
    agent: SearchAgent,
    *,
    name: str = TOOL_NAME,
    description: str = TOOL_DESCRIPTION,
    k: int = DEFAULT_K,
    where: Where | None = None,
) -> FunctionTool:
    """Return the search agent as a tool for `Agent(tools=[...])`.

    Args:
        agent: The agent. The caller closes it.
        name: The name of the tool.
        description: The description that the model reads.
        k: The number of documents.
        where: A filter in Chroma's syntax. No call can remove it.
    """
    tool = SearchTool(agent, k=k, where=where, name=name, description=description)

    async def run(context: ToolContext[Any], arguments: str) -> str:
        return (await tool.conversation().arun(arguments)).text

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.definition("openai-responses")["parameters"],
        on_invoke_tool=run,
        strict_json_schema=False,
    )
