"""Judgments of people on tasks: loading them from the review page's downloads, and applying them to the tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from context_agent._support.small_files import parse_json, read_bytes
from context_agent.errors import DataError, reason_of
from context_agent.synth_data.task import Task

RejectionRule = Literal["any", "majority"]
REVIEW_LABEL = "review"
MAX_JUDGMENTS_BYTES = 64_000_000
"""The largest file of judgments that is read."""
VERDICTS = {"accept": True, "reject": False}


@dataclass(slots=True)
class Judgments:
    """The judgments of people on tasks.

    Attributes:
        verdicts: The verdicts by judge and task. True means accepted.
        comments: The comments by judge and task.
        counts: The number of lines with a problem, by kind. `unknown`: the task is not under review. `changed`: a
            judge's second verdict on a task, which replaces the first. `undecided`: a comment without a verdict. `bad`:
            not a judgment.
        problems: A description of each line with a problem.
    """

    verdicts: dict[str, dict[str, bool]] = field(default_factory=lambda: defaultdict(dict))
    comments: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add_problem(self, kind: str, problem: str) -> None:
        """Count a problem, and keep its description."""
        self.counts[kind] += 1
        self.problems.append(problem)


def load_judgments(paths: Iterable[Path], task_ids: Collection[str]) -> Judgments:
    """Read the files, and return their judgments on these tasks.

    Args:
        paths: The files. If a row has no judge's name, the file name is the judge.
        task_ids: The ids of the tasks under review.

    Raises:
        DataError: If a file cannot be read, or if no file has a judgment on one of the tasks.
    """
    judgments = Judgments()
    names = [str(path) for path in paths]
    for name in names:
        for number, line in enumerate(_lines(Path(name)), start=1):
            if line.strip():
                _add_judgment(judgments, line, f"{name}:{number}", Path(name).stem, task_ids)
    if not judgments.verdicts:
        detail = f" ({judgments.problems[0]})" if judgments.problems else ""
        raise DataError(
            f"none of these tasks has a judgment in {', '.join(names)}{detail}. Pass the judgments of these tasks."
        )
    return judgments


def apply_judgments(
    tasks: Sequence[Task], judgments: Judgments, rule: RejectionRule = "any"
) -> tuple[list[Task], list[Task]]:
    """Return the tasks that stay, and the rejected tasks. Judged tasks get a label with the verdicts and comments.

    Args:
        tasks: The tasks.
        judgments: The judgments on them.
        rule: With `any`, one rejection rejects a task. With `majority`, more than half of the judges must accept it. A
            task without a verdict stays.
    """
    accepted: list[Task] = []
    rejected: list[Task] = []
    for task in tasks:
        verdicts = {
            judge: by_task[task.id] for judge, by_task in sorted(judgments.verdicts.items()) if task.id in by_task
        }
        comments = {
            judge: by_task[task.id] for judge, by_task in sorted(judgments.comments.items()) if task.id in by_task
        }
        labeled = (
            replace(task, labels={**task.labels, REVIEW_LABEL: _review_label(verdicts, comments)})
            if verdicts or comments
            else task
        )
        (accepted if is_accepted(list(verdicts.values()), rule) else rejected).append(labeled)
    return accepted, rejected


def is_accepted(verdicts: Sequence[bool], rule: RejectionRule) -> bool:
    """Return True if a task with these verdicts stays. A task without verdicts stays."""
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
        text = read_bytes(path, MAX_JUDGMENTS_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({reason_of(error)}). Pass an existing file of judgments.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}). Convert the file to UTF-8.") from error
    except ValueError as error:
        raise DataError(f"{path} cannot be read ({error}). Pass a file of judgments.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _add_judgment(judgments: Judgments, line: str, location: str, signed: str, task_ids: Collection[str]) -> None:
    row = _row(line)
    if row is None:
        judgments.add_problem(
            "bad", f'{location}: not a judgment like {{"task": "…", "judge": "…", "verdict": "accept"}}'
        )
        return
    task, verdict = row["task"], row.get("verdict")
    judge = str(row.get("judge") or "").strip() or signed
    if task not in task_ids:
        judgments.add_problem("unknown", f"{location}: task {task!r} is not among those reviewed")
        return
    if comment := str(row.get("comment") or "").strip():
        judgments.comments[judge][task] = comment
    if verdict is None:
        judgments.counts["undecided"] += 1
        return
    if task in judgments.verdicts[judge]:
        judgments.add_problem("changed", f"{location}: {judge} judged {task!r} twice; the later verdict counts")
    judgments.verdicts[judge][task] = VERDICTS[verdict]


def _row(line: str) -> dict[str, Any] | None:
    """Return the decoded line. If the line names no task or has an invalid verdict, return None."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("task"), str):
        return None
    verdict = row.get("verdict")
    return row if verdict is None or (isinstance(verdict, str) and verdict in VERDICTS) else None
