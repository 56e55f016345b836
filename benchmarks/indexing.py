"""How fast documents are indexed, beside a bare `collection.add` of the same vectors and texts.

    python benchmarks/indexing.py [--data FOLDER] [--count 10000] [--repeats 3] [--embedder static]

Both fill a new local Chroma folder, in turn, with the same chunks. The bare way adds ids, vectors and texts in batches
of 5,461, the largest that Chroma takes. Ours does everything that `index_documents` does (chunking, BM25, metadata,
calibration, manifest) except embedding, whose vectors are computed before. Cutting documents and counting tokens, which
the bare way is spared, is printed with and without, and the end-to-end rate beside them.
The bound: the chunks indexed at 80 % of the bare rate.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import chromadb
import numpy as np
from corpus100k import corpus, data_folder
from numpy.typing import NDArray

from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.records import LARGEST_BATCH
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document


class Known:
    """An embedder that looks up vectors computed before."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder = embedder
        self.name, self.dimension = embedder.name, embedder.dimension
        began = time.perf_counter()
        vectors = embedder.embed_documents(texts)
        self.seconds = time.perf_counter() - began
        self._known = dict(zip(texts, vectors, strict=True))

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of known texts."""
        return np.stack([self._known[text] for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The embedder's own."""
        return self._embedder.embed_query(text)


def chunks_of(documents: list[Document]) -> list[Chunk]:
    """The chunks that indexing makes."""
    from context_agent.retrieval.chunker import SIZE, chunk_document

    counter = HarmonyCounter()
    return [piece for document in documents for piece in chunk_document(document, size=SIZE, counter=counter)]


def bare(folder: Path, chunks: list[Chunk], embedder: Known) -> float:
    """Seconds that plain Chroma takes."""
    vectors = embedder.embed_documents([chunk.indexed_text for chunk in chunks])
    client = chromadb.PersistentClient(str(folder))
    collection = client.create_collection("bare", embedding_function=None, configuration={"hnsw": {"space": "cosine"}})
    began = time.perf_counter()
    for start in range(0, len(chunks), LARGEST_BATCH):
        batch = chunks[start : start + LARGEST_BATCH]
        collection.add(
            ids=[chunk.id for chunk in batch],
            embeddings=vectors[start : start + LARGEST_BATCH],
            documents=[chunk.text for chunk in batch],
        )
    seconds = time.perf_counter() - began
    client.close()
    return seconds


def ours(folder: Path, documents: list[Document], embedder: Known) -> tuple[float, float]:
    """Seconds that `index_documents` takes with vectors at hand, and those of them spent on cutting and counting."""
    report = index_documents(documents, folder, embedder=embedder)
    return report.seconds, report.chunking_seconds


def main() -> None:
    """Prints the rates of each repeat and their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--count", type=int, default=10_000, help="documents (about as many chunks)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--embedder", default="static")
    parser.add_argument(
        "--work", type=Path, help="folder for the indexes, emptied afterwards [default: a temporary one]"
    )
    options = parser.parse_args()
    documents = corpus(data_folder(options.data), options.count)
    chunks = chunks_of(documents)
    embedder = Known(load_embedder(options.embedder), [chunk.indexed_text for chunk in chunks])
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, chromadb {chromadb.__version__}")
    print(f"{len(documents):,} documents, {len(chunks):,} chunks, {embedder.name}, {embedder.dimension} dimensions\n")
    rates: list[tuple[float, float, float]] = []
    for number in range(options.repeats):
        work = Path(tempfile.mkdtemp(dir=options.work))
        plain = bare(work / "bare", chunks, embedder)
        seconds, cutting = ours(work / "ours", documents, embedder)
        shutil.rmtree(work)
        rates.append((len(chunks) / plain, len(chunks) / (seconds - cutting), len(chunks) / seconds))
        print(
            f"repeat {number + 1}: bare {plain:.1f} s, index_documents {seconds:.1f} s, {cutting:.1f} s of it chunking"
        )
    plain_rate, chunked, indexed = (statistics.median(column) for column in zip(*rates, strict=True))
    share, share_indexed = (statistics.median(rate[at] / rate[0] for rate in rates) for at in (1, 2))
    alone, end = len(chunks) / embedder.seconds, len(chunks) / (len(chunks) / indexed + embedder.seconds)
    print(f"\nbare collection.add                           {plain_rate:8,.0f} chunks/s")
    print(f"index_documents, less embedding and chunking  {chunked:8,.0f} chunks/s   {share:.0%} of bare (bound: 80 %)")
    print(f"index_documents, less embedding               {indexed:8,.0f} chunks/s   {share_indexed:.0%} of bare")
    print(f"index_documents, end to end                   {end:8,.0f} chunks/s   embedding alone {alone:,.0f}/s")


if __name__ == "__main__":
    main()
