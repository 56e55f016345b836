"""The tables of a summary on a terminal, and its values as text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from context_agent.eval.metrics import Metric, find_metric, leading_metric
from context_agent.eval.summary import (
    Cell,
    EvalSummary,
    FloorComparison,
    MetricValue,
    MetricValues,
    PooledCell,
    verdict,
)

METRIC_COLUMNS = ("all_gold@5", "answer_found", "trajectory_recall", "turns", "tokens", "prune_accuracy", "money")
"""The metrics in the columns after the leading metric. A metric that is missing or does not fit is left out."""
SHORT_NAMES = {"all_gold@5": "all@5", "answer_found": "answer", "trajectory_recall": "seen", "prune_accuracy": "prunes"}
MAX_LISTED = 5
"""Maximum number of problems, of failures and of gaps that are listed below the tables."""


def show(console: Console, summary: EvalSummary, *, columns: Sequence[str] = METRIC_COLUMNS) -> None:
    """Print the tables, then the failures, the missing records and the problems.

    Args:
        console: The console to print on.
        summary: The summary to print.
        columns: Names of the metrics after the leading metric. Columns that do not fit the console are left out.
    """
    groups: list[tuple[str, Sequence[Cell | PooledCell]]] = [
        (name, [cell for cell in summary.cells if cell.benchmark == name]) for name in summary.benchmarks
    ]
    if summary.pools:
        groups.append(("all benchmarks, with equal weights", summary.pools))
    names = [name for name in columns if any(name in cell.metrics for cell in summary.cells)]
    while names and any(_width(console, _table(title, rows, summary, names)) > console.width for title, rows in groups):
        names.pop()
    for title, rows in groups:
        console.print(_table(title, rows, summary, names))
        console.print()
    for line in [*map(floor_line, summary.floors), *_notes(summary)]:
        console.print(Text(_line(line)), soft_wrap=True)


def floor_line(floor: FloorComparison) -> str:
    """Return the comparison of an agent with the best one-shot search, in one line."""
    window = f" in a window of {floor.window:,}" if floor.window else ""
    gain = f"{floor.difference.mean:+.3f} [{floor.difference.low:+.3f}, {floor.difference.high:+.3f}]"
    return (
        f"{floor.benchmark}: {floor.system} {floor.value:.3f}{window}, best one-shot search {floor.one_shot} "
        f"{floor.one_shot_value:.3f}, difference {gain}"
    )


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=1000), table).maximum


def _table(title: str, rows: Sequence[Cell | PooledCell], summary: EvalSummary, names: Sequence[str]) -> Table:
    leading = find_metric(leading_metric(summary.metrics))
    columns = [find_metric(name) for name in names]
    table = Table(
        title=Text(_line(title), "bold"),
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("system", no_wrap=True, overflow="ellipsis")
    uneven = len({row.questions for row in rows}) > 1
    heads = ["window", *(["n"] if uneven else []), leading.name]
    heads += [f"Δ {_line(summary.reference or '')[:12]}"] if any(row.differences for row in rows) else []
    heads += [SHORT_NAMES.get(metric.name, metric.name.replace("_tokens", "").replace("_", " ")) for metric in columns]
    heads += ["failed"] if any(row.failed for row in rows) else []
    for head in heads:
        table.add_column(Text(head), justify="right", no_wrap=True)
    for row in rows:
        texts = [
            Text(_line(row.system)),
            Text(format_window(row.window)),
            *([Text(f"{row.questions:,}")] if uneven else []),
        ]
        texts += [_mean(row.metrics, leading)]
        texts += [_difference(row.differences, leading)] if any(cell.differences for cell in rows) else []
        texts += [_short(row.metrics, metric) for metric in columns]
        table.add_row(*texts, *([Text(str(row.failed), "red" if row.failed else "dim")] if "failed" in heads else []))
    return table


def _mean(values: MetricValues, of: Metric) -> Text:
    value = values.get(of.name)
    return _short(values, of) if value is None else _short(values, of).append_text(Text(_interval(value, of), "dim"))


def _difference(values: MetricValues, of: Metric) -> Text:
    value = values.get(of.name)
    if value is None:
        return Text("")
    style = {"better": "green", "worse": "red"}.get(verdict(value, of), "dim")
    return Text(_number(value.mean, of, sign=True) + _interval(value, of, sign=True), style)


def _short(values: MetricValues, of: Metric) -> Text:
    value = values.get(of.name)
    return Text("–", style="dim") if value is None else Text(_number(value.mean, of))


def _interval(value: MetricValue, of: Metric, *, sign: bool = False) -> str:
    return f" [{_number(value.low, of, sign=sign)},{_number(value.high, of, sign=sign)}]"


def _number(value: float, of: Metric, *, sign: bool = False) -> str:
    """Return the value as text. Shares have no 0 before the decimal point."""
    return re.sub(r"^([+-]?)0\.", r"\1.", format_value(value, of, sign=sign))


def _notes(summary: EvalSummary) -> list[str]:
    """Return lines about questions that were left out, that failed or that are missing, and about problems.

    Only the first few of each kind are listed.
    """
    left_out = max(
        (cell.metrics["answer_found"].left_out for cell in summary.cells if "answer_found" in cell.metrics), default=0
    )
    lines = [f"answer: up to {left_out:,} questions of a benchmark have no answer to look for"] if left_out else []
    failures = [
        _run(failed.benchmark, failed.system, failed.window, failed.seed) + f" {failed.question}: {failed.error}"
        for failed in summary.failures
    ]
    gaps = [
        _run(missing.benchmark, missing.system, missing.window, missing.seed) + f": {missing.count:,} records"
        for missing in summary.missing
    ]
    return lines + _first("failed", failures) + _first("missing", gaps) + _first("problem", summary.problems)


def _run(benchmark: str, system: str, size: int, seed: int) -> str:
    return f"{benchmark}, {system}, window {format_window(size)}, seed {seed}"


def _first(kind: str, lines: Sequence[str]) -> list[str]:
    rest = len(lines) - MAX_LISTED
    return [f"{kind}: {line}" for line in lines[:MAX_LISTED]] + ([f"{kind}: and {rest:,} more"] if rest > 0 else [])


def _line(text: str) -> str:
    """Return the text on one line, without terminal control characters."""
    return re.sub("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "·", text)


def format_value(value: float, metric: Metric, *, sign: bool = False) -> str:
    """Return the value as text in the metric's unit.

    Shares have three decimals, and money has three digits. From 10,000, tokens are in thousands.
    """
    plus = "+" if sign else ""
    if not metric.unit:
        return f"{value:{plus}.3f}"
    if metric.unit == "money":
        return f"{value:{plus}.3g}"
    if metric.unit == "tokens":
        return f"{value / 1000:{plus},.1f}k" if abs(value) >= 10_000 else f"{value:{plus},.0f}"
    return f"{value:{plus},.3f}" if metric.unit == "s" else f"{value:{plus},.2f}"


def format_interval(value: MetricValue, metric: Metric, *, sign: bool = False) -> str:
    """Return the 95% interval as text in brackets."""
    return f"[{format_value(value.low, metric, sign=sign)}, {format_value(value.high, metric, sign=sign)}]"


def format_window(tokens: int) -> str:
    """Return the window as text. For a system without a window, return a dash."""
    return f"{tokens:,}" if tokens else "–"
