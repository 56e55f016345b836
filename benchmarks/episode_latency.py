"""Measure how long one episode of the embedded policy takes over 10,000 documents.

    python benchmarks/episode_latency.py [--data FOLDER] [--questions 60] [--index FOLDER]

The program asks dev questions of musique, one after another, over the first 10,000 documents of the set. The documents
are in memory, and then in a local Chroma folder. It prints the median and the 90th percentile of the wall time, and the
median number of searches per episode. The bound for the median is 150 ms with the effort `fast`, and 450 ms with
`careful`. `--index` keeps the Chroma folder for the next run.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

from corpus100k import data_folder

from context_agent import ChromaCorpus, Document, MemoryCorpus, SearchAgent, index_documents, load
from context_agent._support.question_files import load_questions
from context_agent.pruning.view import ToolResult
from context_agent.retrieval.corpus import Corpus

CHUNKS = 10_000
BOUND_MS = {"fast": 150, "careful": 450}


def measure(label: str, corpus: Corpus, questions: list[str], effort: str) -> None:
    """Print one line: the median and the 90th percentile of the time, and the median number of searches."""
    with SearchAgent(corpus, effort=effort) as agent:
        for question in questions[:3]:
            agent.search(question)
        taken, searches = [], []
        for question in questions[3:]:
            began = time.perf_counter()
            result = agent.search(question)
            taken.append((time.perf_counter() - began) * 1e3)
            events = result.trajectories[0].events
            searches.append(sum(isinstance(event, ToolResult) and event.name == "search_corpus" for event in events))
    p50, p90 = statistics.median(taken), statistics.quantiles(taken, n=10)[-1]
    print(
        f"{label:<14} {effort:<8} p50 {p50:4.0f} ms   p90 {p90:4.0f} ms   {statistics.median(searches):.0f} searches   "
        f"(bound: p50 {BOUND_MS[effort]:,} ms)"
    )


def main() -> None:
    """Print a line for each corpus and effort."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--index", type=Path)
    options = parser.parse_args()
    folder = data_folder(options.data) / "musique"
    documents: list[Document] = list(load([folder / "corpus.jsonl.gz"]))[:CHUNKS]
    questions = [row.question for row in load_questions(folder / "queries.dev.jsonl")][: options.questions]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; {len(documents):,} documents")
    corpus: Corpus = MemoryCorpus(documents, embedder="static")
    for effort in BOUND_MS:
        measure("memory", corpus, questions, effort)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        index = options.index or Path(scratch)
        index_documents(documents, path=index, embedder="static")
        with ChromaCorpus.open(path=index) as corpus:
            for effort in BOUND_MS:
                measure("Chroma folder", corpus, questions, effort)


if __name__ == "__main__":
    main()
