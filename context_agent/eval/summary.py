"""The summary of a run as plain data, and its tables on a terminal.

The JSON and the HTML reports are made from the summary. `EvalSummary.to_json` returns the data of `summary.json`, and
`summary_from_json` reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from context_agent._support.validation import explain
from context_agent.errors import ConfigError, DataError
from context_agent.eval.metrics import Metric, find_metric, in_table_order, leading_metric

SUMMARY_SCHEMA = 1
"""The schema version of the JSON. A reader refuses a newer version."""
MIN_VERDICT_QUESTIONS = 6
"""Minimum number of questions that can show a difference at the level of 95%.

Two equal systems differ in the same direction on all of 5 questions with a probability of 2 / 2⁵ = 6%. The bootstrap
interval of such differences excludes 0 nevertheless, even that of a single question.
"""


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A metric's mean over questions with its 95% interval.

    Attributes:
        mean: The mean.
        low: The lower bound of the interval.
        high: The upper bound of the interval.
        n: The number of questions that the metric applies to.
        left_out: The number of questions that it does not apply to.
    """

    mean: float
    low: float
    high: float
    n: int
    left_out: int = 0


MetricValues = Mapping[str, MetricValue]
"""Values by metric name. A metric that applies to no question is absent."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The results of a group of records, such as the questions of one type or the records of one seed."""

    questions: int
    failed: int
    metrics: MetricValues


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The mean state of the episodes after a number of turns or tokens. An ended episode keeps its last state.

    Attributes:
        at: The number of turns or tokens.
        seen: Trajectory recall so far, from 0 to 1.
        held: Recall of the chunks that are in the view, from 0 to 1.
        running: The share of episodes that got this far.
        prune_accuracy: The prune accuracy of all chunks pruned so far. It is None if nothing was pruned.
    """

    at: int
    seen: float
    held: float
    running: float
    prune_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """The results of one system on one benchmark under one window.

    Attributes:
        benchmark: The name of the benchmark.
        system: The name of the system.
        window: The context window in tokens, or 0 for a system without a context.
        questions: The number of questions.
        records: The number of records, one for each question and seed.
        failed: The number of records that failed.
        seeds: The seeds, in ascending order.
        metrics: The value of each metric.
        differences: Paired differences: this system's value minus the reference system's value.
        breakdown: The results by `type`, `hops` and `seed`. A breakdown with only one group is left out.
        turns: The mean state after each turn.
        tokens: The mean state after each number of tokens placed.
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
    turns: tuple[CurvePoint, ...] = ()
    tokens: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class PooledCell:
    """The results of one system over several benchmarks, which have equal weights."""

    system: str
    window: int
    benchmarks: tuple[str, ...]
    questions: int
    failed: int
    metrics: MetricValues
    differences: MetricValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FloorComparison:
    """An agent's result on a benchmark, compared with the best one-shot search by the leading metric.

    Attributes:
        benchmark: The name of the benchmark.
        system: The name of the agent.
        window: The agent's context window in tokens.
        value: The agent's mean.
        one_shot: The name of the best one-shot search.
        one_shot_value: The mean of that search.
        difference: The paired difference: the agent's value minus the search's value.
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
    """A question that failed, with the error and the trajectories of its record."""

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    error: str
    trajectories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorstQuestion:
    """A question that an agent answered badly, with its value of the leading metric."""

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    value: float
    trajectories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """Questions without a record. `count` is their number, and `first` lists the ids of a few."""

    benchmark: str
    system: str
    window: int
    seed: int
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvalSummary:
    """The summary of a run.

    Attributes:
        cells: Results by benchmark, window and system, in this order.
        pools: Results of each system over all benchmarks.
        floors: Comparisons of the agents with the best one-shot search.
        systems: Names of the systems, in display order.
        reference: The system that the others are compared with.
        metrics: Names of the metrics, in display order.
        failures: Questions that failed.
        worst: Questions that agents answered badly.
        missing: Questions without a record.
        problems: Problems with the inputs.
        settings: The settings of the run.
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
        """Return the summary as plain data.

        Its keys are the fields, the schema version, and `definitions` of the metrics.
        """
        definitions = {metric.name: asdict(metric) for metric in self.definitions}
        return {"schema": SUMMARY_SCHEMA, **asdict(self), "definitions": definitions}


def summary_from_json(row: Any, location: str = "the summary") -> EvalSummary:
    """Return the summary in decoded JSON.

    Args:
        row: The decoded JSON.
        location: The place of the summary. Error messages start with it.

    Raises:
        DataError: If the data is not a summary or has a newer schema.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        if row["schema"] > SUMMARY_SCHEMA:
            raise DataError(
                f"{location} has schema {row['schema']}, but this version reads up to {SUMMARY_SCHEMA}. Update "
                "context-agent."
            )
        summary = TypeAdapter(EvalSummary).validate_python(row)
        return replace(summary, metrics=tuple(metric.name for metric in in_table_order(row["metrics"])))
    except ValidationError as error:
        raise DataError(
            f"{location} is not a summary of an evaluation ({explain(error)}). Pass the output of `ctx1 eval`."
        ) from None
    except (KeyError, TypeError, ConfigError) as error:
        raise DataError(
            f"{location} is not a summary of an evaluation ({error}). Pass the output of `ctx1 eval`."
        ) from None


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


def verdict(difference: MetricValue, metric: Metric) -> str:
    """Return `better` or `worse`.

    If the interval includes 0, the metric has no better direction, or there are fewer than `MIN_VERDICT_QUESTIONS`
    questions, return an empty string.
    """
    is_open = difference.n < MIN_VERDICT_QUESTIONS or difference.low <= 0 <= difference.high
    if metric.better == "neither" or is_open:
        return ""
    return "better" if (difference.low > 0) == (metric.better == "higher") else "worse"


def format_window(tokens: int) -> str:
    """Return the window as text. For a system without a window, return a dash."""
    return f"{tokens:,}" if tokens else "–"
