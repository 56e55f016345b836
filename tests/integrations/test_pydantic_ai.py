"""pydantic-ai itself: pruned requests, whole histories, and the search agent as a tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from context_agent import SearchAgent
from context_agent.integrations.pydantic_ai import ContextPruning, HistoryPruner, search_tool
from tests.support import tool_results
from tests.support.film_question import QUESTION


class Script:
    """Plays responses and records the messages."""

    def __init__(self, *parts: Any) -> None:
        self._parts = iter(parts)
        self.received: list[list[ModelMessage]] = []

    def model(self) -> FunctionModel:
        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.received.append(messages)
            return ModelResponse(parts=[next(self._parts)])

        return FunctionModel(respond)


def results(messages: list[ModelMessage]) -> list[Any]:
    parts = (part for message in messages for part in message.parts)
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


def calls() -> list[ToolCallPart]:
    return [ToolCallPart("search", {"topic": topic}, f"c{n}") for n, topic in enumerate(tool_results.TOPICS)]


async def test_requests_are_pruned_and_the_history_stays_whole() -> None:
    script = Script(*calls(), TextPart("At six."), TextPart("At noon."))
    pruning = ContextPruning(tool_results.BUDGET, **tool_results.OPTIONS)
    agent = Agent(script.model(), instructions="Be brief.", tools=[tool_results.search], capabilities=[pruning])
    first = await agent.run(tool_results.QUESTION)
    second = await agent.run("And low tide?", message_history=first.all_messages())
    full_texts = [tool_results.search(topic) for topic in tool_results.TOPICS]
    assert results(second.all_messages()) == full_texts
    last_texts = results(script.received[-1])
    assert len(last_texts) == len(full_texts)
    assert sum(map(len, last_texts)) < sum(map(len, full_texts)) / 2
    assert tool_results.ANSWER in str(script.received[len(full_texts)])


async def test_a_history_processor_replaces_the_history() -> None:
    script = Script(*calls(), TextPart("At six."), TextPart("At noon."))
    processor = ProcessHistory(HistoryPruner(tool_results.BUDGET, **tool_results.OPTIONS))
    agent = Agent(script.model(), tools=[tool_results.search], capabilities=[processor])
    first = await agent.run(tool_results.QUESTION)
    second = await agent.run("And low tide?", message_history=first.all_messages())
    full_texts = [tool_results.search(topic) for topic in tool_results.TOPICS]
    assert results(second.all_messages()) == results(script.received[-1])
    assert sum(map(len, results(second.all_messages()))) < sum(map(len, full_texts)) / 2


def test_only_texts_of_results_change() -> None:
    rows = [{"topic": "violins", "text": tool_results.search("violins")} for _ in range(8)]
    image = ["a picture of a violin " * 200, BinaryContent(b"png", media_type="image/png")]
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart(tool_results.QUESTION)])]
    for number, content in enumerate((rows, image, tool_results.search(tool_results.TOPICS[1]))):
        messages.append(ModelResponse([ToolCallPart("search", "{}", f"c{number}")]))
        messages.append(ModelRequest([ToolReturnPart("search", content, f"c{number}", metadata="kept")]))
    messages.append(ModelResponse([TextPart("At six.")]))
    before = repr(messages)
    pruned = HistoryPruner(tool_results.BUDGET, **tool_results.OPTIONS)(messages)
    assert repr(messages) == before
    first, second, _ = results(pruned)
    assert isinstance(first, str)
    assert "pruned]" in first
    assert second == image
    assert pruned[2].parts[0].metadata == "kept"
    assert [after is message for after, message in zip(pruned, messages, strict=True)].count(False) <= 2


@pytest.mark.parametrize("details", [None, {"thought_signature": "signed"}])
@pytest.mark.parametrize("as_text", [False, True])
def test_large_arguments_are_pruned_unless_the_call_is_signed(details: dict[str, Any] | None, as_text: bool) -> None:
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart(tool_results.QUESTION)])]
    for number, topic in enumerate(tool_results.TOPICS):
        args: Any = {"rows": tool_results.search(topic).split("\n\n"), "count": 4}
        call = ToolCallPart("save", json.dumps(args) if as_text else args, f"c{number}", provider_details=details)
        messages.append(ModelResponse([TextPart("Now:"), call]))
        messages.append(ModelRequest([ToolReturnPart("save", tool_results.search(topic), f"c{number}")]))
    messages.append(ModelResponse([TextPart("At six.")]))
    pruned = HistoryPruner(tool_results.BUDGET, **tool_results.OPTIONS)(messages)
    calls, whole = ([message.parts[1] for message in it[1:-1:2]] for it in (pruned, messages))
    assert [type(call.args) for call in calls] == [type(call.args) for call in whole]
    assert all(call.args_as_dict()["count"] == 4 for call in calls)
    assert (calls == whole) == bool(details)
    assert len(str(calls)) < len(str(whole)) / 2 or details


async def test_the_search_agent_as_a_tool(agent: SearchAgent) -> None:
    script = Script(ToolCallPart("search_documents", {"question": QUESTION, "k": 2}), TextPart("An award."))
    result = await Agent(script.model(), tools=[search_tool(agent)]).run("Which award?")
    assert result.output == "An award."
    (answer,) = results(result.all_messages())
    assert "AFI Life Achievement Award" in answer
    assert answer.count("(id: ") == 2


async def test_a_mistake_of_the_model_is_an_answer(agent: SearchAgent) -> None:
    script = Script(ToolCallPart("search_documents", {"k": 0}), TextPart("Sorry."))
    result = await Agent(script.model(), tools=[search_tool(agent)]).run("Which award?")
    assert results(result.all_messages())[0].startswith("Error: question")
