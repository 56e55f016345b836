"""Judgements by people: loaded from the review page's downloads, applied to tasks, and measured for agreement.

Agreement is between judges, and between a judge and the automatic verification. Every value has a percentile bootstrap
interval over tasks. Sources: J. Cohen, A coefficient of agreement for nominal scales (1960); K. Krippendorff, Computing
Krippendorff's alpha-reliability (2011), nominal metric.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeVar

from context_agent.errors import DataError
from context_agent.synth_data.task import Task

RejectionRule = Literal["any", "majority"]
REVIEW_LABEL = "review"
VERDICTS = {"accept": True, "reject": False}


@dataclass(slots=True)
class Judgements:
    """`verdicts[judge][task]` is True for accepted; `comments` likewise; `problems` describes the lines with a problem.

    `counts` counts lines: `unknown` (the task is not under review), `changed` (a second verdict of a judge on a task;
    the later one counts), `undecided` (a comment without a verdict), `bad` (not a judgement).
    """

    verdicts: dict[str, dict[str, bool]] = field(default_factory=lambda: defaultdict(dict))
    comments: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add_problem(self, kind: str, problem: str) -> None:
        """Counts a problem and keeps it in words."""
        self.counts[kind] += 1
        self.problems.append(problem)


def load_judgements(paths: Iterable[Path], task_ids: Collection[str]) -> Judgements:
    """The judgements of these files on these tasks. In a row without a judge's name, the file name is the judge.

    Raises `DataError` for a file that cannot be read, and if no file has a judgement on one of the tasks.
    """
    judgements = Judgements()
    names = [str(path) for path in paths]
    for name in names:
        for number, line in enumerate(_lines(Path(name)), start=1):
            if line.strip():
                _add_judgement(judgements, line, f"{name}:{number}", Path(name).stem, task_ids)
    if not judgements.verdicts:
        detail = f" ({judgements.problems[0]})" if judgements.problems else ""
        raise DataError(f"none of these tasks has a judgement in {', '.join(names)}{detail}")
    return judgements


def apply_judgements(
    tasks: Sequence[Task], judgements: Judgements, rule: RejectionRule = "any"
) -> tuple[list[Task], list[Task]]:
    """The tasks that stay and the rejected ones; judged tasks get a label with the verdicts and comments.

    `any`: one rejection is enough. `majority`: more than half must accept. Tasks without a verdict stay.
    """
    accepted: list[Task] = []
    rejected: list[Task] = []
    for task in tasks:
        verdicts = {
            judge: by_task[task.id] for judge, by_task in sorted(judgements.verdicts.items()) if task.id in by_task
        }
        comments = {
            judge: by_task[task.id] for judge, by_task in sorted(judgements.comments.items()) if task.id in by_task
        }
        labelled = (
            replace(task, labels={**task.labels, REVIEW_LABEL: _review_label(verdicts, comments)})
            if verdicts or comments
            else task
        )
        (accepted if is_accepted(list(verdicts.values()), rule) else rejected).append(labelled)
    return accepted, rejected


def is_accepted(verdicts: Sequence[bool], rule: RejectionRule) -> bool:
    """Whether a task with these verdicts stays; a task without verdicts does."""
    if rule == "majority":
        return not verdicts or 2 * sum(verdicts) > len(verdicts)
    return all(verdicts)


def _review_label(verdicts: Mapping[str, bool], comments: Mapping[str, str]) -> dict[str, Any]:
    return {
        "accepted": [judge for judge, verdict in verdicts.items() if verdict],
        "rejected": [judge for judge, verdict in verdicts.items() if not verdict],
        "comments": dict(comments),
    }


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from error


def _add_judgement(judgements: Judgements, line: str, location: str, signed: str, task_ids: Collection[str]) -> None:
    row = _row(line)
    if row is None:
        judgements.add_problem(
            "bad", f'{location}: not a judgement like {{"task": "…", "judge": "…", "verdict": "accept"}}'
        )
        return
    task, verdict = row["task"], row.get("verdict")
    judge = str(row.get("judge") or "").strip() or signed
    if task not in task_ids:
        judgements.add_problem("unknown", f"{location}: task {task!r} is not among those reviewed")
        return
    if comment := str(row.get("comment") or "").strip():
        judgements.comments[judge][task] = comment
    if verdict is None:
        judgements.counts["undecided"] += 1
        return
    if task in judgements.verdicts[judge]:
        judgements.add_problem("changed", f"{location}: {judge} judged {task!r} twice; the later verdict counts")
    judgements.verdicts[judge][task] = VERDICTS[verdict]


def _row(line: str) -> dict[str, Any] | None:
    """The decoded line, if it names a task and has a valid verdict or none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("task"), str):
        return None
    verdict = row.get("verdict")
    return row if verdict is None or (isinstance(verdict, str) and verdict in VERDICTS) else None


UnitT = TypeVar("UnitT")
RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A value over `n` tasks with its 95 % interval. None if the value is undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.value is None:
            return f"undefined (n = {self.n})"
        between = f" [{self.low:.3f}, {self.high:.3f}]" if self.low is not None else ""
        return f"{self.value:.3f}{between} (n = {self.n})"


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """One judge: how many tasks they judged and accepted, and how often the verification said the same.

    `kappa` corrects that share for chance agreement. It is undefined if the verification passed every judged task.
    """

    judged: int
    accepted: int
    accept_rate: IntervalEstimate
    verification: IntervalEstimate
    kappa: IntervalEstimate


@dataclass(frozen=True, slots=True)
class Agreement:
    """All judges by name; for each pair the share of equal verdicts and Cohen's kappa.

    Krippendorff's alpha over all.
    """

    judges: dict[str, JudgeAgreement]
    equal: dict[str, IntervalEstimate]
    kappa: dict[str, IntervalEstimate]
    alpha: IntervalEstimate


def measure_agreement(
    verdicts: Mapping[str, Mapping[str, bool]], verified: Mapping[str, bool], *, seed: int = 0
) -> Agreement:
    """The agreement of `verdicts[judge][task]`, True for accepted, and the verification's `verified[task]`."""
    judges = {name: _judge_agreement(by_task, verified, seed) for name, by_task in sorted(verdicts.items())}
    equal, kappas = {}, {}
    for judge_a, judge_b in combinations(sorted(verdicts), 2):
        both = [
            (verdicts[judge_a][task], verdicts[judge_b][task])
            for task in _sorted_tasks(verdicts[judge_a])
            if task in verdicts[judge_b]
        ]
        equal[f"{judge_a}, {judge_b}"] = estimate(both, equal_share, seed)
        kappas[f"{judge_a}, {judge_b}"] = estimate(both, cohen_kappa, seed)
    tasks = sorted({task for by_task in verdicts.values() for task in by_task})
    units = [[by_task[task] for _, by_task in sorted(verdicts.items()) if task in by_task] for task in tasks]
    return Agreement(
        judges, equal, kappas, estimate([unit for unit in units if len(unit) > 1], krippendorff_alpha, seed)
    )


def equal_share(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """The share of pairs with two equal values; None without pairs."""
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else None


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """kappa = (p_o - p_e) / (1 - p_e) for two judges; None without pairs, or if the expected agreement is 1."""
    observed = equal_share(pairs)
    if observed is None:
        return None
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(first[value] * second[value] for value in first) / len(pairs) ** 2
    return None if chance == 1 else (observed - chance) / (1 - chance)


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float | None:
    """alpha = 1 - D_o / D_e, nominal, for any number of judges a unit; units with one value are ignored.

    None without pairs of values, or if all values are equal.
    """
    paired = [Counter(unit) for unit in units if len(unit) > 1]
    totals = sum(paired, Counter[Hashable]())
    n = totals.total()
    expected = n * n - sum(count * count for count in totals.values())
    if not expected:
        return None
    # Values of a unit that differ, each ordered pair weighted by 1 / (values of the unit - 1).
    observed = sum(
        (unit.total() ** 2 - sum(count * count for count in unit.values())) / (unit.total() - 1) for unit in paired
    )
    return 1 - (n - 1) * observed / expected


def estimate(
    units: Sequence[UnitT], statistic: Callable[[Sequence[UnitT]], float | None], seed: int
) -> IntervalEstimate:
    """The statistic over the units with its interval; resamples for which it is undefined are ignored."""
    point = statistic(units)
    if point is None:
        return IntervalEstimate(None, None, None, len(units))
    draw = random.Random(seed)
    drawn = (statistic(draw.choices(units, k=len(units))) for _ in range(RESAMPLES))
    values = sorted(value for value in drawn if value is not None)
    tail = int(len(values) * (1 - CONFIDENCE) / 2)
    return (
        IntervalEstimate(point, values[tail], values[-1 - tail], len(units))
        if values
        else IntervalEstimate(point, None, None, len(units))
    )


def _judge_agreement(by_task: Mapping[str, bool], verified: Mapping[str, bool], seed: int) -> JudgeAgreement:
    pairs = [(by_task[task], verified[task]) for task in _sorted_tasks(by_task) if task in verified]
    accepted = [by_task[task] for task in _sorted_tasks(by_task)]
    return JudgeAgreement(
        judged=len(accepted),
        accepted=sum(accepted),
        accept_rate=estimate(accepted, _mean, seed),
        verification=estimate(pairs, equal_share, seed),
        kappa=estimate(pairs, cohen_kappa, seed),
    )


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _sorted_tasks(by_task: Mapping[str, bool]) -> list[str]:
    """A judge's tasks in an order that does not depend on the order of judging."""
    return sorted(by_task)
