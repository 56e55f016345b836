"""The command `ctx1 train bridge`, which fits the bridge policy to a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.index_options import DEFAULT_EMBEDDER, CorpusOptions
from context_agent.cli.parameters import COUNT, EXISTING_FILE, OUTPUT_FILE, REQUIRED, CommonOptions, SeedOption
from context_agent.errors import ConfigError
from context_agent.retrieval.chroma import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.train.bridge.episodes import BridgeSource
    from context_agent.train.bridge.training import TrainedBridge


PERCENT = 100
"""Number of steps of the progress bar."""


def bridge(
    *pairs: Annotated[str, REQUIRED],
    out: Annotated[Path, OUTPUT_FILE, Parameter(metavar="FILE.safetensors")],
    weights: Annotated[Path | None, EXISTING_FILE, Parameter(show_default="the weights in the package")] = None,
    windows: Annotated[tuple[int, ...], Parameter(name="--window", metavar="N", show_default="the policy's own")] = (),
    rounds: Annotated[int, COUNT] = 2,
    epochs: Annotated[int | None, COUNT, Parameter(show_default="the recipe's")] = None,
    embedder: Annotated[str | None, Parameter(metavar="SPEC", show_default=DEFAULT_EMBEDDER)] = None,
    collection: Annotated[str, Parameter(metavar="NAME")] = DEFAULT_COLLECTION,
    seed: SeedOption = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Fit the bridge policy to your own questions.

    Each line of QUESTIONS.jsonl is {"id": ..., "question": ..., "gold": [document ids]}. The command prints the recall
    of the current weights, and of the new ones from five-fold cross-validation. If there are few questions, or if the
    new networks do not rank better, it keeps the current networks and adapts only the reader. It also fits the policy's
    confidence. It needs the extra train, but no GPU.

    Args:
        pairs: Each CORPUS, an index (`ctx1 index`) or a file or folder of documents, followed by its QUESTIONS.jsonl.
        out: File for the weights, which `ctx1 search --weights` reads.
        weights: Weights of the policy that plays the first round.
        windows: Context window to train for, in tokens; repeatable.
        rounds: Rounds of playing episodes and fitting.
        epochs: Passes over the questions when fitting.
        embedder: Embedder of a CORPUS of files.
        collection: Collection of a CORPUS that is an index.
    """
    sets = _corpora_with_questions(pairs)
    from context_agent.policies.bridge import BridgePolicy
    from context_agent.train.bridge.listwise import FitRecipe

    recipe = FitRecipe() if epochs is None else FitRecipe(epochs=epochs)
    explorer = BridgePolicy() if weights is None else BridgePolicy.load(weights)
    with ExitStack() as stack:
        sources = _open_sources(sets, embedder, collection, stack)
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
    questions = sum(bool(question.gold) for source in sources for question in source.questions)
    output.result(_to_json(trained, out), _text(trained, questions, out), as_json=common.json)
    return 0


def _corpora_with_questions(pairs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the paths of each corpus and of its questions, which must exist."""
    if len(pairs) % 2:
        raise ConfigError(f"the {len(pairs)} arguments are not pairs. After each CORPUS, pass its QUESTIONS.jsonl.")
    for path in pairs:
        if not Path(path).exists():
            raise ConfigError(f"{path} does not exist. Pass existing files and folders.")
    return list(zip(pairs[::2], pairs[1::2], strict=True))


def _open_sources(
    sets: Sequence[tuple[str, str]], embedder: str | None, collection: str, stack: ExitStack
) -> list[BridgeSource]:
    """Return a source for each corpus and its questions. Indexes stay open until the stack ends."""
    from context_agent._support.question_files import load_questions
    from context_agent.train.bridge.episodes import BridgeSource

    # Reading documents can take minutes, so an invalid file of questions is reported first.
    loaded = [(corpus, load_questions(questions)) for corpus, questions in sets]
    return [
        BridgeSource(corpus, _corpus(corpus, embedder, collection, stack), questions) for corpus, questions in loaded
    ]


def _corpus(name: str, embedder: str | None, collection: str, stack: ExitStack) -> Corpus:
    """Return the index in the folder. Without an index, return the documents of the file or folder, in memory."""
    from context_agent.retrieval.chroma.database import DATABASE_FILE
    from context_agent.retrieval.loaders import load
    from context_agent.retrieval.memory import MemoryCorpus

    if (Path(name) / DATABASE_FILE).exists():
        return stack.enter_context(CorpusOptions(Path(name), None, collection).open())
    output.note(f"reading {name}")
    return MemoryCorpus(load(name), embedder=embedder)


def _train(sources: list[BridgeSource], **settings: Any) -> TrainedBridge:
    from context_agent.train.bridge.calibration_fit import calibrate
    from context_agent.train.bridge.training import train

    phases: set[str] = set()
    with output.progress("Training", "%") as advance:

        def report(phase: str, share: float) -> None:
            if phase not in phases:
                phases.add(phase)
                output.note(phase)
            advance(int(share * PERCENT), PERCENT)

        return calibrate(train(sources, report=report, **settings), sources, report)


def _text(trained: TrainedBridge, questions: int, out: Path) -> str:
    from context_agent.train.bridge.training import MIN_QUESTIONS

    lines = [
        f"{name}: recall@5 {trained.before[name]} with the current weights, {recall} with the new ones "
        f"({trained.unread[name].mean:.3f} without the reader); the searches saw {trained.seen[name].mean:.3f} of the "
        "gold"
        for name, recall in trained.recall.items()
    ]
    if trained.kept:
        few = f"New networks need {MIN_QUESTIONS} questions with gold; got {questions}"
        reason = few if questions < MIN_QUESTIONS else "The new networks do not rank better"
        adapted = "the confidence" if trained.scorer.head is None else "the reader and the confidence"
        lines.append(f"{reason}. The current networks are kept, and the training adapted {adapted}.")
    return "\n".join([*lines, f"weights {trained.scorer.digest} written to {out}"])


def _to_json(trained: TrainedBridge, out: Path) -> dict[str, Any]:
    return {
        "weights": str(out),
        "digest": trained.scorer.digest,
        "kept": trained.kept,
        "recall_at_5_before": {name: asdict(recall) for name, recall in trained.before.items()},
        "recall_at_5": {name: asdict(recall) for name, recall in trained.recall.items()},
        "without_reader": {name: asdict(recall) for name, recall in trained.unread.items()},
        "seen": {name: asdict(recall) for name, recall in trained.seen.items()},
    }
