"""Adding records to a Chroma collection, and deleting them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.embedders import STATIC, document_vectors
from context_agent.retrieval.index.records import StoredChunk, metadata_of

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder

BATCH_CHUNKS = 500
"""The number of chunks that are embedded and added at once with the static embedding.

Larger batches are not faster, and an interruption loses a few batches.
"""
SLOW_BATCH_CHUNKS = 64
"""The number with any other embedder.

A model that takes 20 ms a chunk embeds these in about a second. Smaller batches would add more than 10 ms of Chroma's
time to a second of the model's.
"""
LARGEST_BATCH = 5_461
"""The maximum number of records that Chroma accepts at once."""
ADDING_THREADS = 2
"""The number of threads that add batches."""


class RecordWriter:
    """A writer that embeds chunks in batches and adds them to a collection in threads.

    The context ends when all chunks are added. Chroma's local client holds the interpreter's lock while it adds. So
    with a local folder, adding overlaps only with waiting for an embedding endpoint. With a server, all steps overlap.
    """

    def __init__(
        self,
        collection: Collection,
        embedder: Embedder,
        batch_size: int | None = None,
        on_vectors: Callable[[Sequence[str], NDArray[np.float32]], None] | None = None,
    ) -> None:
        """Prepare the threads.

        Args:
            collection: The collection.
            embedder: The embedder of the chunks.
            batch_size: The number of chunks that are embedded and added at once. Defaults to the constants above.
            on_vectors: A function that receives the record ids of each batch and their vectors, shape (n, d).
        """
        self._collection, self._embedder, self._on_vectors = collection, embedder, on_vectors
        if batch_size is None:
            batch_size = BATCH_CHUNKS if embedder.name.startswith(f"{STATIC}-") else SLOW_BATCH_CHUNKS
        self._batch_size = max(1, min(batch_size, LARGEST_BATCH))
        self._waiting: list[StoredChunk] = []
        self._pool = ThreadPoolExecutor(ADDING_THREADS, thread_name_prefix="chroma-add")
        self._running: list[Future[int]] = []
        self._failed = Event()
        self.added = self.stored = 0
        """The number of chunks passed to `add`, and of those that are in the collection."""
        self.embedding_seconds = 0.0

    def add(self, stored: StoredChunk) -> None:
        """Add a chunk to the next batch. If the batch is full, send it."""
        self._waiting.append(stored)
        self.added += 1
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
            finished = takewhile(lambda batch: not batch.cancelled() and batch.exception() is None, self._running)
            self.stored += sum(batch.result() for batch in finished)

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        began = time.monotonic()
        vectors = document_vectors(self._embedder, [stored.chunk.indexed_text for stored in batch])
        self.embedding_seconds += time.monotonic() - began
        if self._on_vectors is not None:
            self._on_vectors([stored.record for stored in batch], vectors)
        while len(self._running) > ADDING_THREADS:
            self._collect()
        self._running.append(self._pool.submit(self._store, batch, vectors))

    def _collect(self) -> None:
        self.stored += self._running.pop(0).result()

    def _store(self, batch: list[StoredChunk], vectors: NDArray[np.float32]) -> int:
        # Chroma can block forever in an addition that follows a failed one, for example on a full disk.
        if self._failed.is_set():
            return 0
        try:
            self._collection.add(
                ids=[stored.record for stored in batch],
                embeddings=cast("Any", vectors),
                documents=[stored.chunk.text for stored in batch],
                metadatas=[metadata_of(stored) for stored in batch],
            )
        except BaseException:
            self._failed.set()
            raise
        return len(batch)


def delete_records(collection: Collection, records: Iterable[str]) -> None:
    """Delete records by id, in batches, in a fixed order."""
    ids = sorted(records)
    for start in range(0, len(ids), BATCH_CHUNKS):
        collection.delete(ids=ids[start : start + BATCH_CHUNKS])
