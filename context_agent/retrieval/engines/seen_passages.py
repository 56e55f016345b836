"""The passages that an engine has returned, as chunks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from sys import getsizeof

import numpy as np

from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document
from context_agent.retrieval.embedders import Vectors
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document

LONGEST_PASSAGE = 400_000
"""The maximum number of characters that are read from a passage. The rest is left out."""
MOST_CHARACTERS = 64_000_000
"""The maximum number of characters in memory. Beyond it, the passages that were returned longest ago are dropped."""
CHUNK_CHARACTERS = 2_000
"""The number of characters that a chunk counts as in addition to its own. Its objects and its vector take memory."""
FULL_LENGTH_KEY = "ctx1_cut_characters"
"""The metadata entry with the full length of a passage that was truncated."""


class SeenPassages:
    """The passages that an engine has returned, as chunks. Thread-safe.

    A chunk keeps its id as long as it is in memory. A passage is identified by its title and text. So if an engine
    repeats a passage or changes its ids, nothing changes. If a passage is longer than a chunk, or its document has
    several passages, it becomes several chunks of one document.
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

    def add(self, passage: Document) -> list[Chunk]:
        """Return the chunks of a passage, in order. A known passage keeps the chunks that it had before.

        A passage without an id gets one that is made of its title and text.
        """
        digest = blake2b(f"{passage.title}\0{passage.text}".encode(errors="replace"), digest_size=12)
        with self._lock:
            chunks = self._by_digest.get(digest.digest())
            if chunks is None:
                chunks = self._chunked(replace(passage, id=passage.id or f"text-{digest.hexdigest()}"))
                self._remember(digest.digest(), chunks)
            self._by_digest.move_to_end(digest.digest())
            return chunks

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """Return the chunks with these ids, in their order. Unknown ids are left out."""
        with self._lock:
            return [self._by_id[chunk_id] for chunk_id in dict.fromkeys(chunk_ids) if chunk_id in self._by_id]

    def document(self, document_id: str) -> list[Chunk]:
        """Return the chunks of a document, ordered by index."""
        with self._lock:
            return list(self._documents.get(document_id, ()))

    def walk(self) -> Iterator[Chunk]:
        """Yield all chunks, document by document."""
        with self._lock:
            documents = list(self._documents.values())
        return (chunk for chunks in documents for chunk in chunks)

    def vectors(self, chunks: Sequence[Chunk], embed: Callable[[Sequence[str]], Vectors]) -> Vectors:
        """Return the vectors of chunks, shape (n, d).

        There must be at least one chunk. Each chunk is embedded only once.
        """
        with self._lock:
            vectors = {chunk.id: self._vectors[chunk.id] for chunk in chunks if chunk.id in self._vectors}
        if missing := [chunk for chunk in chunks if chunk.id not in vectors]:
            embedded = embed([chunk.indexed_text for chunk in missing])
            vectors |= {chunk.id: vector for chunk, vector in zip(missing, embedded, strict=True)}
            with self._lock:
                self._vectors |= {chunk.id: vectors[chunk.id] for chunk in missing if chunk.id in self._by_id}
        return np.stack([vectors[chunk.id] for chunk in chunks])

    def _chunked(self, passage: Document) -> list[Chunk]:
        text = passage.text
        if len(text) > LONGEST_PASSAGE:
            metadata = {**passage.metadata, FULL_LENGTH_KEY: len(text)}
            passage = replace(passage, text=text[:LONGEST_PASSAGE], metadata=metadata)
        chunks = chunk_document(passage, size=DEFAULT_CHUNK_TOKENS, counter=HarmonyCounter())
        before = self._documents.get(passage.id)
        first = before[-1].index + 1 if before else 0
        return [
            replace(chunk, id=f"{passage.id}_{index}", index=index) for index, chunk in enumerate(chunks, start=first)
        ]

    def _remember(self, digest: bytes, chunks: list[Chunk]) -> None:
        self._by_digest[digest] = chunks
        self._characters += sum(map(_size, chunks))
        for chunk in chunks:
            self._by_id[chunk.id] = chunk
            self._documents.setdefault(chunk.document_id, []).append(chunk)
        while self._characters > self._most and len(self._by_digest) > 1:
            self._forget(self._by_digest.popitem(last=False)[1])

    def _forget(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self._characters -= _size(chunk)
            del self._by_id[chunk.id]
            self._vectors.pop(chunk.id, None)
            # A new list: a reader may hold the old one.
            rest = [item for item in self._documents[chunk.document_id] if item.id != chunk.id]
            if rest:
                self._documents[chunk.document_id] = rest
            else:
                del self._documents[chunk.document_id]


def _size(chunk: Chunk) -> int:
    """Return the number of characters that a chunk counts as, with its title, its ids and its metadata."""
    stated = sum(getsizeof(key) + getsizeof(value) for key, value in chunk.metadata.items())
    return CHUNK_CHARACTERS + len(chunk.text) + len(chunk.title) + len(chunk.id) + len(chunk.document_id) + stated
