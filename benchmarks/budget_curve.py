r"""Writes the budget curve of a finished `ctx1 eval` run into docs: the plots as SVG, the table between its marks.

    ctx1 eval --benchmarks musique,2wiki,hotpotqa --split dev --systems hybrid,agent,agent-unpruned \
        --windows 1024,2048,4096,8192,16384,32768 --out runs/budget
    python benchmarks/budget_curve.py runs/budget [--page docs/budget-curve.md]

The page keeps its prose: only the part between `<!-- figures -->` and `<!-- end of figures -->` is replaced.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from context_agent.eval.evaluation import summarise_run
from context_agent.eval.report import plots
from context_agent.eval.summary import EvalSummary, MetricValue

START, END = "<!-- figures -->", "<!-- end of figures -->"
METRICS = ("recall@5", "tokens")
AGENT, UNPRUNED = "agent", "agent-unpruned"


def main() -> int:
    """Writes the plot next to the page, and the tables into the page."""
    summary, page = finished_run(__doc__ or "", Path("docs/budget-curve.md"), UNPRUNED)
    write_figures(page, f"{draw_plot(summary, METRICS[0], page)}\n\n{tables(summary, _rows)}")
    return 0


def finished_run(description: str, page: Path, reference: str) -> tuple[EvalSummary, Path]:
    """The summary of the run that the command line names, and the page for its figures; `page` by default."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--page", type=Path, default=page)
    options = parser.parse_args()
    summary = summarise_run(options.run, reference=reference)
    if summary.missing or summary.failures:
        print(
            f"{options.run}: {len(summary.failures)} failures, {len(summary.missing)} incomplete runs", file=sys.stderr
        )
    return summary, options.page


def draw_plot(summary: EvalSummary, metric: str, page: Path) -> str:
    """Draws the metric against the window, next to the page; returns the line of the page that shows it."""
    plot = page.with_suffix(".svg")
    plot.write_text(plots.budget_curve(summary, metric), encoding="utf-8")
    return f"![{metric.capitalize()} against the window]({plot.name})"


def write_figures(page: Path, figures: str) -> None:
    """Replaces the figures between the marks of the page."""
    text = page.read_text(encoding="utf-8")
    marked = f"{START}\n\n{figures}\n{END}"
    page.write_text(re.sub(f"{START}.*{END}", lambda _: marked, text, flags=re.S), encoding="utf-8")


def tables(summary: EvalSummary, rows: Callable[[EvalSummary, str], Iterable[str]]) -> str:
    """A table per benchmark, with the rows of each."""
    return "\n".join(f"**{name}**\n\n" + "\n".join(rows(summary, name)) + "\n" for name in summary.benchmarks)


def _rows(summary: EvalSummary, benchmark: str) -> Iterable[str]:
    """Each window: recall with and without pruning, the difference, and both values of the other metrics."""
    cells = {(cell.system, cell.window): cell for cell in summary.cells if cell.benchmark == benchmark}
    others = [metric.replace("_", " ") for metric in METRICS[1:]]
    yield f"| window | recall@5, pruning | recall@5, without | gain | {' | '.join(others)} |"
    yield "|---:|---:|---:|---:|" + "---:|" * len(others)
    for window in sorted({window for _, window in cells if window}):
        pruned, unpruned = cells[AGENT, window].metrics, cells[UNPRUNED, window].metrics
        pairs = " | ".join(_pair(name, pruned.get(name), unpruned.get(name)) for name in METRICS[1:])
        recalls = " | ".join(f"{metrics[METRICS[0]].mean:.3f}" for metrics in (pruned, unpruned))
        yield f"| {window:,} | {recalls} | {gain(cells[AGENT, window].differences.get(METRICS[0]))} | {pairs} |"
    for system in sorted(system for system, window in cells if not window):
        yield f"| {system} |  | {_with_interval(cells[system, 0].metrics[METRICS[0]])} |" + "  |" * (1 + len(others))


def _with_interval(value: MetricValue) -> str:
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _pair(name: str, pruned: MetricValue | None, unpruned: MetricValue | None) -> str:
    """With and without pruning; a metric that does not apply without pruning has one value."""
    digits = 0 if name == "tokens" else 3
    return ", ".join(f"{value.mean:,.{digits}f}" for value in (pruned, unpruned) if value is not None)


def gain(value: MetricValue | None) -> str:
    """A paired difference with its interval; empty for None."""
    return "" if value is None else f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


if __name__ == "__main__":
    sys.exit(main())
