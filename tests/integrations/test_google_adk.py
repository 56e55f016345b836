"""Google's Agent Development Kit itself: pruned model requests, and a whole session."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import Agent
from google.adk.apps import App
from google.adk.cli.agent_test_runner import MockModel
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, FunctionCall, FunctionResponse, Part

from context_agent.integrations.google_adk import ContentPruningFilter, _chat
from tests.support import tool_results


def search(topic: str) -> str:
    """Entries on a topic."""
    return tool_results.search(topic)


def lookup(topic: str) -> dict[str, Any]:
    """Entries on a topic as records."""
    return {"hits": [{"text": entry[:300]} for entry in tool_results.search(topic).split("\n\n")], "total": 4}


def outputs(contents: list[Content]) -> list[Any]:
    parts = (part for content in contents for part in content.parts or ())
    return [part.function_response.response for part in parts if part.function_response]


@pytest.mark.parametrize("tool", [search, lookup])
async def test_model_requests_are_pruned_and_the_session_stays_whole(tool: Any) -> None:
    calls = [
        Content(role="model", parts=[Part(function_call=FunctionCall(name=tool.__name__, args={"topic": topic}))])
        for topic in tool_results.TOPICS
    ]
    model = MockModel.create([*calls, Content(role="model", parts=[Part(text="At six.")])])
    model.requests = []
    agent = Agent(name="harbour", model=model, tools=[tool])
    pruning = ContentPruningFilter(tool_results.BUDGET, **tool_results.OPTIONS)
    app = App(name="harbour", root_agent=agent, plugins=[ContextFilterPlugin(custom_filter=pruning)])
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="harbour", user_id="u")
    question = Content(role="user", parts=[Part(text=tool_results.QUESTION)])
    events = [event async for event in runner.run_async(user_id="u", session_id=session.id, new_message=question)]
    assert events[-1].content.parts[0].text == "At six."
    full_outputs = outputs([event.content for event in events])
    last_outputs = outputs(model.requests[-1].contents)
    assert len(last_outputs) == len(full_outputs) == len(tool_results.TOPICS)
    assert len(str(last_outputs)) < len(str(full_outputs)) / 2
    assert tool_results.ANSWER in str(last_outputs)
    assert all(pruned.keys() == full.keys() for pruned, full in zip(last_outputs, full_outputs, strict=True))


def test_a_response_without_a_call_passes_with_everything_else() -> None:
    long_response = {"result": tool_results.search("weather")}
    contents = [
        Content(role="user", parts=[Part(text=tool_results.QUESTION)]),
        Content(role="user", parts=[Part(function_response=FunctionResponse(name="search", response=long_response))]),
        Content(role="model", parts=None),
    ]
    assert ContentPruningFilter(1)(contents) == contents


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_response_answers_the_call_with_its_id(has_ids: bool) -> None:
    names = ["a", "b"]
    ids = {name: name if has_ids else None for name in names}
    calls = [Part(function_call=FunctionCall(id=ids[it], name="search", args={"topic": it})) for it in names]
    answers = [
        Part(function_response=FunctionResponse(id=ids[it], name="search", response={"result": it})) for it in "ba"
    ]
    chat = [
        message for message, _, _ in _chat([Content(role="model", parts=calls), Content(role="user", parts=answers)])
    ]
    called = [call["id"] for call in chat[0]["tool_calls"]]
    assert len(set(called)) == 2
    assert [message["tool_call_id"] for message in chat[1:]] == (called[::-1] if has_ids else called)


@pytest.mark.parametrize("signature", [None, b"signed"])
def test_large_arguments_are_pruned_unless_the_call_is_signed(signature: bytes | None) -> None:
    contents = [Content(role="user", parts=[Part(text=tool_results.QUESTION)])]
    for topic in tool_results.TOPICS:
        call = FunctionCall(name="save", args={"rows": tool_results.search(topic).split("\n\n"), "count": 4})
        response = FunctionResponse(name="save", response={"result": tool_results.search(topic)})
        parts = [Part(text="Now:"), Part(function_call=call, thought_signature=signature)]
        contents.append(Content(role="model", parts=parts))
        contents.append(Content(role="user", parts=[Part(function_response=response)]))
    contents.append(Content(role="model", parts=[Part(text="At six.")]))
    pruned = ContentPruningFilter(tool_results.BUDGET, **tool_results.OPTIONS)(contents)
    calls = [content.parts[1].function_call for content in pruned[1:-1:2]]
    whole = [content.parts[1].function_call for content in contents[1:-1:2]]
    assert [call.args.keys() for call in calls] == [call.args.keys() for call in whole]
    assert all(call.args["count"] == 4 for call in calls)
    assert (calls == whole) == bool(signature)
    assert len(str(calls)) < len(str(whole)) / 2 or signature
