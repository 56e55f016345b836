"""Pruning for LangChain's agents as a middleware, and the search agent as a sub-agent of deepagents.

Needs the extra `langchain-agents`. The retrievers are in the module `langchain`, which needs fewer packages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.functions import DEFAULT_K, TOOL_DESCRIPTION, SearchTool
from context_agent.pruning.pruner import DEFAULT_BUDGET
from context_agent.retrieval.filters import Where

with extra("langchain-agents"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.runnables import RunnableLambda


class ContextPruningMiddleware(AgentMiddleware):  # type: ignore[misc]
    """A middleware that prunes the messages of each model request.

    The agent's state and its checkpoints keep all messages. Any number of threads and conversations can share one
    middleware.

    Example:
        ```python
        create_agent(model, tools, middleware=[ContextPruningMiddleware(budget=8_000)])
        ```
    """

    def __init__(self, budget: int = DEFAULT_BUDGET, **options: Any) -> None:
        """Make a middleware with a pruner for each conversation.

        Args:
            budget: The tokens of tool results to keep.
            options: Further options for `ContextPruner`.
        """
        super().__init__()
        self._pruners = ConversationPruners.of(budget, **options)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the pruned messages."""
        return handler(self._pruned(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model with the pruned messages, without blocking."""
        return await handler(await asyncio.to_thread(self._pruned, request))

    def _pruned(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        return request.override(messages=self._pruners.prune(request.messages).messages)


def sub_agent(
    agent: SearchAgent,
    *,
    name: str = "document-search",
    description: str = TOOL_DESCRIPTION,
    k: int = DEFAULT_K,
    where: Where | None = None,
) -> dict[str, Any]:
    """Return the search agent as a `CompiledSubAgent` for `create_deep_agent(subagents=[...])`.

    The question is the task that the main agent delegates. The answer has the best passage from each of `k` documents.

    Args:
        agent: The agent. The caller closes it.
        name: The name of the sub-agent.
        description: The description that the model reads.
        k: The number of documents.
        where: A filter in Chroma's syntax. No call can remove it.
    """
    tool = SearchTool(agent, k=k, where=where)

    def answer(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [AIMessage(tool.conversation().run({"question": _question(state)}).text)]}

    async def aanswer(state: dict[str, Any]) -> dict[str, Any]:
        result = await tool.conversation().arun({"question": _question(state)})
        return {"messages": [AIMessage(result.text)]}

    return {"name": name, "description": description, "runnable": RunnableLambda(answer, aanswer, name=name)}


def _question(state: dict[str, Any]) -> str:
    """Return the text of the last human message. If there is none, return an empty string."""
    questions = (message for message in reversed(state["messages"]) if isinstance(message, HumanMessage))
    return str(next((message.text for message in questions), ""))
