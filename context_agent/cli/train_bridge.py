"""`ctx1 train bridge`: fits the embedded policy's networks to questions whose documents are known."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options

if TYPE_CHECKING:
    from context_agent.retrieval.protocol import Corpus
    from context_agent.train.bridge import Source, Trained

PERCENT = 100
"""Steps of the progress bar."""


@click.command()
@click.argument("pairs", nargs=-1, required=True, metavar="CORPUS QUESTIONS.jsonl…")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.safetensors",
    help="Where the weights go; search with them by --weights.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Weights that explore in the first round.  [default: those that ship]",
)
@click.option("--window", "windows", type=int, multiple=True, help="Window to train for; may be repeated.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True, help="Rounds of exploring and fitting.")
@click.option(
    "--epochs", type=click.IntRange(1), help="Passes over the questions when fitting.  [default: the recipe's]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option("--embedder", metavar="SPEC", default="static", show_default=True, help="Embedder of a CORPUS of files.")
@click.option(
    "--collection", default=options.COLLECTION, show_default=True, help="Collection of a CORPUS that is an index."
)
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
    """Fit the bridge policy's networks to questions of your own. numpy alone, no GPU.

    A CORPUS is an index that `ctx1 index` made, or documents as it reads them; QUESTIONS.jsonl holds a
    {"id", "question", "gold": [document ids]} a line, at least twenty. Several pairs may follow each other.
    The figures printed are from five-fold cross-validation.
    """
    from context_agent.policies.bridge import BridgePolicy
    from context_agent.train.bridge import Recipe

    recipe = Recipe() if epochs is None else Recipe(epochs=epochs)
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


def _open_sources(pairs: Sequence[str], embedder: str, collection: str, stack: ExitStack) -> list[Source]:
    """A source for each pair; indexes stay open until the stack ends."""
    if len(pairs) % 2:
        raise click.UsageError(f"CORPUS and QUESTIONS.jsonl go in pairs; got {len(pairs)} arguments")
    from context_agent.questions import load_questions
    from context_agent.train.bridge import Source

    sources = []
    for corpus, questions in zip(pairs[::2], pairs[1::2], strict=True):
        asked = load_questions(questions)
        sources.append(Source(corpus, _corpus(corpus, embedder, collection, stack), asked))
    return sources


def _corpus(name: str, embedder: str, collection: str, stack: ExitStack) -> Corpus:
    """An index, where that folder is one, else the documents of a file or folder, in memory."""
    from context_agent.retrieval.embedders import load_embedder
    from context_agent.retrieval.loaders import load
    from context_agent.retrieval.memory import MemoryCorpus
    from context_agent.retrieval.store import DATABASE

    if (Path(name) / DATABASE).exists():
        return stack.enter_context(options.open_corpus(options.IndexOptions(Path(name), None, collection)))
    console.note(f"ctx1 train: reading {name}")
    return MemoryCorpus(load(name), embedder=load_embedder(embedder))


def _train(sources: list[Source], **settings: Any) -> Trained:
    from context_agent.train.bridge import train

    told: set[str] = set()
    with console.progress("Training", "%") as advance:

        def report(what: str, share: float) -> None:
            if what not in told:
                told.add(what)
                console.note(f"ctx1 train bridge: {what}")
            advance(int(share * PERCENT), PERCENT)

        return train(sources, report=report, **settings)


def _show(trained: Trained, out: Path) -> None:
    for name, figure in trained.recall.items():
        seen = trained.seen[name].mean
        click.echo(console.printable(f"{name}: recall@5 {figure}, of {seen:.3f} that the episodes saw"))
    click.echo(f"weights {trained.scorer.digest} written to {out}")


def _to_json(trained: Trained, out: Path) -> dict[str, Any]:
    return {
        "weights": str(out),
        "digest": trained.scorer.digest,
        "recall_at_5": {name: asdict(figure) for name, figure in trained.recall.items()},
        "seen": {name: asdict(figure) for name, figure in trained.seen.items()},
    }
