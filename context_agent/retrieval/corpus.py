"""`Corpus`, the protocol that an episode searches through, and the metadata filters that corpora evaluate in Python.

`MemoryCorpus` and `ChromaCorpus` implement the protocol. All methods are synchronous; `blocking` says whether they wait
for disk or network, in which case an episode runs them in worker threads. Implementations are safe to call from several
threads at once.

Filters follow Chroma: a chunk without the key fails every comparison but `$ne`, `$nin` and `$not_contains`; a number
never equals a string or a boolean; a list is matched by `$contains` alone, by a value of its own type. One difference:
Chroma truncates a number before it compares it with a stored integer, so there `{"$eq": 1.5}` matches 1. Here it does
not. `check_where` bounds every filter, whatever evaluates it: this module, Chroma's SQLite or a Chroma server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from reprlib import repr as brief
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.filters import Where
from context_agent.types import Chunk, Hit

CANDIDATES = 50
"""Fused candidates of one search, before reranking (the published baseline's value)."""
PER_RETRIEVER = 25
"""Hits of each retriever before fusion (the published baseline's value)."""
GREP_LIMIT = 5
"""Chunks that one grep shows (the published system's value)."""


@runtime_checkable
class Corpus(Protocol):
    """A searchable set of chunks."""

    @property
    def name(self) -> str:
        """Stable identity, written into trajectories, e.g. `chroma:notes@<revision>`."""

    @property
    def blocking(self) -> bool:
        """Whether calls wait for disk or network."""

    def count(self) -> int:
        """Number of chunks."""

    def search(
        self,
        query: str,
        *,
        k: int = CANDIDATES,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """Hybrid search, best first: BM25 and dense in parallel, fused, reranked. `exclude` holds chunk ids.

        Returns at most `k` hits. A query of whitespace returns nothing. Raises `ConfigError` for a `query` that is not
        text and a `k` that is not a whole number of at least 1.
        """

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """Chunks whose text matches the regular expression, in corpus order. Raises `PatternError`."""

    def walk(self) -> Iterator[Chunk]:
        """Return every chunk, document by document in insertion order, each document's chunks in document order."""

    def read(self, document_id: str) -> list[Chunk]:
        """Return all chunks of a document in document order; empty for an unknown document."""

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """Return the chunks with these ids, in the order of the ids; unknown ids are left out."""

    def similarity(self, query: str, chunk_ids: Sequence[str]) -> NDArray[np.float32]:
        """Cosine of the query with each chunk, shape (n,); NaN for an unknown id or a chunk without a vector."""

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Relevance of each chunk to the query, shape (n,): the reranker's score, else the cosine similarity."""

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """In how many chunks each analyzed term occurs, shape (n,); zeros without a BM25 index."""


@runtime_checkable
class LimitedCorpus(Protocol):
    """A corpus that some tools of a policy are no use on, such as `grep_corpus` without access to all texts."""

    @property
    def unsupported_tools(self) -> AbstractSet[str]:
        """Names of the tools that an agent does not offer."""


def check_question(question: object, name: str = "question") -> None:
    """Raise `ConfigError` if a question, or what `name` says, is not text."""
    if not isinstance(question, str):
        raise ConfigError(f"the {name} must be text; got {brief(question)} ({type(question).__name__}): pass a string")


def check_count(number: object, name: str = "k") -> None:
    """Raise `ConfigError` if a number of results is not a whole number of at least 1."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise ConfigError(
            f"{name} must be a whole number of at least 1; got {brief(number)}: it is how many results are returned"
        )
