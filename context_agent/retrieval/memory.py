"""`MemoryCorpus`: a whole corpus in memory, without a store.

Use it for tests, for small sets, and if many episodes search at the same time.

Dense search is exact (one matrix product), and BM25 is tantivy in memory. Fusion, calibration, grep and filters are the
same as in `ChromaCorpus`. No call waits for disk or network, so an episode calls the corpus directly. About 100,000
chunks are a sensible limit. With 256 dimensions, a chunk takes 1 KB and twice its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from context_agent._support.arguments import items_of, require_members, require_type, whole_number
from context_agent.errors import ConfigError, CorpusEmptyError, CorpusError, DimensionError
from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document
from context_agent.retrieval.corpus import CANDIDATES, GREP_LIMIT, check_question
from context_agent.retrieval.document_checks import check_texts
from context_agent.retrieval.embedders import (
    STATIC,
    Embedder,
    EmbeddingFunction,
    as_embedder,
    document_vectors,
    unit_rows,
)
from context_agent.retrieval.embedders.default import default_embedder
from context_agent.retrieval.embedders.query_vectors import query_vectors
from context_agent.retrieval.filters import Where, cached_by_filter, compile_where
from context_agent.retrieval.fusion import gather, hits_of, reranked
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index, Bm25Retriever
from context_agent.retrieval.index.dense import DenseRetriever, VectorTable
from context_agent.retrieval.index.grep import Pattern, scan
from context_agent.retrieval.index.text_table import TextTable
from context_agent.retrieval.language_fit import knows_language
from context_agent.retrieval.retriever import Retriever
from context_agent.retrieval.retriever_weights import Calibration, Probes, calibrate, probes_of, sample_rows
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document, Hit

if TYPE_CHECKING:
    from context_agent.retrieval.rerankers import Reranker
    from context_agent.tokens import TokenCounter


LENGTH_TOLERANCE = 1e-3
"""The largest difference from 1 of the length of a vector that is used as it is. Rounding causes smaller ones."""


class MemoryCorpus:
    """A `Corpus` of documents or chunks in memory.

    It never changes after it is built, so any number of threads may use it.

    Example:
        from context_agent import Document, MemoryCorpus

        corpus = MemoryCorpus([Document("rope", "Rope was directed by Alfred Hitchcock.")])
        print(corpus.search("Who directed Rope?")[0].chunk.text)
    """

    blocking = False

    def __init__(
        self,
        sources: Iterable[Document | Chunk],
        *,
        embedder: Embedder | EmbeddingFunction | str | None = None,
        vectors: NDArray[np.float32] | None = None,
        reranker: Reranker | None = None,
        chunk_size: int | None = None,
        overlap: int = 0,
        counter: TokenCounter | None = None,
        calibration: bool = True,
        wrap: Callable[[Retriever], Retriever] | None = None,
    ) -> None:
        """Chunk the documents, and embed and index all chunks.

        Args:
            sources: Documents, which are chunked, or chunks, which stay unchanged.
            embedder: An embedder, a spec for `load_embedder`, or a function from texts to vectors. By default,
                `default_embedder` chooses by the size and the language of the chunks.
            vectors: The vectors of the chunks, shape (chunks, d). They are scaled to length 1. If they are given, the
                chunks are not embedded, and `embedder` defaults to `static`.
            reranker: A reranker that orders the fused hits again.
            chunk_size: The maximum number of tokens in a chunk. Defaults to 512.
            overlap: The number of tokens that a chunk repeats from the chunk before it.
            counter: The token counter. Defaults to `HarmonyCounter`.
            calibration: Whether to weight the retrievers by their quality in this corpus. If false, both have the same
                weight.
            wrap: A function that replaces each retriever before calibration, for example to measure its time.

        Raises:
            CorpusEmptyError: If there is no document with text.
            CorpusError: If a chunk id occurs twice.
            ConfigError: If the embedder, the reranker, the counter, `chunk_size` or `overlap` cannot be used.
            DimensionError: If `vectors` does not have the shape that the chunks and the embedder need.
            EmbedderError: If the embedder fails, or its vectors are not finite numbers.
        """
        if reranker is not None:
            require_members(reranker, "reranker", ("score",), "a reranker, such as that of load_reranker(spec)")
        if counter is not None:
            require_members(counter, "counter", ("name", "count"), "a token counter, such as HarmonyCounter()")
        self._chunks = _chunks_of(sources, chunk_size, overlap, counter)
        self._rows = _rows_by_id(self._chunks)
        if embedder is None:
            texts = (chunk.indexed_text for chunk in self._chunks)
            embedder = default_embedder(texts) if vectors is None else STATIC
        self.embedder = as_embedder(embedder)
        """The embedder of queries."""
        self._embed_query = query_vectors(self.embedder)
        self._vectors = self._unit_vectors(vectors)
        vector_table = VectorTable.of(self._vectors, np.ones(len(self._chunks), dtype=np.float32), "ip")
        self._bm25 = Bm25Index.of(
            Bm25Entry(chunk.id, chunk.title, chunk.text, chunk.document_id, chunk.metadata) for chunk in self._chunks
        )
        self._table = TextTable.of(chunk.text for chunk in self._chunks)
        self._documents = _rows_by_document(self._chunks)
        self.matching = cached_by_filter(self._matching)
        self._reranker = reranker
        self.name = f"memory:{_digest(self._chunks)}"
        retrievers: list[Retriever] = [
            DenseRetriever(
                vector_table,
                self._embed_query,
                lambda row: self._chunks[row].id,
                self._mask,
                knows_language=partial(knows_language, self.embedder.name, self._bm25.language),
            ),
            Bm25Retriever(self._bm25, self.matching),
        ]
        self.retrievers = [wrap(retriever) for retriever in retrievers] if wrap else retrievers
        self.calibration: Calibration = calibrate(self.retrievers, self._probes() if calibration else Probes())

    @property
    def chunks(self) -> Sequence[Chunk]:
        """All chunks in corpus order."""
        return self._chunks

    def count(self) -> int:
        """Return the number of chunks."""
        return len(self._chunks)

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
        k = whole_number(k, "k", least=1)
        depth = k if self._reranker is None else max(k, CANDIDATES)
        weights = self.calibration.weights
        candidates = gather(self.retrievers, weights, query, exclude=exclude, where=where, limit=depth)
        chunks = {candidate.id: self._chunks[self._rows[candidate.id]] for candidate in candidates}
        return hits_of(query, candidates, chunks, self._reranker, k)

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.grep`. A hit's score is 1 / rank."""
        check_question(pattern, "pattern")
        limit = whole_number(limit, "limit")
        allowed = None if where is None else self.matching(where)
        matching = (self._chunks[row] for row in scan(self._table, Pattern(pattern)))
        chunks = (chunk for chunk in matching if chunk.id not in exclude and (allowed is None or chunk.id in allowed))
        return [Hit(chunk, 1.0 / rank, rank) for rank, chunk in enumerate(islice(chunks, max(0, limit)), start=1)]

    def walk(self) -> Iterator[Chunk]:
        """See `Corpus.walk`."""
        return (self._chunks[row] for rows in self._documents.values() for row in rows)

    def read(self, document_id: str) -> list[Chunk]:
        """See `Corpus.read`."""
        check_question(document_id, "document id")
        return [self._chunks[row] for row in self._documents.get(document_id, ())]

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """See `Corpus.get`."""
        items_of(chunk_ids, "chunk_ids", "a list of ids")
        rows = [self._rows[chunk_id] for chunk_id in dict.fromkeys(chunk_ids) if chunk_id in self._rows]
        return [self._chunks[row] for row in rows]

    def similarity(self, query: str, chunk_ids: Sequence[str]) -> NDArray[np.float32]:
        """See `Corpus.similarity`."""
        rows = np.array([self._rows.get(chunk_id, -1) for chunk_id in chunk_ids], dtype=np.int64)
        cosines = np.full(len(rows), np.nan, dtype=np.float32)
        present = rows >= 0
        if present.any():
            cosines[present] = self._vectors[rows[present]] @ self._embed_query(query)
        return cosines

    @property
    def reranker(self) -> Reranker | None:
        """See `RerankedCorpus`."""
        return self._reranker

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """See `Corpus.rerank`."""
        if self._reranker is not None and chunks:
            return reranked(self._reranker, query, chunks)
        return self.similarity(query, [chunk.id for chunk in chunks])

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """See `Corpus.document_frequency`."""
        return self._bm25.document_frequency(terms)

    def _probes(self) -> Probes:
        sample = [self._chunks[row].id for row in sample_rows(len(self._chunks))]
        return probes_of(sample, self._bm25, lambda ids: {chunk.id: chunk for chunk in self.get(ids)})

    def _matching(self, where: Where) -> frozenset[str]:
        test = compile_where(where)
        return frozenset(chunk.id for chunk in self._chunks if test(chunk.metadata))

    def _mask(self, where: Where) -> NDArray[np.bool_]:
        allowed = self.matching(where)
        return np.fromiter((chunk.id in allowed for chunk in self._chunks), dtype=np.bool_, count=len(self._chunks))

    def _unit_vectors(self, vectors: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return the vectors of the chunks, scaled to length 1, shape (n_chunks, d). Without any, embed the chunks."""
        embedder, expected = self.embedder, (len(self._chunks), self.embedder.dimension)
        if vectors is None:
            vectors = document_vectors(embedder, [chunk.indexed_text for chunk in self._chunks])
        require_type(vectors, "vectors", np.ndarray, "an array of numbers")
        if vectors.dtype.kind not in "fiu" or not np.isfinite(vectors).all():
            raise ConfigError("`vectors` must be finite numbers. Embed the texts again.")
        if vectors.shape != expected:
            raise DimensionError(
                f"the vectors must have the shape {expected} for {embedder.name} and the chunks; got {vectors.shape}"
            )
        with np.errstate(over="ignore"):  # Numbers past float32 become infinite, and are refused.
            checked = np.ascontiguousarray(vectors, dtype=np.float32)
        if not np.isfinite(checked).all():
            raise ConfigError("`vectors` must be numbers that fit into float32. Embed the texts again.")
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(checked, axis=1)
        is_scaled = (np.abs(lengths - 1) <= LENGTH_TOLERANCE) | (lengths == 0)
        return checked if is_scaled.all() else unit_rows(checked)


def _chunks_of(
    sources: Iterable[Document | Chunk], size: int | None, overlap: int, counter: TokenCounter | None
) -> list[Chunk]:
    counter = counter if counter is not None else HarmonyCounter()
    size = DEFAULT_CHUNK_TOKENS if size is None else whole_number(size, "chunk_size")
    overlap = whole_number(overlap, "overlap")
    chunks: list[Chunk] = []
    for source in items_of(sources, "sources", "a list of documents or chunks"):
        if isinstance(source, Chunk):
            chunks.append(source)
        else:
            check_texts(source)
            chunks += chunk_document(source, size=size, counter=counter, overlap=overlap)
    if not chunks:
        raise CorpusEmptyError("the corpus is empty. Pass at least one document with text.")
    return chunks


def _rows_by_id(chunks: Sequence[Chunk]) -> dict[str, int]:
    rows = {chunk.id: row for row, chunk in enumerate(chunks)}
    if len(rows) < len(chunks):
        repeated = next(chunk.id for row, chunk in enumerate(chunks) if rows[chunk.id] != row)
        raise CorpusError(f"chunk id {repeated!r} occurs twice. Give every document a unique id.")
    return rows


def _rows_by_document(chunks: Sequence[Chunk]) -> Mapping[str, list[int]]:
    documents: dict[str, list[int]] = {}
    for row, chunk in enumerate(chunks):
        documents.setdefault(chunk.document_id, []).append(row)
    for rows in documents.values():
        rows.sort(key=lambda row: chunks[row].index)
    return documents


def _digest(chunks: Sequence[Chunk]) -> str:
    digest = blake2b(digest_size=8)
    for chunk in chunks:
        digest.update(f"{chunk.id}\0{chunk.text}\0".encode(errors="replace"))
    return digest.hexdigest()
