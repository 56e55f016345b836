"""`EngineCorpus`: the search engine that a user already runs, as a corpus.

    corpus = EngineCorpus(lambda query, limit: my_engine.search(query, limit))
    SearchAgent(corpus).search("Which award did the director of Rope receive?")

An engine needs one ability: to return passages for a query. The rest of `Corpus` is answered without it:

| part | answer |
|---|---|
| ids, `get`, `read`, `walk` | of the passages that the engine has returned; with `read=`, of whole documents |
| similarity | by an embedder here, over returned passages |
| how common a word is | by its frequency in general; see `estimated_frequency` |
| filters | by a search function with an argument `where`; else each passage is tested by its metadata |
| `exclude` | by requesting more passages |
| grep | over returned passages; since that finds too little, an agent does not offer the tool |
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent._support.token_table import load_weights
from context_agent.errors import ConfigError
from context_agent.retrieval.chunker import SIZE, chunk_document
from context_agent.retrieval.corpus import CANDIDATES, GREP_LIMIT, check_count, check_question
from context_agent.retrieval.embedders import STATIC, Embedder, Vectors, load_embedder
from context_agent.retrieval.embedders.query_vectors import query_vectors
from context_agent.retrieval.engines.calls import (
    EnginePassage,
    FieldNames,
    SearchFunction,
    passages_of,
    search_function,
)
from context_agent.retrieval.filters import Where, compile_where
from context_agent.retrieval.index.grep import Pattern
from context_agent.retrieval.index.text_table import encode
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document, Hit

LONGEST_PASSAGE = 400_000
"""Characters of a passage that are read; the rest is left out."""
MOST_CHARACTERS = 32_000_000
"""Characters that are remembered; beyond them, the passages that were returned longest ago are forgotten."""
CUT = "ctx1_cut_characters"
"""Metadata entry of a passage that was cut: its full length."""


class SeenPassages:
    """The passages that an engine has returned, in chunks whose ids do not change while they are here. Thread-safe.

    A passage is known by its title and text, so an engine that repeats a passage or changes its ids changes nothing. A
    passage that is longer than a chunk, or whose document has several passages, becomes several chunks of one document.
    """

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most = most_characters
        self._characters = 0
        self._by_digest: OrderedDict[bytes, list[Chunk]] = OrderedDict()
        self._by_id: dict[str, Chunk] = {}
        self._documents: dict[str, list[Chunk]] = {}
        self._vectors: dict[str, Vectors] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, passage: EnginePassage) -> list[Chunk]:
        """Return the chunks of a passage, in order; those it had before if it is known."""
        digest = blake2b(f"{passage.title}\0{passage.text}".encode(errors="replace"), digest_size=12)
        with self._lock:
            chunks = self._by_digest.get(digest.digest())
            if chunks is None:
                chunks = self._chunked(passage, passage.document_id or passage.id or f"text-{digest.hexdigest()}")
                self._remember(digest.digest(), chunks)
            self._by_digest.move_to_end(digest.digest())
            return chunks

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """Return the chunks with these ids, in their order; unknown ids are left out."""
        with self._lock:
            return [self._by_id[chunk_id] for chunk_id in dict.fromkeys(chunk_ids) if chunk_id in self._by_id]

    def document(self, document_id: str) -> list[Chunk]:
        """Return the chunks of a document, by index."""
        with self._lock:
            return list(self._documents.get(document_id, ()))

    def walk(self) -> Iterator[Chunk]:
        """Return all chunks, document by document."""
        with self._lock:
            documents = list(self._documents.values())
        return (chunk for chunks in documents for chunk in chunks)

    def vectors(self, chunks: Sequence[Chunk], embed: Callable[[Sequence[str]], Vectors]) -> Vectors:
        """Return the vectors of chunks, shape (n, d); each is embedded once. There must be a chunk."""
        with self._lock:
            vectors = {chunk.id: self._vectors[chunk.id] for chunk in chunks if chunk.id in self._vectors}
        if missing := [chunk for chunk in chunks if chunk.id not in vectors]:
            embedded = embed([chunk.indexed_text for chunk in missing])
            vectors |= {chunk.id: vector for chunk, vector in zip(missing, embedded, strict=True)}
            with self._lock:
                self._vectors |= {chunk.id: vectors[chunk.id] for chunk in missing if chunk.id in self._by_id}
        return np.stack([vectors[chunk.id] for chunk in chunks])

    def _chunked(self, passage: EnginePassage, document_id: str) -> list[Chunk]:
        text, metadata = passage.text, passage.metadata
        if len(text) > LONGEST_PASSAGE:
            text, metadata = text[:LONGEST_PASSAGE], {**metadata, CUT: len(text)}
        document = Document(document_id, text, passage.title, metadata)
        chunks = chunk_document(document, size=SIZE, counter=HarmonyCounter())
        before = self._documents.get(document_id)
        first = before[-1].index + 1 if before else 0
        return [
            replace(chunk, id=f"{document_id}_{index}", index=index) for index, chunk in enumerate(chunks, start=first)
        ]

    def _remember(self, digest: bytes, chunks: list[Chunk]) -> None:
        self._by_digest[digest] = chunks
        self._characters += sum(len(chunk.text) for chunk in chunks)
        for chunk in chunks:
            self._by_id[chunk.id] = chunk
            self._documents.setdefault(chunk.document_id, []).append(chunk)
        while self._characters > self._most and len(self._by_digest) > 1:
            self._forget(self._by_digest.popitem(last=False)[1])

    def _forget(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self._characters -= len(chunk.text)
            del self._by_id[chunk.id]
            self._vectors.pop(chunk.id, None)
            # A new list: a reader may hold the old one.
            rest = [item for item in self._documents[chunk.document_id] if item.id != chunk.id]
            if rest:
                self._documents[chunk.document_id] = rest
            else:
                del self._documents[chunk.document_id]


PASSAGE_WORDS = 100
"""Words of a typical passage."""
_FIRST = "the"
"""The most frequent word; special tokens and single characters precede it in the vocabulary."""
_CHARACTER_RANK = 500
"""Rank of a single character; the vocabulary sorts them by their code."""


def estimated_frequency(terms: Sequence[str], passages: int) -> NDArray[np.int64]:
    """In how many of so many passages each term probably occurs, shape (n,).

    The vocabulary of the tokenizer that ships with the package is sorted by frequency, so a word's position is its
    rank. By Zipf's law the word of rank r is one word in r * ln(V) of a text with V different words. A word that the
    tokenizer cuts into pieces is rarer than all that it has as one token.
    """
    return np.array([round(passages * _share(term)) for term in terms], dtype=np.int64)


@lru_cache(maxsize=65_536)
def _share(term: str) -> float:
    """Return the share of passages that hold the term; 0 for a term without words."""
    tokenizer = load_weights().tokenizer
    first, size = tokenizer.encode(_FIRST, add_special_tokens=False).ids[0], tokenizer.get_vocab_size()
    tokens = tokenizer.encode(term, add_special_tokens=False).ids
    if not tokens or not any(map(str.isalnum, term)):
        return 0.0
    rank = size * len(tokens)
    if len(tokens) == 1:
        rank = tokens[0] - first + 1 if tokens[0] >= first else _CHARACTER_RANK
    return float(-np.expm1(-PASSAGE_WORDS / (rank * np.log(size))))


ASSUMED_SIZE = 10_000
"""Chunks of an engine that does not say how many it has."""
MOST_REQUESTED = 100
"""Passages that one request may ask for."""
TIMEOUT = 30.0
"""Seconds for one request."""
Vector = NDArray[np.float32]


class EngineCorpus:
    """A `Corpus` over an engine's search. Any number of threads and agents may share it."""

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
        timeout: float = TIMEOUT,
        most: int = MOST_REQUESTED,
    ) -> None:
        """`engine` is a search function, a LangChain retriever or vector store, a LlamaIndex retriever or index, or
        the address of an HTTP endpoint (see `HttpEngine`).

        A search function takes a query, the number of passages if it has a second argument, and the filter if it has an
        argument `where`. It may be a coroutine function. It returns the passages, best first, in any shape that
        `results` knows; the `*_key` options name fields that have unusual names. `read` returns all passages of a
        document by its id. `size` is the number of passages in the engine, as far as it is known. `embedder` compares
        passages with queries; it need not be the engine's. `timeout` is in seconds for one request, `most` the number
        of passages that it may ask for. Raises `ConfigError` for anything else.
        """
        if size < 1 or most < 1 or timeout <= 0:
            raise ConfigError(f"size, most and timeout must be positive; got {size}, {most} and {timeout}")
        self._search = SearchFunction.of(search_function(engine), timeout)
        self._read, self._most, self._size = read, most, size
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

        Of a long passage the chunk that is most similar to the query comes at the passage's rank; its other chunks
        follow after all passages. Raises `CorpusError` if the engine fails, or returns what holds no passages.
        """
        check_question(query, "query")
        check_count(k)
        passes = None if where is None else compile_where(where)
        if not query.strip():
            return []
        if self._search.takes_where:
            passes = None
        depth = min(self._most, k + min(k, len(exclude)))
        while True:
            passages = passages_of(self._search(query, depth, where), self._names)
            passing = [passage for passage in passages if passes is None or passes(passage.metadata)]
            chunks = [chunk for chunk in self._chunks(query, passing) if chunk.id not in exclude]
            if len(chunks) >= k or len(passages) < depth or depth >= self._most:
                return _ranked(chunks[:k])
            depth = min(self._most, 2 * depth)

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.grep`; searches the passages that the engine has returned so far."""
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
        """Return every chunk that the engine has returned so far."""
        return self._seen.walk()

    def read(self, document_id: str) -> list[Chunk]:
        """See `Corpus.read`; without `read=`, the chunks that the engine has returned so far."""
        if self._read is not None and not self._seen.get([document_id]):
            function, names = self._read, self._names
            for passage in passages_of(self._search.run(lambda: function(document_id)), names):
                self._seen.add(EnginePassage(passage.text, passage.title, "", document_id, passage.metadata))
        return self._seen.document(document_id)

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
        """See `Corpus.rerank`; chunks of other corpora too."""
        return self._cosines(query, chunks)

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """See `Corpus.document_frequency`; estimated from how common words are in general."""
        return estimated_frequency(terms, self.count())

    def _chunks(self, query: str, passages: Sequence[EnginePassage]) -> list[Chunk]:
        """Return the chunks of the passages, each once: the best of each passage in their order, then the second best,
        ...
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
        vectors = self._seen.vectors(chunks, self._embedder.embed_documents)
        # Not `@`: see `VectorTable.scores`.
        return np.asarray(np.einsum("ij,j->i", vectors, self._embed_query(query)), dtype=np.float32)


def _ranked(chunks: Iterable[Chunk]) -> list[Hit]:
    return [Hit(chunk, 1.0 / rank, rank) for rank, chunk in enumerate(chunks, start=1)]
