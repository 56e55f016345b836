"""Search functions over the official clients of search engines, for `EngineCorpus`.

    agent = SearchAgent(EngineCorpus(elasticsearch_search(Elasticsearch("http://localhost:9200"), "wiki")))

Each returns the client's response as it is: `EngineCorpus` finds the passages in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elasticsearch import Elasticsearch
from opensearchpy import OpenSearch
from qdrant_client import QdrantClient

Search = Callable[[str, int], Any]
FIELDS = ["title^2", "text"]
"""Fields that are searched, and the weight of each."""


def elasticsearch_search(client: Elasticsearch, index: str) -> Search:
    """Full-text search of an Elasticsearch index."""

    def search(query: str, limit: int) -> Any:
        return client.search(index=index, size=limit, query={"multi_match": {"query": query, "fields": FIELDS}})

    return search


def opensearch_search(client: OpenSearch, index: str) -> Search:
    """Full-text search of an OpenSearch index."""

    def search(query: str, limit: int) -> Any:
        body = {"size": limit, "query": {"multi_match": {"query": query, "fields": FIELDS}}}
        return client.search(index=index, body=body)

    return search


def qdrant_search(client: QdrantClient, collection: str, embed: Callable[[str], list[float]]) -> Search:
    """Vector search of a Qdrant collection; `embed` is the model that embedded its passages."""

    def search(query: str, limit: int) -> Any:
        return client.query_points(collection, query=embed(query), limit=limit)

    return search
