"""A cache of benchmark corpora. Chunks and vectors are made once, stored on disk, and loaded into memory.

Each corpus has a folder. The folder's name is a digest of the documents, the embedder and the chunk size, so a changed
document or another embedder gets another folder. Vectors are written in parts while they are computed, so an
interrupted run resumes with the part where it stopped. Only one process at a time makes a folder. When the folder is
complete, it gets its final name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from context_agent._support.atomic_files import replacing, replacing_folder
from context_agent._support.locks import file_lock
from context_agent._support.private_files import private_folder
from context_agent._support.small_files import parse_json, read_lines, require_files
from context_agent.errors import CorpusCorruptError, CorpusEmptyError, DataError, reason_of
from context_agent.types import Chunk, Document

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.memory import MemoryCorpus


CHUNKS_PER_PART = 2048
"""The number of chunks that are embedded and written together."""
FORMAT_VERSION = 1
"""Version of the folder's format, which is part of the digest."""
CHUNKS_FILE, VECTORS_FILE = "chunks.jsonl", "vectors.npy"

ProgressCallback = Callable[[int, int | None], None]
"""A function that is called after each part with the number of chunks embedded and the number of all chunks."""


@dataclass(frozen=True, slots=True)
class CachedCorpus:
    """A corpus in the cache. It is picklable, and another process opens the corpus by calling it.

    Attributes:
        folder: The folder with the chunks and vectors.
        embedder: The embedder for queries.
        reranker: The reranker. Without it nothing is reranked.
    """

    folder: Path
    embedder: str
    reranker: str | None = None

    def __call__(self) -> MemoryCorpus:
        """Load the corpus into memory.

        Raises:
            CorpusCorruptError: If the folder is damaged.
        """
        from context_agent.retrieval.embedders import load_embedder
        from context_agent.retrieval.memory import MemoryCorpus
        from context_agent.retrieval.rerankers import load_reranker

        try:
            require_files(self.folder.glob("*"))
            chunks = _read_chunks(self.folder / CHUNKS_FILE)
            vectors = _read_vectors(self.folder / VECTORS_FILE, len(chunks))
        except (OSError, ValueError, TypeError, DataError) as error:
            raise CorpusCorruptError(
                f"{self.folder} is damaged ({reason_of(error, inside=self.folder)}). Delete the folder. The next run "
                "makes it again."
            ) from error
        embedder = load_embedder(self.embedder)
        return MemoryCorpus(chunks, embedder=embedder, vectors=vectors, reranker=load_reranker(self.reranker))


def cached_corpus(
    documents: Sequence[Document],
    *,
    cache: Path,
    embedder: str = "static",
    reranker: str | None = None,
    progress: ProgressCallback | None = None,
) -> CachedCorpus:
    """Return the corpus of these documents from the cache. If it is not there, chunk and embed the documents first.

    Args:
        documents: The documents of the corpus.
        cache: The folder of the cache.
        embedder: The embedder for chunks and queries.
        reranker: The reranker. Without it nothing is reranked.
        progress: A function that is called after each part that is embedded.

    Raises:
        CorpusEmptyError: If there are no documents, or if none has text.
        DataError: If the corpus is not in the cache, and the cache cannot be written.
    """
    if not documents:
        raise CorpusEmptyError(
            "the benchmark's corpus has no documents. Pass a corpus with at least one document with text."
        )
    folder = cache / corpus_digest(documents, embedder)
    if not folder.is_dir():
        _require_writable(cache)
        with file_lock(folder.with_name(f"{folder.name}.lock"), timeout=-1):
            if not folder.is_dir():
                _build(documents, folder, embedder, progress or (lambda done, total: None))
    return CachedCorpus(folder, embedder, reranker)


def _require_writable(cache: Path) -> None:
    try:
        private_folder(cache)
        reason = "" if os.access(cache, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        reason = reason_of(error)
    if reason:
        raise DataError(
            f"{cache} cannot hold the indexed corpora ({reason}). Pass --cache with a folder that can be written."
        )


def corpus_digest(documents: Iterable[Document], embedder: str) -> str:
    """Return the name of a corpus in the cache.

    The name is the first 32 hexadecimal digits of a SHA-256 of everything that the chunks and vectors depend on.
    """
    from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS
    from context_agent.retrieval.embedders import load_embedder

    model = load_embedder(embedder)
    probe = np.asarray(model.embed_query("a probe of the model's identity"), dtype=np.float32)
    state = sha256(f"{FORMAT_VERSION}\0{embedder}\0{model.name}\0{model.dimension}\0{DEFAULT_CHUNK_TOKENS}\0".encode())
    state.update(np.round(probe, 3).tobytes())
    for document in documents:
        for part in (document.id, document.title, document.text, repr(sorted(document.metadata.items()))):
            data = part.encode("utf-8", "surrogatepass")
            state.update(len(data).to_bytes(8, "big") + data)
        if document.sections:
            state.update(repr(document.sections).encode())
        if document.captions:
            state.update(repr(document.captions).encode())
        if document.pages:
            state.update(repr(document.pages).encode())
    return state.hexdigest()[:32]


def _build(documents: Sequence[Document], folder: Path, embedder: str, progress: ProgressCallback) -> None:
    from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document
    from context_agent.retrieval.embedders import load_embedder
    from context_agent.tokens import HarmonyCounter

    counter = HarmonyCounter()
    chunks = [
        part
        for document in documents
        for part in chunk_document(document, size=DEFAULT_CHUNK_TOKENS, counter=counter, overlap=0)
    ]
    if not chunks:
        raise CorpusEmptyError(
            f"none of the {len(documents)} documents in the benchmark's corpus has text. Pass documents with text."
        )
    work = folder.with_name(f"{folder.name}.part")
    work.mkdir(parents=True, exist_ok=True)
    model = load_embedder(embedder)
    parts = []
    for start in range(0, len(chunks), CHUNKS_PER_PART):
        texts = [part.indexed_text for part in chunks[start : start + CHUNKS_PER_PART]]
        parts.append(_vectors(work / f"{start:010}.npy", texts, model))
        progress(min(start + CHUNKS_PER_PART, len(chunks)), len(chunks))
    with replacing_folder(folder) as complete:
        np.save(complete / VECTORS_FILE, np.concatenate(parts))
        lines = "".join(json.dumps(asdict(part)) + "\n" for part in chunks)
        (complete / CHUNKS_FILE).write_text(lines, encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)


def _vectors(path: Path, texts: Sequence[str], embedder: Embedder) -> NDArray[np.float32]:
    """Return the vectors of a part. Unless an interrupted run wrote all of them, compute and write them."""
    with contextlib.suppress(OSError, ValueError):
        return _read_vectors(path, len(texts))
    vectors = np.asarray(embedder.embed_documents(texts), dtype=np.float32)
    with replacing(path) as file:
        np.save(file, vectors)
    return vectors


def _read_vectors(path: Path, count: int) -> NDArray[np.float32]:
    """Return the stored vectors, shape (count, dimension). Raise `ValueError` if the file contains anything else."""
    try:
        # The file is mapped, because its header may claim more data than it has.
        vectors = np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy reads the header with Python's own parser, and raises what that does
        raise ValueError(f"{path.name} is not an array ({reason_of(error)})") from error
    if vectors.dtype != np.float32:
        raise ValueError(f"{path.name} must have numbers of the type float32; got {vectors.dtype}")
    if vectors.ndim != 2 or len(vectors) != count:
        raise ValueError(f"{path.name} must have {count:,} vectors in two dimensions; got the shape {vectors.shape}")
    return np.array(vectors)


def _read_chunks(path: Path) -> list[Chunk]:
    with path.open("rb") as file:
        return [Chunk(**parse_json(line)) for line in read_lines(file)]
