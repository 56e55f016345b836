"""Recall@5 of search and of the embedded policy in Japanese, Chinese, Korean, Thai and German. No GPU, no download.

    python benchmarks/languages.py [--embedder static,minilm] [--sets ja,zh,ko,th,de]

The notes and questions in `benchmarks/data/languages` were written for this project before the code they test. For each
language and embedder it prints the language that indexing identifies, and recall@5 of BM25, dense and hybrid search and
of the agent, with bootstrap 95 % intervals over questions. `before` is BM25 as it was before languages were
identified: English stop words and endings, and a run of any script is one word.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from context_agent._support.question_files import Question, load_questions
from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.retrieval.bm25 import BEFORE_LANGUAGES, Bm25Entry, Bm25Index
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.languages import LANGUAGES, identify, misfit
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Document

DATA = Path(__file__).parent / "data" / "languages"
CUTOFF, DEPTH = 5, 40


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each embedder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="static,minilm")
    parser.add_argument("--sets", default="ja,zh,ko,th,de")
    options = parser.parse_args(arguments)
    for spec in options.embedder.split(","):
        for name in options.sets.split(","):
            _report(spec, name)


def _report(spec: str, name: str) -> None:
    documents = [
        Document(**json.loads(line)) for line in (DATA / name / "corpus.jsonl").read_text("utf-8").splitlines()
    ]
    questions = load_questions(DATA / name / "queries.test.jsonl")
    corpus = MemoryCorpus(documents, embedder=load_embedder(spec))
    texts = [document.text for document in documents]
    weights = ", ".join(f"{retriever} {weight:.2f}" for retriever, weight in corpus.calibration.weights.items())
    print(f"{name}: {len(documents)} notes, {len(questions)} questions, identified as {LANGUAGES[identify(texts)]}")
    print(f"  {spec}: {'does not fit' if misfit(corpus.embedder.name, texts) else 'fits'}, weights {weights}")
    before = Bm25Index(language=BEFORE_LANGUAGES)
    before.add(Bm25Entry(document.id, document.title, document.text) for document in documents)
    before.commit()
    rankings: dict[str, Callable[[str], list[str]]] = {
        "before": lambda question: [item for item, _ in before.search(question, DEPTH)],
        **{retriever.name: _one_shot(corpus, retriever.search) for retriever in corpus.retrievers},
        "hybrid": lambda question: [hit.chunk.document_id for hit in corpus.search(question, k=DEPTH)],
    }
    with SearchAgent(corpus) as agent:
        rankings["agent"] = lambda question: [document.id for document in agent.search(question).documents]
        for system, ranking in rankings.items():
            print(f"  {system:8}{Figure.of([_recall(question, ranking) for question in questions])}", flush=True)


def _one_shot(
    corpus: MemoryCorpus, search: Callable[[str, int], list[tuple[str, float]]]
) -> Callable[[str], list[str]]:
    return lambda question: [chunk.document_id for chunk in corpus.get([item for item, _ in search(question, DEPTH)])]


def _recall(question: Question, ranking: Callable[[str], list[str]]) -> float:
    """Share of the gold documents among the first five different documents."""
    first = list(dict.fromkeys(ranking(question.question)))[:CUTOFF]
    return len(set(first) & set(question.gold)) / len(question.gold)


if __name__ == "__main__":
    main()
