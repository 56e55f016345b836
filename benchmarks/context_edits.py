r"""Writes the comparison of context edits of a finished `ctx1 eval` run into docs: plots as SVG, tables between marks.

    ctx1 eval --benchmarks musique,2wiki,hotpotqa --split dev --limit 60 \
        --systems agent-unpruned,agent-oldest,agent,agent-summary,agent-both,agent+swarm4 \
        --windows 1024,2048,4096,8192,32768 --out runs/edits
    python benchmarks/context_edits.py runs/edits [--page docs/context-edits.md]

Every system answers the same questions; differences are paired, against the policy whose context nobody edits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from budget_curve import drawn, gain, written

from context_agent.eval.evaluation import summarise_run
from context_agent.eval.summary import EvalSummary, MetricValue

REFERENCE = "agent-unpruned"
METRIC = "recall@5"
COSTS = ("tokens", "critical_steps", "lost_tokens")
LABELS = {
    "agent-unpruned": "none",
    "agent-oldest": "oldest-first masking",
    "agent": "prune",
    "agent-summary": "summary",
    "agent-both": "both",
    "agent+swarm4": "swarm of 4, pruning",
}


def main() -> int:
    """Writes the plot beside the page, and the tables into it."""
    options = _options()
    made = summarise_run(options.run, reference=REFERENCE)
    if made.missing or made.failures:
        print(f"{options.run}: {len(made.failures)} failures, {len(made.missing)} incomplete runs", file=sys.stderr)
    figures = f"{drawn(made, METRIC, options.page)}\n\n{best(made)}\n\n{tables(made)}"
    written(options.page, figures)
    return 0


def best(made: EvalSummary) -> str:
    """The winner of each window: the highest mean recall over the benchmarks, each counted alike."""
    lines = ["| window | " + " | ".join(LABELS.values()) + " |", "|---:|" + "---:|" * len(LABELS)]
    for window in _windows(made):
        means = {name: _mean(made, name, window) for name in LABELS}
        highest = max(round(value, 3) for value in means.values())
        shown = (f"**{value:.3f}**" if round(value, 3) == highest else f"{value:.3f}" for value in means.values())
        lines.append(f"| {window:,} | {' | '.join(shown)} |")
    return "Recall@5, the mean of the benchmarks; bold: the highest of a window.\n\n" + "\n".join(lines)


def tables(made: EvalSummary) -> str:
    """A table a benchmark: a line for each window and edit."""
    return "\n".join(f"**{name}**\n\n" + "\n".join(_rows(made, name)) + "\n" for name in made.benchmarks)


def _rows(made: EvalSummary, benchmark: str) -> Iterable[str]:
    cells = {(one.system, one.window): one for one in made.cells if one.benchmark == benchmark}
    yield "| window | edits | recall@5 | less none | tokens | critical steps | lost prefix | failed |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|"
    for window in _windows(made):
        for name, label in LABELS.items():
            one = cells[name, window]
            costs = " | ".join(_cost(one.metrics.get(cost)) for cost in COSTS)
            less = gain(None if name == REFERENCE else one.differences.get(METRIC))
            yield f"| {window:,} | {label} | {one.metrics[METRIC].mean:.3f} | {less} | {costs} | {one.failed} |"


def _mean(made: EvalSummary, system: str, window: int) -> float:
    found = [one.metrics[METRIC].mean for one in made.cells if (one.system, one.window) == (system, window)]
    return sum(found) / len(found)


def _windows(made: EvalSummary) -> list[int]:
    return sorted({one.window for one in made.cells if one.window})


def _cost(value: MetricValue | None) -> str:
    return "–" if value is None else f"{value.mean:,.1f}" if value.mean < 100 else f"{value.mean:,.0f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--page", type=Path, default=Path("docs/context-edits.md"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
