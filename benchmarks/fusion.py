"""Recall@5 of BM25, dense search and their fusions, with the question alone. No language model, no GPU.

    python benchmarks/fusion.py --data FOLDER [--sets 2wiki,hotpotqa,musique,newsfacts] [--split dev]
        [--embedder static,minilm] [--cache FOLDER] [--limit N] [--documents N]

A set is a folder as in `multihop.py`, or `coded_releases` for the generated release notes that are headed by codes.
For each set and embedder it prints recall@5 of documents, with its bootstrap 95 % interval over questions, for:

- `bm25`, `dense`: each retriever alone;
- `rrf`: reciprocal rank fusion with equal weights;
- `own words`: reciprocal rank fusion without the retrievers that do not find chunks by their own words and title. The
  package weighed retrievers this way before it measured their worth;
- `by corpus`: fusion by score with the weights of the corpus for every question;
- `fusion`: what the package does, `corpus.search`;

and the gain of `fusion` over the best of the others and over `by corpus`, the stored weights, and the seconds that it
took to build the corpus, calibration included.
`--documents` keeps the gold documents of the questions and fills up with others to this number.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import coded_releases
from multihop import DEPTH, embedders, load_chunks, recall

from context_agent._support.question_files import load_questions
from context_agent.eval.statistics import Figure
from context_agent.retrieval.embedders import Embedder
from context_agent.retrieval.fusion import reciprocal_rank_fusion, score_fusion
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.retrieval.retriever import DENSE, SPARSE, Retriever
from context_agent.types import Chunk, Question

SETS = "2wiki,hotpotqa,musique,newsfacts"
WAYS = (SPARSE, DENSE, "rrf", "own words", "by corpus", "fusion")
PROBES, WORDS, USELESS = 32, 16, 0.35
"""Of `own words`: queries, words of each, share of the best mean reciprocal rank that a retriever must reach."""


def measure(corpus: MemoryCorpus, questions: Sequence[Question]) -> dict[str, list[float]]:
    """Recall of each way of searching for each question."""
    owner = {chunk.id: chunk.document_id for chunk in corpus.chunks}
    working = own_words(corpus)
    recalls: dict[str, list[float]] = {way: [] for way in WAYS}
    for question in questions:
        rankings = rankings_of(corpus.retrievers, question.question)
        rankings["rrf"] = fused_by_rank([rankings[SPARSE], rankings[DENSE]])
        rankings["own words"] = fused_by_rank([rankings[name] for name in working])
        hits = {retriever.name: retriever.search(question.question, DEPTH) for retriever in corpus.retrievers}
        rankings["by corpus"] = [item for item, _ in score_fusion(hits, corpus.calibration.weights)]
        rankings["fusion"] = [hit.chunk.id for hit in corpus.search(question.question, k=DEPTH)]
        for way in WAYS:
            recalls[way].append(recall((owner[chunk_id] for chunk_id in rankings[way]), question.gold))
    return recalls


def rankings_of(retrievers: Sequence[Retriever], query: str) -> dict[str, list[str]]:
    """Chunk ids by retriever, best first."""
    return {retriever.name: [item for item, _ in retriever.search(query, DEPTH)] for retriever in retrievers}


def fused_by_rank(rankings: Sequence[Sequence[str]]) -> list[str]:
    """Ids by reciprocal rank fusion with equal weights, best first."""
    return [item for item, _ in reciprocal_rank_fusion(rankings)]


def own_words(corpus: MemoryCorpus) -> list[str]:
    """Return the retrievers that find chunks by their title and 16 consecutive words."""
    generator = random.Random(0)
    totals = dict.fromkeys((SPARSE, DENSE), 0.0)
    for chunk in generator.sample(list(corpus.chunks), min(PROBES, corpus.count())):
        words = chunk.text.split()
        start = generator.randrange(max(1, len(words) - WORDS + 1))
        query = f"{chunk.title} {' '.join(words[start : start + WORDS])}"
        for name, ids in rankings_of(corpus.retrievers, query).items():
            totals[name] += 1 / (ids.index(chunk.id) + 1) if chunk.id in ids else 0.0
    return [name for name, total in totals.items() if total >= USELESS * max(totals.values())]


def sampled(chunks: Sequence[Chunk], questions: Sequence[Question], documents: int | None) -> list[Chunk]:
    """Return the chunks of all gold documents and of others, `documents` in all."""
    gold = {document for question in questions for document in question.gold}
    others = sorted({chunk.document_id for chunk in chunks} - gold)
    if documents is None or documents >= len(gold) + len(others):
        return list(chunks)
    kept = gold | set(random.Random(0).sample(others, max(0, documents - len(gold))))
    return [chunk for chunk in chunks if chunk.document_id in kept]


def load_set(name: str, options: argparse.Namespace) -> tuple[list[Question], list[Chunk]]:
    """Return the questions and the chunks of a set."""
    if name == "coded_releases":
        return coded_releases.questions(), list(MemoryCorpus(coded_releases.documents(), embedder="static").chunks)
    questions = load_questions(options.data / name / f"queries.{options.split}.jsonl")[: options.limit]
    return questions, sampled(load_chunks(options.data / name), questions, options.documents)


def show(
    name: str, embedder: Embedder, corpus: MemoryCorpus, recalls: Mapping[str, list[float]], seconds: float
) -> None:
    """Prints one set under one embedder."""
    means = {way: Figure.of(recalls[way]).mean for way in WAYS[:-1]}
    best = max(means, key=lambda way: means[way])
    gain = Figure.of([a - b for a, b in zip(recalls["fusion"], recalls[best], strict=True)])
    change = Figure.of([a - b for a, b in zip(recalls["fusion"], recalls["by corpus"], strict=True)])
    figures = "  ".join(f"{way} {Figure.of(recalls[way])}" for way in WAYS)
    weights = ", ".join(f"{way} {corpus.calibration.weights[way]:.2f}" for way in (SPARSE, DENSE))
    print(f"{name}, {embedder.name}, {len(recalls['fusion'])} questions, {corpus.count():,} chunks\n  {figures}")
    print(f"  gain over {best} {gain}   over by corpus {change}")
    print(f"  weights: {weights}   built and calibrated in {seconds:.1f} s", flush=True)


def main() -> int:
    """Prints a block for each set and embedder."""
    options = _options()
    for embedder in embedders(options.embedder, options.cache):
        for name in options.sets.split(","):
            questions, chunks = load_set(name, options)
            vectors = embedder.embed_documents([chunk.indexed_text for chunk in chunks])
            started = time.perf_counter()
            corpus = MemoryCorpus(chunks, embedder=embedder, vectors=vectors)
            seconds = time.perf_counter() - started
            show(name, embedder, corpus, measure(corpus, questions), seconds)
            embedder.save()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder a set")
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--split", default="dev", choices=("train", "dev"))
    parser.add_argument("--embedder", default="static", help="specs of embedders, comma-separated")
    parser.add_argument("--cache", type=Path, default=Path(".cache/multihop"), help="keeps vectors")
    parser.add_argument("--limit", type=int, help="questions a set at most")
    parser.add_argument("--documents", type=int, help="documents a set at most")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
