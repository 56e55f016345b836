"""A corpus without texts. A server searches it while the collection that it serves is empty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.corpus import CANDIDATES, GREP_LIMIT, check_question
from context_agent.retrieval.filters import Where, compile_where
from context_agent.retrieval.index.grep import Pattern
from context_agent.types import Chunk, Hit


class EmptyCorpus:
    """A `Corpus` in which nothing is found."""

    blocking = False

    def __init__(self, name: str) -> None:
        self.name = name

    def count(self) -> int:
        """See `Corpus.count`."""
        return 0

    def search(
        self,
        query: str,
        *,
        k: int = CANDIDATES,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.search`."""
        check_question(query, "query")
        if where is not None:
            compile_where(where)
        return []

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.grep`."""
        Pattern(pattern)
        return []

    def walk(self) -> Iterator[Chunk]:
        """See `Corpus.walk`."""
        return iter(())

    def read(self, document_id: str) -> list[Chunk]:
        """See `Corpus.read`."""
        return []

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """See `Corpus.get`."""
        return []

    def similarity(self, query: str, chunk_ids: Sequence[str]) -> NDArray[np.float32]:
        """See `Corpus.similarity`."""
        return np.full(len(chunk_ids), np.nan, dtype=np.float32)

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """See `Corpus.rerank`."""
        return np.zeros(len(chunks), dtype=np.float32)

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """See `Corpus.document_frequency`."""
        return np.zeros(len(terms), dtype=np.int64)
