"""A cache for the vectors of queries."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.embedders import query_vector
from context_agent.retrieval.retriever import QueryVectors

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder

QUERY_VECTORS = 512
"""The number of query vectors that a corpus caches. An episode needs the similarity to the same query many times."""


def query_vectors(embedder: Embedder) -> QueryVectors:
    """Return a function from queries to their vectors. It caches the latest vectors, and is thread-safe.

    The function raises the errors of `query_vector`.
    """

    @lru_cache(QUERY_VECTORS)
    def vector(query: str) -> NDArray[np.float32]:
        return query_vector(embedder, query)

    return vector
