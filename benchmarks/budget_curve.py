r"""Write the budget curve of a finished `ctx1 eval` run into the documentation: a plot as SVG, and a table.

    ctx1 eval --benchmarks musique,2wiki,hotpotqa --split dev --systems hybrid,agent,agent-unpruned \
        --windows 1024,2048,4096,8192,16384,32768 --out runs/budget
    python benchmarks/budget_curve.py runs/budget [--page docs/budget-curve.md]

Only the part of the page between `<!-- figures -->` and `<!-- end of figures -->` is replaced.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from context_agent.eval.evaluation import summarize_run
from context_agent.eval.summary import EvalSummary, MetricValue
from context_agent.web.report import plots

START, END = "<!-- figures -->", "<!-- end of figures -->"
METRIC = "recall@5"
HEADING = "The table shows recall@5 with pruning, and its gain over no pruning:"
AGENT, UNPRUNED = "agent", "agent-unpruned"


def main() -> int:
    """Write the plot beside the page, and the table into the page."""
    summary, page = finished_run(__doc__ or "", Path("docs/budget-curve.md"), UNPRUNED)
    write_figures(page, f"{draw_plot(summary, METRIC, page)}\n\n{table(summary)}")
    return 0


def finished_run(description: str, page: Path, reference: str) -> tuple[EvalSummary, Path]:
    """Return the summary of the run that the command line names, and the page for its figures.

    The default page is `page`.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--page", type=Path, default=page)
    options = parser.parse_args()
    summary = summarize_run(options.run, reference=reference)
    if summary.missing or summary.failures:
        print(
            f"{options.run}: {len(summary.failures)} failures, {len(summary.missing)} incomplete runs", file=sys.stderr
        )
    return summary, options.page


def draw_plot(summary: EvalSummary, metric: str, page: Path) -> str:
    """Draw the metric against the window in a file beside the page. Return the line of Markdown that shows the plot."""
    plot = page.with_suffix(".svg")
    plot.write_text(plots.budget_curve(summary, metric), encoding="utf-8")
    return f"![{metric.capitalize()} against the window]({plot.name})"


def write_figures(page: Path, figures: str) -> None:
    """Replace the part of the page between the marks."""
    text = page.read_text(encoding="utf-8")
    marked = f"{START}\n\n{figures}\n{END}"
    page.write_text(re.sub(f"{START}.*{END}", lambda _: marked, text, flags=re.S), encoding="utf-8")


def table(summary: EvalSummary) -> str:
    """Return a Markdown table of recall by window and benchmark, with the gain of pruning over no pruning.

    The last rows are the systems without a window.
    """
    cells = {(cell.benchmark, cell.system, cell.window): cell for cell in summary.cells}
    benchmarks = summary.benchmarks
    lines = [f"| window | {' | '.join(benchmarks)} |", "|---:|" + "---:|" * len(benchmarks)]
    for window in sorted({window for _, _, window in cells if window}):
        agents = [cells[benchmark, AGENT, window] for benchmark in benchmarks]
        values = (f"{cell.metrics[METRIC].mean:.3f}, {gain(cell.differences.get(METRIC))}" for cell in agents)
        lines.append(f"| {window:,} | {' | '.join(values)} |")
    for system in sorted({system for _, system, window in cells if not window}):
        recalls = (f"{cells[benchmark, system, 0].metrics[METRIC].mean:.3f}" for benchmark in benchmarks)
        lines.append(f"| {system} | {' | '.join(recalls)} |")
    return f"{HEADING}\n\n" + "\n".join(lines) + "\n"


def gain(value: MetricValue | None) -> str:
    """Return a paired difference with its interval. If it is None, return an empty string."""
    return "" if value is None else f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


if __name__ == "__main__":
    sys.exit(main())
