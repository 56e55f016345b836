"""An HTTP endpoint as an engine."""

from __future__ import annotations

import json

import pytest

from context_agent import EngineCorpus
from context_agent.errors import ConfigError, CorpusError
from context_agent.retrieval.engines.http_engine import HttpEngine
from tests.support.http_server import Response, http_server

HITS = [{"id": "a", "title": "Rope", "text": "A film of 1948."}, {"id": "b", "text": "Another text."}]


def test_an_address_is_an_engine() -> None:
    with http_server(Response({"results": HITS})) as server:
        hits = EngineCorpus(f"{server.url()}/search").search("a film", k=7)
    assert [hit.chunk.document_id for hit in hits] == ["a", "b"]
    (request,) = server.requests
    assert request["path"] == "/search"
    assert request["body"] == {"query": "a film", "limit": 7}


def test_an_address_with_a_query_is_requested_with_get() -> None:
    with http_server(Response(HITS)) as server:
        EngineCorpus(f"{server.url()}/s?q={{query}}&n={{limit}}&x=1").search("a & b {limit}?", k=3)
    assert server.requests[0]["path"] == "/s?q=a%20%26%20b%20%7Blimit%7D%3F&n=3&x=1"


def test_an_address_may_have_capitals_and_blanks_and_a_query_a_lone_surrogate() -> None:
    with http_server(Response(HITS)) as server:
        EngineCorpus(f" {server.url().replace('http', 'HTTP', 1)}/s?q={{query}} ").search("a\ud800")
    assert server.requests[0]["path"] == "/s?q=a%3F"


def test_the_body_is_the_engines_own() -> None:
    body = {"size": "{limit}", "query": {"bool": {"should": [{"match": {"text": "{query}"}}]}}, "from": 0}
    with http_server(Response({"hits": {"hits": []}})) as server:
        assert EngineCorpus(HttpEngine(server.url(), body=body)).search('say "{limit}"', k=4) == []
    assert server.requests[0]["body"] == {
        "size": 4,
        "query": {"bool": {"should": [{"match": {"text": 'say "{limit}"'}}]}},
        "from": 0,
    }


def test_an_empty_list_is_no_error() -> None:
    with http_server(Response([])) as server:
        assert EngineCorpus(server.url()).search("a film") == []
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (Response({"detail": "no such index"}, status=404), "HTTP 404"),
        (Response(b"<html>"), "must send JSON"),
        (Response("a text"), "got str"),
        (Response({"took": 1}), "must return a list of texts"),
    ],
)
def test_a_bad_answer_is_a_corpus_error(response: Response, message: str) -> None:
    with http_server(response) as server, pytest.raises(CorpusError, match=message):
        EngineCorpus(HttpEngine(server.url(), retries=0)).search("a film")


def test_an_endpoint_that_is_down_is_a_corpus_error() -> None:
    with http_server(Response([])) as server:
        url = server.url()
    with pytest.raises(CorpusError, match="server is running"):
        EngineCorpus(HttpEngine(url, retries=0)).search("a film")


def test_the_key_is_sent_to_this_endpoint_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "a-secret-of-the-engine")
    monkeypatch.setenv("OPENAI_API_KEY", "another-secret")
    with http_server(Response(HITS)) as server:
        HttpEngine(server.url(), api_key_env="ENGINE_KEY")("a film", 1)
        HttpEngine(server.url())("a film", 1)
    with_key, without_key = ({name.lower(): value for name, value in r["headers"].items()} for r in server.requests)
    assert with_key["authorization"] == "Bearer a-secret-of-the-engine"
    assert "secret" not in json.dumps(without_key)


def test_a_request_without_the_query_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no \{query\}"):
        HttpEngine("http://localhost/search", body={"q": "text"})
    with pytest.raises(ConfigError, match="the request has no body"):
        HttpEngine("http://localhost/search?q={query}", body={"q": "{query}"})
