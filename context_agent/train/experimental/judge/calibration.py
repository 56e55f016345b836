"""The calibration of a judge: a comparison of its scores with gold.

The bootstrap for confidence intervals resamples questions, so the rankings of a question stay together. The statistics
are kappa (J. Cohen, 1960), the area under the curve (J. Hanley and B. McNeil, 1982) and rank correlation (C. Spearman,
1904). The area under the curve is the probability that a good ranking scores above a bad one. Ties count half.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from context_agent.errors import DataError
from context_agent.eval.probabilities import roc_auc, shared_ranks
from context_agent.synth_data.agreement import IntervalEstimate, cohen_kappa, equal_share, estimate
from context_agent.synth_data.json_files import write_json
from context_agent.train.experimental.judge.calibration_check import REPORT_SCHEMA
from context_agent.train.experimental.judge.judge import YES_SCORE, JudgeVerdict, RankingJudge, absence_reasons
from context_agent.train.experimental.judge.labeled_rankings import LabeledRanking

MIN_RANKINGS = 10
"""Smallest number of good rankings, and of bad rankings, that a calibration needs."""


ALWAYS_YES = 0.9
"""Share of accepted bad rankings from which on the report warns that the judge always says yes."""


RECALL_BINS = {"none": (0.0, 0.0), "some": (0.0, 1.0), "all": (1.0, 1.0)}
"""Bins of recall in the report's table, as lower and upper bounds. The bounds of `some` are exclusive."""


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A ranking's label and the judge's score of it.

    Attributes:
        recall: Recall of the ranking.
        f1: F1 of the ranking.
        score: The judge's score, from 0 to 1.
        good: True if the ranking is good according to the gold.
        yes: True if the judge accepts the ranking.
    """

    recall: float
    f1: float
    score: float
    good: bool
    yes: bool


@dataclass(frozen=True, slots=True)
class RecallBin:
    """The rankings that found none, some or all of the gold.

    Attributes:
        found: The name of the bin.
        rankings: Number of rankings.
        score: Mean score of the rankings. None if there are none.
        yes: Share of the rankings that the judge accepts. None if there are none.
    """

    found: str
    rankings: int
    score: float | None
    yes: float | None


@dataclass(frozen=True, slots=True)
class JudgeCalibration:
    """The report of a calibration.

    Attributes:
        identity: The settings that the judge's verdicts depend on.
        questions: Number of questions with a verdict.
        rankings: Number of rankings with a verdict.
        absent: Number of absent verdicts, by reason.
        good: Number of good rankings.
        figures: The values of `STATISTICS` with their intervals over questions.
        table: The rankings by recall.
        problems: Reasons not to trust the judge.
        warnings: Facts that a user of the judge should know.
        cost: Calls, tokens and cost of the calibration.
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
        """True if the judge is good enough for a trainer to accept it."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, with keys in a fixed order."""
        return {"schema": REPORT_SCHEMA, "discriminates": self.discriminates, **asdict(self)}


def calibrate(
    labeled: Sequence[LabeledRanking],
    judge: RankingJudge,
    *,
    good: float = 1.0,
    yes: float = YES_SCORE,
    seed: int = 0,
) -> JudgeCalibration:
    """Let the judge score every ranking, and compare its scores with the gold.

    Args:
        labeled: The rankings with their labels.
        judge: The judge.
        good: Smallest recall of a good ranking.
        yes: Smallest score with which the judge accepts a ranking.
        seed: Seed of the resampling for intervals.

    Returns:
        The report.

    Raises:
        DataError: If there is no ranking, or the judge gives no verdict at all.
    """
    if not labeled:
        raise DataError(
            "there is no labeled ranking to compare the judge with. Pass trajectories of the questions in data.dev."
        )
    verdicts = judge.verdicts([item.ranking for item in labeled])
    units = _units(labeled, verdicts, good, yes)
    absent = absence_reasons(verdicts)
    if not units:
        detail = next((verdict.detail for verdict in verdicts if verdict.detail), "")
        counts = ", ".join(f"{count} × {reason}" for reason, count in absent.items())
        raise DataError(f"the judge gave no verdict ({counts}: {detail}). Check the judge's server and its caps.")
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
        warnings=tuple(_warnings(figures, len(labeled), sum(absent.values()))),
        cost=judge.metrics(),
    )


def save_calibration(path: Path, result: JudgeCalibration) -> None:
    """Write the report, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result.to_json())


def _units(
    labeled: Sequence[LabeledRanking], verdicts: Sequence[JudgeVerdict], good: float, yes: float
) -> list[list[JudgedPair]]:
    """Return the pairs of each question, in an order that does not depend on the order of judging."""
    units: dict[str, list[JudgedPair]] = defaultdict(list)
    for item, verdict in zip(labeled, verdicts, strict=True):
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
"""The statistics of the report: agreement, rank correlations, and the shares of good and bad rankings that the judge
accepts.

A statistic that is not defined for the pairs is None.
"""


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
        return [
            (
                f"there are {good} good and {len(pairs) - good} bad rankings, but at least {MIN_RANKINGS} of each are "
                "needed"
            )
        ]
    result = figures["auc"]
    if result.low is None or result.low <= 0.5:
        return [f"it cannot tell good rankings from bad ones, because its AUC is {result}, and chance is 0.5"]
    return []


def _warnings(figures: Mapping[str, IntervalEstimate], rankings: int, absent: int) -> list[str]:
    results = []
    to_bad, to_good = figures["yes_to_bad"].value, figures["yes_to_good"].value
    if to_bad is not None and to_bad >= ALWAYS_YES:
        results.append(f"it always says yes, even to {to_bad:.0%} of the bad rankings")
    if to_good is not None and to_good <= 1 - ALWAYS_YES:
        results.append(f"it always says no, and says yes only to {to_good:.0%} of the good rankings")
    if absent > rankings / 20:
        results.append(f"{absent} of {rankings} rankings have no verdict")
    return results
