"""Search functions over the official clients of Elasticsearch, OpenSearch and Qdrant, for `EngineCorpus`.

    python examples/search_engines.py http://localhost:9200 INDEX "QUESTION"    searches an index of Elasticsearch

Each function returns the client's response as it is, because `EngineCorpus` finds the passages in it. own_engine.py
shows the same with an engine that needs no server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from elasticsearch import Elasticsearch
from opensearchpy import OpenSearch
from qdrant_client import QdrantClient

from context_agent import EngineCorpus, SearchAgent

Search = Callable[[str, int], Any]
FIELDS = ["title^2", "text"]
"""The fields that are searched, with their weights."""


def elasticsearch_search(client: Elasticsearch, index: str) -> Search:
    """Return full-text search of an Elasticsearch index."""

    def search(query: str, limit: int) -> Any:
        return client.search(index=index, size=limit, query={"multi_match": {"query": query, "fields": FIELDS}})

    return search


def opensearch_search(client: OpenSearch, index: str) -> Search:
    """Return full-text search of an OpenSearch index."""

    def search(query: str, limit: int) -> Any:
        body = {"size": limit, "query": {"multi_match": {"query": query, "fields": FIELDS}}}
        return client.search(index=index, body=body)

    return search


def qdrant_search(client: QdrantClient, collection: str, embed: Callable[[str], list[float]]) -> Search:
    """Return vector search of a Qdrant collection. `embed` must be the model that embedded its passages."""

    def search(query: str, limit: int) -> Any:
        return client.query_points(collection, query=embed(query), limit=limit)

    return search


def main(address: str, index: str, question: str) -> None:
    """Print the documents that the agent ranks."""
    with SearchAgent(EngineCorpus(elasticsearch_search(Elasticsearch(address), index))) as agent:
        for document in agent.search(question, k=5).documents:
            print(f"{document.score:.2f}  {document.title or document.id}: {document.chunks[0].text[:100]}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:4])
