"""The command `ctx1 synth review`, which selects tasks by the judgments of people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent._support.atomic_files import replacing
from context_agent._support.question_files import read_rows
from context_agent.cli import output
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.parameters import (
    COUNT,
    EXISTING_FILE,
    INPUT_FILE,
    OUTPUT_FILE,
    CommonOptions,
    SeedOption,
    options_in,
)
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.synth_data.task import Task


@options_in("Page")
@dataclass(frozen=True, slots=True)
class PageOptions:
    """The tasks that the page shows."""

    sample: Annotated[int, COUNT] = 100
    """Number of tasks on the page."""
    dropped: Annotated[tuple[Path, ...], EXISTING_FILE, Parameter(metavar="FILE.dropped.jsonl")] = ()
    """Tasks that the verification dropped, mixed in without a mark; repeatable."""
    dropped_sample: Annotated[int, COUNT] = 20
    """Number of dropped tasks on the page."""


@options_in("Judgments")
@dataclass(frozen=True, slots=True)
class JudgmentOptions:
    """The judgments, and the rules by which they drop tasks."""

    judgments: Annotated[tuple[Path, ...], EXISTING_FILE, Parameter(metavar="FILE.jsonl")] = ()
    """A judge's download from the page; repeatable, and further files may follow TASKS.jsonl."""
    reject_by: Literal["any", "majority"] = "any"
    """Drop a task after one rejection (any), or unless more than half accept it (majority)."""
    judged_only: bool = False
    """Keep only accepted tasks, and no tasks without a verdict."""


def review(
    tasks: Annotated[Path, INPUT_FILE],
    /,
    *more: Annotated[Path, EXISTING_FILE],
    out: Annotated[Path, OUTPUT_FILE],
    seed: SeedOption = 0,
    index: CorpusOptions = CorpusOptions(),
    page: PageOptions = PageOptions(),
    verdicts: JudgmentOptions = JudgmentOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Let people judge a sample of tasks on a web page.

      ctx1 synth review tasks.jsonl --out review.html
      ctx1 synth review tasks.jsonl --judgments ann.jsonl --out kept.jsonl

    The first command writes the page, which needs no server. The second drops the tasks that the judges reject, and
    reports the agreement between judges (equal verdicts, Cohen's kappa, Krippendorff's alpha) and with the automatic
    verification. Every task of the file passed this verification. To measure both kinds of error, add tasks that it
    dropped with --dropped.

    Args:
        tasks: File of tasks, or - for standard input.
        more: Further files of judgments.
        out: File for the page or, with --judgments, for the tasks that stay.
    """
    from context_agent.synth_data.task import load_tasks

    if more and not verdicts.judgments:
        raise ConfigError(
            f"{more[0]} follows the file of tasks. If {more[0]} contains judgments, write --judgments before it."
        )
    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    dropped_tasks = _dropped_tasks(page.dropped, {task.id for task in task_list}, problems)
    if verdicts.judgments:
        files = (*verdicts.judgments, *more)
        report = _apply_judgments(task_list, dropped_tasks, files, out, verdicts, seed=seed)
        problems += report.pop("problems")
        text = _agreement_text(report)
    else:
        from context_agent.synth_data.review import draw_sample, tasks_on_page
        from context_agent.web.review import review_page

        drawn = [*draw_sample(task_list, page.sample, seed), *draw_sample(dropped_tasks, page.dropped_sample, seed)]
        drawn = draw_sample(drawn, None, seed)
        with index.open() as corpus:
            html = review_page(tasks_on_page(drawn, corpus), f"Review of {tasks.name}")
        with replacing(out, shared=True) as file:
            file.write(html.encode())
        report = {"page": str(out), "tasks": len(drawn)}
        text = f"{len(drawn):,} tasks to judge in {out}; open it in a browser"
    output.note_problems(problems)
    output.result(report, text, as_json=common.json)
    return 1 if problems else 0


def _dropped_tasks(files: tuple[Path, ...], known_ids: set[str], problems: list[str]) -> list[Task]:
    """Return the tasks among the rows that stages dropped. Other rows are reported and skipped."""
    from context_agent.errors import DataError
    from context_agent.synth_data.task import task_of

    tasks: dict[str, Task] = {}
    for file in files:
        for row in read_rows(file):
            if row.problem:
                problems.append(row.problem)
                continue
            try:
                task = task_of(row.value["input"], row.location)
            except (DataError, ValueError, KeyError, TypeError) as error:
                problems.append(f"{row.location}: not a dropped task ({error})")
                continue
            if task.id in known_ids or task.id in tasks:
                problems.append(f"{row.location}: id {task.id!r} is also the id of another task")
                continue
            tasks[task.id] = task
    return list(tasks.values())


def _apply_judgments(
    task_list: list[Task],
    dropped_tasks: list[Task],
    files: tuple[Path, ...],
    out: Path,
    verdicts: JudgmentOptions,
    *,
    seed: int,
) -> dict[str, Any]:
    """Write the tasks that stay, and report the agreement of the judges."""
    from context_agent.synth_data.agreement import measure_agreement
    from context_agent.synth_data.judgments import REVIEW_LABEL, apply_judgments, load_judgments
    from context_agent.synth_data.task import write_tasks

    verified = {**{task.id: True for task in task_list}, **{task.id: False for task in dropped_tasks}}
    judgments = load_judgments(files, verified)
    remaining, rejected = apply_judgments(task_list, judgments, verdicts.reject_by)
    if verdicts.judged_only:
        remaining = [task for task in remaining if task.labels.get(REVIEW_LABEL, {}).get("accepted")]
    write_tasks(out, remaining)
    return {
        "out": str(out),
        "kept": len(remaining),
        "rejected": [task.id for task in rejected],
        "lines": {kind: judgments.counts[kind] for kind in ("unknown", "changed", "undecided", "bad")},
        "agreement": asdict(measure_agreement(judgments.verdicts, verified, seed=seed)),
        "problems": judgments.problems,
    }


def _agreement_text(report: dict[str, Any]) -> str:
    """Return the counts, each judge's agreement with the verification, and the agreement between judges."""
    from context_agent.synth_data.agreement import IntervalEstimate

    def estimate(figures: dict[str, Any]) -> str:
        return str(IntervalEstimate(**figures))

    agreement = report["agreement"]
    lines = [f"{report['kept']:,} tasks kept in {report['out']}, {len(report['rejected']):,} rejected"]
    for name, judge in agreement["judges"].items():
        rate = f"{judge['accepted']} of {judge['judged']} accepted, {estimate(judge['accept_rate'])}"
        lines.append(f"{name}: {rate}; agrees with the verification {estimate(judge['verification'])}")
        if judge["kappa"]["value"] is not None:
            lines.append(f"{name}: kappa with the verification {estimate(judge['kappa'])}")
    for pair, equal in agreement["equal"].items():
        lines.append(f"{pair}: equal {estimate(equal)}, kappa {estimate(agreement['kappa'][pair])}")
    if len(agreement["judges"]) > 1:
        lines.append(f"Krippendorff's alpha over all: {estimate(agreement['alpha'])}")
    return "\n".join(lines)
