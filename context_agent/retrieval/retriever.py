"""`Retriever`, the protocol of one way of ranking chunks, and what retrievers share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.corpus import Where
from context_agent.text.normalization import well_formed

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder

DENSE, SPARSE = "dense", "bm25"
QUERY_VECTORS = 512
"""Query vectors that a corpus caches: an episode needs the similarity to the same query many times."""


@runtime_checkable
class Retriever(Protocol):
    """One way of ranking the chunks of a corpus for a query."""

    @property
    def name(self) -> str:
        """`dense` or `bm25` for the two that ship; the key of weights and calibration."""

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """At most `k` chunks as (chunk id, score), best first, in an order that does not change between calls."""


QueryVectors = Callable[[str], NDArray[np.float32]]
"""Returns the vector of a query, shape (d,)."""


def query_vectors(embedder: Embedder) -> QueryVectors:
    """Return an embedder's query vectors, the latest of them cached. Thread-safe."""

    @lru_cache(QUERY_VECTORS)
    def vector(query: str) -> NDArray[np.float32]:
        return np.asarray(embedder.embed_query(well_formed(query)), dtype=np.float32)

    return vector


@runtime_checkable
class KnowsWords(Protocol):
    """A retriever by words that can tell whether the corpus has the words of a query."""

    def unknown_share(self, query: str) -> float:
        """Return the share of the query's weight that lies on words which no chunk has, from 0 to 1."""
