"""A run's records as one summary: the plain data that the table, the JSON and the HTML report are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from context_agent.errors import ConfigError, DataError
from context_agent.eval.metrics import Metric, metric, ordered

SCHEMA = 1
"""Version of the JSON; a reader refuses a newer one."""


@dataclass(frozen=True, slots=True)
class Value:
    """A metric's mean over `n` questions with its 95 % interval; `left_out` are the questions it does not apply to."""

    mean: float
    low: float
    high: float
    n: int
    left_out: int = 0


Values = Mapping[str, Value]
"""By metric. A metric that applies to no question is not there."""


@dataclass(frozen=True, slots=True)
class Group:
    """The questions of one type, of one number of hops, or the records of one seed."""

    questions: int
    failed: int
    metrics: Values


@dataclass(frozen=True, slots=True)
class Point:
    """The mean state of the episodes at a number of turns, or of tokens placed; one that has ended stays as it was.

    `running` is the share of episodes that got there. `prune_accuracy` is over all chunks pruned by then, None where
    none was.
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
    metrics: Values
    differences: Values = field(default_factory=dict)
    breakdown: Mapping[str, Mapping[str, Group]] = field(default_factory=dict)
    """By `type`, `hops` and `seed`, where there is more than one of them."""
    turns: tuple[Point, ...] = ()
    tokens: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """One system over several benchmarks, each of which counts alike."""

    system: str
    window: int
    benchmarks: tuple[str, ...]
    questions: int
    failed: int
    metrics: Values
    differences: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A question that failed, and why; `trajectories` as in its record."""

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    error: str
    trajectories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Worst:
    """A question that an agent answered badly: `value` is that of the leading metric."""

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    value: float
    trajectories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """Questions that should have a record and have none; `first` names a few of them."""

    benchmark: str
    system: str
    window: int
    seed: int
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """`cells` come by benchmark, window and system, and `systems` in the order to show.

    `reference` is the system that the others are compared with, `problems` say what was wrong with the inputs, and
    `settings` how the run was made.
    """

    cells: tuple[Cell, ...] = ()
    pools: tuple[Pool, ...] = ()
    systems: tuple[str, ...] = ()
    reference: str | None = None
    metrics: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    worst: tuple[Worst, ...] = ()
    missing: tuple[Missing, ...] = ()
    problems: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The benchmarks that have a cell."""
        return tuple(dict.fromkeys(one.benchmark for one in self.cells))

    @property
    def defined(self) -> tuple[Metric, ...]:
        """What each metric of the summary is."""
        return tuple(metric(name) for name in self.metrics)

    def to_json(self) -> dict[str, Any]:
        """Plain data with a schema version; docs/evaluation.md describes it, `summary_of` reads it."""
        definitions = {one.name: asdict(one) for one in self.defined}
        return {"schema": SCHEMA, **asdict(self), "definitions": definitions}


def summary_of(row: Any, place: str = "the summary") -> Summary:
    """The summary of its JSON. Raises `DataError` for what is none, or one of a newer schema."""
    try:
        if row["schema"] > SCHEMA:
            raise DataError(
                f"{place} has schema {row['schema']}; this version reads up to {SCHEMA}: update context-agent"
            )
        return Summary(
            cells=tuple(cell_of(one) for one in row["cells"]),
            pools=tuple(pool_of(one) for one in row["pools"]),
            systems=tuple(row["systems"]),
            reference=row["reference"],
            metrics=tuple(one.name for one in ordered(row["metrics"])),
            failures=tuple(failure_of(one) for one in row["failures"]),
            worst=tuple(worst_of(one) for one in row.get("worst", ())),
            missing=tuple(missing_of(one) for one in row["missing"]),
            problems=tuple(row["problems"]),
            settings=row["settings"],
        )
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise DataError(f"{place}: not a summary of an evaluation ({error})") from None


def cell_of(row: Mapping[str, Any]) -> Cell:
    """The cell of its JSON. Raises `KeyError` and `TypeError` for what is none."""
    breakdown = {
        by: {label: Group(**{**group, "metrics": values_of(group["metrics"])}) for label, group in groups.items()}
        for by, groups in row["breakdown"].items()
    }
    points = {name: tuple(Point(**point) for point in row[name]) for name in ("turns", "tokens")}
    return Cell(**{**row, **_valued(row), **points, "breakdown": breakdown, "seeds": tuple(row["seeds"])})


def pool_of(row: Mapping[str, Any]) -> Pool:
    """The pool of its JSON."""
    return Pool(**{**row, **_valued(row), "benchmarks": tuple(row["benchmarks"])})


def missing_of(row: Mapping[str, Any]) -> Missing:
    """What is missing, of its JSON."""
    return Missing(**{**row, "first": tuple(row["first"])})


def failure_of(row: Mapping[str, Any]) -> Failure:
    """The failure of its JSON."""
    return Failure(**{**row, "trajectories": tuple(row.get("trajectories", ()))})


def worst_of(row: Mapping[str, Any]) -> Worst:
    """The badly answered question of its JSON."""
    return Worst(**{**row, "trajectories": tuple(row["trajectories"])})


def values_of(row: Mapping[str, Mapping[str, Any]]) -> Values:
    """The values of their JSON."""
    return {name: Value(**value) for name, value in row.items()}


def _valued(row: Mapping[str, Any]) -> dict[str, Values]:
    return {name: values_of(row[name]) for name in ("metrics", "differences")}
