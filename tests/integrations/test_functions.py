"""The agent as a function of reasoning models: definitions, execution, citations."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionToolMessageParam
from openai.types.responses import FunctionToolParam
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import ConfigDict, TypeAdapter, with_config

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError, PolicyError
from context_agent.integrations.functions import MAX_DOCUMENTS, ONLY_NEAREST, Provider, SearchTool
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from tests.support.film_question import QUESTION, TEXTS
from tests.support.two_hop_films import calibrated

PROVIDERS: tuple[Provider, ...] = ("openai", "openai-responses", "anthropic", "gemini")


def check_type(kind: Any, value: Any) -> None:
    """Check a value against the type that the provider's own client declares. Extra keys are errors."""
    TypeAdapter(with_config(ConfigDict(extra="forbid"))(kind)).validate_python(value)


def test_definitions_are_what_the_clients_declare(agent: SearchAgent) -> None:
    tool = SearchTool(agent)
    check_type(ChatCompletionFunctionToolParam, tool.definition("openai"))
    check_type(FunctionToolParam, tool.definition("openai-responses"))
    gemini = tool.definition("gemini")
    assert gemini.keys() == {"name", "description", "parameters"}
    for provider in PROVIDERS:
        assert json.loads(json.dumps(tool.definition(provider))) == tool.definition(provider)
    schemas = [
        tool.definition("openai")["function"]["parameters"],
        tool.definition("openai-responses")["parameters"],
        tool.definition("anthropic")["input_schema"],
        gemini["parameters"],
    ]
    assert all(schema == schemas[0] for schema in schemas)
    assert schemas[0]["required"] == ["question"]


def test_answers_are_what_the_clients_declare(agent: SearchAgent) -> None:
    answer = SearchTool(agent).conversation().run({"question": QUESTION})
    check_type(ChatCompletionToolMessageParam, answer.message("openai", "c1"))
    check_type(FunctionCallOutput, answer.message("openai-responses", "c1"))
    assert answer.message("gemini", "c1") == {
        "function_response": {"name": "search_documents", "response": {"output": answer.text}, "id": "c1"}
    }


def test_evidence_that_does_not_suffice_is_announced_to_the_model(corpus: MemoryCorpus) -> None:
    conversation = SearchTool(SearchAgent(corpus, calibrated())).conversation()
    answer = conversation.run({"question": "Which rivers flow past Zagreb and Ljubljana?"})
    assert answer.text.startswith(f"{ONLY_NEAREST}\n\n[1] ")
    assert all(passage.added_metadata()["ctx1_sufficient"] is False for passage in answer.passages.values())


def test_anthropic_s_client_declares_the_same(agent: SearchAgent) -> None:
    types = pytest.importorskip("anthropic.types")
    tool = SearchTool(agent)
    answer = tool.conversation().run({"question": QUESTION})
    check_type(types.ToolParam, tool.definition("anthropic"))
    check_type(types.ToolResultBlockParam, answer.message("anthropic", "c1"))
    check_type(types.ToolResultBlockParam, {**answer.message("anthropic", "c1"), "content": answer.blocks()})
    for block in answer.blocks():
        check_type(types.SearchResultBlockParam, block)
    assert [block["source"] for block in answer.blocks()][:2] == ["d0_0", "d1_0"]


@pytest.mark.parametrize("written", [{"question": QUESTION, "k": 2}, json.dumps({"question": QUESTION, "k": 2})])
def test_a_call_gives_numbered_passages_with_ids(agent: SearchAgent, written: Any) -> None:
    answer = SearchTool(agent).conversation().run(written)
    assert answer.text == (
        f"[1] Rope (id: d0_0)\n{TEXTS['Rope'][0]}\n\n[2] Alfred Hitchcock (id: d1_0)\n{TEXTS['Alfred Hitchcock'][0]}"
    )
    assert [(number, passage.id) for number, passage in answer.passages.items()] == [(1, "d0_0"), (2, "d1_0")]
    assert not answer.mistake


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{oops", "Invalid JSON"),
        ("[]", "arguments"),
        ("", "Invalid JSON"),
        ("[" * 5000, "Invalid JSON"),
        ("x" * 100_001, "got 100,001"),
        ({}, "question: Field required"),
        ({"question": "  "}, "at least 1 character"),
        ({"question": 3}, "valid string"),
        (None, "arguments: Input should be"),
        ([1], "arguments: Input should be"),
        ({"question": "a", "k": 0}, "greater than or equal to 1"),
        ({"question": "a", "k": MAX_DOCUMENTS + 1}, f"less than or equal to {MAX_DOCUMENTS}"),
        ({"question": "a", "limit": 3}, "limit: Extra inputs"),
        ({"question": "word " * 20_000}, "soft threshold"),
    ],
)
def test_a_mistake_comes_back_as_text(agent: SearchAgent, written: Any, told: str) -> None:
    conversation = SearchTool(agent).conversation()
    for answer in (conversation.run(written), asyncio.run(conversation.arun(written))):
        assert answer.mistake
        assert answer.text.startswith("Error: ")
        assert told in answer.text
        assert len(answer.text) < 400
        assert answer.message("anthropic", "c")["is_error"] is True
        assert answer.message("gemini", "c")["function_response"]["response"] == {"error": answer.text}
        assert answer.blocks() == [{"type": "text", "text": answer.text}]


def test_a_policy_that_fails_raises(films: MemoryCorpus) -> None:
    def fail(view: object) -> Any:
        raise PolicyError("the server is down")

    with SearchAgent(films, ScriptedPolicy([fail])) as agent, pytest.raises(PolicyError, match="down"):
        SearchTool(agent).conversation().run({"question": QUESTION})


def test_numbers_last_through_a_conversation_and_no_longer(agent: SearchAgent) -> None:
    tool = SearchTool(agent, k=2)
    conversation = tool.conversation()
    conversation.run({"question": "What is bread made of?", "k": 1})
    answer = conversation.run({"question": QUESTION})
    assert list(answer.passages) == [2, 3]
    repeated = conversation.run({"question": "What is bread made of?", "k": 1})
    assert list(repeated.passages) == [1]
    assert list(tool.conversation().run({"question": QUESTION}).passages) == [1, 2]


def test_citations_are_checked_against_what_was_shown(agent: SearchAgent) -> None:
    conversation = SearchTool(agent, k=2).conversation()
    conversation.run({"question": QUESTION})
    citations = conversation.cited("It was the AFI award [2], [1, 2] and [9]; not [x] nor (1) nor [1b].")
    assert [passage.id for passage in citations.passages] == ["d1_0", "d0_0"]
    assert citations.unknown == (9,)
    assert conversation.cited("Nothing.").passages == ()


def test_calls_at_the_same_time_give_each_passage_one_number(agent: SearchAgent) -> None:
    conversation = SearchTool(agent).conversation()
    questions = [QUESTION, "What is bread made of?", "Where were operas first sung?"] * 5
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda question: conversation.run({"question": question}), questions))
    numbers: dict[str, set[int]] = {}
    for answer in answers:
        for number, passage in answer.passages.items():
            numbers.setdefault(passage.id, set()).add(number)
    assert all(len(assigned) == 1 for assigned in numbers.values())
    assert sorted(min(assigned) for assigned in numbers.values()) == list(range(1, len(numbers) + 1))


def test_a_fixed_filter_cannot_be_lifted(agent: SearchAgent) -> None:
    conversation = SearchTool(agent, where={"year": 1200}).conversation()
    assert {passage.id for passage in conversation.run({"question": QUESTION}).passages.values()} <= {"d2_0"}
    answer = SearchTool(agent, where={"year": 7}).conversation().run({"question": QUESTION})
    assert (answer.text, answer.mistake) == ("Nothing was found.", False)


def test_names_and_providers_are_checked(agent: SearchAgent) -> None:
    with pytest.raises(ConfigError, match="the name of a tool must"):
        SearchTool(agent, name="search documents")
    with pytest.raises(ConfigError, match="`k` must be a whole number of at least 1"):
        SearchTool(agent, k=0)
    with pytest.raises(ConfigError, match="unknown provider 'mistral'"):
        SearchTool(agent).definition("mistral")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown provider"):
        SearchTool(agent).conversation().run("{}").message("x", "c")  # type: ignore[arg-type]


def test_the_official_client_carries_definition_and_answer(agent: SearchAgent) -> None:
    tool = SearchTool(agent, k=2)
    conversation = tool.conversation()
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    steps = [says(calls=[(tool.name, {"question": QUESTION})]), says("The AFI Life Achievement Award [2].")]
    with ScriptedServer(steps) as server:
        client = OpenAI(base_url=server.url, api_key="none")
        requests: dict[str, Any] = {"model": "scripted", "tools": [tool.definition("openai")]}
        reply = client.chat.completions.create(messages=messages, **requests).choices[0].message
        assert reply.tool_calls is not None
        messages.append(reply.model_dump(exclude_none=True))
        call: Any = reply.tool_calls[0]
        messages.append(conversation.run(call.function.arguments).message("openai", call.id))
        text = client.chat.completions.create(messages=messages, **requests).choices[0].message.content
        assert server.chat_bodies()[0]["tools"] == [tool.definition("openai")]
        assert server.chat_bodies()[1]["messages"][-1]["tool_call_id"] == call.id
    assert text is not None
    assert [passage.id for passage in conversation.cited(text).passages] == ["d1_0"]
