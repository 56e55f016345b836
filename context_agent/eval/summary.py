"""The summary of a run as plain data: the JSON and the HTML report are made from it; and its tables on a terminal.

`EvalSummary.to_json` gives the JSON of `summary.json`, and `summary_from_json` reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from context_agent._support.validation import explain
from context_agent.errors import ConfigError, DataError
from context_agent.eval.metrics import Metric, find_metric, in_table_order, leading_metric

SCHEMA = 1
"""Version of the JSON; a reader refuses a newer one."""


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A metric's mean over `n` questions with its 95 % interval; it does not apply to `left_out` other questions."""

    mean: float
    low: float
    high: float
    n: int
    left_out: int = 0


MetricValues = Mapping[str, MetricValue]
"""By metric name. A metric that applies to no question is absent."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The questions of one type or number of hops, or the records of one seed."""

    questions: int
    failed: int
    metrics: MetricValues


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The mean state of the episodes after a number of turns or tokens; an ended episode keeps its last state.

    `running` is the share of episodes that got so far. `prune_accuracy` covers all chunks pruned by then, None if there
    are none.
    """

    at: int
    seen: float
    held: float
    running: float
    prune_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One system on one benchmark under one window (0 for a system without a context).

    `failed` counts records. `differences` are paired with the reference system: this one minus that one.
    """

    benchmark: str
    system: str
    window: int
    questions: int
    records: int
    failed: int
    seeds: tuple[int, ...]
    metrics: MetricValues
    differences: MetricValues = field(default_factory=dict)
    breakdown: Mapping[str, Mapping[str, GroupSummary]] = field(default_factory=dict)
    """By `type`, `hops` and `seed`, if there is more than one of them."""
    turns: tuple[CurvePoint, ...] = ()
    tokens: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class PooledCell:
    """One system over several benchmarks with equal weights."""

    system: str
    window: int
    benchmarks: tuple[str, ...]
    questions: int
    failed: int
    metrics: MetricValues
    differences: MetricValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FloorComparison:
    """An agent on a benchmark beside the best one-shot search there, by the leading metric.

    `difference` is paired: the agent minus the search.
    """

    benchmark: str
    system: str
    window: int
    value: float
    one_shot: str
    one_shot_value: float
    difference: MetricValue


@dataclass(frozen=True, slots=True)
class FailedQuestion:
    """A question that failed, and why; `trajectories` as in its record."""

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    error: str
    trajectories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorstQuestion:
    """A question that an agent answered badly; `value` is that of the leading metric."""

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    value: float
    trajectories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """Questions without the record that they should have; `first` lists a few of them."""

    benchmark: str
    system: str
    window: int
    seed: int
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvalSummary:
    """A run's summary. `cells` are ordered by benchmark, window and system, `systems` as they are displayed.

    `reference` is the system that the others are compared with, `problems` lists what was wrong with the inputs, and
    `settings` tells how the run was made.
    """

    cells: tuple[Cell, ...] = ()
    pools: tuple[PooledCell, ...] = ()
    floors: tuple[FloorComparison, ...] = ()
    systems: tuple[str, ...] = ()
    reference: str | None = None
    metrics: tuple[str, ...] = ()
    failures: tuple[FailedQuestion, ...] = ()
    worst: tuple[WorstQuestion, ...] = ()
    missing: tuple[MissingRecords, ...] = ()
    problems: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The benchmarks that have a cell."""
        return tuple(dict.fromkeys(cell.benchmark for cell in self.cells))

    @property
    def definitions(self) -> tuple[Metric, ...]:
        """The definition of each metric in the summary."""
        return tuple(find_metric(name) for name in self.metrics)

    def to_json(self) -> dict[str, Any]:
        """Plain data with a schema version. Its keys are the fields, and `definitions`."""
        definitions = {metric.name: asdict(metric) for metric in self.definitions}
        return {"schema": SCHEMA, **asdict(self), "definitions": definitions}


def summary_from_json(row: Any, location: str = "the summary") -> EvalSummary:
    """Return the summary of its JSON. Raises `DataError` for other data and for a newer schema."""
    from pydantic import TypeAdapter, ValidationError

    try:
        if row["schema"] > SCHEMA:
            raise DataError(
                f"{location} has schema {row['schema']}; this version reads up to {SCHEMA}: update context-agent"
            )
        summary = TypeAdapter(EvalSummary).validate_python(row)
        return replace(summary, metrics=tuple(metric.name for metric in in_table_order(row["metrics"])))
    except ValidationError as error:
        raise DataError(f"{location}: not a summary of an evaluation ({explain(error)})") from None
    except (KeyError, TypeError, ConfigError) as error:
        raise DataError(f"{location}: not a summary of an evaluation ({error})") from None


COLUMNS = ("all_gold@5", "answer_found", "trajectory_recall", "turns", "tokens", "prune_accuracy", "money")
"""Metrics after the leading one; those that the summary lacks or that do not fit the terminal are left out."""
SHORT_NAMES = {"all_gold@5": "all@5", "answer_found": "answer", "trajectory_recall": "seen", "prune_accuracy": "prunes"}
LISTED = 5
"""Problems, failures and gaps listed below the tables, of each at most."""


def show(console: Console, summary: EvalSummary, *, columns: Sequence[str] = COLUMNS) -> None:
    """Print the tables, then failures, missing records and problems. `columns` are metrics after the leading one."""
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
        title=escape(_line(title)),
        title_justify="left",
        title_style="bold",
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
        table.add_column(escape(head), justify="right", no_wrap=True)
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
    """Return the value as text; shares have no 0 before the decimal point."""
    return re.sub(r"^([+-]?)0\.", r"\1.", format_value(value, of, sign=sign))


def _notes(summary: EvalSummary) -> list[str]:
    """Return what was left out, failed, is missing or was wrong, with the first few of each."""
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
    rest = len(lines) - LISTED
    return [f"{kind}: {line}" for line in lines[:LISTED]] + ([f"{kind}: and {rest:,} more"] if rest > 0 else [])


def _line(text: str) -> str:
    """Return the text on one line, without terminal control characters."""
    return re.sub("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "·", text)


def format_value(value: float, metric: Metric, *, sign: bool = False) -> str:
    """Return the value as text: shares with three decimals, tokens in thousands from 10,000, money with three
    digits.
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
    """Return the 95 % interval in brackets."""
    return f"[{format_value(value.low, metric, sign=sign)}, {format_value(value.high, metric, sign=sign)}]"


def verdict(difference: MetricValue, metric: Metric) -> str:
    """`better` or `worse`; empty if the interval includes 0 or neither direction is better."""
    if metric.better == "neither" or difference.low <= 0 <= difference.high:
        return ""
    return "better" if (difference.low > 0) == (metric.better == "higher") else "worse"


def format_window(tokens: int) -> str:
    """Return the window as text; a dash for a system without one."""
    return f"{tokens:,}" if tokens else "–"
