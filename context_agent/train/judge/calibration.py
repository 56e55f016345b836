"""Calibration of a judge: its scores against gold, and the gate that admits it to training.

Confidence intervals are over questions: the rankings of a question are resampled together. Sources: J. Cohen (1960) for
kappa; J. Hanley and B. McNeil (1982) for the area under the curve, the probability that a good ranking scores above a
bad one, ties counting half; C. Spearman (1904).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from context_agent._support.small_files import read_json
from context_agent._support.suggest import differing_settings
from context_agent.errors import ConfigError, ContextAgentError, DataError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, gold_of, normalised
from context_agent.eval.metrics import f_beta
from context_agent.eval.statistics import roc_auc, shared_ranks
from context_agent.harness.trajectory_file import read
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.agreement import IntervalEstimate, cohen_kappa, equal_share, estimate
from context_agent.synth_data.task import write_json
from context_agent.train.judge.judge import (
    YES_SCORE,
    JudgeConfig,
    JudgedRanking,
    JudgePool,
    JudgeVerdict,
    RankingJudge,
    absence_reasons,
    final_ranking,
    has_gold,
    refuse_judge_alone,
)
from context_agent.types import Question, RankedChunk, RankedDocument

SCHEMA = 1
MIN_RANKINGS = 10
"""Good and bad rankings that a calibration needs of each, at least."""
ALWAYS_YES = 0.9
"""Share of the bad rankings from which on a judge that accepts them is said to say always yes."""
RECALL_BINS = {"none": (0.0, 0.0), "some": (0.0, 1.0), "all": (1.0, 1.0)}
"""Shares of the gold found, as the table has them."""


@dataclass(frozen=True, slots=True)
class LabelledRanking:
    """A ranking with what the gold says of it."""

    question_id: str
    ranking: JudgedRanking
    recall: float
    precision: float

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return f_beta(self.precision, self.recall)


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A label and a score; `good` is what the gold says, `yes` what the judge says."""

    recall: float
    f1: float
    score: float
    good: bool
    yes: bool


@dataclass(frozen=True, slots=True)
class RecallBin:
    """Rankings that found none, some or all of the gold: how many, their mean score, and the share of yes."""

    found: str
    rankings: int
    score: float | None
    yes: float | None


@dataclass(frozen=True, slots=True)
class JudgeCalibration:
    """The report. `problems` are reasons not to trust the judge, `warnings` what should be known of it.

    `figures` have their interval over questions: accuracy, kappa, auc, the rank correlation with recall and with F1,
    and the shares of yes to good and to bad rankings.
    """

    identity: Mapping[str, Any]
    questions: int
    rankings: int
    absent: Mapping[str, int]
    good: int
    figures: Mapping[str, IntervalEstimate]
    table: tuple[RecallBin, ...]
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
    labelled: Sequence[LabelledRanking],
    judge: RankingJudge,
    *,
    good: float = 1.0,
    yes: float = YES_SCORE,
    seed: int = 0,
) -> JudgeCalibration:
    """Asks the judge about every ranking. One with a recall of at least `good` is good; a score from `yes` on says so.

    Raises `DataError` where there is nothing to ask about, or not one verdict came.
    """
    if not labelled:
        raise DataError("there is no labelled ranking to compare the judge with")
    verdicts = judge.verdicts([item.ranking for item in labelled])
    units = _units(labelled, verdicts, good, yes)
    absent = absence_reasons(verdicts)
    if not units:
        detail = next((verdict.detail for verdict in verdicts if verdict.detail), "")
        raise DataError(f"not one verdict of the judge: {absent} ({detail})")
    pairs = [pair for unit in units for pair in unit]
    figures = {name: estimate(units, _over_units(statistic), seed) for name, statistic in STATISTICS.items()}
    return JudgeCalibration(
        identity=judge.identity,
        questions=len(units),
        rankings=len(pairs),
        absent=absent,
        good=sum(pair.good for pair in pairs),
        figures=figures,
        table=tuple(_recall_bin(name, pairs) for name in RECALL_BINS),
        problems=tuple(_problems(pairs, figures)),
        warnings=tuple(_warnings(figures, len(labelled), sum(absent.values()))),
        cost=judge.metrics(),
    )


def save_calibration(path: Path, result: JudgeCalibration) -> None:
    """Writes the report, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result.to_json())


def check_calibration(path: str | Path, identity: Mapping[str, Any]) -> list[str]:
    """Return the warnings of a calibration that vouches for a judge.

    Raises `ConfigError` for a file that is none, is of another judge, or says that the judge cannot be trusted.
    """
    try:
        result = read_json(path)
        if result["schema"] > SCHEMA:
            raise ConfigError(f"{path} has schema {result['schema']}; this version reads up to {SCHEMA}")
        was, problems, warnings = dict(result["identity"]), list(result["problems"]), list(result["warnings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a report of `ctx1 train judge-check` ({error})") from None
    if differences := differing_settings({key: was.get(key) for key in identity}, identity):
        raise ConfigError(f"{path} is of another judge: {', '.join(differences)}. Run `ctx1 train judge-check` again")
    if problems:
        raise ConfigError(
            f"{path} says not to trust this judge: {'; '.join(map(str, problems))}. Use another model or rubric, or "
            "set judge.uncalibrated = true"
        )
    return [str(warning) for warning in warnings]


def _units(
    labelled: Sequence[LabelledRanking], verdicts: Sequence[JudgeVerdict], good: float, yes: float
) -> list[list[JudgedPair]]:
    """Return the pairs of each question, in an order that does not depend on the order of judging."""
    units: dict[str, list[JudgedPair]] = defaultdict(list)
    for item, verdict in zip(labelled, verdicts, strict=True):
        if verdict.score is not None:
            pair = JudgedPair(item.recall, item.f1, verdict.score, item.recall >= good, verdict.score >= yes)
            units[item.question_id].append(pair)
    return [units[name] for name in sorted(units)]


def _accuracy(pairs: Sequence[JudgedPair]) -> float | None:
    return equal_share([(pair.good, pair.yes) for pair in pairs])


def _kappa(pairs: Sequence[JudgedPair]) -> float | None:
    return cohen_kappa([(pair.good, pair.yes) for pair in pairs])


def _auc(pairs: Sequence[JudgedPair]) -> float | None:
    good = [pair.good for pair in pairs]
    return roc_auc([pair.score for pair in pairs], good) if 0 < sum(good) < len(good) else None


def _correlation(of: Callable[[JudgedPair], float]) -> Callable[[Sequence[JudgedPair]], float | None]:
    def spearman(pairs: Sequence[JudgedPair]) -> float | None:
        labels, scores = (
            shared_ranks(np.array([value(pair) for pair in pairs])) for value in (of, lambda pair: pair.score)
        )
        spread = float(labels.std() * scores.std())
        covariance = float(((labels - labels.mean()) * (scores - scores.mean())).mean())
        return covariance / spread if spread else None

    return spearman


def _share_of_yes(good: bool) -> Callable[[Sequence[JudgedPair]], float | None]:
    def share(pairs: Sequence[JudgedPair]) -> float | None:
        answers = [float(pair.yes) for pair in pairs if pair.good is good]
        return fmean(answers) if answers else None

    return share


STATISTICS: Mapping[str, Callable[[Sequence[JudgedPair]], float | None]] = {
    "accuracy": _accuracy,
    "kappa": _kappa,
    "auc": _auc,
    "correlation_recall": _correlation(lambda pair: pair.recall),
    "correlation_f1": _correlation(lambda pair: pair.f1),
    "yes_to_good": _share_of_yes(good=True),
    "yes_to_bad": _share_of_yes(good=False),
}
"""What is computed of all pairs; None where it is not defined."""


def _over_units(
    statistic: Callable[[Sequence[JudgedPair]], float | None],
) -> Callable[[Sequence[list[JudgedPair]]], float | None]:
    return lambda units: statistic([pair for unit in units for pair in unit])


def _recall_bin(name: str, pairs: Sequence[JudgedPair]) -> RecallBin:
    low, high = RECALL_BINS[name]
    inside = [pair for pair in pairs if (low < pair.recall < high if low < high else pair.recall == low)]
    if not inside:
        return RecallBin(name, 0, None, None)
    return RecallBin(name, len(inside), fmean(item.score for item in inside), fmean(float(item.yes) for item in inside))


def _problems(pairs: Sequence[JudgedPair], figures: Mapping[str, IntervalEstimate]) -> list[str]:
    good = sum(pair.good for pair in pairs)
    if min(good, len(pairs) - good) < MIN_RANKINGS:
        return [f"{good} good and {len(pairs) - good} bad rankings: at least {MIN_RANKINGS} of each are needed"]
    result = figures["auc"]
    if result.low is None or result.low <= 0.5:
        return [f"it cannot tell good rankings from bad ones: an AUC of {result}, and chance is 0.5"]
    return []


def _warnings(figures: Mapping[str, IntervalEstimate], questions: int, absent: int) -> list[str]:
    results = []
    to_bad, to_good = figures["yes_to_bad"].value, figures["yes_to_good"].value
    if to_bad is not None and to_bad >= ALWAYS_YES:
        results.append(f"it says yes to {to_bad:.0%} of the bad rankings: it always says yes")
    if to_good is not None and to_good <= 1 - ALWAYS_YES:
        results.append(f"it says yes to {to_good:.0%} of the good rankings: it always says no")
    if absent > questions / 20:
        results.append(f"{absent} of {questions} rankings have no verdict")
    return results


RANKING_LENGTH = 5
"""Documents in a synthetic ranking."""


def recorded_rankings(
    paths: Iterable[Path], questions: Sequence[Question], corpus: Corpus | None, note: Callable[[str], None]
) -> Iterator[LabelledRanking]:
    """Yield the rankings that recorded episodes ended with, for questions with gold; others are passed over, and
    counted.
    """
    by_id = {question.id: question for question in questions if has_gold(question)}
    by_text = {normalised(item.question): item for item in by_id.values()}
    foreign = 0
    for path in paths:
        try:
            trajectory = read(path)
        except ContextAgentError as error:
            note(f"skipped: {error}")
            continue
        header = trajectory.header
        question = by_id.get(header.question_id or "") or by_text.get(normalised(header.question))
        if question is None or trajectory.end is None:
            foreign += 1
            continue
        yield _label_ranking(question, final_ranking(question, trajectory), gold_of(question, corpus))
    if foreign:
        note(f"{foreign} trajectories are cut, or of no question with gold here")


def synthetic_rankings(corpus: Corpus, questions: Iterable[Question], *, seed: int = 0) -> Iterator[LabelledRanking]:
    """Three rankings of `RANKING_LENGTH` documents for each question: with all of its gold, half of it, and none.

    The rest are documents that a search for the question finds and that are not gold, in random order. Questions whose
    gold is not in the corpus are skipped.
    """
    for question in questions:
        gold = gold_of(question, corpus) if has_gold(question) else Gold(0)
        gold_documents = _gold_documents(gold, corpus)
        if not gold_documents or gold.missing:
            continue
        rest = _distractors(question, gold, corpus)
        for share in (1.0, 0.5, 0.0):
            included = gold_documents[: round(len(gold_documents) * share)]
            documents = [*included, *rest[: max(1, RANKING_LENGTH - len(included))]]
            random.Random(f"{seed}:{question.id}:{share}").shuffle(documents)
            ranking = JudgedRanking(question.question, tuple(documents), question.answer)
            yield _label_ranking(question, ranking, gold)


def _label_ranking(question: Question, ranking: JudgedRanking, gold: Gold) -> LabelledRanking:
    relevance = [gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in ranking.documents]
    recall, precision = metrics.recall_of(relevance, gold.needs), metrics.precision_of(relevance)
    return LabelledRanking(question.id, ranking, recall, precision)


def _gold_documents(gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    """Return each gold document, or the document of a gold chunk with that chunk first; as many as the gold has
    needs.
    """
    result: dict[str, RankedDocument] = {}
    for document in gold.documents:
        result[document] = _document(corpus, document, ())
    for chunk in corpus.get(list(gold.chunks)):
        result.setdefault(chunk.document_id, _document(corpus, chunk.document_id, (chunk.id,)))
    return list(result.values())


def _distractors(question: Question, gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    hits = corpus.search(question.question, k=8 * RANKING_LENGTH)
    ids = dict.fromkeys(
        hit.chunk.document_id for hit in hits if not gold.found_by(hit.chunk.document_id, (hit.chunk.id,))
    )
    # A document with a gold chunk that the search did not bring up is gold all the same.
    golden_documents = {chunk.document_id for chunk in corpus.get(list(gold.chunks))} | set(gold.documents)
    return [_document(corpus, item, ()) for item in ids if item not in golden_documents][:RANKING_LENGTH]


def _document(corpus: Corpus, document_id: str, first: Sequence[str]) -> RankedDocument:
    chunks = sorted(corpus.read(document_id), key=lambda chunk: chunk.id not in first)[:2]
    ranked = tuple(RankedChunk(chunk.id, chunk.text, 1.0) for chunk in chunks)
    return RankedDocument(document_id, chunks[0].title if chunks else "", 1.0, ranked)


REPLIES_FOLDER = "judge"
"""In a run's folder: the judge's replies, a file for each rank."""


@contextmanager
def judge_gate(
    settings: JudgeConfig,
    folder: str | Path,
    questions: Sequence[Question],
    note: Callable[[str], None],
    *,
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[JudgePool | None]:
    """Yield the judge of a run with this folder; None if the settings name no judge.

    Raises `ConfigError` for a judge that nothing vouches for, or that would be all there is to learn from.
    """
    if not settings.model:
        yield None
        return
    refuse_judge_alone(settings, questions)
    with RankingJudge(settings, Path(folder) / REPLIES_FOLDER / f"replies-{rank}.jsonl", ranks=ranks) as judge:
        for warning in _gate_warnings(judge):
            note(f"the judge: {warning}")
        yield JudgePool(judge, note)


def questions_with_gold(questions: Sequence[Question]) -> list[Question]:
    """Those that can be measured."""
    return [question for question in questions if has_gold(question)]


def _gate_warnings(judge: RankingJudge) -> list[str]:
    """Return what should be known of the judge. Raises `ConfigError` where it is not to be trusted."""
    settings = judge.settings
    if settings.uncalibrated:
        return ["it was never compared with gold (judge.uncalibrated)"]
    if settings.calibration is None:
        raise ConfigError(
            "this judge is not calibrated: run `ctx1 train judge-check` and set judge.calibration to its report, or "
            "set judge.uncalibrated = true"
        )
    return check_calibration(settings.calibration, judge.identity)
