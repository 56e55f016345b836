"""Review by people: the page on which they judge tasks, their judgements, and how far the judges agree.

The page is one file without network requests: question, answer, clues, and the documents with their quotes marked. It
hides the verdict of the automatic verification from the judges. Judgements are loaded from the page's downloads and
applied to tasks. Agreement is between judges, and between a judge and the verification; every value has a percentile
bootstrap interval over tasks. Sources: J. Cohen, A coefficient of agreement for nominal scales (1960); K. Krippendorff,
Computing Krippendorff's alpha-reliability (2011), nominal metric.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeVar

from context_agent._support.small_files import parse_json
from context_agent.errors import DataError
from context_agent.eval.page import escape, page
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.matching import find_quote
from context_agent.synth_data.task import Support, Task
from context_agent.types import Chunk

LONGEST_DOCUMENT = 20_000
"""Characters of a document on the page; a longer document is cut, with a note."""

SegmentKind = Literal["", "quote", "truth"]
Segment = tuple[str, SegmentKind]
"""A piece of text, and whether it is a quote, the answer, or neither."""

_BODY = """<header>
<h1>{title}</h1>
<div class="controls">
<label>Judge <input id="judge" autocomplete="off" placeholder="your name"></label>
<button type="button" id="download">Download judgements</button>
<label>Continue from <input type="file" id="import" accept=".jsonl"></label>
<span id="count"></span>
</div>
<p class="muted"><kbd>j</kbd> next, <kbd>k</kbd> back, <kbd>a</kbd> accept, <kbd>r</kbd> reject, <kbd>c</kbd> comment,
<kbd>Esc</kbd> leave the comment. Accept a task if the documents prove the answer and no other answer is right.</p>
<p id="status" role="status"></p>
<ol id="tasks"></ol>
</header>
<main id="task"></main>
<noscript><p>This page needs JavaScript. It makes no request.</p></noscript>"""


def review_page(tasks: Sequence[Task], corpus: Corpus, title: str) -> str:
    """Return the page as HTML. Raises `DataError` without tasks."""
    if not tasks:
        raise DataError("there is no task to review: the file is empty")
    task_data = [_task_data(task, corpus) for task in tasks]
    key = blake2b(json.dumps(task_data).encode(), digest_size=8).hexdigest()
    resources = files("context_agent.synth_data")
    return page(
        title,
        _BODY.format(title=escape(title)),
        data={"review": {"key": key, "tasks": task_data}},
        scripts=[resources.joinpath("review.js").read_text(encoding="utf-8")],
        styles=[resources.joinpath("review.css").read_text(encoding="utf-8")],
    )


def draw_sample(tasks: Sequence[Task], count: int | None, seed: int) -> list[Task]:
    """At most `count` tasks (None for all) in random order: judges who stop early have seen a fair sample."""
    return random.Random(seed).sample(tasks, len(tasks) if count is None else min(count, len(tasks)))


def document_text(chunks: Iterable[Chunk]) -> str:
    """Return a document's text from its chunks; overlaps appear once, and a gap between two chunks is a line break."""
    text, end = "", 0
    for chunk in chunks:
        text += (
            chunk.text[end - chunk.start :]
            if chunk.start < end
            else ("\n" if end else "") * (chunk.start > end) + chunk.text
        )
        end = max(end, chunk.end)
    return text


def segments(text: str, quotes: Iterable[str], truths: Iterable[str] = ()) -> tuple[list[Segment], list[str]]:
    """Return the text in segments, and the quotes that it lacks. Where a quote and the answer overlap, the answer
    wins.
    """
    kinds: list[SegmentKind] = [""] * len(text)
    lost = []
    marks: list[tuple[SegmentKind, str]] = [
        *(("quote", passage) for passage in quotes),
        *(("truth", passage) for passage in truths),
    ]
    for kind, quote in marks:
        match = find_quote(quote, text)
        if match is None:
            lost.append(quote)
        else:
            kinds[match.start : match.end] = [kind] * (match.end - match.start)
    return _runs(text, kinds), lost


def _runs(text: str, kinds: Sequence[SegmentKind]) -> list[Segment]:
    runs: list[Segment] = []
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or kinds[at] != kinds[start]:
            runs.append((text[start:at], kinds[start]))
            start = at
    return runs


def _task_data(task: Task, corpus: Corpus) -> dict[str, Any]:
    """Return the data of a task for the page."""
    supporting = task.supporting or tuple(Support(document) for document in task.gold)
    clues, _ = segments(task.clues, (quote for item in supporting for quote in item.clue_quotes))
    return {
        "id": task.id,
        "question": task.question,
        "answer": task.answer,
        "type": task.type,
        "hops": task.hops,
        "domain": task.domain,
        "origin": task.origin,
        "clues": clues,
        "supporting": [_support_data(item, task.answer, corpus) for item in supporting],
        "distractors": [_distractor_data(document, task.answer, corpus) for document in task.distractors],
    }


def _support_data(item: Support, answer: str, corpus: Corpus) -> dict[str, Any]:
    title, text = _title_and_text(item.id, corpus)
    # The answer is marked wherever it stands, though only quotes are said to be missing.
    present = [answer] if find_quote(answer, text) else []
    parts, lost = segments(text, item.item_quotes, [*item.truth_quotes, *present])
    return {
        "id": item.id,
        "title": title,
        "found": bool(text),
        "truth": item.contains_truth,
        "segments": parts,
        "lost": lost,
    }


def _distractor_data(document: str, answer: str, corpus: Corpus) -> dict[str, Any]:
    title, text = _title_and_text(document, corpus)
    answered = find_quote(answer, text) is not None
    parts, _ = segments(text, (), [answer] if answered else ())
    return {"id": document, "title": title, "found": bool(text), "answer": answered, "segments": parts}


def _title_and_text(document: str, corpus: Corpus) -> tuple[str, str]:
    """Title and text of a document, cut if long; empty if the corpus lacks the document."""
    chunks = corpus.read(document)
    text = document_text(chunks)
    if len(text) > LONGEST_DOCUMENT:
        text = f"{text[:LONGEST_DOCUMENT]}… ({len(text) - LONGEST_DOCUMENT:,} more characters)"
    return (chunks[0].title if chunks else ""), text


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
    """Return the judgements of these files on these tasks. In a row without a judge's name, the file name is the judge.

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
    """Return the tasks that stay and the rejected ones; judged tasks get a label with the verdicts and comments.

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
    """Return whether a task with these verdicts stays; a task without verdicts does."""
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
    """Return the decoded line, if it names a task and has a valid verdict or none."""
    try:
        row = parse_json(line)
    except ValueError:
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
    """Return the agreement of `verdicts[judge][task]`, True for accepted, and the verification's `verified[task]`."""
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
    """Return the share of pairs with two equal values; None without pairs."""
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
    """alpha = 1 - D_o / D_e, nominal, for any number of judges per unit; units with one value are ignored.

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
    """Return the statistic over the units with its interval; resamples for which it is undefined are ignored."""
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
    """Return a judge's tasks in an order that does not depend on the order of judging."""
    return sorted(by_task)
