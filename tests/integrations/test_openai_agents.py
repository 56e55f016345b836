"""The OpenAI Agents SDK itself: pruned model input, a whole session, and the search agent as a tool."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import (
    Agent,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolOutputFileContent,
    ToolOutputText,
    Usage,
    function_tool,
)
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from context_agent import SearchAgent
from context_agent.integrations.openai_agents import ContextPruningFilter, search_tool
from tests.support import tool_results
from tests.support.film_question import QUESTION


class ScriptedModel(Model):
    """Plays output items and records the input."""

    def __init__(self, *script: Any) -> None:
        self._script = iter(script)
        self.received: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> ModelResponse:
        self.received.append(input)
        return ModelResponse(output=[next(self._script)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def call(name: str, number: int, **arguments: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=name, call_id=f"call_{number}", arguments=json.dumps(arguments)
    )


def says(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])


def outputs(items: Any) -> list[str]:
    return [item["output"] for item in items if isinstance(item, dict) and item.get("type") == "function_call_output"]


async def test_model_input_is_pruned_and_the_session_stays_whole() -> None:
    calls = [call("search", number, topic=topic) for number, topic in enumerate(tool_results.TOPICS)]
    model, session = ScriptedModel(*calls, says("At six."), says("At noon.")), SQLiteSession("s")
    agent = Agent("harbour", instructions="Be brief.", model=model, tools=[function_tool(tool_results.search)])
    pruning = ContextPruningFilter(tool_results.BUDGET, **tool_results.OPTIONS)
    config = RunConfig(call_model_input_filter=pruning, tracing_disabled=True)
    for question in (tool_results.QUESTION, "And low tide?"):
        result = await Runner.run(agent, question, run_config=config, session=session)
    full_texts = [tool_results.search(topic) for topic in tool_results.TOPICS]
    assert outputs(await session.get_items()) == full_texts
    assert outputs(result.to_input_list()) in (full_texts, [])
    last_texts = outputs(model.received[-1])
    assert len(last_texts) == len(full_texts)
    assert sum(map(len, last_texts)) < sum(map(len, full_texts)) / 2
    assert tool_results.ANSWER in str(model.received[len(full_texts)])


async def test_results_of_several_parts_keep_their_form() -> None:
    def look(topic: str) -> list[ToolOutputText | ToolOutputFileContent]:
        """Look something up."""
        return [ToolOutputText(text=tool_results.search(topic)), ToolOutputFileContent(file_data="aGk=", filename="a")]

    calls = [call("look", number, topic=topic) for number, topic in enumerate(tool_results.TOPICS * 2)]
    model, session = ScriptedModel(*calls, says("At six.")), SQLiteSession("parts")
    pruning = ContextPruningFilter(tool_results.BUDGET, **tool_results.OPTIONS)
    config = RunConfig(call_model_input_filter=pruning, tracing_disabled=True)
    agent = Agent("harbour", model=model, tools=[function_tool(look)])
    await Runner.run(agent, tool_results.QUESTION, run_config=config, session=session, max_turns=20)
    whole, sent = outputs(await session.get_items()), outputs(model.received[-1])
    assert len(sent) == len(whole) == len(calls)
    pruned = [after for before, after in zip(whole, sent, strict=True) if before != after]
    assert len(pruned) >= len(calls) // 2
    for text, file in pruned:
        assert text["type"] == "input_text"
        assert text["text"].strip()
        assert file["type"] in ("input_file", "input_text")
    assert sent[-1][1] == whole[-1][1], "the newest file"


async def test_the_search_agent_as_a_tool(agent: SearchAgent) -> None:
    model = ScriptedModel(call("search_documents", 0, question=QUESTION, k=2), says("An award."))
    assistant = Agent("films", model=model, tools=[search_tool(agent)])
    result = await Runner.run(assistant, "Which award?", run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == "An award."
    (answer,) = outputs(model.received[-1])
    assert "AFI Life Achievement Award" in answer
    assert answer.count("(id: ") == 2


async def test_a_mistake_of_the_model_is_an_answer(agent: SearchAgent) -> None:
    model = ScriptedModel(call("search_documents", 0, k=0), says("Sorry."))
    assistant = Agent("films", model=model, tools=[search_tool(agent)])
    await Runner.run(assistant, "Which award?", run_config=RunConfig(tracing_disabled=True))
    assert outputs(model.received[-1])[0].startswith("Error: question")
