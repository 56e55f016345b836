"""The official clients of search engines: their requests, and their responses as an engine's.

Elasticsearch and OpenSearch are stand-ins that answer as their references document; Qdrant is its client's own engine
in memory.
"""

from __future__ import annotations

from typing import Any

import pytest

from context_agent import EngineCorpus
from context_agent.errors import CorpusError
from tests.support.http_server import Response, http_server
from tests.support.missing_packages import need

need("elasticsearch", "opensearchpy", "qdrant_client")

QUERY = {"multi_match": {"query": "a film", "fields": ["title^2", "text"]}}
HITS: list[dict[str, Any]] = [
    {
        "_index": "wiki",
        "_id": "a",
        "_score": 7.2,
        "_source": {"title": "Rope", "text": "A film of 1948.", "year": 1948},
    },
    {"_index": "wiki", "_id": "b", "_score": 1.1, "_source": {"title": "Bread", "text": "Flour and water."}},
]
RESPONSE = {
    "took": 3,
    "timed_out": False,
    "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
    "hits": {"total": {"value": 2, "relation": "eq"}, "max_score": 7.2, "hits": HITS},
}
MISSING = {"error": {"type": "index_not_found_exception", "reason": "no such index [wiki]"}, "status": 404}


def answer(body: object, status: int = 200) -> Response:
    headers = {"X-Elastic-Product": "Elasticsearch", "Content-Type": "application/json"}
    return Response(body, status=status, headers=headers)


def corpus_of(name: str, url: str) -> EngineCorpus:
    from elasticsearch import Elasticsearch
    from opensearchpy import OpenSearch

    from examples.search_engines import elasticsearch_search, opensearch_search

    if name == "elasticsearch":
        return EngineCorpus(elasticsearch_search(Elasticsearch(url), "wiki"))
    return EngineCorpus(opensearch_search(OpenSearch(url), "wiki"))


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_requests_and_responses_of_the_search_api(name: str) -> None:
    with http_server(answer(RESPONSE)) as server:
        hits = corpus_of(name, server.url()).search("a film", k=5)
    assert [(hit.chunk.document_id, hit.chunk.title) for hit in hits] == [("a", "Rope"), ("b", "Bread")]
    assert hits[0].chunk.metadata["year"] == 1948
    request = server.requests[-1]
    assert request["path"].split("?")[0] == "/wiki/_search"
    assert request["body"] == {"size": 5, "query": QUERY}


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_an_error_of_the_search_api_is_a_corpus_error(name: str) -> None:
    with http_server(answer(MISSING, 404)) as server, pytest.raises(CorpusError, match=r"NotFoundError.*index"):
        corpus_of(name, server.url()).search("a film", k=5)


def test_qdrant_by_its_clients_own_engine() -> None:
    from qdrant_client import QdrantClient, models

    from examples.search_engines import qdrant_search

    client = QdrantClient(":memory:")
    client.create_collection("wiki", models.VectorParams(size=2, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=7, vector=[1.0, 0.0], payload={"title": "Rope", "text": "A film.", "year": 1948}),
        models.PointStruct(id=8, vector=[0.0, 1.0], payload={"title": "Bread", "text": "Flour and water."}),
    ]
    client.upsert("wiki", points)
    corpus = EngineCorpus(qdrant_search(client, "wiki", lambda query: [0.9, 0.1]))
    hits = corpus.search("a film", k=1)
    assert [(hit.chunk.document_id, hit.chunk.title, hit.chunk.text) for hit in hits] == [("7", "Rope", "A film.")]
    assert hits[0].chunk.metadata == {"year": 1948, "version": 0, "score": pytest.approx(0.99, abs=0.01)}
    with pytest.raises(CorpusError, match="the search engine failed"):
        EngineCorpus(qdrant_search(client, "none", lambda query: [0.9, 0.1])).search("a film")
