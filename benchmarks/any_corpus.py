"""Compare the agent with one-shot searches on corpora of many kinds, in one table over many sets.

    python benchmarks/any_corpus.py --data FOLDER [--data FOLDER ...] [--sets policyqa,qmsum] [--limit 60]
        [--embedder static] [--split dev|train|test] [--types coverage,which] [--cutoff 10] [--weights FILE]
        [--reader FILE.onnx] [--no-reranking] [--cache FOLDER]

A set is a folder with `corpus.jsonl.gz` (`id`, `title`, `text`), and with `queries.SPLIT.jsonl` or `questions.jsonl`. A
question may name its `split`. A question without one belongs to every split. `--types` leaves out questions of other
types, and `--cutoff` changes the number of documents in which recall looks for gold. For each set the program prints:

- recall@5 of BM25, dense and hybrid search with the question alone;
- `+reader` and `+late`: recall@5 of the first 50 hits of hybrid search, ranked by the shipped reader, or reranked by
  late interaction;
- recall@5 of the agent with the efforts `fast` and `careful`;
- `seen`: the share of the gold documents that `careful` saw;
- the gain of `careful` over the best of the three one-shot searches, with its bootstrap 95% interval over questions.

`AUC` and `ECE` measure the confidence. The agent gets each question on its corpus, and each question with gold also on
the corpus without its gold documents. So about half of the questions have an answer, as in the calibration. Questions
of the type `nothing` count as unanswerable too. `chance` is the mean ECE that perfectly calibrated probabilities would
have on so few questions.

The last rows are the mean over sets, the worst set, and the confidence on all questions with bootstrap 95% intervals
over questions. `pooled` is the mean over all questions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from multihop import CUTOFF, build, embedders, load_chunks

from context_agent._support.onnx import OnnxModel, PairModel
from context_agent._support.shipped_models import READER_FORMAT, TOKENIZER_FILE, shipped_reader
from context_agent.agent import SearchAgent
from context_agent.eval.probabilities import (
    chance_calibration_error,
    expected_calibration_error,
    measure_interval,
    roc_auc,
)
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.candidates import AnalyzedPassage, WordWeights, analyze_question
from context_agent.policies.bridge.reader import ReaderInput, read_odds
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.retrieval.rerankers import LateInteractionReranker
from context_agent.train.bridge.withheld_corpus import WithheldCorpus

DEPTH = 50
ONE_SHOT = ("bm25", "dense", "hybrid")
WAYS = (*ONE_SHOT, "+reader", "+late", "fast", "careful")


@dataclass
class SetResult:
    """The results of a set: recalls by search method, the gold seen, and the confidences with their outcomes."""

    name: str
    cutoff: int
    recalls: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    seen: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    answerable: list[float] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The set and the question of each confidence."""

    def assess(self, confidence: float | None, *, answerable: bool, question: str) -> None:
        """Add a confidence and its outcome. If the confidence is unknown, add nothing."""
        if confidence is not None:
            self.confidences.append(confidence)
            self.answerable.append(float(answerable))
            self.asked.append(f"{self.name}: {question}")

    def record(self, way: str, ranking: Iterable[str], gold: Sequence[str]) -> None:
        """Add the share of the gold documents among the first `cutoff` different documents of a ranking."""
        first = list(dict.fromkeys(ranking))[: self.cutoff]
        self.recalls[way].append(len(set(first) & set(gold)) / len(set(gold)))

    @property
    def best(self) -> str:
        """The one-shot search with the highest mean recall."""
        return max(ONE_SHOT, key=lambda way: statistics.mean(self.recalls[way]))

    def gain(self) -> list[float]:
        """Return the recall of `careful` minus the recall of the best one-shot search, for each question."""
        pairs = zip(self.recalls["careful"], self.recalls[self.best], strict=True)
        return [agent - single for agent, single in pairs]

    def row(self) -> str:
        """Return a line of the table."""
        cells = "".join(
            f"{statistics.mean(self.recalls[way]):8.3f}" if self.recalls[way] else "       -" for way in WAYS
        )
        both = 0 < sum(self.answerable) < len(self.answerable)
        measures: tuple[str, ...] = ("     -",) * 3
        if both:
            error = expected_calibration_error(self.confidences, self.answerable)
            values = (roc_auc(self.confidences, self.answerable), error, chance_calibration_error(self.confidences))
            measures = tuple(f"{value:6.3f}" for value in values)
        gain = Figure.of(self.gain())
        return (
            f"{self.name:26}{len(self.seen):5}{cells}{statistics.mean(self.seen):8.3f}{statistics.mean(self.turns):6.1f}"
            f"  {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]{' '.join(measures)}"
        )


class PlainReranker:
    """Hybrid search whose best hits are ranked by the reader. The reader sees only the question and the passage."""

    def __init__(self, corpus: MemoryCorpus, model: PairModel) -> None:
        self._corpus, self._weights, self._model = corpus, WordWeights(corpus), model
        scorer = Scorer.shipped()
        self._head = scorer.head if scorer else None

    def documents(self, question: str) -> list[str]:
        """Return the ids of the documents, best first."""
        reader = ReaderInput(analyze_question(question, self._weights))
        chunks = [hit.chunk for hit in self._corpus.search(question, k=DEPTH)]
        passages = [AnalyzedPassage(chunk.title, chunk.text) for chunk in chunks]
        pairs = [(reader.premise((), passage), reader.excerpt(passage)) for passage in passages]
        odds = read_odds(self._model.encode_pairs(pairs), self._head) if pairs else np.zeros(0, dtype=np.float32)
        return [chunks[row].document_id for row in np.argsort(-odds, kind="stable")]


def questions_of(folder: Path, split: str, types: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the set's questions of a split. If `types` is not empty, return only questions of these types."""
    file = folder / f"queries.{split}.jsonl"
    rows = [
        json.loads(line) for line in (file if file.is_file() else folder / "questions.jsonl").open(encoding="utf-8")
    ]
    return [row for row in rows if row.get("split", split) == split and (not types or row.get("type") in types)]


def sets_of(data: Sequence[Path], names: Sequence[str], split: str) -> Iterator[Path]:
    """Yield the folders of sets that have questions of the split."""
    for folder in sorted(path.parent for root in data for path in root.glob("*/corpus.jsonl.gz")):
        has_questions = (folder / f"queries.{split}.jsonl").is_file() or (folder / "questions.jsonl").is_file()
        if has_questions and (not names or folder.name in names):
            yield folder


def measure(
    name: str,
    corpus: MemoryCorpus,
    questions: Sequence[dict[str, Any]],
    *,
    policy: BridgePolicy,
    reranker: PlainReranker | None,
    cutoff: int,
    progress: Callable[[float], None],
) -> SetResult:
    """Run every search method on every question, and return the results."""
    result = SetResult(name, cutoff)
    owner = {chunk.id: chunk.document_id for chunk in corpus.chunks}
    fast, careful = (SearchAgent(corpus, policy.with_effort(effort)) for effort in ("fast", "careful"))
    for number, row in enumerate(questions):
        question, gold = row["question"], row["gold"]
        found = careful.search(question)
        result.assess(found.confidence, answerable=bool(gold), question=question)
        if gold:
            for retriever in corpus.retrievers:
                hits = retriever.search(question, DEPTH)
                result.record(retriever.name, (owner[item] for item, _ in hits), gold)
            fused = corpus.search(question, k=DEPTH)
            result.record("hybrid", (hit.chunk.document_id for hit in fused), gold)
            similar = LateInteractionReranker().score_hits(question, [hit.chunk.indexed_text for hit in fused])
            ranked = (fused[row].chunk.document_id for row in np.argsort(-similar, kind="stable"))
            result.record("+late", ranked, gold)
            if reranker is not None:
                result.record("+reader", reranker.documents(question), gold)
            quick = fast.search(question)
            result.record("fast", (document.id for document in quick.documents), gold)
            result.record("careful", (document.id for document in found.documents), gold)
            seen = {document for trajectory in found.trajectories for document in trajectory.encountered}
            result.seen.append(len(seen & set(gold)) / len(set(gold)))
            result.turns.append(found.turns)
            with SearchAgent(WithheldCorpus(corpus, gold), policy.with_effort("careful")) as agent:
                result.assess(agent.search(question).confidence, answerable=False, question=question)
        progress((number + 1) / len(questions))
    return result


def main() -> int:
    """Print the table."""
    options = _options()
    (embedder,) = embedders(options.embedder, options.cache)
    reader = OnnxModel(options.reader, TOKENIZER_FILE, format=READER_FORMAT) if options.reader else shipped_reader()
    policy = BridgePolicy(Scorer.load(options.weights) if options.weights else None, reader=reader)
    folders = list(sets_of(options.data, options.sets.split(",") if options.sets else [], options.split))
    if not folders:
        print(f"no set with questions of the split {options.split!r} in {options.data}", file=sys.stderr)
        return 2
    heads = ("BM25", "dense", "hybrid", "+reader", "+late", "fast", "careful", "seen")
    print(
        f"{'set':26}{'n':>5}"
        + "".join(f"{head:>8}" for head in heads)
        + " turns  careful less best one-shot  AUC    ECE chance"
    )
    results = []
    for number, folder in enumerate(folders):
        asked = questions_of(folder, options.split, options.types.split(",") if options.types else ())
        questions = [row for row in asked if row["question"].strip()][: options.limit]
        if not any(row["gold"] for row in questions):
            continue
        corpus = build(load_chunks(folder), embedder, shuffle=None, only=None)
        reranker = None if options.no_reranking else PlainReranker(corpus, reader)
        label, done = f"{number + 1}/{len(folders)} {folder.name}", number / len(folders)
        bar = progress_bar(label, done, 1 / len(folders))
        results.append(
            measure(
                folder.name,
                corpus,
                questions,
                policy=policy,
                reranker=reranker,
                cutoff=options.cutoff,
                progress=bar,
            )
        )
        embedder.save()
        print(results[-1].row(), flush=True)
    if not results:
        print(f"no question of the split {options.split!r} and of these types has gold", file=sys.stderr)
        return 2
    _totals(results)
    return 0


def _totals(results: Sequence[SetResult]) -> None:
    """Print the mean over sets, the mean over all questions, the worst set, and the measures of the confidence."""
    ways = [way for way in WAYS if results[0].recalls[way]]
    means = {way: statistics.mean(statistics.mean(result.recalls[way]) for result in results) for way in ways}
    gains = {result.name: statistics.mean(result.gain()) for result in results}
    worst = min(gains, key=gains.__getitem__)
    pooled = Figure.of([value for result in results for value in result.gain()])
    print("mean over sets" + " " * 17 + "".join(f"{means.get(way, float('nan')):8.3f}" for way in WAYS))
    print(f"careful less best one-shot: mean of sets {statistics.mean(gains.values()):+.3f}, pooled {pooled}")
    print(f"worst set: {worst} {gains[worst]:+.3f}")
    confidences = [value for result in results for value in result.confidences]
    answerable = [value for result in results for value in result.answerable]
    if 0 < sum(answerable) < len(answerable):
        asked = [question for result in results for question in result.asked]
        auc, error = (
            measure_interval(measure, confidences, answerable, asked)
            for measure in (roc_auc, expected_calibration_error)
        )
        chance = chance_calibration_error(confidences)
        print(f"confidence on all questions: n {len(asked)}, AUC {auc}, ECE {error}, by chance {chance:.3f}")


def progress_bar(label: str, done: float, share: float) -> Callable[[float], None]:
    """Return a function that draws a progress bar on stderr, if stderr is a terminal."""

    def show(part: float) -> None:
        if sys.stderr.isatty():
            filled = round(40 * (done + share * part))
            end = "\n" if filled == 40 else ""
            print(f"\r[{'#' * filled}{' ' * (40 - filled)}] {label:40}", end=end, file=sys.stderr, flush=True)

    return show


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder of sets; may be repeated")
    parser.add_argument("--sets", help="names, comma-separated; by default all")
    parser.add_argument("--split", default="dev", choices=("train", "dev", "test"))
    parser.add_argument("--types", help="types of questions, comma-separated; by default all")
    parser.add_argument("--cutoff", type=int, default=CUTOFF, help="documents in which recall looks for gold")
    parser.add_argument("--limit", type=int, default=60, help="questions a set at most")
    parser.add_argument("--embedder", default="static", help="spec of the embedder")
    parser.add_argument("--weights", help="file of the bridge policy's weights instead of those that ship")
    parser.add_argument("--reader", type=Path, help="another reader than the shipped one")
    parser.add_argument("--no-reranking", action="store_true", help="leave `+reader` out, which takes most of the time")
    parser.add_argument("--cache", type=Path, default=Path(".cache/multihop"), help="keeps vectors")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
