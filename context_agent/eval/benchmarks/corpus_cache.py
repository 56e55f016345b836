"""A benchmark's corpus, indexed once: chunks and vectors in a folder named after their content, loaded into memory.

The name is a digest of the documents, the embedder and the size of a chunk, so a changed document, or another embedder,
makes another folder. Vectors are written in parts while they are made: a killed run goes on with the part it was at.
The folder appears under its name when it is complete, by one rename, and one process at a time makes it.
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

from context_agent.errors import CorpusCorruptError, CorpusEmptyError
from context_agent.types import Chunk, Document

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.memory import MemoryCorpus


PART = 2048
"""Chunks embedded, and kept, at a time."""
FORM = 1
"""Version of the folder's form; part of its name."""
CHUNKS, VECTORS = "chunks.jsonl", "vectors.npy"

Report = Callable[[int, int | None], None]
"""Told how many chunks of how many are embedded."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Chunks and vectors on disk. A value that can be sent to another process, which opens it for itself."""

    folder: Path
    embedder: str
    reranker: str | None = None

    def __call__(self) -> MemoryCorpus:
        """The corpus in memory. Raises `CorpusCorruptError` for a damaged folder."""
        from context_agent.retrieval.embedders import load_embedder
        from context_agent.retrieval.memory import MemoryCorpus
        from context_agent.retrieval.rerankers import load_reranker

        try:
            chunks = _read_chunks(self.folder / CHUNKS)
            vectors = np.load(self.folder / VECTORS)
        except (OSError, ValueError, TypeError) as error:
            raise CorpusCorruptError(f"{self.folder} is damaged ({error}): delete it, and it is made again") from error
        embedder = load_embedder(self.embedder)
        return MemoryCorpus(chunks, embedder=embedder, vectors=vectors, reranker=load_reranker(self.reranker))


def default_cache() -> Path:
    """The user's cache folder for indexed corpora."""
    from platformdirs import user_cache_path

    return user_cache_path("context-agent") / "eval"


def snapshot(
    documents: Sequence[Document],
    *,
    cache: Path,
    embedder: str = "static",
    reranker: str | None = None,
    report: Report | None = None,
) -> Snapshot:
    """The documents chunked and embedded, from the cache where they are there. Raises `CorpusEmptyError` for none."""
    if not documents:
        raise CorpusEmptyError("the benchmark's corpus holds no document")
    folder = cache / digest(documents, embedder)
    if not folder.is_dir():
        from filelock import FileLock

        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                _make(documents, folder, embedder, report or (lambda done, total: None))
    return Snapshot(folder, embedder, reranker)


def digest(documents: Iterable[Document], embedder: str) -> str:
    """The name of a corpus in the cache: SHA-256 of what its chunks and vectors depend on, in hexadecimal."""
    from context_agent.retrieval.chunker import SIZE
    from context_agent.retrieval.embedders import load_embedder

    made = load_embedder(embedder)
    probe = np.asarray(made.embed_query("a probe of the model's identity"), dtype=np.float32)
    state = sha256(f"{FORM}\0{embedder}\0{made.name}\0{made.dimension}\0{SIZE}\0".encode())
    state.update(np.round(probe, 3).tobytes())
    for one in documents:
        for part in (one.id, one.title, one.text, repr(sorted(one.metadata.items()))):
            data = part.encode("utf-8", "surrogatepass")
            state.update(len(data).to_bytes(8, "big") + data)
    return state.hexdigest()[:32]


def _make(documents: Sequence[Document], folder: Path, embedder: str, report: Report) -> None:
    from context_agent.retrieval.chunker import SIZE, chunk
    from context_agent.retrieval.embedders import load_embedder
    from context_agent.tokens import HarmonyCounter

    counter = HarmonyCounter()
    chunks = [part for one in documents for part in chunk(one, size=SIZE, counter=counter, overlap=0)]
    if not chunks:
        raise CorpusEmptyError(f"none of the {len(documents)} documents of the benchmark's corpus has any text")
    work = folder.with_name(f"{folder.name}.part")
    work.mkdir(parents=True, exist_ok=True)
    made = load_embedder(embedder)
    parts = []
    for start in range(0, len(chunks), PART):
        texts = [one.indexed_text for one in chunks[start : start + PART]]
        parts.append(_kept(work / f"{start:010}.npy", texts, made))
        report(min(start + PART, len(chunks)), len(chunks))
    complete = work / "complete"
    shutil.rmtree(complete, ignore_errors=True)
    complete.mkdir()
    np.save(complete / VECTORS, np.concatenate(parts))
    (complete / CHUNKS).write_text("".join(json.dumps(asdict(one)) + "\n" for one in chunks), encoding="utf-8")
    complete.rename(folder)
    shutil.rmtree(work, ignore_errors=True)


def _kept(path: Path, texts: Sequence[str], embedder: Embedder) -> NDArray[np.float32]:
    """The vectors of a part: those of the run that was killed, where they are whole, else made and kept."""
    with contextlib.suppress(OSError, ValueError, EOFError):
        stored: NDArray[np.float32] = np.load(path)
        if len(stored) == len(texts):
            return stored
    vectors = np.asarray(embedder.embed_documents(texts), dtype=np.float32)
    beside = path.with_suffix(".tmp")
    with beside.open("wb") as file:
        np.save(file, vectors)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return vectors


def _read_chunks(path: Path) -> list[Chunk]:
    with path.open(encoding="utf-8") as lines:
        return [Chunk(**json.loads(line)) for line in lines]
