"""LangChain agents: a middleware prunes what the model reads, while the agent's state keeps every message.

    python examples/langchain_middleware.py

This script needs `pip install "context-agent[langchain-agents]"`. A scripted model takes the place of yours, so
the script runs offline.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from context_agent.integrations.langchain_agents import ContextPruningMiddleware

QUESTION = "When does the ferry to Ness leave?"
PAGES = {
    "mills": "The mills of the Halvern rivers grind oats and barley. Most of them were built of stone. " * 6,
    "ferry": "The ferry to Ness leaves at six in the morning.",
    "lights": "The lights of the Halvern coast were built in the last century. Keepers lived in them. " * 6,
}


@tool
def read_page(name: str) -> str:
    """Read a page by its name."""
    return PAGES[name]


class ScriptedModel(BaseChatModel):
    """Reads all pages, then answers. Records the tool results of its last request."""

    read: list[str]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> ScriptedModel:
        """Return the model itself."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        results = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        self.read[:] = results
        pages = list(PAGES)
        reply = AIMessage("At six.")
        if len(results) < len(pages):
            page = pages[len(results)]
            reply = AIMessage("", tool_calls=[{"name": "read_page", "args": {"name": page}, "id": f"call_{page}"}])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def main() -> None:
    """Print what the model read, and what the state holds."""
    model = ScriptedModel(read=[])
    agent = create_agent(model, [read_page], middleware=[ContextPruningMiddleware(budget=150)])
    messages = agent.invoke({"messages": [HumanMessage(QUESTION)]})["messages"]
    kept = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
    print(f"state: {sum(map(len, kept)):,} characters; model: {sum(map(len, model.read)):,} characters")
    for text in model.read:
        print(f"  {text[:80]}")
    print(messages[-1].content)


if __name__ == "__main__":
    main()
