"""Rerankers over HTTP: the forms of answers, trying again, and clear failures."""

import json
from collections.abc import Callable

import httpx
import numpy as np
import pytest

from context_agent.errors import ConfigError, RerankerError
from context_agent.retrieval.rerankers import KEY_VARIABLE, CrossEncoderReranker, HttpReranker, load_reranker

URL = "http://rerank.test/v1/rerank"


def reranker(answer: Callable[[httpx.Request], httpx.Response], **options: object) -> HttpReranker:
    client = httpx.Client(transport=httpx.MockTransport(answer))
    return HttpReranker(URL, client=client, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]},
        {"results": [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}]},
        [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}],
    ],
)
def test_reads_every_common_form(body: object) -> None:
    scores = reranker(lambda request: httpx.Response(200, json=body)).score("q", ["a", "b"])
    assert scores == pytest.approx([0.1, 0.9])
    assert scores.dtype == np.float32


def test_sends_model_key_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=[{"index": 0, "score": 1}])

    monkeypatch.setenv(KEY_VARIABLE, "secret")
    reranker(answer, model="m").score("q", ["a"])
    assert seen[0].headers["Authorization"] == "Bearer secret"
    assert json.loads(seen[0].content) == {"query": "q", "model": "m", "documents": ["a"], "top_n": 1}
    reranker(answer).score("q", ["a"])
    assert json.loads(seen[1].content)["texts"] == ["a"]


def test_tries_again_after_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    answers = [
        httpx.Response(429, headers={"Retry-After": "7"}),
        httpx.Response(503),
        httpx.Response(200, json=[{"index": 0, "score": 2}]),
    ]
    assert reranker(lambda request: answers.pop(0)).score("q", ["a"]) == [2]
    assert pauses[0] == 7
    assert 0 < pauses[1] <= 1


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (httpx.Response(401, text="no key"), "401: no key"),
        (httpx.Response(500, text="boom"), "failed after 2 tries.*boom"),
        (httpx.Response(429, headers={"Retry-After": "3600"}), "failed after 1 tries"),
        (httpx.Response(200, text="<html>"), "no JSON"),
        (httpx.Response(200, json={"data": []}), "unknown form"),
        (httpx.Response(200, json=[{"index": 7, "score": 1}]), "unknown form"),
        (httpx.Response(200, json=[{"index": 0, "score": 1}]), "scored 1 of 2"),
    ],
)
def test_failures_say_what_happened(response: httpx.Response, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(RerankerError, match=reason):
        reranker(lambda request: response, retries=1).score("q", ["a", "b"])


def test_a_server_that_is_down() -> None:
    with pytest.raises(RerankerError, match="ConnectError"):
        HttpReranker("http://127.0.0.1:9/rerank", retries=0).score("q", ["a"])


def test_no_texts_need_no_server() -> None:
    assert HttpReranker("http://127.0.0.1:9/rerank").score("q", []).shape == (0,)


def test_specs() -> None:
    assert load_reranker(None) is None
    assert load_reranker("none") is None
    assert isinstance(load_reranker("cross-encoder:some/model"), CrossEncoderReranker)
    made = load_reranker("https://host/rerank#model-1")
    assert made is not None
    assert made.name == "https://host/rerank#model-1"
    with pytest.raises(ConfigError, match="cross-encoder:MODEL"):
        load_reranker("magic")
