"""Chroma's own hybrid search (`Search`, `Knn`, `Rrf`), where the server has a sparse index: Chroma Cloud, distributed.

Written against the classes of chromadb 1.5 and their documentation; a local client and a single-node server refuse this
API, so it was **never run against a real cloud**. Tests check the requests it builds and how it reads answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.fusion import RRF_K
from context_agent.retrieval.protocol import Where

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection
    from chromadb.execution.expression.plan import Search


def sparse_key(collection: Collection) -> str | None:
    """The metadata key under which a collection has an enabled sparse index; None without one."""
    schema = collection.schema
    for key, types in sorted(schema.keys.items()) if schema else ():
        sparse = types.sparse_vector
        if sparse is not None and sparse.sparse_vector_index is not None and sparse.sparse_vector_index.enabled:
            return key
    return None


def hybrid_request(
    query: str,
    vector: NDArray[np.float32],
    key: str,
    *,
    limit: int,
    depth: int,
    weights: Sequence[float] = (1.0, 1.0),
    where: Where | None = None,
) -> Search:
    """One request for the best `limit` records of a dense and a sparse ranking of `depth` each, fused on the server.

    The server turns `query` into a sparse vector by the collection's own sparse embedding function.
    """
    from chromadb import K, Knn, Rrf, Search

    dense = Knn(query=vector, limit=depth, return_rank=True, default=float(depth))
    sparse = Knn(query=query, key=key, limit=depth, return_rank=True, default=float(depth))
    ranked = Search().rank(Rrf([dense, sparse], k=RRF_K, weights=list(weights)))
    limited = ranked.limit(limit).select(K.DOCUMENT, K.METADATA, K.SCORE)
    return limited.where(where) if where is not None else limited


def hybrid_rows(collection: Collection, request: Search) -> list[dict[str, Any]]:
    """Runs a request; rows with `id`, `document`, `metadata` and `score` (higher is better), best first."""
    rows: list[dict[str, Any]] = [dict(row) for row in collection.search(request).rows()[0]]
    for row in rows:
        # Chroma ranks ascending, so its fused scores are negative.
        row["score"] = -float(row.get("score") or 0.0)
    return sorted(rows, key=lambda row: (-row["score"], row["id"]))
