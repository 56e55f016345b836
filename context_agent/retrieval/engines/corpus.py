"""`EngineCorpus`: the search engine that a user already runs, as a corpus.

    corpus = EngineCorpus(lambda query, limit: my_engine.search(query, limit))
    SearchAgent(corpus).search("Which award did the director of Rope receive?")

An engine needs one ability: to return passages for a query. `EngineCorpus` provides the rest of `Corpus` itself:

| part | how |
|---|---|
| ids, `get`, `read`, `walk` | for the passages that the engine has returned; with `read=`, for whole documents |
| similarity | by an embedder in this process, for returned passages |
| document frequency | estimated from how common the word is in general (see `word_frequency`) |
| filters | by a search function with an argument `where`; without one, each passage's metadata is tested |
| `exclude` | by requesting more passages |
| grep | in returned passages; since that finds too little, an agent does not offer the tool |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent._support.arguments import real_number, whole_number
from context_agent.errors import ConfigError
from context_agent.retrieval.corpus import CANDIDATES, GREP_LIMIT, check_question
from context_agent.retrieval.embedders import STATIC, Embedder, document_vectors, load_embedder
from context_agent.retrieval.embedders.query_vectors import query_vectors
from context_agent.retrieval.engines.passages import FieldNames, passages_of
from context_agent.retrieval.engines.search_function import SearchFunction, search_function
from context_agent.retrieval.engines.seen_passages import SeenPassages
from context_agent.retrieval.engines.word_frequency import estimated_frequency
from context_agent.retrieval.filters import Where, compile_where, plain_where
from context_agent.retrieval.index.grep import Pattern
from context_agent.retrieval.index.text_table import encode
from context_agent.types import Chunk, Document, Hit

ASSUMED_SIZE = 10_000
"""The assumed number of passages in an engine that does not state it."""
MOST_REQUESTED = 100
"""The maximum number of passages that one request asks for."""
REQUEST_SECONDS = 30.0
"""The time limit of one request, in seconds."""
Vector = NDArray[np.float32]


class EngineCorpus:
    """A `Corpus` over an engine's search. Any number of threads and agents may share it.

    Example:
        >>> from context_agent import EngineCorpus
        >>> def search(query, limit):
        ...     return [{"id": "light", "text": "Orm Skerry Light was lit in 1868."}][:limit]
        >>> corpus = EngineCorpus(search, name="notes")
        >>> [hit.chunk.document_id for hit in corpus.search("When was Orm Skerry Light lit?")]
        ['light']
    """

    blocking = True
    unsupported_tools = frozenset({"grep_corpus"})
    """Tools that an agent does not offer on this corpus."""

    def __init__(
        self,
        engine: object,
        *,
        name: str | None = None,
        size: int = ASSUMED_SIZE,
        read: Callable[[str], Any] | None = None,
        embedder: Embedder | str = STATIC,
        text_key: str | None = None,
        title_key: str | None = None,
        id_key: str | None = None,
        document_key: str | None = None,
        timeout: float = REQUEST_SECONDS,
        max_passages: int = MOST_REQUESTED,
    ) -> None:
        """Wrap an engine.

        A search function takes a query. If it has a second required argument, or an argument with a usual name such as
        `limit`, it also gets the number of passages. If it has an argument `where`, it also gets the filter. It may be
        a coroutine function. It returns the passages, best first, in any shape that `engines.passages` knows.

        Args:
            engine: A search function, a LangChain retriever or vector store, a LlamaIndex retriever or index, or the
                address of an HTTP endpoint (see `HttpEngine`).
            name: The name of the corpus in trajectories.
            size: The number of passages in the engine, if it is known. An episode ends when it has seen as many.
            read: A function that returns all passages of a document by its id.
            embedder: The embedder that compares passages with queries. It need not be the engine's own. The default
                is fast, because passages are embedded during a search.
            text_key: The field of a passage's text, if its name is unusual.
            title_key: The field of the title.
            id_key: The field of the id.
            document_key: The field of the document's id.
            timeout: The time limit of one request, in seconds.
            max_passages: The maximum number of passages that one request asks for.

        Raises:
            ConfigError: If the engine is none of these, or a number is not positive.
        """
        size, max_passages = whole_number(size, "size"), whole_number(max_passages, "max_passages")
        if size < 1 or max_passages < 1 or real_number(timeout, "timeout") <= 0:
            raise ConfigError(
                f"size, max_passages and timeout must be positive; got size = {size}, max_passages = {max_passages}, "
                f"timeout = {timeout}"
            )
        self._search = SearchFunction.of(search_function(engine), timeout)
        self._read, self._max_passages, self._size = read, max_passages, size
        self._names = FieldNames(text_key, title_key, id_key, document_key)
        self._embedder = load_embedder(embedder) if isinstance(embedder, str) else embedder
        self._embed_query = query_vectors(self._embedder)
        self._seen = SeenPassages()
        self.name = f"engine:{name or getattr(engine, '__name__', None) or type(engine).__name__}"

    def count(self) -> int:
        """Return the `size` that was passed, or an assumed one."""
        return max(self._size, len(self._seen))

    def search(
        self,
        query: str,
        *,
        k: int = CANDIDATES,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.search`. A hit's score is 1 / rank.

        A long passage has several chunks. The chunk that is most similar to the query gets the passage's rank. The
        other chunks follow after all passages.

        Raises:
            CorpusError: If the engine fails, or its response has no passages in a known shape.
        """
        check_question(query, "query")
        k = whole_number(k, "k", least=1)
        where = None if where is None else plain_where(where)
        passes = None if where is None else compile_where(where)
        if not query.strip():
            return []
        if self._search.takes_where:
            passes = None
        depth = min(self._max_passages, k + min(k, len(exclude)))
        while True:
            passages = passages_of(self._search(query, depth, where), self._names)
            passing = [passage for passage in passages if passes is None or passes(passage.metadata)]
            chunks = [chunk for chunk in self._chunks(query, passing) if chunk.id not in exclude]
            if len(chunks) >= k or len(passages) < depth or depth >= self._max_passages:
                return _ranked(chunks[:k])
            depth = min(self._max_passages, 2 * depth)

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.grep`. It searches the passages that the engine has returned so far."""
        compiled, passes = Pattern(pattern), None if where is None else compile_where(where)
        found = (
            chunk
            for chunk in self._seen.walk()
            if chunk.id not in exclude
            and (passes is None or passes(chunk.metadata))
            and compiled.matches(encode(chunk.text))
        )
        return _ranked(islice(found, max(0, limit)))

    def walk(self) -> Iterator[Chunk]:
        """Yield every chunk that the engine has returned so far."""
        return self._seen.walk()

    def read(self, document_id: str) -> list[Chunk]:
        """See `Corpus.read`. Without `read=`, return the chunks that the engine has returned so far.

        With `read=`, the chunks of the passages that it returns come first, in its order. A known passage keeps its
        chunks, also if the engine returned it under another document.
        """
        chunks: list[Chunk] = []
        if self._read is not None and not self._seen.get([document_id]):
            function, names = self._read, self._names
            for passage in passages_of(self._search.run(lambda: function(document_id)), names):
                chunks += self._seen.add(replace(passage, id=document_id))
        distinct = {chunk.id: chunk for chunk in (*chunks, *self._seen.document(document_id))}
        return [replace(chunk, index=index) for index, chunk in enumerate(distinct.values())]

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """See `Corpus.get`."""
        return self._seen.get(chunk_ids)

    def similarity(self, query: str, chunk_ids: Sequence[str]) -> Vector:
        """See `Corpus.similarity`."""
        chunks = {chunk.id: chunk for chunk in self._seen.get(chunk_ids)}
        cosines = np.full(len(chunk_ids), np.nan, dtype=np.float32)
        present = [position for position, chunk_id in enumerate(chunk_ids) if chunk_id in chunks]
        cosines[present] = self._cosines(query, [chunks[chunk_ids[position]] for position in present])
        return cosines

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> Vector:
        """See `Corpus.rerank`. The chunks may also be of other corpora."""
        return self._cosines(query, chunks)

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """See `Corpus.document_frequency`. The numbers are estimated from how common words are in general."""
        return estimated_frequency(terms, self.count())

    def _chunks(self, query: str, passages: Sequence[Document]) -> list[Chunk]:
        """Return the chunks of the passages, each once.

        The best chunk of each passage comes first, in the order of the passages. Then the second-best chunks follow,
        and so on.
        """
        ranked: dict[str, tuple[int, int, Chunk]] = {}
        for rank, passage in enumerate(passages):
            chunks = self._seen.add(passage)
            order = np.argsort(-self._cosines(query, chunks), kind="stable") if len(chunks) > 1 else range(len(chunks))
            for level, index in enumerate(order):
                ranked.setdefault(chunks[index].id, (level, rank, chunks[index]))
        return [chunk for _, _, chunk in sorted(ranked.values(), key=lambda entry: entry[:2])]

    def _cosines(self, query: str, chunks: Sequence[Chunk]) -> Vector:
        if not chunks:
            return np.zeros(0, dtype=np.float32)
        vectors = self._seen.vectors(chunks, partial(document_vectors, self._embedder))
        # Not `@`: see `VectorTable.scores`.
        return np.asarray(np.einsum("ij,j->i", vectors, self._embed_query(query)), dtype=np.float32)


def _ranked(chunks: Iterable[Chunk]) -> list[Hit]:
    return [Hit(chunk, 1.0 / rank, rank) for rank, chunk in enumerate(chunks, start=1)]
