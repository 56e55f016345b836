"""`ctx1 synth from-feedback`: training tasks from judgements on served searches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.cli.synth_filter import tell_problems
from context_agent.cli.synth_replay_check import ReplayOptions, replayed, show

if TYPE_CHECKING:
    from context_agent.integrations.feedback import FeedbackLog, Judgement
    from context_agent.retrieval.protocol import Corpus


@dataclass(frozen=True, slots=True)
class SftOptions:
    """Which judged trajectories are to be imitated, and where they go."""

    sft: Path | None
    min_rating: float
    max_bad: int
    per_question: int
    keep_changed: bool


def _liked(command: options.Command) -> options.Command:
    """The options of `--sft`; the command gets them as `liked: SftOptions`."""
    return options.together(
        options.gathered(command, "liked", SftOptions),
        click.option(
            "--sft",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="Copy the trajectories that people liked to FOLDER/kept, which `ctx1 train sft` reads.",
        ),
        click.option(
            "--min-rating",
            type=click.FloatRange(1, 5),
            default=4.0,
            show_default=True,
            help="Mean rating from which a trajectory is liked; below it, it is not.",
        ),
        click.option(
            "--max-bad",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            help="Documents judged irrelevant that its ranking may have.",
        ),
        click.option(
            "--per-question",
            type=click.IntRange(0),
            default=1,
            show_default=True,
            help="The best of a question's liked trajectories that stay; 0 for all.",
        ),
        click.option(
            "--keep-changed",
            is_flag=True,
            help="Keep those that today's index would show otherwise, too: no replay check.",
        ),
    )


@click.command("from-feedback")
@click.argument("log", type=click.Path(path_type=Path, allow_dash=True), metavar="LOG.jsonl")
@click.option(
    "--trajectories",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    required=True,
    metavar="FOLDER",
    help="Where the judged trajectories are kept.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.jsonl",
    help="Where the tasks go.",
)
@_liked
@replayed
@options.index
@options.opening
@options.common
def from_feedback(
    *,
    log: Path,
    trajectories: Path,
    out: Path,
    liked: SftOptions,
    replay: ReplayOptions,
    as_json: bool,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Make training tasks of judgements: a question, the documents judged relevant as gold, the others as distractors.

    LOG.jsonl is the feedback.jsonl that `ctx1 serve` and `ctx1 feedback` keep beside the trajectories. Judges who
    disagree are settled by majority. Gold must be in the index. With --sft the trajectories that people liked become
    lessons, as far as today's index and harness would show the same views (`ctx1 synth replay-check`). The exit code
    is 1 when a row could not be read.
    """
    from context_agent.integrations.feedback import FeedbackLog, load_judgements
    from context_agent.synth_data.from_feedback import tasks_from_feedback
    from context_agent.synth_data.task_file import write_tasks

    problems: list[str] = []
    judgements = load_judgements(str(log), problems=problems)
    kept = FeedbackLog(trajectories)
    with options.open_corpus(index, opening) as corpus:
        tasks, report = tasks_from_feedback(judgements, kept, corpus)
        lessons = None
        if liked.sft is not None:
            lessons = _lessons(judgements, kept, corpus, folder=liked.sft, liked=liked, replay=replay)
    write_tasks(out, tasks)
    tell_problems("from-feedback", problems)
    told = {**report.to_json(), "unreadable": len(problems), "out": str(out)}
    if as_json:
        console.print_json(told if lessons is None else {**told, "sft": lessons})
    else:
        lost = (*told["dropped_judgements"].items(), *told["dropped_questions"].items())
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in lost) or "none"
        click.echo(
            console.printable(
                f"{report.tasks:,} tasks from {report.read:,} judgements in {out}. Dropped: {dropped}. "
                f"Judges disagreed on {report.conflicts:,} documents, {report.ties:,} of them left out; "
                f"{report.missing:,} judged ids are not in the index."
            )
        )
        if lessons is not None:
            _show(lessons)
    return 1 if problems else 0


def _lessons(
    judgements: Sequence[Judgement],
    log: FeedbackLog,
    corpus: Corpus,
    *,
    folder: Path,
    liked: SftOptions,
    replay: ReplayOptions,
) -> dict[str, Any]:
    """Copies the liked trajectories, and reports what became of the others."""
    from context_agent.synth_data.preferred import Taste, preferred
    from context_agent.synth_data.replay_check import Summary, settle

    taste = Taste(rating=liked.min_rating, bad=liked.max_bad, per_question=liked.per_question)
    check = None if liked.keep_changed else replay.terms()
    found = asyncio.run(preferred(judgements, log, corpus, taste, check=check))
    report: dict[str, Any] = {**found.counts(), "folder": str(folder)}
    if check is not None:
        report["replay"] = Summary.of(found.checks).to_json()
    settle(folder, found.kept, found.dropped, report)
    if check is not None and found.checks:
        console.note("ctx1 synth from-feedback: the liked trajectories, played again:")
        show(found.checks, report["replay"], err=True)
    return report


def _show(report: dict[str, Any]) -> None:
    dropped = ", ".join(f"{count:,} {rule}" for rule, count in report["dropped"].items()) or "none"
    click.echo(
        f"{report['kept']:,} of {report['judged']:,} judged trajectories to imitate in {report['folder']}. "
        f"Dropped: {dropped}."
    )
