"""Measure the agent and one-shot search on your own questions.

    python examples/evaluate_questions.py FOLDER QUESTIONS.jsonl RUN

Each line of QUESTIONS.jsonl has a `question` and its `gold`, the ids of the documents that answer it. The id of a file
is its path in FOLDER. RUN gets the records and report.html. `ctx1 eval` does the same on the command line.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from context_agent.eval.benchmarks.loading import load_own
from context_agent.eval.evaluation import EvalOptions, evaluate, prepare, require_sound_data
from context_agent.eval.systems import find_systems
from context_agent.policies import load_policy
from context_agent.web.report import write_report

SYSTEMS = ("bm25", "hybrid", "agent")


def main(folder: Path, questions: Path, run: Path) -> None:
    """Print the recall of each system, with its 95% interval."""
    prepared = prepare(load_own([folder], questions), cache=run / "cache")
    require_sound_data([prepared])  # refuses questions whose gold is not in the folder
    options = EvalOptions(partial(load_policy, "bridge"))
    evaluate([prepared], find_systems(SYSTEMS), options, folder=run)
    summary = write_report(run)
    for cell in summary.cells:
        recall = cell.metrics["recall@5"]
        print(f"{cell.system}: {recall.mean:.3f} [{recall.low:.3f}, {recall.high:.3f}]")
    print(f"report: {run / 'report.html'}")


if __name__ == "__main__":  # worker processes import this file
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:4]))
