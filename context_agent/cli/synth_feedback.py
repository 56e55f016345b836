"""The command `ctx1 synth from-feedback`, which makes tasks and demonstrations from judgments on searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from context_agent.cli import output
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.interrupts import run_interruptible
from context_agent.cli.parameters import (
    COUNT_OR_ZERO,
    EXISTING_FOLDER,
    INPUT_FILE,
    OUTPUT_FILE,
    OUTPUT_FOLDER,
    CommonOptions,
    options_in,
)
from context_agent.cli.synth_replay import ReplayOptions, show_replays
from context_agent.errors import DataError
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.integrations.feedback import FeedbackLog, Judgment
    from context_agent.retrieval.corpus import Corpus


@options_in("Demonstrations")
@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """The options that say which judged trajectories become demonstrations."""

    sft: Annotated[Path | None, OUTPUT_FOLDER] = None
    """Copy well-rated trajectories to FOLDER/kept, for `ctx1 train sft`."""
    min_rating: Annotated[float, Parameter(validator=Number(gte=1, lte=5), metavar="X")] = 4.0
    """Minimum mean rating of a trajectory, if it has ratings."""
    max_bad: Annotated[int, COUNT_OR_ZERO] = 0
    """Maximum number of irrelevant documents in its ranking."""
    per_question: Annotated[int, COUNT_OR_ZERO] = 1
    """Maximum number of trajectories of a question, the best ones; 0 for all."""
    keep_changed: bool = False
    """Skip the replay check: also keep trajectories that the current index shows differently."""


def from_feedback(
    log: Annotated[Path, INPUT_FILE],
    /,
    *,
    trajectories: Annotated[Path, EXISTING_FOLDER],
    out: Annotated[Path, OUTPUT_FILE, Parameter(metavar="FILE.jsonl")],
    selection: SelectionOptions = SelectionOptions(),
    replay: ReplayOptions = ReplayOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Make tasks from people's judgments on searches.

    Documents that were judged relevant are the gold of a question. Documents that were judged irrelevant are its
    distractors. If judges disagree, the majority decides. Gold must be in the index. With --sft, well-rated
    trajectories become demonstrations if the current index and harness reproduce their views (see `ctx1 synth
    replay-check`). The exit code is 1 if a row could not be read.

    Args:
        log: The feedback.jsonl that `ctx1 serve` and `ctx1 feedback` write next to the trajectories.
        trajectories: Folder of the judged trajectories.
        out: File for the tasks.
    """
    from context_agent.integrations.feedback import FeedbackLog, load_judgments
    from context_agent.synth_data.demonstrations.feedback_tasks import tasks_from_feedback
    from context_agent.synth_data.task import write_tasks

    problems: list[str] = []
    judgments = load_judgments(str(log), problems=problems)
    if not judgments:
        reason = f" The first problem: {problems[0]}" if problems else ""
        raise DataError(f"{log} has no judgment that can be read, so there is nothing to make tasks from.{reason}")
    feedback_log = FeedbackLog(trajectories)
    with index.open() as corpus:
        tasks, report = tasks_from_feedback(judgments, feedback_log, corpus)
        summary = {**report.to_json(), "unreadable": len(problems), "out": str(out)}
        if selection.sft is not None:
            summary["sft"] = _demonstrations(judgments, feedback_log, corpus, selection, replay)
    write_tasks(out, tasks)
    output.note_problems(problems)
    dropped = output.counts({**summary["dropped_judgments"], **summary["dropped_questions"]})
    example = f", such as {report.missing_id!r}" if report.missing else ""
    text = (
        f"{counted(report.tasks, 'task')} from {counted(report.read, 'judgment')} in {out}. "
        f"Dropped: {dropped}. Judges disagreed on {report.conflicts:,} documents, {report.ties:,} of them left out; "
        f"{report.missing:,} judged ids are not in the index{example}."
    )
    if "sft" in summary:
        text += f"\n{_selection_text(summary['sft'])}"
    output.result(summary, text, as_json=common.json)
    return 1 if problems else 0


def _demonstrations(
    judgments: Sequence[Judgment],
    log: FeedbackLog,
    corpus: Corpus,
    chosen: SelectionOptions,
    replay: ReplayOptions,
) -> dict[str, Any]:
    """Copy the selected trajectories, and return a report on all trajectories."""
    from context_agent.synth_data.demonstrations.feedback_demonstrations import (
        FeedbackFilters,
        demonstrations_from_feedback,
    )
    from context_agent.synth_data.demonstrations.replayed_files import ReplaySummary
    from context_agent.synth_data.demonstrations.selection import write_selection

    filters = FeedbackFilters(rating=chosen.min_rating, bad=chosen.max_bad, per_question=chosen.per_question)
    check = None if chosen.keep_changed else replay.settings()
    selection = run_interruptible(demonstrations_from_feedback(judgments, log, corpus, filters, check=check))
    report: dict[str, Any] = {**selection.counts(), "folder": str(chosen.sft)}
    if check is not None:
        report["replay"] = ReplaySummary.of(selection.checks).to_json()
    assert chosen.sft is not None
    write_selection(chosen.sft, selection.kept, selection.dropped, report)
    if check is not None and selection.checks:
        output.note("replay of the selected trajectories:")
        show_replays(selection.checks, report["replay"], err=True)
    return report


def _selection_text(report: dict[str, Any]) -> str:
    return (
        f"{report['kept']:,} of {report['judged']:,} judged trajectories kept in {report['folder']}. "
        f"Dropped: {output.counts(report['dropped'])}."
    )
