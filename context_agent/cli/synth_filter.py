"""`ctx1 synth filter`: keeps the tasks that are worth training on, and labels them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from context_agent.cli import console, options

if TYPE_CHECKING:
    from context_agent.retrieval.protocol import Corpus
    from context_agent.synth_data.passes import Extreme, Trial, Vary
    from context_agent.synth_data.stages import Report

LISTED = 20
"""Rows that cannot be read which are told one by one."""


@click.command("filter")
@click.argument("tasks", type=click.Path(path_type=Path, allow_dash=True), metavar="TASKS.jsonl")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.jsonl",
    help="Where the tasks that stay go; what was dropped goes to FILE.jsonl.dropped.jsonl.",
)
@click.option(
    "--passes", type=click.IntRange(0), default=0, show_default=True, help="Attempts at each task; 0 for none."
)
@click.option(
    "--vary",
    type=click.Choice(["seed", "effort", "window"]),
    help="What differs between attempts.  [default: effort for the bridge policy, else seed]",
)
@click.option(
    "--drop",
    type=click.Choice(["always,never", "never,always", "always", "never", "none"]),
    default="always,never",
    show_default=True,
    metavar="WHICH",
    help="Tasks to drop: solved by all attempts (always), by none (never), or none.",
)
@click.option("--k", type=click.IntRange(1), default=10, show_default=True, help="Documents of a ranking that count.")
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the gold among them from which a task counts as solved.",
)
@click.option(
    "--likeness",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.7,
    show_default=True,
    help="Jaccard index from which two questions about the same documents are one.",
)
@click.option("--keep-duplicates", is_flag=True, help="Don't look for near-duplicates.")
@click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Tasks at once.")
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
    """Keep the tasks that are worth training on: gold in the index, no near-duplicates, neither trivial nor hopeless.

    With --passes N every task is attempted N times by the policy. The bridge policy decides alike for every seed, so
    its attempts differ by effort: from one search up to all that it would spend. Each task that stays is labelled with
    its passes and a difficulty. A run that was interrupted is resumed by running it again. The exit code is 1 when a
    row could not be read or an attempt failed.
    """
    from context_agent.synth_data.quality import filter_tasks
    from context_agent.synth_data.task_file import load_tasks

    problems: list[str] = []
    given = load_tasks(str(tasks), problems=problems)
    with ExitStack() as stack:
        corpus = stack.enter_context(options.open_corpus(index, opening))
        trial = _trial(agent, corpus, passes=passes, vary=vary, k=k, recall=recall, drop=drop) if passes else None
        if trial is not None:
            stack.callback(trial.close)
        with console.progress("Filtering", "tasks") as advance:
            report = asyncio.run(
                filter_tasks(
                    given,
                    corpus,
                    out,
                    trial=trial,
                    likeness=None if keep_duplicates else likeness,
                    concurrency=concurrency,
                    advance=advance,
                )
            )
    tell_problems("filter", problems)
    _show(report, len(problems), out, as_json)
    failed = any(reason.startswith("failed") for reason in report.dropped)
    return 1 if problems or failed or report.halted else 0


def tell_problems(command: str, problems: list[str]) -> None:
    """Rows that could not be read, on stderr; the first of them by name."""
    for problem in problems[:LISTED]:
        console.note(f"ctx1 synth {command}: {problem}")
    if len(problems) > LISTED:
        console.note(f"ctx1 synth {command}: and {len(problems) - LISTED:,} more")


def _trial(
    agent: options.AgentOptions, corpus: Corpus, *, passes: int, vary: str | None, k: int, recall: float, drop: str
) -> Trial:
    from context_agent.harness.episode import Limits
    from context_agent.policies.factory import load_policy
    from context_agent.synth_data.passes import Trial, attempts, natural

    policy = load_policy(agent.policy, weights=agent.weights, **asdict(agent.language_model))
    chosen = natural(policy) if vary is None else cast("Vary", vary)
    made = attempts(
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
    return Trial(made, chosen, k=k, threshold=recall, drop=dropped)


def _show(report: Report, unreadable: int, out: Path, as_json: bool) -> None:
    if as_json:
        console.print_json({**report.to_json(), "unreadable": unreadable, "out": str(out)})
        return
    lost = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
    bad = f", {unreadable:,} rows not readable" if unreadable else ""
    click.echo(
        console.printable(f"{report.kept:,} of {report.inputs:,} tasks kept in {out}{bad}. Dropped: {lost or 'none'}.")
    )
