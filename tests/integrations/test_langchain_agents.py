"""LangChain's agents with the real libraries: pruned requests, whole checkpoints, and a sub-agent."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from context_agent import SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.langchain_agents import ContextPruningMiddleware, sub_agent
from tests.support import tool_results
from tests.support.film_question import QUESTION


class ScriptedChat(BaseChatModel):
    """Plays messages and records what it was sent."""

    script: list[AIMessage]
    received: list[list[BaseMessage]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> ScriptedChat:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        self.received.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.script[len(self.received) - 1])])


def call(name: str, number: int, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{number}"}])


def chat() -> ScriptedChat:
    calls = [call("search", number, topic=topic) for number, topic in enumerate(tool_results.TOPICS)]
    return ScriptedChat(script=[*calls, AIMessage("At six."), AIMessage("At noon.")], received=[])


def contents(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_requests_are_pruned_and_checkpoints_stay_whole(is_async: bool) -> None:
    model, saver = chat(), InMemorySaver()
    middleware = ContextPruningMiddleware(tool_results.BUDGET, **tool_results.OPTIONS)
    agent = create_agent(model, [tool(tool_results.search)], middleware=[middleware], checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    for question in (tool_results.QUESTION, "And low tide?"):
        state: Any = {"messages": [HumanMessage(question)]}
        result = await agent.ainvoke(state, config) if is_async else agent.invoke(state, config)
    full_texts = [tool_results.search(topic) for topic in tool_results.TOPICS]
    assert contents(result["messages"]) == full_texts
    assert contents(saver.get_tuple(config).checkpoint["channel_values"]["messages"]) == full_texts
    last_texts = contents(model.received[-1])
    assert len(last_texts) == len(full_texts)
    assert sum(map(len, last_texts)) < sum(map(len, full_texts)) / 2
    assert any("restore: p1" in text for text in last_texts)
    assert tool_results.ANSWER in str(model.received[len(full_texts)])
    assert model.received[0][0].content == tool_results.QUESTION


@tool(response_format="content_and_artifact")
def look(topic: str) -> tuple[list[Any], dict[str, str]]:
    """Look something up."""
    return [{"type": "text", "text": tool_results.search(topic)}] * 2, {"topic": topic}


def test_results_with_blocks_and_artifacts_keep_their_form_in_a_long_session() -> None:
    numbers = range(2 * len(tool_results.TOPICS))
    calls = [call("look", number, topic=tool_results.TOPICS[number // 2]) for number in numbers]
    calls[3].content = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "I look."}]
    model = ScriptedChat(script=[*calls, AIMessage("At six.")], received=[])
    middleware = ContextPruningMiddleware(tool_results.BUDGET, **tool_results.OPTIONS)
    agent = create_agent(model, [look], middleware=[middleware])
    whole = {message.id: message for message in agent.invoke({"messages": [tool_results.QUESTION]})["messages"]}
    sent = [message for message in model.received[-1] if isinstance(message, AIMessage | ToolMessage)]
    pruned = [message for message in sent if message.content != whole[message.id].content]
    assert len(pruned) >= len(numbers) // 2
    for message in pruned:
        before = whole[message.id]
        assert isinstance(message, ToolMessage)
        assert (message.artifact, message.tool_call_id) == (before.artifact, before.tool_call_id)
        assert [part["type"] for part in message.content] == ["text", "text"]
        assert all(part["text"].strip() for part in message.content)


def test_an_option_that_does_not_exist_is_reported_at_once() -> None:
    with pytest.raises(ConfigError, match="nearest"):
        ContextPruningMiddleware(strategy="nearest")


def test_a_sub_agent_of_deepagents(agent: SearchAgent) -> None:
    deepagents = pytest.importorskip("deepagents")
    task = call("task", 0, description=QUESTION, subagent_type="films")
    model = ScriptedChat(script=[task, AIMessage("An award.")], received=[])
    deep_agent = deepagents.create_deep_agent(model, subagents=[sub_agent(agent, name="films", k=2)])
    result = deep_agent.invoke({"messages": [HumanMessage("Find out.")]})
    answer = contents(result["messages"])[0]
    assert "AFI Life Achievement Award" in answer
    assert answer.count("(id: ") == 2


async def test_a_sub_agent_without_a_question_says_so(agent: SearchAgent) -> None:
    result = await sub_agent(agent)["runnable"].ainvoke({"messages": [AIMessage("no question")]})
    assert result["messages"][-1].content.startswith("Error: question")
