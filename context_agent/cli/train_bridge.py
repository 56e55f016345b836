"""`ctx1 train bridge`: fits the bridge policy's networks to questions with gold documents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from context_agent.cli import options, output
from context_agent.cli.command import COUNT, FILE, Argument, Json, Option, command
from context_agent.retrieval.chroma import COLLECTION

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.train.bridge import BridgeSource, TrainedBridge

PERCENT = 100
"""Steps of the progress bar."""


@command
def bridge(
    pairs: Annotated[tuple[str, ...], Argument("CORPUS QUESTIONS.jsonl...")],
    *,
    out: Annotated[
        Path, Option("File for the weights, which `ctx1 search --weights` reads.", FILE, "FILE.safetensors")
    ],
    weights: Annotated[
        Path | None, Option("Weights of the first round's policy.", FILE, default="the weights in the package")
    ] = None,
    windows: Annotated[
        tuple[int, ...],
        Option("Context window to train for, in tokens; repeatable.", flag="--window", default="the policy's own"),
    ] = (),
    rounds: Annotated[int, Option("Rounds of playing episodes and fitting.", COUNT)] = 2,
    epochs: Annotated[
        int | None, Option("Passes over the questions when fitting.", COUNT, default="the recipe's")
    ] = None,
    embedder: Annotated[str, Option("Embedder of a CORPUS of files.", metavar="SPEC")] = "static",
    collection: Annotated[str, Option("Collection of a CORPUS that is an index.", metavar="NAME")] = COLLECTION,
    seed: options.SeedOption = 0,
    as_json: Json,
) -> int:
    """Fit the bridge policy to your own questions.

    CORPUS is an index (`ctx1 index`), or a file or folder of documents. Each line of QUESTIONS.jsonl is
    {"id": ..., "question": ..., "gold": [document ids]}. Give any number of pairs. Prints recall from five-fold
    cross-validation. With few questions, or if the new networks do not rank better, the present ones are kept and only
    the reader is adapted. Also fits the policy's confidence. Needs no GPU.
    """
    from context_agent.policies.bridge import BridgePolicy
    from context_agent.train.listwise import FitRecipe

    recipe = FitRecipe() if epochs is None else FitRecipe(epochs=epochs)
    explorer = BridgePolicy() if weights is None else BridgePolicy.load(weights)
    with ExitStack() as stack:
        sources = _open_sources(pairs, embedder, collection, stack)
        trained = _train(
            sources,
            policy=explorer,
            fallback=explorer.scorer,
            windows=windows or (0,),
            rounds=rounds,
            recipe=recipe,
            seed=seed,
        )
    trained.scorer.save(out, trained.notes())
    output.result(_to_json(trained, out), _text(trained, out), as_json=as_json)
    return 0


def _open_sources(pairs: Sequence[str], embedder: str, collection: str, stack: ExitStack) -> list[BridgeSource]:
    """A source for each pair; indexes stay open until the stack ends."""
    if len(pairs) % 2:
        raise click.UsageError(
            f"got {len(pairs)} arguments: name them in pairs, each CORPUS followed by its QUESTIONS.jsonl"
        )
    from context_agent._support.question_files import load_questions
    from context_agent.train.bridge import BridgeSource

    sources = []
    for corpus, questions in zip(pairs[::2], pairs[1::2], strict=True):
        opened = _corpus(corpus, embedder, collection, stack)
        sources.append(BridgeSource(corpus, opened, load_questions(questions)))
    return sources


def _corpus(name: str, embedder: str, collection: str, stack: ExitStack) -> Corpus:
    """The index in that folder, or else the documents of a file or folder, in memory."""
    from context_agent.retrieval.chroma.database import DATABASE
    from context_agent.retrieval.embedders import load_embedder
    from context_agent.retrieval.loaders import load
    from context_agent.retrieval.memory import MemoryCorpus

    if (Path(name) / DATABASE).exists():
        return stack.enter_context(options.CorpusOptions(Path(name), None, collection).open())
    output.note(f"reading {name}")
    return MemoryCorpus(load(name), embedder=load_embedder(embedder))


def _train(sources: list[BridgeSource], **settings: Any) -> TrainedBridge:
    from context_agent.train.bridge import train
    from context_agent.train.bridge_calibration import calibrate

    phases: set[str] = set()
    with output.progress("Training", "%") as advance:

        def report(phase: str, share: float) -> None:
            if phase not in phases:
                phases.add(phase)
                output.note(phase)
            advance(int(share * PERCENT), PERCENT)

        return calibrate(train(sources, report=report, **settings), sources, report)


def _text(trained: TrainedBridge, out: Path) -> str:
    lines = [
        f"{name}: recall@5 {recall}, {trained.unread[name].mean:.3f} without the reader, of "
        f"{trained.seen[name].mean:.3f} that the episodes saw"
        for name, recall in trained.recall.items()
    ]
    if trained.kept:
        adapted = "the reader is adapted" if trained.scorer.head is not None else "nothing is adapted"
        lines.append(f"The present networks rank these questions best and are kept; {adapted}.")
    return "\n".join([*lines, f"weights {trained.scorer.digest} written to {out}"])


def _to_json(trained: TrainedBridge, out: Path) -> dict[str, Any]:
    return {
        "weights": str(out),
        "digest": trained.scorer.digest,
        "kept": trained.kept,
        "recall_at_5": {name: asdict(recall) for name, recall in trained.recall.items()},
        "without_reader": {name: asdict(recall) for name, recall in trained.unread.items()},
        "seen": {name: asdict(recall) for name, recall in trained.seen.items()},
    }
