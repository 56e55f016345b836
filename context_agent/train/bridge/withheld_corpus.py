"""A corpus that hides some of its documents, so that it cannot answer certain questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.corpus import CANDIDATES, GREP_LIMIT, Corpus
from context_agent.retrieval.filters import Where
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index
from context_agent.types import Chunk, Hit


class WithheldCorpus:
    """A corpus that behaves as if it had never contained some of its documents."""

    def __init__(self, corpus: Corpus, document_ids: Iterable[str]) -> None:
        self._corpus = corpus
        withheld = [chunk for document_id in document_ids for chunk in corpus.read(document_id)]
        self._ids = frozenset(chunk.id for chunk in withheld)
        self._words = Bm25Index.of(Bm25Entry(chunk.id, chunk.title, chunk.text) for chunk in withheld)

    @property
    def name(self) -> str:
        """Name of the corpus."""
        return self._corpus.name

    @property
    def blocking(self) -> bool:
        """True if calls of the corpus block."""
        return self._corpus.blocking

    @property
    def calibration(self) -> object:
        """Weights of the corpus's retrievers. None if it has none."""
        return getattr(self._corpus, "calibration", None)

    def count(self) -> int:
        """Return the number of remaining chunks."""
        return self._corpus.count() - len(self._ids)

    def search(
        self,
        query: str,
        *,
        k: int = CANDIDATES,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """Search the remaining chunks, as `Corpus.search` does."""
        return self._corpus.search(query, k=k, exclude=exclude | self._ids, where=where)

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """Search the remaining chunks for a pattern, as `Corpus.grep` does."""
        return self._corpus.grep(pattern, limit=limit, exclude=exclude | self._ids, where=where)

    def walk(self) -> Iterator[Chunk]:
        """Yield the remaining chunks."""
        return (chunk for chunk in self._corpus.walk() if chunk.id not in self._ids)

    def read(self, document_id: str) -> list[Chunk]:
        """Return the chunks of a document. If the document is withheld, return an empty list."""
        return [chunk for chunk in self._corpus.read(document_id) if chunk.id not in self._ids]

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """Return the chunks with these ids. Withheld chunks are left out."""
        return self._corpus.get([chunk_id for chunk_id in chunk_ids if chunk_id not in self._ids])

    def similarity(self, query: str, chunk_ids: Sequence[str]) -> NDArray[np.float32]:
        """Return the similarity of the query to chunks, as `Corpus.similarity` does."""
        return self._corpus.similarity(query, chunk_ids)

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Return the reranker's scores of chunks, as `Corpus.rerank` does."""
        return self._corpus.rerank(query, chunks)

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of remaining chunks that contain each term, shape (terms,)."""
        rest = self._corpus.document_frequency(terms) - self._words.document_frequency(terms)
        return np.asarray(np.maximum(rest, 0), dtype=np.int64)
