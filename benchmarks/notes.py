"""Measure recall@5 on working notes, with file names as titles, repeated headings, tables and near-identical pages.

    python benchmarks/notes.py [--split dev] [--embedder static] [--weights FILE] [--misses]

`notes_corpus.py` generates the notes and their questions. Every second question is in the split `train`, which you may
inspect during development. The others are in `dev`, which decides. The program prints recall@5 of BM25, dense and
hybrid search with the question alone and of the agent, with bootstrap 95% intervals over questions. `--misses` lists
the questions whose gold documents are not all among the first five.
"""

from __future__ import annotations

import argparse
import sys

from multihop import measure
from notes_corpus import documents, questions

from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.memory import MemoryCorpus


def main() -> int:
    """Print a row for each search method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--split", default="dev", choices=("train", "dev"))
    parser.add_argument("--embedder", default="static")
    parser.add_argument("--weights", help="file of the bridge policy's weights instead of those that ship")
    parser.add_argument("--misses", action="store_true")
    options = parser.parse_args()
    corpus = MemoryCorpus(documents(), embedder=load_embedder(options.embedder))
    agent = SearchAgent(corpus, BridgePolicy(Scorer.load(options.weights) if options.weights else None))
    selected = questions(options.split)
    row = measure("notes", corpus, selected, agent)
    print(f"{corpus.count()} notes, {len(selected)} questions of {options.split}, gold seen {Figure.of(row.seen)}")
    for way, recalls in row.recalls.items():
        print(f"{way:7} {Figure.of(recalls)}")
    for question, recall in zip(selected, row.recalls["agent"], strict=True):
        if options.misses and recall < 1:
            ranking = [document.id for document in agent.search(question.question).documents[:5]]
            print(f"{recall:.2f} {question.question}\n     gold {list(question.gold)}\n     got  {ranking}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
