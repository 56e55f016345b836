"""How far a judge can be trusted: its scores beside what the gold says, with intervals over questions.

The units are questions: the rankings of one question stand or fall together, and are resampled together. Sources:
J. Cohen (1960) for kappa; J. Hanley and B. McNeil (1982) for the area under the curve, which is the chance that a good
ranking scores above a bad one, ties counting half; C. Spearman (1904).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError, DataError
from context_agent.eval.metrics import f_beta
from context_agent.synth_data.review.judgements import IntervalEstimate as Figure
from context_agent.synth_data.review.judgements import cohen_kappa, equal_share
from context_agent.synth_data.review.judgements import estimate as figure
from context_agent.synth_data.task import write_json
from context_agent.train.judged.judge import Judge, Ranking, Verdict, reasons
from context_agent.train.judged.terms import YES

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
