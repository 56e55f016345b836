r"""Writes the budget curve of a finished `ctx1 eval` run into docs: the plots as SVG, the table between its marks.

    ctx1 eval --benchmarks musique,2wiki,hotpotqa --split dev --systems hybrid,agent,agent-unpruned \
        --windows 1024,2048,4096,8192,16384,32768 --out runs/budget
    python benchmarks/budget_curve.py runs/budget [--page docs/budget-curve.md]

The page keeps its prose: what stands between `<!-- figures -->` and `<!-- end of figures -->` is written anew.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from context_agent.eval.evaluation import summarise_run
from context_agent.eval.report import plots
from context_agent.eval.summary import EvalSummary, MetricValue

START, END = "<!-- figures -->", "<!-- end of figures -->"
METRICS = ("recall@5", "trajectory_recall", "held_recall", "tokens", "prune_accuracy")
AGENT, UNPRUNED = "agent", "agent-unpruned"


def main() -> int:
    """Writes the plot beside the page, and the table into it."""
    options = _options()
    made = summarise_run(options.run, reference=UNPRUNED)
    if made.missing or made.failures:
        print(f"{options.run}: {len(made.failures)} failures, {len(made.missing)} incomplete runs", file=sys.stderr)
    written(options.page, f"{drawn(made, METRICS[0], options.page)}\n\n{tables(made)}")
    return 0


def drawn(made: EvalSummary, metric: str, page: Path) -> str:
    """Draws the metric against the window beside the page; returns the line that shows it there."""
    plot = page.with_suffix(".svg")
    plot.write_text(plots.budget_curve(made, metric), encoding="utf-8")
    return f"![{metric.capitalize()} against the window]({plot.name})"


def written(page: Path, figures: str) -> None:
    """Puts the figures between the page's marks."""
    text = page.read_text(encoding="utf-8")
    marked = f"{START}\n\n{figures}\n{END}"
    page.write_text(re.sub(f"{START}.*{END}", lambda _: marked, text, flags=re.S), encoding="utf-8")


def tables(made: EvalSummary) -> str:
    """A table a benchmark: a line a window, with and without pruning, and the difference of the two."""
    return "\n".join(f"**{name}**\n\n" + "\n".join(_rows(made, name)) + "\n" for name in made.benchmarks)


def _rows(made: EvalSummary, benchmark: str) -> Iterable[str]:
    cells = {(one.system, one.window): one for one in made.cells if one.benchmark == benchmark}
    level = [(system, one) for (system, window), one in cells.items() if not window]
    names = [metric.replace("_", " ") for metric in METRICS]
    yield f"| window | system | {' | '.join(names)} | gain by pruning | failed |"
    yield "|---:|---|" + "---:|" * (len(METRICS) + 2)
    for window in sorted({window for _, window in cells if window}):
        for system in (AGENT, UNPRUNED):
            one = cells[system, window]
            less = one.differences.get(METRICS[0]) if system == AGENT else None
            yield f"| {window:,} | {system} | {_line(one.metrics)} | {gain(less)} | {one.failed} |"
    for system, one in level:
        yield f"| – | {system} | {_line(one.metrics)} |  | {one.failed} |"


def _line(values: dict[str, MetricValue]) -> str:
    return " | ".join(_figure(name, values.get(name)) for name in METRICS)


def _figure(name: str, value: MetricValue | None) -> str:
    if value is None:
        return "–"
    if name == "tokens":
        return f"{value.mean:,.0f}"
    text = f"{value.mean:.3f}"
    return f"{text} [{value.low:.3f}, {value.high:.3f}]" if name == METRICS[0] else text


def gain(value: MetricValue | None) -> str:
    """A paired difference with its interval; nothing where there is none."""
    return "" if value is None else f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--page", type=Path, default=Path("docs/budget-curve.md"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
