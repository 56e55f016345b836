"""Puts chunks into a Chroma collection: embedded in batches, added by threads beside.

Chroma's local client holds the interpreter's lock while it adds, so there the threads only overlap adding with waiting
for an embedding endpoint; with a server they overlap everything. Two processes on one local folder lose data: see
`index`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import DimensionError
from context_agent.retrieval.bm25 import whole_characters
from context_agent.retrieval.chunker import chunk
from context_agent.retrieval.manifest import Chunking, Entry, metadata_of, record_id
from context_agent.tokens import TokenCounter
from context_agent.types import Document

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder

BATCH = 2_000
"""Chunks embedded and added at once; Chroma takes at most 5,461."""
LARGEST_BATCH = 5_461
THREADS = 2


class RecordWriter:
    """Collects entries, embeds them batch by batch and adds them. Leaving the context waits for all of it."""

    def __init__(
        self,
        collection: Collection,
        embedder: Embedder,
        batch_size: int = BATCH,
        keep: Callable[[Sequence[str], NDArray[np.float32]], None] | None = None,
    ) -> None:
        """`keep` gets the records of each batch with their vectors, of shape (n, d)."""
        self._collection, self._embedder, self._keep = collection, embedder, keep
        self._batch_size = max(1, min(batch_size, LARGEST_BATCH))
        self._waiting: list[Entry] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="chroma-add")
        self._running: list[Future[int]] = []
        self._failed = Event()
        self.stored = 0
        self.embedding_seconds = 0.0

    def add(self, entry: Entry) -> None:
        """One more entry; returns once it is waiting or on its way."""
        self._waiting.append(entry)
        if len(self._waiting) >= self._batch_size:
            self._send()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._waiting:
                self._send()
            while self._running and kind is None:
                self._collect()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        began = time.monotonic()
        vectors = self._embedder.embed_documents([entry.chunk.indexed_text for entry in batch])
        self.embedding_seconds += time.monotonic() - began
        if vectors.shape != (len(batch), self._embedder.dimension):
            raise DimensionError(
                f"{self._embedder.name} gave vectors of shape {vectors.shape} for {len(batch)} texts and "
                f"{self._embedder.dimension} dimensions"
            )
        if self._keep is not None:
            self._keep([entry.record for entry in batch], vectors)
        while len(self._running) > THREADS:
            self._collect()
        self._running.append(self._pool.submit(self._store, batch, vectors))

    def _collect(self) -> None:
        self.stored += self._running.pop(0).result()

    def _store(self, batch: list[Entry], vectors: NDArray[np.float32]) -> int:
        # Chroma can block for good in an addition that follows a failed one, for example on a full disk.
        if self._failed.is_set():
            return 0
        try:
            self._collection.add(
                ids=[entry.record for entry in batch],
                embeddings=cast("Any", vectors),
                documents=[entry.chunk.text for entry in batch],
                metadatas=[metadata_of(entry) for entry in batch],
            )
        except BaseException:
            self._failed.set()
            raise
        return len(batch)


def entries_of(
    document: Document, digest: str, *, chunking: Chunking, counter: TokenCounter, revision: int, place: int
) -> list[Entry]:
    """The entries that store a document; none for one without text."""
    document = replace(document, title=whole_characters(document.title), text=whole_characters(document.text))
    chunks = chunk(document, size=chunking.size, counter=counter, overlap=chunking.overlap)
    return [Entry(record_id(one.id, digest), one, revision, place) for one in chunks]


def delete_records(collection: Collection, records: Iterable[str]) -> None:
    """Deletes records by id, in batches, in a fixed order."""
    ids = sorted(records)
    for start in range(0, len(ids), BATCH):
        collection.delete(ids=ids[start : start + BATCH])
