"""Measure how well the agent knows whether it found the answer, by its confidence and its scores.

    python benchmarks/answerable.py --data FOLDER [--sets musique,2wiki,hotpotqa,newsfacts] [--split dev]
        [--questions 50] [--documents N] [--embedder static] [--weights FILE] [--cache FOLDER] [--plot FILE.svg]
        [--fast]
    python benchmarks/answerable.py --data FOLDER --sets ... --split train --questions 60 --fit FILE

The sets are those of `multihop.py`. The agent gets each question on the corpus that answers it. It also gets as many
unanswerable questions. These are, by turns, the same question without its gold documents, and a question of another
set.

For each set and for all sets together the program prints:

- the area under the ROC curve (AUC) of the confidence, also for each kind of unanswerable question;
- the expected calibration error (ECE) of the confidence;
- the expected calibration error of the scores of the ranked documents, which are gold or not.

Each figure has a bootstrap 95% interval over questions. The last line gives the targets. `--plot` draws the
reliability curves of all sets together. With `--documents N`, each question gets a corpus of its own: N documents of
its set, drawn at random.

`--fit` fits the calibration to these questions and to small samples of the sets, and writes the weights with it. The
networks are more certain about questions that they were trained on than about others. So pass questions that they were
not trained on. The calibration that ships is the one of `multihop.py --train`. There, networks play only questions that
they were not trained on.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from multihop import SMALL_SHARE, build, embedders, load_chunks, progress, set_folder, small_sources
from safetensors import safe_open

from context_agent._support.question_files import load_questions
from context_agent.agent import SearchAgent
from context_agent.eval.probabilities import (
    Measure,
    expected_calibration_error,
    measure_interval,
    reliability_curve,
    roc_auc,
)
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.networks import SHIPPED_WEIGHTS
from context_agent.policies.bridge.score_calibration import EVIDENCE
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.embedders import Embedder
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.train.bridge.calibration_fit import (
    CalibrationTask,
    assessed_episodes,
    calibration_tasks,
    fit_calibration,
)
from context_agent.train.bridge.episodes import FOLDS, BridgeSource
from context_agent.train.bridge.withheld_corpus import WithheldCorpus
from context_agent.web.drawing import INK, PALETTE, PLOT_MARKERS, canvas, svg

SETS = "musique,2wiki,hotpotqa,newsfacts"
LEAST_AUC, MOST_ERROR = 0.90, 0.05


@dataclass
class Predictions:
    """Predicted probabilities, the outcomes, and the question that each prediction belongs to."""

    probabilities: list[float] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)

    def add(self, probability: float, outcome: bool, question: str) -> None:
        """Add one prediction."""
        self.probabilities.append(probability)
        self.outcomes.append(float(outcome))
        self.questions.append(question)

    def extend(self, other: Predictions) -> None:
        """Add the predictions of another set."""
        self.probabilities += other.probabilities
        self.outcomes += other.outcomes
        self.questions += other.questions

    def figure(self, measure: Measure) -> str:
        """Return the measure with its interval over questions."""
        return str(measure_interval(measure, self.probabilities, self.outcomes, self.questions))


@dataclass
class Results:
    """The predictions of a set's episodes.

    The confidence predicts whether the corpus answers the question. `withheld` and `foreign` contain only one kind of
    unanswerable question each. The scores of documents predict whether a document is gold.
    """

    confidence: Predictions = field(default_factory=Predictions)
    withheld: Predictions = field(default_factory=Predictions)
    foreign: Predictions = field(default_factory=Predictions)
    documents: Predictions = field(default_factory=Predictions)

    def add(self, task: CalibrationTask, policy: BridgePolicy) -> None:
        """Run the agent on a task, and add its predictions."""
        with SearchAgent(task.corpus, policy) as agent:
            result = agent.search(task.question.question)
        if result.confidence is None:
            raise SystemExit("the weights have no calibration: train them with `ctx1 train bridge`")
        answerable, kinds = bool(task.gold), [self.confidence]
        if answerable or isinstance(task.corpus, WithheldCorpus):
            kinds.append(self.withheld)
        if answerable or not isinstance(task.corpus, WithheldCorpus):
            kinds.append(self.foreign)
        for kind in kinds:
            kind.add(result.confidence, answerable, task.question.id)
        for document in result.documents:
            self.documents.add(document.score, document.id in task.gold, task.question.id)

    def extend(self, other: Results) -> None:
        """Add the results of another set."""
        for mine, its in zip(vars(self).values(), vars(other).values(), strict=True):
            mine.extend(its)

    def row(self, name: str) -> str:
        """Return a line of the table."""
        cells = [
            self.confidence.figure(roc_auc),
            *(part.figure(roc_auc) if 0 in part.outcomes else "-" for part in (self.withheld, self.foreign)),
            self.confidence.figure(expected_calibration_error),
            self.documents.figure(expected_calibration_error),
        ]
        return f"{name:12}{len(self.confidence.outcomes):5}" + "".join(f"  {cell:22}" for cell in cells)


def main() -> int:
    """Print the table and draw the curves, or fit the calibration."""
    options = _options()
    (embedder,) = embedders(options.embedder, options.cache)
    policy = BridgePolicy(Scorer.load(options.weights) if options.weights else None)
    if options.fast:
        policy = policy.with_effort("fast")
    sources, small = [], []
    for name in options.sets.split(","):
        folder = set_folder(options.data, name)
        questions = load_questions(folder / f"queries.{options.split}.jsonl")[: options.questions]
        chunks = load_chunks(folder)
        sources.append(BridgeSource(name, build(chunks, embedder, shuffle=None, only=None), questions))
        if options.fit:
            small += small_sources(f"{name}/small", chunks, questions, embedder, SMALL_SHARE)
    if options.fit:
        fit(policy, [*sources, *small], options)
        embedder.save()
        return 0
    heads = ("AUC", "AUC, gold withheld", "AUC, other set", "ECE of confidence", "ECE of documents")
    print(f"{'set':12}{'n':>5}" + "".join(f"  {head:22}" for head in heads))
    together, errors = Results(), dict[str, float]()
    for source in sources:
        results = Results()
        tasks = calibration_tasks(source, sources)
        if options.documents:
            tasks = in_small_corpora(tasks, source.corpus, options.documents, embedder)
        for task in tasks:
            results.add(task, policy)
        print(results.row(source.name), flush=True)
        together.extend(results)
        confidence = results.confidence
        errors[source.name] = expected_calibration_error(confidence.probabilities, confidence.outcomes)
    embedder.save()
    print(together.row("all"))
    worst = max(errors, key=lambda name: errors[name])
    print(f"largest ECE of confidence of a set: {errors[worst]:.3f}, {worst}")
    print(f"{'reach':17}  >= {LEAST_AUC:<66.2f}    <= {MOST_ERROR:<18.2f}  <= {MOST_ERROR:.2f}")
    if options.plot:
        options.plot.write_text(_plot(together), encoding="utf-8")
    return 0


def in_small_corpora(
    tasks: Iterable[CalibrationTask], corpus: Corpus, size: int, embedder: Embedder
) -> Iterator[CalibrationTask]:
    """Yield the tasks of a corpus, each with a corpus of `size` of its documents.

    The small corpus contains the gold documents of the task, and other documents drawn at random.
    """
    draw = random.Random(0)
    documents = list(dict.fromkeys(chunk.document_id for chunk in corpus.walk()))
    for task in tasks:
        others = [document for document in documents if document not in task.question.gold]
        others = draw.sample(others, min(size, len(others)))
        gold = task.question.gold if task.gold else ()
        sample = [*gold, *others[: max(0, size - len(gold))]]
        small = MemoryCorpus([chunk for document in sample for chunk in corpus.read(document)], embedder=embedder)
        withheld = isinstance(task.corpus, WithheldCorpus)
        yield replace(task, corpus=WithheldCorpus(small, ()) if withheld else small)


def fit(policy: BridgePolicy, sources: Sequence[BridgeSource], options: argparse.Namespace) -> None:
    """Fit a calibration to the sources, and write the policy's weights with it."""
    assert policy.scorer is not None

    episodes = assessed_episodes(sources, dict.fromkeys(range(FOLDS), policy), progress(), options.questions)
    calibration = fit_calibration(episodes)
    with safe_open(options.weights or files("context_agent.policies.bridge") / SHIPPED_WEIGHTS, "numpy") as weights:
        notes = weights.metadata()
    scorer = policy.scorer
    fitted = replace(calibration, stopping=scorer.calibration.stopping if scorer.calibration else None)
    Scorer.of(scorer.networks, fitted, scorer.head, scorer.ranker).save(options.fit, notes)
    print(f"{len(episodes)} episodes. Coefficients of the evidence, without reading and with it:")
    for name, *factors in zip(("constant", *EVIDENCE), *calibration.evidence, strict=True):
        print(f"  {name:14}" + "".join(f"{factor:9.3f}" for factor in factors))
    print(f"{options.fit} written")


def _plot(results: Results) -> str:
    """Return the reliability curves as SVG text. The area of a point grows with its number of predictions.

    It needs matplotlib.
    """
    parts: Sequence[tuple[str, Predictions]] = (
        ("the corpus answers the question", results.confidence),
        ("a ranked document is gold", results.documents),
    )
    with canvas() as figure_type:
        figure = figure_type(figsize=(4.6, 4.2))
        panel = figure.add_subplot()
        panel.plot([0, 1], [0, 1], color=INK, lw=1, ls=":", label="perfectly calibrated")
        for (name, part), color, mark in zip(parts, PALETTE, PLOT_MARKERS, strict=False):
            curve = reliability_curve(part.probabilities, part.outcomes)
            x, y = [group.probability for group in curve], [group.share for group in curve]
            most = max(group.count for group in curve)
            panel.plot(x, y, color=color, label=name)
            panel.scatter(x, y, s=[15 + 60 * group.count / most for group in curve], color=color, marker=mark)
        panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that is true")
        panel.legend(loc="upper left")
        return svg(figure, "reliability", "Reliability curves")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, action="append", required=True, help="as in multihop.py")
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--split", default="dev", choices=("train", "dev"))
    parser.add_argument("--questions", type=int, default=50, help="answerable questions of a set; as many unanswerable")
    parser.add_argument(
        "--documents", type=int, metavar="N", help="put each question to a corpus of N documents of its set"
    )
    parser.add_argument("--embedder", default="static")
    parser.add_argument("--weights", help="file of the bridge policy's weights instead of those that ship")
    parser.add_argument("--cache", type=Path, default=Path(".cache/multihop"), help="keeps vectors")
    parser.add_argument("--fast", action="store_true", help="measure the effort fast, which does not read")
    parser.add_argument("--fit", type=Path, metavar="FILE", help="fit the calibration, and write the weights with it")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the reliability curves")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
