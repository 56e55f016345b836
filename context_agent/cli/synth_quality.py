"""`ctx1 synth filter` and `ctx1 synth review`: which tasks stay, by rule and by people's judgements."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from context_agent.cli import console, options
from context_agent.cli.synth import report_problems

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.pass_at_n import Extreme, PassAtN, Vary
    from context_agent.synth_data.stages import StageReport
    from context_agent.synth_data.task import Task


@click.command("filter")
@click.argument("tasks", type=click.Path(path_type=Path, allow_dash=True), metavar="TASKS.jsonl")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.jsonl",
    help="File for the tasks that stay; dropped tasks go to FILE.jsonl.dropped.jsonl.",
)
@click.option(
    "--passes", type=click.IntRange(0), default=0, show_default=True, help="Attempts at each task; 0 for none."
)
@click.option(
    "--vary",
    type=click.Choice(["seed", "effort", "window"]),
    help="What varies between attempts.  [default: effort for the bridge policy, else seed]",
)
@click.option(
    "--drop",
    type=click.Choice(["always,never", "never,always", "always", "never", "none"]),
    default="always,never",
    show_default=True,
    metavar="WHICH",
    help="Tasks to drop: solved by all attempts (always), by none (never), or none.",
)
@click.option("--k", type=click.IntRange(1), default=10, show_default=True, help="Ranked documents that count.")
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Recall from which an attempt solves the task.",
)
@click.option(
    "--likeness",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.7,
    show_default=True,
    help="Jaccard index from which two questions about the same documents are near-duplicates.",
)
@click.option("--keep-duplicates", is_flag=True, help="Keep near-duplicates.")
@click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Concurrent tasks.")
@options.agent
@options.index
@options.opening
@options.common
def filter_(
    *,
    tasks: Path,
    out: Path,
    passes: int,
    vary: str | None,
    drop: str,
    k: int,
    recall: float,
    likeness: float,
    keep_duplicates: bool,
    concurrency: int,
    as_json: bool,
    agent: options.AgentOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Keep the tasks that are worth training on: gold in the index, no near-duplicates, neither trivial nor unsolvable.

    With --passes N the policy attempts every task N times. The bridge policy is deterministic, so its attempts differ
    by effort: from one search up to all its searches. Each task that stays is labelled with its attempts and its
    difficulty. Run the same command again to resume an interrupted run. The exit code is 1 if a row could not be read
    or an attempt failed.
    """
    from context_agent.synth_data.quality import filter_tasks
    from context_agent.synth_data.task import load_tasks

    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    with ExitStack() as stack:
        corpus = stack.enter_context(options.open_corpus(index, opening))
        measure = _pass_at_n(agent, corpus, passes=passes, vary=vary, k=k, recall=recall, drop=drop) if passes else None
        if measure is not None:
            stack.callback(measure.close)
        with console.progress("Filtering", "tasks") as advance:
            report = asyncio.run(
                filter_tasks(
                    task_list,
                    corpus,
                    out,
                    pass_at_n=measure,
                    likeness=None if keep_duplicates else likeness,
                    concurrency=concurrency,
                    advance=advance,
                )
            )
    report_problems("filter", problems)
    _show_filtered(report, len(problems), out, as_json)
    failed = any(reason.startswith("failed") for reason in report.dropped)
    return 1 if problems or failed or report.halted else 0


def _pass_at_n(
    agent: options.AgentOptions, corpus: Corpus, *, passes: int, vary: str | None, k: int, recall: float, drop: str
) -> PassAtN:
    from context_agent.harness.episode import Limits
    from context_agent.policies.registry import load_policy
    from context_agent.synth_data.pass_at_n import PassAtN, build_attempts, default_vary

    policy = load_policy(agent.policy, weights=agent.weights, **asdict(agent.language_model))
    chosen = default_vary(policy) if vary is None else cast("Vary", vary)
    attempts = build_attempts(
        corpus,
        policy,
        passes,
        chosen,
        window=agent.window,
        profile=agent.profile,
        limits=Limits(turns=agent.max_turns, seconds=agent.time_limit),
        rollouts=agent.rollouts,
        trajectories=agent.save,
    )
    dropped = frozenset(cast("list[Extreme]", [] if drop == "none" else drop.split(",")))
    return PassAtN(attempts, chosen, k=k, threshold=recall, drop=dropped)


def _show_filtered(report: StageReport, unreadable: int, out: Path, as_json: bool) -> None:
    if as_json:
        console.print_json({**report.to_json(), "unreadable": unreadable, "out": str(out)})
        return
    lost = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
    bad = f", {unreadable:,} unreadable rows" if unreadable else ""
    click.echo(
        console.printable(f"{report.kept:,} of {report.inputs:,} tasks kept in {out}{bad}. Dropped: {lost or 'none'}.")
    )


REVIEW_HELP = """Judge a sample of tasks in one HTML page without a server, then apply the judgements.

\b
  ctx1 synth review tasks.jsonl --out review.html                      write the page
  ctx1 synth review tasks.jsonl --judgements ann.jsonl ben.jsonl --out kept.jsonl
                                               drop what they reject and measure their agreement

The report has the agreement between judges (equal verdicts, Cohen's kappa, Krippendorff's alpha) and with the automatic
verification. The verification passed every task of the file; add tasks that it dropped with --dropped to measure both
kinds of error.
"""


@click.command(help=REVIEW_HELP)
@click.argument("tasks", type=click.Path(path_type=Path, allow_dash=True), metavar="TASKS.jsonl")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="File for the page or, with --judgements, for the tasks that stay.",
)
@click.option("--sample", type=click.IntRange(1), default=100, show_default=True, help="Tasks on the page.")
@click.option(
    "--dropped",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    multiple=True,
    metavar="FILE.dropped.jsonl",
    help="Tasks that verification dropped, mixed in without a mark; may be repeated.",
)
@click.option(
    "--dropped-sample", type=click.IntRange(1), default=20, show_default=True, help="Dropped tasks on the page."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the sample and the intervals.")
@click.option(
    "--judgements",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    multiple=True,
    metavar="FILE.jsonl",
    help="A judge's download from the page; may be repeated, and further files may follow TASKS.jsonl.",
)
@click.option(
    "--reject-by",
    type=click.Choice(["any", "majority"]),
    default="any",
    show_default=True,
    help="Drop a task after one rejection (any), or unless more than half accept it (majority).",
)
@click.option("--judged-only", is_flag=True, help="Keep only accepted tasks, and no tasks without a verdict.")
@click.argument("more", type=click.Path(path_type=Path, dir_okay=False, exists=True), nargs=-1, metavar="[FILE.jsonl…]")
@options.index
@options.opening
@options.common
def review(
    *,
    tasks: Path,
    out: Path,
    sample: int,
    dropped: tuple[Path, ...],
    dropped_sample: int,
    seed: int,
    judgements: tuple[Path, ...],
    more: tuple[Path, ...],
    reject_by: str,
    judged_only: bool,
    as_json: bool,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Writes the page or applies judgements; users read `REVIEW_HELP`."""
    from context_agent.synth_data.task import load_tasks

    if more and not judgements:
        raise click.UsageError(
            f"{more[0]}: files after TASKS.jsonl are judgements and need --judgements before the first of them"
        )
    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    dropped_tasks = _dropped_tasks(dropped, {task.id for task in task_list}, problems)
    if judgements:
        rule = cast("Literal['any', 'majority']", reject_by)
        report = _apply_judgements(
            task_list, dropped_tasks, (*judgements, *more), out, rule=rule, judged_only=judged_only, seed=seed
        )
        problems += report.pop("problems")
    else:
        from context_agent.synth_data.review import draw_sample, review_page

        drawn = draw_sample(
            [*draw_sample(task_list, sample, seed), *draw_sample(dropped_tasks, dropped_sample, seed)],
            None,
            seed,
        )
        with options.open_corpus(index, opening) as corpus:
            page = review_page(drawn, corpus, f"Review of {tasks.name}")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
        report = {"page": str(out), "tasks": len(drawn)}
    report_problems("review", problems)
    if as_json:
        console.print_json(report)
    else:
        _show_review(report)
    return 1 if problems else 0


def _dropped_tasks(files: tuple[Path, ...], known_ids: set[str], problems: list[str]) -> list[Task]:
    """The tasks among the rows that stages dropped; other rows are reported and skipped."""
    from context_agent.errors import DataError
    from context_agent.synth_data.task import task_of

    tasks: dict[str, Task] = {}
    for file in files:
        # Not `splitlines`, which also ends lines at separators that stand inside of texts.
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
            if not line:
                continue
            location = f"{file}:{number}"
            try:
                task = task_of(json.loads(line)["input"], location)
            except (DataError, ValueError, KeyError, TypeError) as error:
                problems.append(f"{location}: not a dropped task ({error})")
                continue
            if task.id in known_ids or task.id in tasks:
                problems.append(f"{location}: id {task.id!r} is also the id of another task")
                continue
            tasks[task.id] = task
    return list(tasks.values())


def _apply_judgements(
    task_list: list[Task],
    dropped_tasks: list[Task],
    files: tuple[Path, ...],
    out: Path,
    *,
    rule: Literal["any", "majority"],
    judged_only: bool,
    seed: int,
) -> dict[str, Any]:
    """Writes the tasks that stay and reports the judges' agreement."""
    from context_agent.synth_data.review import (
        REVIEW_LABEL,
        apply_judgements,
        load_judgements,
        measure_agreement,
    )
    from context_agent.synth_data.task import write_tasks

    verified = {**{task.id: True for task in task_list}, **{task.id: False for task in dropped_tasks}}
    judgements = load_judgements(files, verified)
    remaining, rejected = apply_judgements(task_list, judgements, rule)
    if judged_only:
        remaining = [task for task in remaining if task.labels.get(REVIEW_LABEL, {}).get("accepted")]
    write_tasks(out, remaining)
    return {
        "out": str(out),
        "kept": len(remaining),
        "rejected": [task.id for task in rejected],
        "lines": {kind: judgements.counts[kind] for kind in ("unknown", "changed", "undecided", "bad")},
        "agreement": asdict(measure_agreement(judgements.verdicts, verified, seed=seed)),
        "problems": judgements.problems,
    }


def _show_review(report: dict[str, Any]) -> None:
    if "page" in report:
        click.echo(f"{report['tasks']:,} tasks to judge in {report['page']}; open it in a browser")
        return
    click.echo(f"{report['kept']:,} tasks kept in {report['out']}, {len(report['rejected']):,} rejected")
    agreement = report["agreement"]
    for name, judge in agreement["judges"].items():
        line = f"{name}: {judge['accepted']} of {judge['judged']} accepted, {_figure(judge['accept_rate'])}"
        click.echo(console.printable(f"{line}; agrees with the verification {_figure(judge['verification'])}"))
        if judge["kappa"]["value"] is not None:
            click.echo(console.printable(f"{name}: kappa with the verification {_figure(judge['kappa'])}"))
    for pair in agreement["equal"]:
        line = f"{pair}: equal {_figure(agreement['equal'][pair])}, kappa {_figure(agreement['kappa'][pair])}"
        click.echo(console.printable(line))
    if len(agreement["judges"]) > 1:
        click.echo(f"Krippendorff's alpha over all: {_figure(agreement['alpha'])}")


def _figure(figure: dict[str, Any]) -> str:
    from context_agent.synth_data.review import IntervalEstimate

    return str(IntervalEstimate(**figure))
