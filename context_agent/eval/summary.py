"""The summary of a run as plain data.

The JSON, the HTML report and the tables on a terminal are made from the summary. `EvalSummary.to_json` returns the data
of `summary.json`, and `summary_from_json` reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from context_agent._support.validation import explain
from context_agent.errors import ConfigError, DataError
from context_agent.eval.metrics import Metric, find_metric, in_table_order

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


def verdict(difference: MetricValue, metric: Metric) -> str:
    """Return `better` or `worse`.

    If the interval includes 0, the metric has no better direction, or there are fewer than `MIN_VERDICT_QUESTIONS`
    questions, return an empty string.
    """
    is_open = difference.n < MIN_VERDICT_QUESTIONS or difference.low <= 0 <= difference.high
    if metric.better == "neither" or is_open:
        return ""
    return "better" if (difference.low > 0) == (metric.better == "higher") else "worse"
