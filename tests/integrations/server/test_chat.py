"""OpenAI's own client, unmodified, with the agent as its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import openai
import pytest

from context_agent import ScriptedPolicy, SearchResult
from context_agent.errors import PolicyError
from context_agent.integrations.functions import NO_PASSAGES, ONLY_NEAREST
from context_agent.integrations.server.responses import ServedAnswer
from context_agent.pruning.view import View
from context_agent.types import Action, RankedChunk, RankedDocument
from tests.integrations.server.conftest import Running, Serve, one_search

MODEL = "context-agent"
MESSAGES: list[Any] = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "gardens?"},
    {"role": "assistant", "content": "..."},
    {"role": "user", "content": [{"type": "text", "text": "comets?"}]},
]


def client(server: Running, key: str = "abc") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def test_a_completion(serve: Serve) -> None:
    with serve(token="abc") as server:
        plain = server.ask("comets?", k=3).json()
        result = client(server).chat.completions.create(
            model=MODEL, messages=MESSAGES, temperature=0.2, extra_body={"k": 3}
        )
    (choice,) = result.choices
    assert choice.finish_reason == "stop"
    content = choice.message.content or ""
    for number, document in enumerate(plain["documents"], start=1):
        best = document["chunks"][0]
        assert f"[{number}] {document['title']} (id: {best['id']})\n{best['text']}" in content
    assert result.model_extra is not None
    assert result.model_extra["documents"] == plain["documents"]
    assert result.usage is not None
    assert result.usage.total_tokens == plain["tokens"] == result.usage.prompt_tokens + result.usage.completion_tokens


def test_a_completion_in_chunks(serve: Serve) -> None:
    with serve(token="abc", heartbeat=0.05) as server:
        item = client(server).chat.completions.create(model=MODEL, messages=MESSAGES)
        stream = client(server).chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    result = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert result == item.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage == item.usage
    assert item.model_extra is not None
    extra = chunks[-2].model_extra
    assert extra is not None
    assert extra["documents"] == item.model_extra["documents"]


async def test_the_client_that_does_not_block(serve: Serve) -> None:
    with serve(token="abc") as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="abc") as asking:
            result = await asking.chat.completions.create(model=MODEL, messages=MESSAGES)
            stream = await asking.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            item = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert item == result.choices[0].message.content != ""


def test_models(serve: Serve) -> None:
    with serve(token="abc") as server:
        assert [item.id for item in client(server).models.list()] == [MODEL]
        assert client(server).models.retrieve(MODEL).owned_by == "context-agent"
        with pytest.raises(openai.NotFoundError, match="the only model here is 'context-agent'"):
            client(server).models.retrieve("gpt-x")


def test_errors_are_those_that_the_client_knows(serve: Serve) -> None:
    with serve(one_search(0.4), token="abc", concurrency=1, queue=0) as server:

        def create(**given: Any) -> Any:
            return client(server).chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **given})

        with pytest.raises(openai.AuthenticationError, match="the bearer token is wrong"):
            client(server, "wrong").models.list()
        with pytest.raises(openai.NotFoundError) as unknown:
            create(model="gpt-x")
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="no user message"):
            create(messages=[{"role": "system", "content": "x"}])
        with pytest.raises(openai.BadRequestError, match="is empty"):
            create(messages=[{"role": "user", "content": " "}])
        with pytest.raises(openai.UnprocessableEntityError, match="n: "):
            create(n=2)
        with pytest.raises(openai.BadRequestError, match=r"\$foo"):
            create(extra_body={"where": {"a": {"$foo": 1}}})
        running = create(stream=True)
        with pytest.raises(openai.RateLimitError) as full:
            create()
        assert full.value.code == "queue_full"
        running.close()
        server.until(lambda: server.service.gate.running == 0, seconds=2)


def test_a_search_cut_short_ends_for_length(serve: Serve) -> None:
    with serve(one_search(0.3)) as server:
        result = client(server).chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"deadline": 0.4})
    assert result.choices[0].finish_reason == "length"
    assert result.choices[0].message.content != ""


def test_nothing_found(serve: Serve) -> None:
    with serve(ScriptedPolicy([])) as server:
        result = client(server).chat.completions.create(model=MODEL, messages=MESSAGES)
    assert result.choices[0].message.content == "Nothing was found."


def test_a_failure_in_a_stream_reaches_the_client(serve: Serve) -> None:
    def fails(view: View) -> Action:
        raise PolicyError("/secret/place")

    with serve(ScriptedPolicy([fails])) as server, pytest.raises(openai.APIError) as failed:
        list(client(server).chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    assert "the policy failed" in str(failed.value)


def test_evidence_that_does_not_suffice_is_announced_above_the_nearest_passages() -> None:
    documents = (RankedDocument("1", "Rope", 0.1, (RankedChunk("1_0", "A film of 1948.", 0.1),)),)
    result = SearchResult("Q?", documents, "finished", 1, 10, (), confidence=0.2)
    answer = ServedAnswer("r", result, 0.1, 0.0)
    assert answer.text() == f"{ONLY_NEAREST}\n\n[1] Rope (id: 1_0)\nA film of 1948."
    assert (answer.to_json()["sufficient"], answer.to_json()["confidence"]) == (False, 0.2)
    assert ServedAnswer("r", replace(result, confidence=0.8), 0.1, 0.0).text().startswith("[1] Rope")
    assert ServedAnswer("r", replace(result, documents=()), 0.1, 0.0).text() == NO_PASSAGES
