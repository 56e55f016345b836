"""Adapt the shipped policy to a folder of documents: make questions from its links, train, save, and search.

    python examples/train_on_a_folder.py FOLDER WEIGHTS.safetensors "QUESTION"

This script needs `pip install "context-agent[train]"`, but no GPU and no language model. If there are
fewer than 60 questions, it adapts only the reader and the confidence. `ctx1 synth tasks` and `ctx1 train
bridge` do the same on the command line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from context_agent import BridgePolicy, MemoryCorpus, SearchAgent, load
from context_agent.synth_data.links.tasks import LinkTasks, LinkTaskSettings
from context_agent.train.bridge.calibration_fit import calibrate
from context_agent.train.bridge.episodes import BridgeSource
from context_agent.train.bridge.training import train

MAX_QUESTIONS = 200


def progress(step: str, share: float) -> None:
    """Print the name of each finished step on standard error."""
    if share >= 1:
        print(f"done: {step}", file=sys.stderr)


def main(folder: Path, weights: Path, question: str) -> None:
    """Print the recall of five-fold cross-validation, then the ranking by the new weights."""
    corpus = MemoryCorpus(load([folder]))
    tasks = LinkTasks(corpus.chunks, LinkTaskSettings(count=MAX_QUESTIONS, hops=(2, 2))).tasks()
    source = BridgeSource(folder.name, corpus, [task.as_question for task in tasks])
    shipped = BridgePolicy()
    trained = train([source], policy=shipped, fallback=shipped.scorer, report=progress)
    trained = calibrate(trained, [source], progress)
    trained.scorer.save(weights, trained.notes())
    print(f"{len(source.questions)} questions, recall@5 {trained.recall[folder.name]}")
    with SearchAgent(corpus, BridgePolicy.load(weights)) as agent:
        for document in agent.search(question, k=3).documents:
            print(f"{document.score:.2f}  {document.title or document.id}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
