"""`Corpus`, the protocol that an episode searches through.

`MemoryCorpus`, `ChromaCorpus` and `EngineCorpus` implement it. All methods are synchronous. If they wait for disk or
network, `blocking` is True, and an episode runs them in worker threads. Implementations are safe to call from several
threads at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from reprlib import repr as brief
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.retrieval.filters import Where
from context_agent.types import Chunk, Hit

if TYPE_CHECKING:
    from context_agent.retrieval.rerankers import Reranker

CANDIDATES = 50
"""The number of fused candidates in one search, before reranking. It is the published baseline's value."""
PER_RETRIEVER = 25
"""The number of hits from each retriever, before fusion. It is the published baseline's value."""
GREP_LIMIT = 5
"""The maximum number of chunks that one grep shows. It is the value of the Context-1 report."""


@runtime_checkable
class Corpus(Protocol):
    """A searchable set of chunks."""

    @property
    def name(self) -> str:
        """A stable identity, written into trajectories, such as `chroma:notes@<revision>`."""

    @property
    def blocking(self) -> bool:
        """Whether calls wait for disk or network."""

    def count(self) -> int:
        """Return the number of chunks."""

    def search(
        self,
        query: str,
        *,
        k: int = CANDIDATES,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """Search with BM25 and vectors in parallel, fuse the hits, and rerank them.

        Args:
            query: The query. White space alone finds nothing.
            k: The maximum number of hits to return.
            exclude: The ids of chunks to leave out.
            where: A metadata filter (see `retrieval.filters`).

        Returns:
            Hits, best first.

        Raises:
            ConfigError: If `query` is not text, `k` is not a whole number of at least 1, or the filter is malformed.
        """

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """Search all texts with a regular expression.

        Args:
            pattern: The expression, in RE2's syntax.
            limit: The maximum number of hits to return.
            exclude: The ids of chunks to leave out.
            where: A metadata filter.

        Returns:
            Hits in corpus order.

        Raises:
            PatternError: If the pattern cannot be used.
        """

    def walk(self) -> Iterator[Chunk]:
        """Yield every chunk: documents in insertion order, and the chunks of each document in document order."""

    def read(self, document_id: str) -> list[Chunk]:
        """Return all chunks of a document in document order. An unknown document has none."""

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """Return the chunks with these ids, in the order of the ids. Unknown ids are left out."""

    def similarity(self, query: str, chunk_ids: Sequence[str]) -> NDArray[np.float32]:
        """Return the cosine of the query with each chunk, shape (n,).

        If an id is unknown, or its chunk has no vector, the value is NaN.
        """

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Return the relevance of each chunk to the query, shape (n,).

        It is the reranker's score. Without a reranker, it is the cosine.
        """

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of chunks in which each analyzed term occurs, shape (n,).

        Without a BM25 index, all are zero.
        """


@runtime_checkable
class RerankedCorpus(Protocol):
    """A corpus that says whether it has a reranker. The default policy then also asks it for the final ranking."""

    @property
    def reranker(self) -> Reranker | None:
        """The reranker of the hits. None means that there is none."""


@runtime_checkable
class LimitedCorpus(Protocol):
    """A corpus on which some tools are useless, such as `grep_corpus` on a corpus without access to all texts."""

    @property
    def unsupported_tools(self) -> AbstractSet[str]:
        """The names of the tools that an agent does not offer."""


def check_question(question: object, name: str = "question") -> None:
    """Raise `ConfigError` if a question is not text. The error message calls it `name`."""
    if not isinstance(question, str):
        raise ConfigError(f"the {name} must be a string; got {brief(question)} ({type(question).__name__})")
