"""`ctx1 train bridge`: fits the embedded policy's networks to questions with gold documents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.retrieval.chroma import COLLECTION

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.train.bridge import BridgeSource, TrainedBridge

PERCENT = 100
"""Steps of the progress bar."""


@click.command()
@click.argument("pairs", nargs=-1, required=True, metavar="CORPUS QUESTIONS.jsonl…")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.safetensors",
    help="Output file of the weights, for `ctx1 search --weights`.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Weights of the first round's policy.  [default: those that ship]",
)
@click.option("--window", "windows", type=int, multiple=True, help="Token window to train for; repeatable.")
@click.option(
    "--rounds", type=click.IntRange(1), default=2, show_default=True, help="Rounds of playing episodes and fitting."
)
@click.option(
    "--epochs", type=click.IntRange(1), help="Passes over the questions when fitting.  [default: the recipe's]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option("--embedder", metavar="SPEC", default="static", show_default=True, help="Embedder of a CORPUS of files.")
@click.option("--collection", default=COLLECTION, show_default=True, help="Collection of a CORPUS that is an index.")
@options.common
def bridge(
    *,
    pairs: tuple[str, ...],
    out: Path,
    weights: Path | None,
    windows: tuple[int, ...],
    rounds: int,
    epochs: int | None,
    seed: int,
    embedder: str,
    collection: str,
    as_json: bool,
) -> int:
    """Fit the embedded policy's networks to your own questions. Needs only numpy, no GPU.

    CORPUS is an index (`ctx1 index`) or a file or folder of documents. Each line of QUESTIONS.jsonl is
    {"id", "question", "gold": [document ids]}; at least twenty are needed. Give any number of pairs.
    Prints recall from five-fold cross-validation.
    """
    from context_agent.policies.bridge import BridgePolicy
    from context_agent.train.bridge import FitRecipe

    recipe = FitRecipe() if epochs is None else FitRecipe(epochs=epochs)
    explorer = None if weights is None else BridgePolicy.load(weights)
    with ExitStack() as stack:
        sources = _open_sources(pairs, embedder, collection, stack)
        trained = _train(sources, policy=explorer, windows=windows or (0,), rounds=rounds, recipe=recipe, seed=seed)
    trained.scorer.save(out, trained.notes())
    if as_json:
        console.print_json(_to_json(trained, out))
    else:
        _show(trained, out)
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
    """An index, where that folder is one, else the documents of a file or folder, in memory."""
    from context_agent.retrieval.chroma.database import DATABASE
    from context_agent.retrieval.embedders import load_embedder
    from context_agent.retrieval.loaders import load
    from context_agent.retrieval.memory import MemoryCorpus

    if (Path(name) / DATABASE).exists():
        return stack.enter_context(options.open_corpus(options.IndexOptions(Path(name), None, collection)))
    console.note(f"ctx1 train: reading {name}")
    return MemoryCorpus(load(name), embedder=load_embedder(embedder))


def _train(sources: list[BridgeSource], **settings: Any) -> TrainedBridge:
    from context_agent.train.bridge import train

    phases: set[str] = set()
    with console.progress("Training", "%") as advance:

        def report(what: str, share: float) -> None:
            if what not in phases:
                phases.add(what)
                console.note(f"ctx1 train bridge: {what}")
            advance(int(share * PERCENT), PERCENT)

        return train(sources, report=report, **settings)


def _show(trained: TrainedBridge, out: Path) -> None:
    for name, figure in trained.recall.items():
        seen = trained.seen[name].mean
        click.echo(console.printable(f"{name}: recall@5 {figure}, of {seen:.3f} that the episodes saw"))
    click.echo(f"weights {trained.scorer.digest} written to {out}")


def _to_json(trained: TrainedBridge, out: Path) -> dict[str, Any]:
    return {
        "weights": str(out),
        "digest": trained.scorer.digest,
        "recall_at_5": {name: asdict(figure) for name, figure in trained.recall.items()},
        "seen": {name: asdict(figure) for name, figure in trained.seen.items()},
    }
