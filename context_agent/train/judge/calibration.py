"""How far a judge can be trusted: its scores beside what the gold says, with intervals over questions.

The units are questions: the rankings of one question stand or fall together, and are resampled together. Sources:
J. Cohen (1960) for kappa; J. Hanley and B. McNeil (1982) for the area under the curve, which is the chance that a good
ranking scores above a bad one, ties counting half; C. Spearman (1904).
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError, ContextAgentError, DataError
from context_agent.eval import metrics
from context_agent.eval.checks import normalised
from context_agent.eval.gold import Gold, gold_of
from context_agent.eval.metrics import f_beta
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data.agreement import Figure, cohen_kappa, equal_share, figure
from context_agent.synth_data.folder import write_json
from context_agent.train.config import Note, Run
from context_agent.train.judge.judge import YES, Bench, Judge, Ranking, Verdict, golden, ranking, reasons, refuse_alone
from context_agent.trajectory_file import read
from context_agent.types import RankedChunk, RankedDocument

SCHEMA = 1
LEAST = 10
"""Good and bad rankings that a calibration needs of each, at least."""
ALWAYS = 0.9
"""Share of the bad rankings from which on a judge that accepts them is said to say always yes."""
Bins = {"none": (0.0, 0.0), "some": (0.0, 1.0), "all": (1.0, 1.0)}
"""Shares of the gold found, as the table has them."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A ranking with what the gold says of it."""

    question_id: str
    ranking: Ranking
    recall: float
    precision: float

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return f_beta(self.precision, self.recall)


@dataclass(frozen=True, slots=True)
class Pair:
    """A label and a score; `good` is what the gold says, `yes` what the judge says."""

    recall: float
    f1: float
    score: float
    good: bool
    yes: bool


@dataclass(frozen=True, slots=True)
class Row:
    """Rankings that found none, some or all of the gold: how many, their mean score, and the share of yes."""

    found: str
    rankings: int
    score: float | None
    yes: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The report. `problems` are reasons not to trust the judge, `warnings` what should be known of it.

    `figures` have their interval over questions: accuracy, kappa, auc, the rank correlation with recall and with F1,
    and the shares of yes to good and to bad rankings.
    """

    identity: Mapping[str, Any]
    questions: int
    rankings: int
    absent: Mapping[str, int]
    good: int
    figures: Mapping[str, Figure]
    table: tuple[Row, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    cost: Mapping[str, float]

    @property
    def discriminates(self) -> bool:
        """Whether a trainer takes the judge."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"schema": SCHEMA, "discriminates": self.discriminates, **asdict(self)}


def calibrate(
    labelled: Sequence[Labelled], judge: Judge, *, good: float = 1.0, yes: float = YES, seed: int = 0
) -> Calibration:
    """Asks the judge about every ranking. One with a recall of at least `good` is good; a score from `yes` on says so.

    Raises `DataError` where there is nothing to ask about, or not one verdict came.
    """
    if not labelled:
        raise DataError("there is no labelled ranking to compare the judge with")
    verdicts = judge.verdicts([one.ranking for one in labelled])
    units = _units(labelled, verdicts, good, yes)
    absent = reasons(verdicts)
    if not units:
        detail = next((one.detail for one in verdicts if one.detail), "")
        raise DataError(f"not one verdict of the judge: {absent} ({detail})")
    pairs = [pair for unit in units for pair in unit]
    figures = {name: figure(units, _over(statistic), seed) for name, statistic in STATISTICS.items()}
    return Calibration(
        identity=judge.identity,
        questions=len(units),
        rankings=len(pairs),
        absent=absent,
        good=sum(pair.good for pair in pairs),
        figures=figures,
        table=tuple(_row(name, pairs) for name in Bins),
        problems=tuple(_problems(pairs, figures)),
        warnings=tuple(_warnings(figures, len(labelled), sum(absent.values()))),
        cost=judge.metrics(),
    )


def save(path: Path, made: Calibration) -> None:
    """Writes the report, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, made.to_json())


def vouched(path: str | Path, identity: Mapping[str, Any]) -> list[str]:
    """The warnings of a calibration that vouches for a judge.

    Raises `ConfigError` for a file that is none, is of another judge, or says that the judge cannot be trusted.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if found["schema"] > SCHEMA:
            raise ConfigError(f"{path} has schema {found['schema']}; this version reads up to {SCHEMA}")
        was, problems, warnings = dict(found["identity"]), list(found["problems"]), list(found["warnings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no calibration of `ctx1 train judge-check` ({error})") from None
    other = [
        f"{key} was {was.get(key)!r} and is {identity[key]!r}" for key in identity if was.get(key) != identity[key]
    ]
    if other:
        raise ConfigError(f"{path} is of another judge: {', '.join(other)}. Run `ctx1 train judge-check` again")
    if problems:
        raise ConfigError(
            f"{path} says not to trust this judge: {'; '.join(map(str, problems))}. Take another model or rubric, or "
            "set judge.uncalibrated = true"
        )
    return [str(one) for one in warnings]


def _units(labelled: Sequence[Labelled], verdicts: Sequence[Verdict], good: float, yes: float) -> list[list[Pair]]:
    """The pairs of each question, in an order that does not depend on the order of judging."""
    units: dict[str, list[Pair]] = defaultdict(list)
    for one, verdict in zip(labelled, verdicts, strict=True):
        if verdict.score is not None:
            said = Pair(one.recall, one.f1, verdict.score, one.recall >= good, verdict.score >= yes)
            units[one.question_id].append(said)
    return [units[name] for name in sorted(units)]


def _accuracy(pairs: Sequence[Pair]) -> float | None:
    return equal_share([(one.good, one.yes) for one in pairs])


def _kappa(pairs: Sequence[Pair]) -> float | None:
    return cohen_kappa([(one.good, one.yes) for one in pairs])


def _auc(pairs: Sequence[Pair]) -> float | None:
    """By the rank sum of the good ones."""
    good = np.array([one.good for one in pairs])
    count = int(good.sum())
    if not count or count == len(pairs):
        return None
    ranks = _ranks(np.array([one.score for one in pairs]))
    return float((ranks[good].sum() - count * (count + 1) / 2) / (count * (len(pairs) - count)))


def _correlation(of: Callable[[Pair], float]) -> Callable[[Sequence[Pair]], float | None]:
    def spearman(pairs: Sequence[Pair]) -> float | None:
        one, other = (_ranks(np.array([value(pair) for pair in pairs])) for value in (of, lambda pair: pair.score))
        spread = float(one.std() * other.std())
        return float(((one - one.mean()) * (other - other.mean())).mean()) / spread if spread else None

    return spearman


def _share_of_yes(good: bool) -> Callable[[Sequence[Pair]], float | None]:
    def share(pairs: Sequence[Pair]) -> float | None:
        said = [float(one.yes) for one in pairs if one.good is good]
        return fmean(said) if said else None

    return share


STATISTICS: Mapping[str, Callable[[Sequence[Pair]], float | None]] = {
    "accuracy": _accuracy,
    "kappa": _kappa,
    "auc": _auc,
    "correlation_recall": _correlation(lambda pair: pair.recall),
    "correlation_f1": _correlation(lambda pair: pair.f1),
    "yes_to_good": _share_of_yes(good=True),
    "yes_to_bad": _share_of_yes(good=False),
}
"""What is computed of all pairs; None where it is not defined."""


def _over(
    statistic: Callable[[Sequence[Pair]], float | None],
) -> Callable[[Sequence[list[Pair]]], float | None]:
    return lambda units: statistic([pair for unit in units for pair in unit])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: NDArray[np.float64] = (last - (counts - 1) / 2)[place]
    return shared


def _row(name: str, pairs: Sequence[Pair]) -> Row:
    low, high = Bins[name]
    inside = [one for one in pairs if (low < one.recall < high if low < high else one.recall == low)]
    if not inside:
        return Row(name, 0, None, None)
    return Row(name, len(inside), fmean(one.score for one in inside), fmean(float(one.yes) for one in inside))


def _problems(pairs: Sequence[Pair], figures: Mapping[str, Figure]) -> list[str]:
    good = sum(one.good for one in pairs)
    if min(good, len(pairs) - good) < LEAST:
        return [f"{good} good and {len(pairs) - good} bad rankings: at least {LEAST} of each are needed"]
    found = figures["auc"]
    if found.low is None or found.low <= 0.5:
        return [f"it cannot tell good rankings from bad ones: an AUC of {found}, and chance is 0.5"]
    return []


def _warnings(figures: Mapping[str, Figure], asked: int, absent: int) -> list[str]:
    found = []
    to_bad, to_good = figures["yes_to_bad"].value, figures["yes_to_good"].value
    if to_bad is not None and to_bad >= ALWAYS:
        found.append(f"it says yes to {to_bad:.0%} of the bad rankings: it always says yes")
    if to_good is not None and to_good <= 1 - ALWAYS:
        found.append(f"it says yes to {to_good:.0%} of the good rankings: it always says no")
    if absent > asked / 20:
        found.append(f"{absent} of {asked} rankings have no verdict")
    return found


PLACES = 5
"""Documents of a ranking that is made up."""


def played(
    paths: Iterable[Path], questions: Sequence[Question], corpus: Corpus | None, note: Callable[[str], None]
) -> Iterator[Labelled]:
    """The rankings that recorded episodes ended with, for questions with gold; others are passed over, and counted."""
    by_id = {one.id: one for one in questions if golden(one)}
    by_text = {normalised(one.question): one for one in by_id.values()}
    foreign = 0
    for path in paths:
        try:
            trajectory = read(path)
        except ContextAgentError as error:
            note(f"left out: {error}")
            continue
        header = trajectory.header
        question = by_id.get(header.question_id or "") or by_text.get(normalised(header.question))
        if question is None or trajectory.end is None:
            foreign += 1
            continue
        yield _labelled(question, ranking(question, trajectory), gold_of(question, corpus))
    if foreign:
        note(f"{foreign} trajectories are cut, or of no question with gold here")


def made_up(corpus: Corpus, questions: Iterable[Question], *, seed: int = 0) -> Iterator[Labelled]:
    """Three rankings a question, of `PLACES` documents each: with all its gold, with half of it, and with none.

    The other places have what a search for the question brings up and is not gold; the order is drawn. Questions whose
    gold is not in the corpus are passed over.
    """
    for question in questions:
        gold = gold_of(question, corpus) if golden(question) else Gold(0)
        found = _gold_documents(gold, corpus)
        if not found or gold.missing:
            continue
        others = _lookalikes(question, gold, corpus)
        for share in (1.0, 0.5, 0.0):
            kept = found[: round(len(found) * share)] if share else []
            documents = [*kept, *others[: max(1, PLACES - len(kept))]]
            random.Random(f"{seed}:{question.id}:{share}").shuffle(documents)
            shown = Ranking(question.question, tuple(documents), question.answer)
            yield _labelled(question, shown, gold)


def _labelled(question: Question, shown: Ranking, gold: Gold) -> Labelled:
    found = [gold.found_by(one.id, (chunk.id for chunk in one.chunks)) for one in shown.documents]
    return Labelled(question.id, shown, metrics.recall_of(found, gold.needs), metrics.precision_of(found))


def _gold_documents(gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    """Each gold document, or the document of a gold chunk with that chunk first; as many as the gold has needs."""
    made: dict[str, RankedDocument] = {}
    for one in gold.documents:
        made[one] = _document(corpus, one, ())
    for chunk in corpus.get(list(gold.chunks)):
        made.setdefault(chunk.document_id, _document(corpus, chunk.document_id, (chunk.id,)))
    return list(made.values())


def _lookalikes(question: Question, gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    hits = corpus.search(question.question, limit=8 * PLACES)
    ids = dict.fromkeys(
        hit.chunk.document_id for hit in hits if not gold.found_by(hit.chunk.document_id, (hit.chunk.id,))
    )
    # A document with a gold chunk that the search did not bring up is gold all the same.
    golden_documents = {chunk.document_id for chunk in corpus.get(list(gold.chunks))} | set(gold.documents)
    return [_document(corpus, one, ()) for one in ids if one not in golden_documents][:PLACES]


def _document(corpus: Corpus, document_id: str, first: Sequence[str]) -> RankedDocument:
    chunks = sorted(corpus.read(document_id), key=lambda chunk: chunk.id not in first)[:2]
    ranked = tuple(RankedChunk(chunk.id, chunk.text, 1.0) for chunk in chunks)
    return RankedDocument(document_id, chunks[0].title if chunks else "", 1.0, ranked)


FOLDER = "judge"
"""In a run's folder: the judge's replies, a file for each rank."""


@contextmanager
def bench_of(
    run: Run, questions: Sequence[Question], note: Note, *, rank: int = 0, ranks: int = 1
) -> Iterator[Bench | None]:
    """The run's judge, None where it has none.

    Raises `ConfigError` for a judge that nothing vouches for, or that would be all there is to learn from.
    """
    if not run.judge.model:
        yield None
        return
    refuse_alone(run.judge, questions)
    with Judge(run.judge, Path(run.out) / FOLDER / f"replies-{rank}.jsonl", ranks=ranks) as judge:
        for warning in _trusted(judge):
            note(f"the judge: {warning}")
        yield Bench(judge, note)


def with_gold(questions: Sequence[Question]) -> list[Question]:
    """Those that can be measured."""
    return [one for one in questions if golden(one)]


def _trusted(judge: Judge) -> list[str]:
    """What should be known of the judge. Raises `ConfigError` where it is not to be trusted."""
    settings = judge.settings
    if settings.uncalibrated:
        return ["it was never compared with gold (judge.uncalibrated)"]
    if settings.calibration is None:
        raise ConfigError(
            "nothing says how far this judge can be trusted: run `ctx1 train judge-check`, and name its report in "
            "judge.calibration; or set judge.uncalibrated = true"
        )
    return vouched(settings.calibration, judge.identity)
