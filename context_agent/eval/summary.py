"""The summary of a run as plain data: the terminal table, the JSON and the HTML report are made from it.

`EvalSummary.to_json` gives the JSON of `summary.json`, and `summary_from_json` reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from context_agent.errors import ConfigError, DataError
from context_agent.eval.metrics import Metric, find_metric, in_table_order

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
        """Plain data with a schema version; docs/evaluation.md describes it."""
        definitions = {metric.name: asdict(metric) for metric in self.definitions}
        return {"schema": SCHEMA, **asdict(self), "definitions": definitions}


def summary_from_json(row: Any, location: str = "the summary") -> EvalSummary:
    """The summary of its JSON. Raises `DataError` for other data and for a newer schema."""
    from pydantic import TypeAdapter, ValidationError

    try:
        if row["schema"] > SCHEMA:
            raise DataError(
                f"{location} has schema {row['schema']}; this version reads up to {SCHEMA}: update context-agent"
            )
        summary = TypeAdapter(EvalSummary).validate_python(row)
        return replace(summary, metrics=tuple(metric.name for metric in in_table_order(row["metrics"])))
    except (KeyError, TypeError, ConfigError, ValidationError) as error:
        raise DataError(f"{location}: not a summary of an evaluation ({error})") from None
