"""Rerankers over HTTP: the forms of answers, retries, keys, and clear failures."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus
from context_agent.errors import ConfigError, RerankerError
from context_agent.retrieval.rerankers import CrossEncoderReranker, HttpReranker, load_reranker
from tests.support.http_server import Response, Server, http_server

GOOD = Response([{"index": 0, "score": 2}])


def reranker(server: Server, **options: object) -> HttpReranker:
    return HttpReranker(f"{server.url()}/rerank", **{"backoff": 0.01, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]},
        {"results": [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}]},
        [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}],
    ],
)
def test_reads_every_common_form(body: object) -> None:
    with http_server(Response(body)) as server:
        scores = reranker(server).score("q", ["a", "b"])
    assert scores == pytest.approx([0.1, 0.9])
    assert scores.dtype == np.float32


def test_sends_model_key_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_RERANK_KEY", "secret-7")
    with http_server(GOOD) as server:
        reranker(server, model="m", api_key_env="MY_RERANK_KEY").score("q", ["a"])
        reranker(server).score("q", ["a"])
    first, second = server.requests
    assert first["path"] == "/rerank"
    assert first["headers"]["authorization"] == "Bearer secret-7"
    assert first["body"] == {"query": "q", "model": "m", "documents": ["a"], "top_n": 1}
    assert second["body"]["texts"] == ["a"]


def test_no_key_is_sent_unless_the_user_named_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONTEXT_AGENT_RERANK_API_KEY", "OPENAI_API_KEY", "CTX1_API_KEY"):
        monkeypatch.setenv(name, "key-of-another-host")
    with http_server(GOOD) as server:
        reranker(server).score("q", ["a"])
    assert "authorization" not in server.requests[0]["headers"]


def test_tries_again_after_overload() -> None:
    with http_server(Response(status=429, headers={"Retry-After": "0.3"}), Response(status=503), GOOD) as server:
        start = time.perf_counter()
        assert reranker(server).score("q", ["a"]) == [2]
        assert time.perf_counter() - start >= 0.3
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response(b"no key", 401), r"401.*no key.*\?api_key_env=NAME"),
        (Response(b"boom", 500), "boom.*2 tries"),
        (
            Response(b"later", 429, {"Retry-After": "3600"}),
            "1 try.*asks to wait 3600 s, which is longer than the maximum of 30 s",
        ),
        (Response(b"<html>"), "must send JSON"),
        (Response({"data": []}), "must return a list of scores"),
        (Response([{"index": 7, "score": 1}]), "must return a list of scores"),
        (Response([{"index": -1, "score": 1}]), "must return a list of scores"),
        (Response([{"index": True, "score": 1}]), "must return a list of scores"),
        (Response([{"index": 0}, {"index": 1}]), "must return a list of scores"),
        (Response([{"index": 0, "score": 1}]), "must score all 2 texts; got 1"),
        (Response([{"index": 0, "score": 1e300}, {"index": 1, "score": 1}]), "finite scores"),
    ],
)
def test_failures_say_what_happened(response: Response, reason: str) -> None:
    with http_server(response) as server, pytest.raises(RerankerError, match=reason):
        reranker(server, retries=1).score("q", ["a", "b"])


def test_a_server_that_is_down() -> None:
    with pytest.raises(RerankerError, match="cannot connect"):
        HttpReranker("http://127.0.0.1:9/rerank", retries=0).score("q", ["a"])


def test_no_texts_need_no_server() -> None:
    assert HttpReranker("http://127.0.0.1:9/rerank").score("q", []).shape == (0,)


def test_specs() -> None:
    assert load_reranker(None) is None
    assert load_reranker("none") is None
    assert isinstance(load_reranker("cross-encoder:some/model"), CrossEncoderReranker)
    reranker = load_reranker("https://host/rerank#model-1")
    assert reranker is not None
    assert reranker.name == "https://host/rerank#model-1"
    with pytest.raises(ConfigError, match="late-interaction, cross-encoder:MODEL"):
        load_reranker("magic")


def test_an_address_names_the_variable_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_RERANK_KEY", "secret-7")
    with http_server(GOOD) as server:
        loaded = load_reranker(f"{server.url()}/rerank?v=2&api_key_env=MY_RERANK_KEY#m")
        assert loaded is not None
        loaded.score("q", ["a"])
    assert server.requests[0]["path"] == "/rerank?v=2"
    assert server.requests[0]["headers"]["authorization"] == "Bearer secret-7"
    assert loaded.name == f"{server.url()}/rerank#m"


def test_a_key_in_place_of_a_variables_name_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="name of an environment variable") as excinfo:
        load_reranker("https://host/rerank?api_key_env=sk-secret-7")
    assert "sk-secret-7" not in str(excinfo.value)


class Fixed:
    """A reranker of a caller that returns the same for every query."""

    name = "fixed"

    def __init__(self, scores: Any) -> None:
        self._scores = scores

    def score(self, query: str, texts: Sequence[str]) -> Any:
        return self._scores


@pytest.mark.parametrize(
    "scores",
    [[0.5], [[0.5], [0.1]], [0.5, math.nan], [0.5, -math.inf], [0.5, 1e300], ["good", "bad"], None],
    ids=["too few", "a column", "NaN", "infinite", "past float32", "words", "nothing"],
)
def test_a_corpus_refuses_what_is_not_one_finite_score_for_each_text(scores: Any) -> None:
    corpus = MemoryCorpus([Document("a", "A film."), Document("b", "A film, too.")], reranker=Fixed(scores))
    with pytest.raises(RerankerError, match="the reranker fixed must return"):
        corpus.search("film")
    with pytest.raises(RerankerError, match="the reranker fixed must return"):
        corpus.rerank("film", corpus.chunks)


def test_a_corpus_takes_a_list_of_numbers_as_scores() -> None:
    corpus = MemoryCorpus([Document("a", "A film."), Document("b", "A film, too.")], reranker=Fixed([1, 2]))
    assert [hit.score for hit in corpus.search("film")] == [2, 1]


@pytest.mark.parametrize(("shape", "fits"), [((2,), True), ((2, 1), True), ((2, 3), False)])
def test_a_cross_encoder_gives_one_number_for_a_pair(shape: tuple[int, ...], fits: bool) -> None:
    class Model:
        def predict(self, pairs: list[tuple[str, str]], batch_size: int) -> Any:
            return np.ones(shape)

    reranker = CrossEncoderReranker("some/model")
    reranker._model = Model()
    if fits:
        assert reranker.score("q", ["a", "b"]).tolist() == [1, 1]
    else:
        with pytest.raises(RerankerError, match="one score for each of 2 texts"):
            reranker.score("q", ["a", "b"])
