"""Print by how much the second of two runs is better, paired by question.

    python recipes/compare-policies/difference.py RUN_A RUN_B

A run is a folder that `ctx1 eval --out` wrote, with one system. A question that failed counts as 0. If a
question has several seeds, their values are averaged.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

from context_agent.eval.records import read_records
from context_agent.eval.statistics import Figure
from context_agent.eval.summary import MIN_VERDICT_QUESTIONS

METRIC = "recall@5"


def recall(folder: Path) -> dict[str, float]:
    """Return the recall of each question that has gold."""
    if not (records := read_records(folder)):
        sys.exit(f"{folder} has no records of an evaluation. Pass the --out folder of a finished `ctx1 eval`.")
    systems = sorted({f"{record.system} in a window of {record.window:,}" for record in records})
    if len(systems) > 1:
        sys.exit(
            f"{folder} has {len(systems)} systems ({'; '.join(systems)}). Evaluate one of them, with its own --out."
        )
    values: dict[str, list[float]] = {}
    for record in records:
        if (value := record.value(METRIC)) is not None:
            values.setdefault(record.question, []).append(value)
    return {question: fmean(of_seeds) for question, of_seeds in values.items()}


def main(first: Path, second: Path) -> None:
    """Print the mean difference with its 95 % interval, and what it says."""
    a, b = recall(first), recall(second)
    shared = sorted(a.keys() & b.keys())
    if not shared:
        sys.exit(f"{first} and {second} share no question with {METRIC}. Evaluate both on the same file.")
    difference = Figure.of([b[question] - a[question] for question in shared])
    same = difference.low == difference.high == 0
    verdict = "the two find the same" if same else "chance explains the difference"
    if len(shared) < MIN_VERDICT_QUESTIONS:
        verdict = f"fewer than {MIN_VERDICT_QUESTIONS} questions decide nothing"
    elif difference.low > 0 or difference.high < 0:
        verdict = f"{second.name if difference.low > 0 else first.name} is better"
    interval = f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    print(f"{second.name} less {first.name}: {METRIC} {interval} on {len(shared)} questions: {verdict}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("python recipes/compare-policies/difference.py RUN_A RUN_B")
    main(*map(Path, sys.argv[1:]))
