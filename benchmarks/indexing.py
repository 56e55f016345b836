"""Compare the speed of `index_documents` with a bare `collection.add` of the same vectors and texts.

    python benchmarks/indexing.py [--data FOLDER] [--count 10000] [--repeats 3] [--embedder static]

Each fills a new local Chroma folder with the same chunks, one after the other. The bare way adds ids, vectors and texts
in batches of 5,461 records, Chroma's maximum. `index_documents` does its whole work (chunking, BM25, metadata,
calibration, manifest), except that the vectors are computed beforehand. The bare way needs no chunking and no token
counts. So the rate is printed with and without chunking, and also end to end. The bound: without chunking, 80% of the
bare rate.

The last lines give the cost of indexing 10,000 chunks, embedding included. It is CPU time, which other programs hardly
change, and the time that this takes on two cores. For `minilm`, the program also prints the CPU time that numpy needs
for the model's matrix products alone, in float32 on the same texts.
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
from tokenizers import Tokenizer

from context_agent._support.shipped_models import TOKENIZER_FILE
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.record_writer import LARGEST_BATCH
from context_agent.retrieval.embedders import MINILM, Embedder, load_embedder
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document


class PrecomputedEmbedder:
    """An embedder that returns vectors which were computed when it was made."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder = embedder
        self.name, self.dimension = embedder.name, embedder.dimension
        began, busy = time.perf_counter(), time.process_time()
        vectors = embedder.embed_documents(texts)
        self.seconds, self.cpu_seconds = time.perf_counter() - began, time.process_time() - busy
        self._vectors = dict(zip(texts, vectors, strict=True))

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts that were embedded before."""
        return np.stack([self._vectors[text] for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the query vector of the wrapped embedder."""
        return self._embedder.embed_query(text)


def chunks_of(documents: list[Document]) -> list[Chunk]:
    """Return the chunks that indexing makes."""
    from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document

    counter = HarmonyCounter()
    return [
        piece
        for document in documents
        for piece in chunk_document(document, size=DEFAULT_CHUNK_TOKENS, counter=counter)
    ]


def products(texts: Sequence[str], repeats: int = 5) -> float:
    """Return the CPU seconds of the matrix products of MiniLM's layers in numpy, for texts of these lengths.

    One product with a matrix of 384 x 4,608 represents a layer. Its attention has four matrices of 384 x 384, and the
    rest has two of 384 x 1,536.
    """
    tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
    lengths = [min(256, len(encoding.ids)) for encoding in tokenizer.encode_batch_fast(list(texts))]
    rows = np.ones((round(statistics.mean(lengths)), 384), dtype=np.float32)
    layer = np.ones((384, 4 * 384 + 2 * 1536), dtype=np.float32)
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(6 * 20):
            rows @ layer
        seconds.append((time.process_time() - began) / 20)
    return min(seconds) * len(texts)


def with_plain_chroma(folder: Path, chunks: list[Chunk], embedder: PrecomputedEmbedder) -> float:
    """Return the seconds that plain Chroma takes."""
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


def with_index_documents(
    folder: Path, documents: list[Document], embedder: PrecomputedEmbedder
) -> tuple[float, float, float]:
    """Return the seconds of `index_documents` with known vectors, those of its chunking, and its CPU seconds."""
    busy = time.process_time()
    report = index_documents(documents, folder, embedder=embedder)
    return report.seconds, report.chunking_seconds, time.process_time() - busy


def cost(name: str, texts: Sequence[str], embedder: PrecomputedEmbedder, indexing: float) -> None:
    """Print the cost of indexing 10,000 chunks. `indexing` is the CPU time without embedding, in seconds."""
    scale = 10_000 / len(texts)
    total = scale * (embedder.cpu_seconds + indexing)
    print(
        f"\nindexing 10k chunks with {name}: {total:.0f} s of one core, {total / 2:.0f} s on two; "
        f"{scale * embedder.cpu_seconds:.0f} s of it embedding"
    )
    if name == MINILM:
        reference = products(texts)
        share = embedder.cpu_seconds / reference
        print(
            f"the products of MiniLM alone in float32: {scale * reference:.0f} s; embedding takes {share:.2f} of that"
        )


def main() -> None:
    """Print the rates of each repeat, and their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--count", type=int, default=10_000, help="documents (about as many chunks)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--embedder", default="static")
    parser.add_argument(
        "--work", type=Path, help="folder for the indexes, emptied afterwards [default: a temporary one]"
    )
    options = parser.parse_args()
    documents = list(corpus(data_folder(options.data), options.count))
    chunks = chunks_of(documents)
    embedder = PrecomputedEmbedder(load_embedder(options.embedder), [chunk.indexed_text for chunk in chunks])
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, chromadb {chromadb.__version__}")
    print(f"{len(documents):,} documents, {len(chunks):,} chunks, {embedder.name}, {embedder.dimension} dimensions\n")
    rates: list[tuple[float, float, float]] = []
    for number in range(options.repeats):
        work = Path(tempfile.mkdtemp(dir=options.work))
        plain = with_plain_chroma(work / "bare", chunks, embedder)
        seconds, cutting, busy = with_index_documents(work / "ours", documents, embedder)
        shutil.rmtree(work)
        rates.append((len(chunks) / plain, len(chunks) / (seconds - cutting), len(chunks) / seconds))
        print(
            f"repeat {number + 1}: bare {plain:.1f} s, index_documents {seconds:.1f} s, {cutting:.1f} s of it chunking"
        )
    plain_rate, chunked, indexed = (statistics.median(column) for column in zip(*rates, strict=True))
    share, share_indexed = (statistics.median(rate[at] / rate[0] for rate in rates) for at in (1, 2))
    alone, end = len(chunks) / embedder.seconds, len(chunks) / (len(chunks) / indexed + embedder.seconds)
    print(f"\nbare collection.add                           {plain_rate:8,.0f} chunks/s")
    print(f"index_documents, less embedding and chunking  {chunked:8,.0f} chunks/s   {share:.0%} of bare (bound: 80%)")
    print(f"index_documents, less embedding               {indexed:8,.0f} chunks/s   {share_indexed:.0%} of bare")
    print(f"index_documents, end to end                   {end:8,.0f} chunks/s   embedding alone {alone:,.0f}/s")
    cost(options.embedder, [chunk.indexed_text for chunk in chunks], embedder, busy)


if __name__ == "__main__":
    main()
