"""Latency of `search` with 60 excluded chunks and of `grep` on 100,000 chunks, compared with Chroma's own methods.

    python benchmarks/search_latency.py [--data FOLDER] [--count 100000] [--index FOLDER] [--embedder static]

The index is built once in `--index`. The default is a temporary folder, which takes some minutes each time.

- `search`: hybrid search without a reranker. Each question is new, and its first 60 chunks are excluded. It is compared
  with two dense queries of Chroma: one that excludes the chunks by a metadata filter, which is the published method,
  and one without a filter. The bound for p50 is 8 ms.
- `grep`: the first 5 chunks for each of 20 patterns. The figure is the median over the patterns of the median of 5
  runs. It is compared with Chroma's `$regex` with the same limit. The bound is 60 ms.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.api.models.Collection import Collection
from corpus100k import COUNT, corpus, data_folder, questions

from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.database import DATABASE_FILE
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.corpus import GREP_LIMIT, PER_RETRIEVER
from context_agent.retrieval.index.manifest import MANIFEST_KEY
from context_agent.types import Chunk

SEEN_LIMIT = 60
PATTERNS = (
    r"Marie Curie",
    r"(?i)world war (i|ii|one|two)\b",
    r"born (on|in) (January|March) \d{1,2}, 18\d\d",
    r"\b19[67]\d\b.*\bdirected by\b",
    r"directed by [A-Z]\w+ [A-Z]\w+",
    r"(?i)\bnobel prize in (physics|chemistry)",
    r"\d{1,3}(,\d{3})+ inhabitants",
    r"^The .* is a (river|lake|mountain)",
    r"[A-Z]{3,} \d{4}",
    r"(?i)university of (oxford|cambridge)",
    r"\b(father|mother) of [A-Z]\w+ (III|IV|VI)\b",
    r"\$\d+(\.\d+)? (million|billion)",
    r"founded in 1[0-9]{3} by",
    r"(?i)grammy award.*best",
    r"\w+ische\b",
    r"St\. \w+'s (Church|College|Hospital)",
    r"(Prince|Princess|Duke) of \w+ and \w+",
    r"https?://\S+",
    r"(?i)quidditch",
    r"\b\d{3}-\d{4}-\d{5}\b",
)


def milliseconds(action: Callable[[], object]) -> float:
    """Return the wall time of one call, in milliseconds."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1e3


def line(name: str, times: list[float], note: str = "") -> None:
    """Print p50 and p95 of some times."""
    print(f"{name:<44}{statistics.median(times):9.2f} ms p50{np.percentile(times, 95):9.2f} ms p95   {note}")


def search(corpus_: ChromaCorpus, collection: Collection, new_questions: list[str]) -> None:
    """Print the figures of search."""
    seen_chunks = [[hit.chunk for hit in corpus_.search(question, k=SEEN_LIMIT)] for question in new_questions]
    vectors = [corpus_.embedder.embed_query(question) for question in new_questions]
    fresh = [f"{question} Who was it?" for question in new_questions]
    ids = [{chunk.id for chunk in chunks} for chunks in seen_chunks]
    times = [milliseconds(partial(corpus_.search, fresh[n], exclude=ids[n])) for n in range(len(new_questions))]
    line(f"search, {SEEN_LIMIT} seen chunks dropped (ours)", times, "bound 8")

    def query(number: int, where: dict[str, Any] | None) -> object:
        return collection.query(query_embeddings=[vectors[number]], n_results=PER_RETRIEVER, where=where)

    packed = [collection.get(ids=records(corpus_, chunks))["metadatas"] or [] for chunks in seen_chunks[:20]]
    filters = [
        {MANIFEST_KEY: {"$nin": [str(metadata[MANIFEST_KEY]) for metadata in metadatas]}} for metadatas in packed
    ]
    line("dense query alone, seen excluded by filter", [milliseconds(partial(query, n, filters[n])) for n in range(20)])
    line(
        "dense query alone, nothing excluded",
        [milliseconds(partial(query, n, None)) for n in range(len(new_questions))],
    )


def records(corpus_: ChromaCorpus, chunks: list[Chunk]) -> list[str]:
    """Return the record ids of chunks."""
    return [corpus_.snapshot.rows[corpus_.snapshot.row_of_chunk[chunk.id]].record for chunk in chunks]


def grep(corpus_: ChromaCorpus, collection: Collection) -> None:
    """Print the figures of grep for each pattern."""

    def chroma_grep(pattern: str) -> object:
        return collection.get(where_document={"$regex": pattern}, limit=GREP_LIMIT)

    print(f"\n{'pattern':<52}{'hits':>6}{'ours':>10}{'$regex':>10}")
    times: list[float] = []
    chroma_times: list[float] = []
    for pattern in PATTERNS:
        matches = len(corpus_.grep(pattern))
        times.append(statistics.median(milliseconds(partial(corpus_.grep, pattern)) for _ in range(5)))
        chroma_times.append(statistics.median(milliseconds(partial(chroma_grep, pattern)) for _ in range(3)))
        print(f"{pattern:<52}{matches:>6}{times[-1]:>10.1f}{chroma_times[-1]:>10.1f}")
    line("\ngrep over the patterns (ours)", times, f"bound 60; slowest {max(times):.0f}")
    line("Chroma's $regex", chroma_times, f"slowest {max(chroma_times):.0f}")


def main() -> None:
    """Build the index if it is missing, and print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--embedder", default="static")
    options = parser.parse_args()
    data, folder = data_folder(options.data), options.index or Path(tempfile.mkdtemp()) / "index"
    if not (folder / DATABASE_FILE).exists():
        report = index_documents(
            corpus(data, options.count),
            folder,
            embedder=options.embedder,
            progress=lambda progress: print(f"\r{progress.stored:,} chunks stored", end="", file=sys.stderr),
        )
        embedding = f"{report.embedding_seconds:.0f} s of it embedding"
        print(f"\rindexed {report.chunks:,} chunks in {report.seconds:.0f} s, {embedding}")
    opened = time.perf_counter()
    with ChromaCorpus.open(folder, embedder=options.embedder) as corpus_:
        opened = time.perf_counter() - opened
        first = milliseconds(lambda: corpus_.search("a first question"))
        print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, chromadb {chromadb.__version__}")
        print(f"{corpus_.count():,} chunks; opening {opened:.2f} s, first search {first:.0f} ms")
        print(f"calibration {dict(corpus_.calibration.mrr)}\n")
        client = chromadb.PersistentClient(str(folder.absolute()))
        collection = client.get_collection("documents", embedding_function=None)
        search(corpus_, collection, questions(data)[:150])
        grep(corpus_, collection)


if __name__ == "__main__":
    main()
