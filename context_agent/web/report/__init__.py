"""The report of an evaluation run: a summary as JSON, a page of tables and plots, and a page of trajectories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from context_agent._support.atomic_files import replace_file
from context_agent._support.question_files import load_questions
from context_agent.errors import DataError
from context_agent.eval.evaluation import summarize_run
from context_agent.eval.records import QUESTIONS_FILE
from context_agent.eval.summary import EvalSummary, FailedQuestion, WorstQuestion
from context_agent.harness.trajectory_folder import read_all
from context_agent.types import Question
from context_agent.web.report.content import render
from context_agent.web.viewer import build_page
from context_agent.web.viewer.model import GoldQuestions, view_data

SUMMARY_FILE, REPORT_FILE, TRAJECTORIES_FILE = "summary.json", "report.html", "trajectories.html"
LINKED_FAILURES = 50
"""The number of failures for which the report links to trajectories."""


def write_report(folder: Path, *, reference: str | None = None) -> EvalSummary:
    """Write the summary, the report and the page of trajectories into a run's folder.

    The run may have been stopped before its end.

    Args:
        folder: The folder of the evaluation run.
        reference: The system that the others are compared with. Defaults to the system that `summarize_run` chooses.

    Returns:
        The summary.

    Raises:
        DataError: If the folder contains no run.
        ConfigError: If the run does not include the reference.
    """
    summary = summarize_run(folder, reference=reference)
    replace_file(folder / SUMMARY_FILE, json.dumps(summary.to_json(), indent=1) + "\n")
    title = f"Evaluation on {', '.join(summary.benchmarks) or 'nothing yet'}"
    problems: list[str] = []
    file = folder / QUESTIONS_FILE
    questions = load_questions(file, problems=problems) if file.is_file() else []
    links = _write_trajectories(folder, summary, questions, problems)
    by_id = {question.id: question for question in questions}
    replace_file(folder / REPORT_FILE, render(summary, title=title, links=links, questions=by_id))
    return summary


def _write_trajectories(
    folder: Path, summary: EvalSummary, gold: Sequence[Question], problems: list[str]
) -> dict[str, str]:
    """Write the page of the trajectories that the report links to, and return the address of each by its path."""
    listed: list[FailedQuestion | WorstQuestion] = [*summary.failures[:LINKED_FAILURES], *summary.worst]
    names = dict.fromkeys(name for question in listed for name in question.trajectories)
    paths = {name: folder / name for name in names if (folder / name).is_file()}
    try:
        collection = read_all(list(paths.values()))
    except DataError:  # none was kept, or none is complete up to its header
        return {}
    data = view_data(collection, GoldQuestions(gold), problems=problems)
    replace_file(folder / TRAJECTORIES_FILE, build_page(data, title="Failed and worst questions"))
    ids = {row.id for row in data.rows}
    return {name: f"{TRAJECTORIES_FILE}#t={quote(path.stem)}" for name, path in paths.items() if path.stem in ids}
