"""`ctx1 synth filter` and `ctx1 synth review`: which tasks stay, by rules and by people's judgements."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import click

from context_agent.cli import options, output
from context_agent.cli.command import (
    COUNT,
    COUNT_OR_ZERO,
    EXISTING_FILE,
    FILE,
    INPUT,
    POSITIVE_SHARE,
    Argument,
    Json,
    Option,
    command,
)

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.quality import Extreme, PassAtN
    from context_agent.synth_data.task import Task


@dataclass(frozen=True, slots=True)
class AttemptOptions:
    """How often each task is attempted, and which tasks that drops."""

    SECTION: ClassVar[str] = "Attempts"

    passes: Annotated[int, Option("Number of attempts at each task; 0 for none.", COUNT_OR_ZERO)] = 0
    vary: Annotated[
        Literal["seed", "effort", "window"] | None,
        Option("What varies between attempts.", default="effort for the bridge policy, else seed"),
    ] = None
    drop: Annotated[
        Literal["always,never", "never,always", "always", "never", "none"],
        Option("Tasks to drop: those that all attempts solve (always), those that none solves (never), or none."),
    ] = "always,never"
    k: Annotated[int, Option("Number of ranked documents that count.", COUNT)] = 10
    recall: Annotated[float, Option("Minimum recall of an attempt that solves the task.", POSITIVE_SHARE)] = 1.0


@command
def filter_tasks(
    tasks: Annotated[Path, Argument("TASKS.jsonl", INPUT)],
    *,
    out: Annotated[
        Path,
        Option("File for the tasks that stay; dropped tasks go to FILE.jsonl.dropped.jsonl.", FILE, "FILE.jsonl"),
    ],
    likeness: Annotated[
        float,
        Option("Minimum Jaccard index of near-duplicates: two questions about the same documents.", POSITIVE_SHARE),
    ] = 0.7,
    keep_duplicates: Annotated[bool, Option("Keep near-duplicates.")],
    concurrency: Annotated[int, Option("Number of tasks at the same time.", COUNT)] = 8,
    attempts: AttemptOptions,
    agent: options.AgentOptions,
    index: options.CorpusOptions,
    as_json: Json,
) -> int:
    """Keep the tasks that are worth training on.

    Their gold is in the index, they are no near-duplicates, and they are neither trivial nor unsolvable. With
    --passes N the policy attempts every task N times. The bridge policy is deterministic, so its attempts differ by
    effort: from one search up to all its searches. Each task that stays is labelled with its attempts and its
    difficulty. To resume an interrupted run, run the same command again. The exit code is 1 if a row could not be read
    or an attempt failed.
    """
    from context_agent.synth_data import quality
    from context_agent.synth_data.task import load_tasks

    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    output.note_problems(problems)
    with ExitStack() as stack:
        corpus = stack.enter_context(index.open())
        measure = _pass_at_n(agent, corpus, attempts) if attempts.passes else None
        if measure is not None:
            stack.callback(measure.close)
        advance = stack.enter_context(output.progress("Filtering", "tasks"))
        report = asyncio.run(
            quality.filter_tasks(
                task_list,
                corpus,
                out,
                pass_at_n=measure,
                likeness=None if keep_duplicates else likeness,
                concurrency=concurrency,
                advance=advance,
            )
        )
    unreadable = f", {len(problems):,} unreadable rows" if problems else ""
    output.result(
        {**report.to_json(), "unreadable": len(problems), "out": str(out)},
        f"{report.kept:,} of {report.inputs:,} tasks kept in {out}{unreadable}. "
        f"Dropped: {output.counts(report.dropped)}.",
        as_json=as_json,
    )
    failed = any(reason.startswith("failed") for reason in report.dropped)
    return 1 if problems or failed or report.halted else 0


def _pass_at_n(agent: options.AgentOptions, corpus: Corpus, chosen: AttemptOptions) -> PassAtN:
    from context_agent.harness.profile import profile as named_profile
    from context_agent.synth_data.quality import PassAtN, build_attempts, default_vary

    policy = agent.policy.load()
    vary = chosen.vary or default_vary(policy)
    attempts = build_attempts(
        corpus,
        policy,
        chosen.passes,
        vary,
        window=agent.window or named_profile(agent.policy.wire_format).window,
        profile=agent.policy.wire_format,
        limits=agent.limits.load(),
        rollouts=agent.rollouts,
        trajectories=agent.save,
    )
    dropped = frozenset(cast("list[Extreme]", [] if chosen.drop == "none" else chosen.drop.split(",")))
    return PassAtN(attempts, vary, k=chosen.k, threshold=chosen.recall, drop=dropped)


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Which tasks the page shows."""

    SECTION: ClassVar[str] = "Page"

    sample: Annotated[int, Option("Number of tasks on the page.", COUNT)] = 100
    dropped: Annotated[
        tuple[Path, ...],
        Option(
            "Tasks that the verification dropped, mixed in without a mark; repeatable.",
            EXISTING_FILE,
            "FILE.dropped.jsonl",
        ),
    ] = ()
    dropped_sample: Annotated[int, Option("Number of dropped tasks on the page.", COUNT)] = 20


@dataclass(frozen=True, slots=True)
class JudgementOptions:
    """The judgements, and which tasks they drop."""

    SECTION: ClassVar[str] = "Judgements"

    judgements: Annotated[
        tuple[Path, ...],
        Option(
            "A judge's download from the page; repeatable, and further files may follow TASKS.jsonl.",
            EXISTING_FILE,
            "FILE.jsonl",
        ),
    ] = ()
    reject_by: Annotated[
        Literal["any", "majority"],
        Option("Drop a task after one rejection (any), or unless more than half accept it (majority)."),
    ] = "any"
    judged_only: Annotated[bool, Option("Keep only accepted tasks, and no tasks without a verdict.")] = False


@command
def review(
    tasks: Annotated[Path, Argument("TASKS.jsonl", INPUT)],
    more: Annotated[tuple[Path, ...], Argument("[FILE.jsonl...]", EXISTING_FILE)] = (),
    *,
    out: Annotated[Path, Option("File for the page or, with --judgements, for the tasks that stay.", FILE)],
    seed: options.SeedOption = 0,
    index: options.CorpusOptions,
    page: PageOptions,
    verdicts: JudgementOptions,
    as_json: Json,
) -> int:
    """Let people judge a sample of tasks on a web page.

      ctx1 synth review tasks.jsonl --out review.html
      ctx1 synth review tasks.jsonl --judgements ann.jsonl --out kept.jsonl

    The first command writes the page, which needs no server. The second drops the tasks that the judges reject, and
    reports the agreement between judges (equal verdicts, Cohen's kappa, Krippendorff's alpha) and with the automatic
    verification. The verification passed every task of the file; add tasks that it dropped with --dropped to measure
    both kinds of error.
    """
    from context_agent.synth_data.task import load_tasks

    if more and not verdicts.judgements:
        raise click.UsageError(
            f"{more[0]}: files after TASKS.jsonl are judgements and need --judgements before the first of them"
        )
    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    dropped_tasks = _dropped_tasks(page.dropped, {task.id for task in task_list}, problems)
    if verdicts.judgements:
        files = (*verdicts.judgements, *more)
        report = _apply_judgements(task_list, dropped_tasks, files, out, verdicts, seed=seed)
        problems += report.pop("problems")
        text = _agreement_text(report)
    else:
        from context_agent.synth_data.review import draw_sample, review_page

        drawn = [*draw_sample(task_list, page.sample, seed), *draw_sample(dropped_tasks, page.dropped_sample, seed)]
        drawn = draw_sample(drawn, None, seed)
        with index.open() as corpus:
            html = review_page(drawn, corpus, f"Review of {tasks.name}")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8")
        report = {"page": str(out), "tasks": len(drawn)}
        text = f"{len(drawn):,} tasks to judge in {out}; open it in a browser"
    output.note_problems(problems)
    output.result(report, text, as_json=as_json)
    return 1 if problems else 0


def _dropped_tasks(files: tuple[Path, ...], known_ids: set[str], problems: list[str]) -> list[Task]:
    """The tasks among the rows that stages dropped; other rows are reported and skipped."""
    from context_agent.errors import DataError
    from context_agent.synth_data.task import task_of

    tasks: dict[str, Task] = {}
    for file in files:
        # Not `splitlines`, which also splits at separators that texts may contain.
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
    verdicts: JudgementOptions,
    *,
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
    remaining, rejected = apply_judgements(task_list, judgements, verdicts.reject_by)
    if verdicts.judged_only:
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


def _agreement_text(report: dict[str, Any]) -> str:
    """The counts, then each judge's agreement with the verification, then the agreement between judges."""
    from context_agent.synth_data.review import IntervalEstimate

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
