"""OpenAI's own client, unmodified, with the agent as its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import openai
import pytest

from context_agent import ScriptedPolicy, SearchResult
from context_agent.errors import PolicyError
from context_agent.integrations.functions import NO_PASSAGES, ONLY_NEAREST
from context_agent.integrations.server import endpoints
from context_agent.integrations.server.answers import ServedAnswer
from context_agent.pruning.view import View
from context_agent.types import Action, RankedChunk, RankedDocument
from tests.support.held_policy import HeldPolicy
from tests.support.servers import Running, Serve, one_search

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
        retrieved = server.ask("comets?", k=3).json()
        completion = client(server).chat.completions.create(
            model=MODEL, messages=MESSAGES, temperature=0.2, extra_body={"k": 3}
        )
    (choice,) = completion.choices
    assert choice.finish_reason == "stop"
    content = choice.message.content or ""
    for number, document in enumerate(retrieved["documents"], start=1):
        best = document["chunks"][0]
        assert f"[{number}] {document['title']} (id: {best['id']})\n{best['text']}" in content
    assert completion.model_extra is not None
    assert completion.model_extra["documents"] == retrieved["documents"]
    assert completion.usage is not None
    assert (
        completion.usage.total_tokens
        == retrieved["tokens"]
        == completion.usage.prompt_tokens + completion.usage.completion_tokens
    )


def test_a_client_of_another_api_learns_which_one_the_server_has(serve: Serve) -> None:
    with serve(token="abc") as server:
        without_version = openai.OpenAI(base_url=server.url, api_key="abc", max_retries=0)
        with pytest.raises(openai.NotFoundError, match="a base address that ends with /v1"):
            without_version.chat.completions.create(model=MODEL, messages=MESSAGES)
        with pytest.raises(openai.NotFoundError, match="answers chat completions at /v1/chat/completions"):
            client(server).responses.create(model=MODEL, input="comets?")
        with pytest.raises(openai.AuthenticationError):
            client(server, "wrong").responses.create(model=MODEL, input="comets?")


def test_a_completion_in_chunks(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "HEARTBEAT_SECONDS", 0.05)
    with serve(token="abc") as server:
        completion = client(server).chat.completions.create(model=MODEL, messages=MESSAGES)
        stream = client(server).chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert content == completion.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage == completion.usage
    assert completion.model_extra is not None
    extra = chunks[-2].model_extra
    assert extra is not None
    assert extra["documents"] == completion.model_extra["documents"]


async def test_the_client_that_does_not_block(serve: Serve) -> None:
    with serve(token="abc") as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="abc") as async_client:
            completion = await async_client.chat.completions.create(model=MODEL, messages=MESSAGES)
            stream = await async_client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            streamed_text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert streamed_text == completion.choices[0].message.content != ""


def test_models(serve: Serve) -> None:
    with serve(token="abc") as server:
        assert [model.id for model in client(server).models.list()] == [MODEL]
        assert client(server).models.retrieve(MODEL).owned_by == "context-agent"
        with pytest.raises(openai.NotFoundError, match="has only the model 'context-agent'"):
            client(server).models.retrieve("gpt-x")


def test_the_name_of_a_model_may_have_slashes(serve: Serve) -> None:
    with serve(token="abc", model="team/notes") as server:
        assert client(server).models.retrieve("team/notes").id == "team/notes"
        assert server.client.get("/v1/models/team/notes").json()["id"] == "team/notes"
        with pytest.raises(openai.NotFoundError, match=r"has only the model 'team/notes'\. Request this model"):
            client(server).chat.completions.create(model="notes", messages=MESSAGES)


def test_errors_are_those_that_the_client_knows(serve: Serve) -> None:
    with serve(one_search(3), token="abc", concurrency=1, queue=0) as server:

        def create(**options: Any) -> Any:
            return client(server).chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **options})

        with pytest.raises(openai.AuthenticationError, match="the bearer token is wrong"):
            client(server, "wrong").models.list()
        with pytest.raises(openai.NotFoundError) as not_found:
            create(model="gpt-x")
        assert not_found.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="no user message"):
            create(messages=[{"role": "system", "content": "x"}])
        with pytest.raises(openai.BadRequestError, match="is empty"):
            create(messages=[{"role": "user", "content": " "}])
        with pytest.raises(openai.UnprocessableEntityError, match=r"messages\.0\.content: It must be a text or a list"):
            create(messages=[{"role": "user", "content": {"text": "x"}}])
        with pytest.raises(openai.UnprocessableEntityError, match="n: "):
            create(n=2)
        with pytest.raises(openai.BadRequestError, match=r"\$foo"):
            create(extra_body={"where": {"a": {"$foo": 1}}})
        stream = create(stream=True)
        with pytest.raises(openai.RateLimitError) as rate_limited:
            create()
        assert rate_limited.value.code == "queue_full"
        stream.close()
        server.until(lambda: server.service.admission.running == 0, seconds=10)


def test_a_search_cut_short_ends_for_length(serve: Serve) -> None:
    with serve(HeldPolicy(at=1)) as server:
        completion = client(server).chat.completions.create(
            model=MODEL, messages=MESSAGES, extra_body={"deadline": 0.4}
        )
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.content != ""


def test_nothing_found(serve: Serve) -> None:
    with serve(ScriptedPolicy([])) as server:
        completion = client(server).chat.completions.create(model=MODEL, messages=MESSAGES)
    assert completion.choices[0].message.content == "Nothing was found."


def test_a_failure_in_a_stream_reaches_the_client(serve: Serve) -> None:
    def fail(view: View) -> Action:
        raise PolicyError("/secret/place")

    with serve(ScriptedPolicy([fail])) as server, pytest.raises(openai.APIError) as caught:
        list(client(server).chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    assert "the policy failed" in str(caught.value)


def test_evidence_that_does_not_suffice_is_announced_above_the_nearest_passages() -> None:
    documents = (RankedDocument("1", "Rope", 0.1, (RankedChunk("1_0", "A film of 1948.", 0.1),)),)
    result = SearchResult("Q?", documents, "finished", 1, 10, (), confidence=0.2)
    answer = ServedAnswer("r", result, 0.1, 0.0)
    assert answer.text() == f"{ONLY_NEAREST}\n\n[1] Rope (id: 1_0)\nA film of 1948."
    assert (answer.to_json()["sufficient"], answer.to_json()["confidence"]) == (False, 0.2)
    assert ServedAnswer("r", replace(result, confidence=0.8), 0.1, 0.0).text().startswith("[1] Rope")
    assert ServedAnswer("r", replace(result, documents=()), 0.1, 0.0).text() == NO_PASSAGES
