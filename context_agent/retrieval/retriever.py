"""`Retriever`, the protocol of one way to rank chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.filters import Where

DENSE, SPARSE = "dense", "bm25"
"""The names of the two retrievers that ship with the package."""


@runtime_checkable
class Retriever(Protocol):
    """One way to rank the chunks of a corpus for a query."""

    @property
    def name(self) -> str:
        """The name in the weights and the calibration. The package ships the retrievers `dense` and `bm25`."""

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """Return at most `k` chunks as (chunk id, score), best first. The order does not change between calls."""


@runtime_checkable
class KnowsLanguage(Protocol):
    """A retriever by vectors that says whether its embedder knows the language of a query."""

    def knows_language(self, query: str) -> bool:
        """Return False if the embedder knows another language only. The retriever then finds little."""


def knows_every_language(query: str) -> bool:
    """Return True for every query."""
    return True


QueryVectors = Callable[[str], NDArray[np.float32]]
"""A function that returns the vector of a query, shape (d,)."""


@runtime_checkable
class KnowsWords(Protocol):
    """A retriever by words that can tell whether the corpus contains the words of a query."""

    def unknown_share(self, query: str) -> float:
        """Return the share of the query's weight on words that no chunk contains, from 0 to 1."""
