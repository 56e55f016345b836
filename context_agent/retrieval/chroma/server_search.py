"""Hybrid search on a Chroma server with a sparse index (Chroma Cloud, distributed Chroma).

One request runs Chroma's own hybrid search (`Search`, `Knn`, `Rrf`). It is written against the classes of chromadb 1.5
and their documentation. A local client and a single-node server refuse this API, so it was **never run against a real
cloud**. Tests check the requests and how answers are read.

Chroma's client, not its server, turns a query text into a sparse vector. It uses the function stored with the
collection, which may call a service with a key from the environment. So this package embeds the query
itself, with Chroma's own BM25 function. A sparse index with any other function is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.chroma.stored_embedder import sparse_functions
from context_agent.retrieval.filters import Where
from context_agent.retrieval.fusion import RRF_K

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection
    from chromadb.api.types import SparseEmbeddingFunction
    from chromadb.base_types import SparseVector
    from chromadb.execution.expression.plan import Search

_LOCAL_SPARSE = "chroma_bm25"
"""The only sparse embedding function of Chroma that needs neither a network nor a model."""
_NUMERIC_SETTINGS = ("k", "b", "avg_doc_length", "token_max_length")
_MAX_STOPWORDS = 10_000


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """An enabled sparse index: the metadata key, and the function that embeds a query for it on this machine."""

    key: str
    function: SparseEmbeddingFunction[Any]

    def embed(self, query: str) -> SparseVector:
        """Return the query's sparse vector, which Chroma's `Knn` accepts instead of a text."""
        return self.function.embed_query([query])[0]


def sparse_index(collection: Collection) -> SparseIndex | None:
    """Return the first sparse index with a function that runs on this machine. If there is none, return None."""
    for key, stored in sparse_functions(collection.get_model().serialized_schema).items():
        if stored.get("name") == _LOCAL_SPARSE and (function := _bm25(stored.get("config"))) is not None:
            return SparseIndex(key, function)
    return None


def hybrid_request(
    query: str,
    vector: NDArray[np.float32],
    index: SparseIndex,
    *,
    limit: int,
    depth: int,
    where: Where | None = None,
) -> Search:
    """Return one request that fuses a dense and a sparse ranking on the server.

    Args:
        query: The query's text.
        vector: Its dense vector, shape (d,).
        index: The sparse index.
        limit: The number of records to return.
        depth: The number of records in each ranking.
        where: A metadata filter.
    """
    from chromadb import K, Knn, Rrf, Search

    dense = Knn(query=vector, limit=depth, return_rank=True, default=float(depth))
    sparse = Knn(query=index.embed(query), key=index.key, limit=depth, return_rank=True, default=float(depth))
    ranked = Search().rank(Rrf([dense, sparse], k=RRF_K, weights=[1.0, 1.0]))
    limited = ranked.limit(limit).select(K.DOCUMENT, K.METADATA, K.SCORE)
    return limited.where(where) if where is not None else limited


def hybrid_rows(collection: Collection, request: Search) -> list[dict[str, Any]]:
    """Run a request. Return rows with `id`, `document`, `metadata` and `score` (higher is better), best first."""
    rows: list[dict[str, Any]] = [dict(row) for row in collection.search(request).rows()[0]]
    for row in rows:
        # Chroma ranks ascending, so its fused scores are negative.
        row["score"] = -float(row.get("score") or 0.0)
    return sorted(rows, key=lambda row: (-row["score"], row["id"]))


def _bm25(config: object) -> SparseEmbeddingFunction[Any] | None:
    """Return Chroma's BM25 function with the stored settings.

    If the settings are not plausible, or if a library is missing, return None.
    """
    from chromadb.utils.embedding_functions import ChromaBm25EmbeddingFunction

    settings = config if isinstance(config, Mapping) else {}
    numbers = {key: settings[key] for key in _NUMERIC_SETTINGS if key in settings}
    stopwords = settings.get("stopwords")
    if not all(type(number) in (int, float) and 0 < number < 1e6 for number in numbers.values()):
        return None
    if not (stopwords is None or (isinstance(stopwords, list) and len(stopwords) <= _MAX_STOPWORDS)):
        return None
    function = ChromaBm25EmbeddingFunction(**numbers, stopwords=stopwords)
    try:
        function.embed_query(["query"])
    except (ImportError, ValueError):  # Chroma raises ValueError if its stemmer is not installed
        return None
    return function
