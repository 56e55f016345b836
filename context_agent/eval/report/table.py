"""The summary as tables on a terminal: one a benchmark, a line a system and window."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from context_agent.eval.metrics import Metric, metric
from context_agent.eval.report.plots import lead
from context_agent.eval.summary import Cell, Pool, Summary, Value, Values

COLUMNS = ("all_gold@5", "answer_found", "trajectory_recall", "turns", "tokens", "prune_accuracy", "money")
"""Metrics beside the leading one, as far as the summary has them and the terminal has room, from the left."""
SHORT = {"all_gold@5": "all@5", "answer_found": "answer", "trajectory_recall": "seen", "prune_accuracy": "prunes"}
LISTED = 5
"""Problems and failures named below the tables."""


def show(console: Console, summary: Summary, *, columns: Sequence[str] = COLUMNS) -> None:
    """Prints the tables, then what failed, is missing or was wrong. `columns` are metrics beside the leading one."""
    groups: list[tuple[str, Sequence[Cell | Pool]]] = [
        (name, [cell for cell in summary.cells if cell.benchmark == name]) for name in summary.benchmarks
    ]
    if summary.pools:
        groups.append(("all benchmarks, each counting alike", summary.pools))
    names = [name for name in columns if any(name in cell.metrics for cell in summary.cells)]
    while names and any(_width(console, _table(title, rows, summary, names)) > console.width for title, rows in groups):
        names.pop()
    for title, rows in groups:
        console.print(_table(title, rows, summary, names))
        console.print()
    for line in _below(summary):
        console.print(Text(_line(line)), soft_wrap=True)


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=1000), table).maximum


def _table(title: str, rows: Sequence[Cell | Pool], summary: Summary, names: Sequence[str]) -> Table:
    first = metric(lead(summary))
    shown = [metric(name) for name in names]
    table = Table(
        title=escape(_line(title)),
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("system", no_wrap=True, overflow="ellipsis")
    uneven = len({row.questions for row in rows}) > 1
    heads = ["window", *(["n"] if uneven else []), first.name]
    heads += [f"Δ {_line(summary.reference or '')[:12]}"] if any(row.differences for row in rows) else []
    heads += [SHORT.get(one.name, one.name.replace("_tokens", "").replace("_", " ")) for one in shown]
    heads += ["failed"] if any(row.failed for row in rows) else []
    for head in heads:
        table.add_column(escape(head), justify="right", no_wrap=True)
    for row in rows:
        texts = [Text(_line(row.system)), Text(window(row.window)), *([Text(f"{row.questions:,}")] if uneven else [])]
        texts += [_mean(row.metrics, first)]
        texts += [_difference(row.differences, first)] if any(one.differences for one in rows) else []
        texts += [_short(row.metrics, one) for one in shown]
        table.add_row(*texts, *([Text(str(row.failed), "red" if row.failed else "dim")] if "failed" in heads else []))
    return table


def _mean(values: Values, of: Metric) -> Text:
    value = values.get(of.name)
    return _short(values, of) if value is None else _short(values, of).append_text(Text(_interval(value, of), "dim"))


def _difference(values: Values, of: Metric) -> Text:
    value = values.get(of.name)
    if value is None:
        return Text("")
    style = {"better": "green", "worse": "red"}.get(verdict(value, of), "dim")
    return Text(_figure(value.mean, of, sign=True) + _interval(value, of, sign=True), style)


def _short(values: Values, of: Metric) -> Text:
    value = values.get(of.name)
    return Text("–", style="dim") if value is None else Text(_figure(value.mean, of))


def _interval(value: Value, of: Metric, *, sign: bool = False) -> str:
    return f" [{_figure(value.low, of, sign=sign)},{_figure(value.high, of, sign=sign)}]"


def _figure(value: float, of: Metric, *, sign: bool = False) -> str:
    """A share without the 0 before its point."""
    return re.sub(r"^([+-]?)0\.", r"\1.", number(value, of, sign=sign))


def _below(summary: Summary) -> list[str]:
    """What was left out, failed, is missing or was wrong, with a few of each."""
    out = max(
        (cell.metrics["answer_found"].left_out for cell in summary.cells if "answer_found" in cell.metrics), default=0
    )
    lines = [f"answer: up to {out:,} questions of a benchmark have none that can be looked for"] if out else []
    failures = [
        _place(one.benchmark, one.system, one.window, one.seed) + f" {one.question}: {one.error}"
        for one in summary.failures
    ]
    missing = [
        _place(one.benchmark, one.system, one.window, one.seed) + f": {one.count:,} records" for one in summary.missing
    ]
    return lines + _some("failed", failures) + _some("missing", missing) + _some("problem", summary.problems)


def _place(benchmark: str, system: str, size: int, seed: int) -> str:
    return f"{benchmark}, {system}, window {window(size)}, seed {seed}"


def _some(kind: str, lines: Sequence[str]) -> list[str]:
    rest = len(lines) - LISTED
    return [f"{kind}: {line}" for line in lines[:LISTED]] + ([f"{kind}: and {rest:,} more"] if rest > 0 else [])


def _line(text: str) -> str:
    """On one line, without what could steer a terminal."""
    return re.sub("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "·", text)


def number(value: float, metric: Metric, *, sign: bool = False) -> str:
    """A share with three decimals, tokens in thousands from 10,000 on, money with three digits."""
    plus = "+" if sign else ""
    if not metric.unit:
        return f"{value:{plus}.3f}"
    if metric.unit == "money":
        return f"{value:{plus}.3g}"
    if metric.unit == "tokens":
        return f"{value / 1000:{plus},.1f}k" if abs(value) >= 10_000 else f"{value:{plus},.0f}"
    return f"{value:{plus},.3f}" if metric.unit == "s" else f"{value:{plus},.2f}"


def interval(value: Value, metric: Metric, *, sign: bool = False) -> str:
    """The 95 % interval in brackets."""
    return f"[{number(value.low, metric, sign=sign)}, {number(value.high, metric, sign=sign)}]"


def verdict(difference: Value, metric: Metric) -> str:
    """`better`, `worse`, or nothing where the interval holds 0 or the metric has no better side."""
    if metric.better == "neither" or difference.low <= 0 <= difference.high:
        return ""
    return "better" if (difference.low > 0) == (metric.better == "higher") else "worse"


def window(tokens: int) -> str:
    """The window as reports name it; a dash for a system that has none."""
    return f"{tokens:,}" if tokens else "–"
