r"""Write a finished `ctx1 eval` comparison of context edits into the documentation: plots as SVG, and tables.

    ctx1 eval --benchmarks musique,2wiki,hotpotqa --split dev --limit 60 \
        --systems agent-unpruned,agent-oldest,agent,agent-summary,agent-both,agent+swarm4 \
        --windows 1024,2048,4096,8192,32768 --out runs/edits
    python benchmarks/context_edits.py runs/edits [--page docs/context-edits.md]

Every system answers the same questions. Differences are paired. The reference is the policy without edits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from budget_curve import draw_plot, finished_run, gain, write_figures

from context_agent.eval.summary import EvalSummary, MetricValue
from context_agent.web.report.plots import windows

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
    """Write the plot beside the page and the recalls into it. Print a table for each benchmark."""
    summary, page = finished_run(__doc__ or "", Path("docs/context-edits.md"), REFERENCE)
    write_figures(page, f"{draw_plot(summary, METRIC, page)}\n\n{best_by_window(summary)}\n")
    for name in summary.benchmarks:
        print(f"**{name}**", "", *_rows(summary, name), "", sep="\n")
    return 0


def best_by_window(summary: EvalSummary) -> str:
    """Return a table of the recall of each edit by window, averaged over the benchmarks with equal weights.

    The highest recall of each window is bold.
    """
    lines = ["| window | " + " | ".join(LABELS.values()) + " |", "|---:|" + "---:|" * len(LABELS)]
    for window in windows(summary):
        means = {name: _mean(summary, name, window) for name in LABELS}
        highest = max(round(value, 3) for value in means.values())
        texts = (f"**{value:.3f}**" if round(value, 3) == highest else f"{value:.3f}" for value in means.values())
        lines.append(f"| {window:,} | {' | '.join(texts)} |")
    return (
        "The table shows recall@5, averaged over the benchmarks. Bold marks the highest value of a window.\n\n"
        + "\n".join(lines)
    )


def _rows(summary: EvalSummary, benchmark: str) -> Iterable[str]:
    """Yield a table row for each window and edit."""
    cells = {(cell.system, cell.window): cell for cell in summary.cells if cell.benchmark == benchmark}
    yield "| window | edits | recall@5 | less none | tokens | critical steps | lost prefix | failed |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|"
    for window in windows(summary):
        for name, label in LABELS.items():
            cell = cells[name, window]
            costs = " | ".join(_cost(cell.metrics.get(cost)) for cost in COSTS)
            difference = gain(None if name == REFERENCE else cell.differences.get(METRIC))
            yield f"| {window:,} | {label} | {cell.metrics[METRIC].mean:.3f} | {difference} | {costs} | {cell.failed} |"


def _mean(summary: EvalSummary, system: str, window: int) -> float:
    recalls = [cell.metrics[METRIC].mean for cell in summary.cells if (cell.system, cell.window) == (system, window)]
    return sum(recalls) / len(recalls)


def _cost(value: MetricValue | None) -> str:
    return "–" if value is None else f"{value.mean:,.1f}" if value.mean < 100 else f"{value.mean:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
