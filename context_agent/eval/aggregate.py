"""Aggregation of a run's records into its summary: means with intervals, differences, breakdowns, pools and curves.

The order of the records does not matter. Equal records give equal summaries, apart from wall time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from context_agent.errors import ConfigError
from context_agent.eval import statistics
from context_agent.eval.metrics import Metric, in_table_order, leading_metric
from context_agent.eval.records import EvalRecord, RecordKey, TurnState
from context_agent.eval.statistics import Floats, rounded
from context_agent.eval.summary import (
    Cell,
    CurvePoint,
    EvalSummary,
    FailedQuestion,
    FloorComparison,
    GroupSummary,
    MetricValue,
    MissingRecords,
    PooledCell,
    WorstQuestion,
)

LISTED_MISSING = 5
"""The maximum number of missing questions that the summary lists for each benchmark, system, window and seed."""
LISTED_WORST = 10
"""The maximum number of badly answered questions that the summary lists for each benchmark."""
ONE_SHOT_SYSTEMS = ("bm25", "dense", "hybrid")
"""The one-shot systems that agents are compared with."""
FIRST_TOKENS = 512
"""The number of tokens at the first point of the curves over tokens."""

CellKey = tuple[str, str, int]
"""The benchmark, the system and the window."""
_START = TurnState(0, 0, 0, 0.0, 0.0)


def summarize(
    records: Iterable[EvalRecord],
    *,
    settings: Mapping[str, Any] | None = None,
    order: Sequence[str] = (),
    reference: str | None = None,
    expected: Iterable[RecordKey] = (),
    problems: Iterable[str] = (),
) -> EvalSummary:
    """Return the summary of a run.

    Args:
        records: The records of the run, in any order.
        settings: The settings of the run, which the summary repeats.
        order: Systems in display order. Systems that it leaves out follow, ordered by name.
        reference: The system that the others are compared with. Defaults to the first system without a context. If
            there is none, it is the first system.
        expected: The keys of a complete run's records. The summary lists those without a record as missing.
        problems: Problems with the inputs that are known already.

    Raises:
        ConfigError: If `reference` has no records.
    """
    unique, conflicts = _unique(records)
    present = {record.system for record in unique}
    systems = tuple(dict.fromkeys([*(system for system in order if system in present), *sorted(present)]))
    metrics = in_table_order({name for record in unique for name in record.scores} | ({"seconds"} if unique else set()))
    names = [metric.name for metric in metrics]
    reference = _reference(unique, systems, reference)
    by_cell = {key: list(group) for key, group in groupby(sorted(unique, key=_display_order(systems)), key=_cell_key)}
    grids = {key: Grid.of(group, names) for key, group in by_cell.items()}
    references = {key: _reference_grid(key, grids, reference) for key in grids}
    cells = {key: _cell(group, metrics, references[key]) for key, group in by_cell.items()}
    return EvalSummary(
        cells=tuple(cells.values()),
        pools=_pools(cells, grids, references, systems),
        floors=tuple(_floors(grids, leading_metric(names))) if names else (),
        systems=systems,
        reference=reference,
        metrics=tuple(names),
        failures=tuple(_failures(unique)),
        worst=tuple(_worst(unique, leading_metric(names))),
        missing=_missing({record.key for record in unique}, expected),
        problems=tuple(dict.fromkeys([*problems, *conflicts, *_rollout_problems(unique)])),
        settings=dict(settings or {}),
    )


def _unique(records: Iterable[EvalRecord]) -> tuple[list[EvalRecord], list[str]]:
    """Return one record for each key, and a problem for each key that has different records.

    If records differ, the first one in the order of their JSON counts.
    """
    by_key: dict[RecordKey, list[EvalRecord]] = {}
    for record in records:
        variants = by_key.setdefault(record.key, [])
        equal = (number for number, variant in enumerate(variants) if _timeless(variant) == _timeless(record))
        number = next(equal, None)
        if number is None:
            variants.append(record)
        elif record.seconds < variants[number].seconds:
            variants[number] = record
    problems = [
        f"{' / '.join(map(str, key))}: {len(variants)} different records; only one counts"
        for key, variants in sorted(by_key.items())
        if len(variants) > 1
    ]
    return [
        variants[0] if len(variants) == 1 else min(variants, key=_content) for variants in by_key.values()
    ], problems


def _timeless(record: EvalRecord) -> EvalRecord:
    return replace(record, seconds=0.0)


def _content(record: EvalRecord) -> str:
    return json.dumps(_timeless(record).to_json(), sort_keys=True)


def _reference(records: Sequence[EvalRecord], systems: Sequence[str], requested: str | None) -> str | None:
    if requested is not None and systems and requested not in systems:
        raise ConfigError(
            f"the reference system {requested!r} has no records. Pass --reference with one of {', '.join(systems)}."
        )
    with_context = {record.system for record in records if record.scores.get("trajectory_recall") is not None}
    without_context = [system for system in systems if system not in with_context]
    return requested or next(iter([*without_context, *systems]), None)


def _reference_grid(key: CellKey, grids: Mapping[CellKey, Grid], reference: str | None) -> Grid | None:
    """Return the reference's values under the same window. If it has none there, return its values without a window."""
    benchmark, system, window = key
    if reference is None or system == reference:
        return None
    return grids.get((benchmark, reference, window)) or grids.get((benchmark, reference, 0))


def _floors(grids: Mapping[CellKey, Grid], metric: str) -> Iterator[FloorComparison]:
    """Compare each agent with the best of `ONE_SHOT_SYSTEMS` that ran on its benchmark."""
    best: dict[str, tuple[float, str, Grid]] = {}
    for (benchmark, system, _), grid in grids.items():
        value = _estimates(grid).get(metric)
        if system in ONE_SHOT_SYSTEMS and value is not None:
            candidate = (value.mean, system, grid)
            best[benchmark] = max(best.get(benchmark, candidate), candidate, key=lambda item: item[:2])
    for (benchmark, system, window), grid in grids.items():
        value = _estimates(grid).get(metric)
        if not system.startswith("agent") or value is None or benchmark not in best:
            continue
        one_shot_value, one_shot, one_shot_grid = best[benchmark]
        if (difference := _estimates(grid.minus(one_shot_grid)).get(metric)) is not None:
            yield FloorComparison(benchmark, system, window, value.mean, one_shot, one_shot_value, difference)


def _pools(
    cells: Mapping[CellKey, Cell],
    grids: Mapping[CellKey, Grid],
    references: Mapping[CellKey, Grid | None],
    systems: Sequence[str],
) -> tuple[PooledCell, ...]:
    """Pool each system's cells of one window over several benchmarks.

    A system that lacks a benchmark gets no pooled cell, because its mean would not be comparable.
    """
    by_system: dict[tuple[int, int], list[CellKey]] = {}
    for key in cells:
        by_system.setdefault((key[2], systems.index(key[1])), []).append(key)
    count = len({key[0] for key in cells})
    return tuple(
        _pool([cells[key] for key in keys], [grids[key] for key in keys], [references[key] for key in keys])
        for _, keys in sorted(by_system.items())
        if len(keys) == count > 1
    )


def _failures(records: Iterable[EvalRecord]) -> Iterator[FailedQuestion]:
    for record in sorted(records, key=_record_key):
        if record.error is not None:
            yield FailedQuestion(*record.key, record.error, record.trajectories)


def _missing(present: set[RecordKey], expected: Iterable[RecordKey]) -> tuple[MissingRecords, ...]:
    absent = sorted(set(expected) - present)
    counts = Counter(key[:4] for key in absent)
    first: dict[tuple[str, str, int, int], list[str]] = {}
    for key in absent:
        first.setdefault(key[:4], []).append(key[4])
    return tuple(
        MissingRecords(*run, count, tuple(first[run][:LISTED_MISSING])) for run, count in sorted(counts.items())
    )


def _worst(records: Iterable[EvalRecord], measure: str) -> Iterator[WorstQuestion]:
    """Yield the agents' records with the lowest values of `measure`, by benchmark.

    Failed records are listed elsewhere.
    """
    by_benchmark: dict[str, list[WorstQuestion]] = {}
    for record in records:
        value = record.scores.get(measure)
        if record.error is None and record.curve and value is not None and value < 1:
            worst = WorstQuestion(*record.key, value, record.trajectories)
            by_benchmark.setdefault(record.benchmark, []).append(worst)
    for _, questions in sorted(by_benchmark.items()):
        ordered = sorted(questions, key=lambda row: (row.value, row.question, row.system, row.window, row.seed))
        yield from ordered[:LISTED_WORST]


def _rollout_problems(records: Iterable[EvalRecord]) -> list[str]:
    """Return a problem for each cell that has records in which some rollouts ended by an error."""
    by_cell: dict[CellKey, list[EvalRecord]] = {}
    for record in sorted(records, key=_record_key):
        if record.broken:
            by_cell.setdefault(_cell_key(record), []).append(record)
    return [
        f"{benchmark}, {system}, window {window:,}: {len(group)} records have rollouts that ended by an error; they "
        f"are scored. The first is {group[0].question} (seed {group[0].seed}): {group[0].broken[0]}"
        for (benchmark, system, window), group in by_cell.items()
    ]


def _record_key(record: EvalRecord) -> RecordKey:
    return record.key


def _cell_key(record: EvalRecord) -> CellKey:
    return record.key[:3]


def _display_order(systems: Sequence[str]) -> Callable[[EvalRecord], Any]:
    """Return a sort key that orders records by benchmark, window and system, then by question and seed."""
    number = {system: position for position, system in enumerate(systems)}
    return lambda record: (record.benchmark, record.window, number[record.system], record.question, record.seed)


@dataclass(frozen=True, slots=True)
class Grid:
    """The metric values of a cell, averaged over seeds.

    Attributes:
        questions: Question ids, one for each row.
        names: Metric names, one for each column.
        values: Values, shape (n_questions, n_metrics). NaN marks a metric that does not apply to the question.
    """

    questions: tuple[str, ...]
    names: tuple[str, ...]
    values: Floats

    @classmethod
    def of(cls, records: Iterable[EvalRecord], names: Sequence[str]) -> Grid:
        """Return the grid of the records, with questions in the order of their ids."""
        by_question = groupby(sorted(records, key=_question), key=_question)
        groups = {question: list(group) for question, group in by_question}
        rows = [[_mean(record.value(name) for record in group) for name in names] for group in groups.values()]
        return cls(tuple(groups), tuple(names), np.array(rows, dtype=np.float64).reshape(len(groups), len(names)))

    def minus(self, reference: Grid) -> Grid:
        """Return the paired differences from `reference`. A question that the reference lacks gets NaN."""
        row = {question: number for number, question in enumerate(reference.questions)}
        reference_values = np.full(self.values.shape, np.nan)
        for number, question in enumerate(self.questions):
            if question in row:
                reference_values[number] = reference.values[row[question]]
        return Grid(self.questions, self.names, self.values - reference_values)


def _estimates(grid: Grid) -> dict[str, MetricValue]:
    """Return the mean and the interval of each metric that applies to at least one question."""
    values: dict[str, MetricValue] = {}
    for columns, rows in _columns_by_questions(grid.values):
        n = int(rows.sum())
        estimates = statistics.mean_intervals(grid.values[rows][:, columns])
        for column, estimate in zip(columns, estimates, strict=True):
            values[grid.names[column]] = MetricValue(*estimate, n=n, left_out=len(grid.questions) - n)
    return {name: values[name] for name in grid.names if name in values}


def _cell(records: Sequence[EvalRecord], metrics: Sequence[Metric], reference: Grid | None) -> Cell:
    """Return the aggregate of one system on one benchmark under one window."""
    grid = Grid.of(records, [metric.name for metric in metrics])
    first = records[0]
    return Cell(
        benchmark=first.benchmark,
        system=first.system,
        window=first.window,
        questions=len(grid.questions),
        records=len(records),
        failed=sum(record.error is not None for record in records),
        seeds=tuple(sorted({record.seed for record in records})),
        metrics=_estimates(grid),
        differences={} if reference is None else _estimates(grid.minus(reference)),
        breakdown=_breakdown(records, [metric.name for metric in metrics if metric.headline]),
        turns=_curve_over_turns(records),
        tokens=_curve_over_tokens(records),
    )


def _pool(cells: Sequence[Cell], grids: Sequence[Grid], references: Sequence[Grid | None]) -> PooledCell:
    """Return one system's values over the benchmarks of its cells.

    The differences are empty unless the reference ran on all of these benchmarks.
    """
    pairs = zip(grids, references, strict=True)
    differences = [grid.minus(reference) for grid, reference in pairs if reference is not None]
    return PooledCell(
        system=cells[0].system,
        window=cells[0].window,
        benchmarks=tuple(cell.benchmark for cell in cells),
        questions=sum(cell.questions for cell in cells),
        failed=sum(cell.failed for cell in cells),
        metrics=_pooled(grids),
        differences=_pooled(differences) if len(differences) == len(grids) else {},
    )


def _pooled(grids: Sequence[Grid]) -> dict[str, MetricValue]:
    """Return the pooled values of the metrics that every benchmark has."""
    values: dict[str, MetricValue] = {}
    masks = [~np.isnan(grid.values) for grid in grids]
    by_questions: dict[tuple[bytes, ...], list[int]] = {}
    for column in range(len(grids[0].names)):
        if all(mask[:, column].any() for mask in masks):
            by_questions.setdefault(tuple(mask[:, column].tobytes() for mask in masks), []).append(column)
    for columns in by_questions.values():
        rows = [mask[:, columns[0]] for mask in masks]
        strata = [grid.values[applies][:, columns] for grid, applies in zip(grids, rows, strict=True)]
        n = sum(int(applies.sum()) for applies in rows)
        left_out = sum(map(len, rows)) - n
        for column, estimate in zip(columns, statistics.pooled(strata), strict=True):
            values[grids[0].names[column]] = MetricValue(*estimate, n=n, left_out=left_out)
    return {name: values[name] for name in grids[0].names if name in values}


def _breakdown(records: Sequence[EvalRecord], names: Sequence[str]) -> dict[str, dict[str, GroupSummary]]:
    labels: Mapping[str, Callable[[EvalRecord], str]] = {
        "type": lambda record: record.type,
        "hops": lambda record: str(record.hops or ""),
        "seed": lambda record: str(record.seed),
    }
    breakdown = {by: _groups(records, label, names) for by, label in labels.items()}
    return {by: groups for by, groups in breakdown.items() if len(groups) > 1}


def _groups(
    records: Sequence[EvalRecord], label: Callable[[EvalRecord], str], names: Sequence[str]
) -> dict[str, GroupSummary]:
    """Return the summary of the records under each label, leaving out records with an empty label."""
    by_label: dict[str, list[EvalRecord]] = {}
    for record in records:
        if label(record):
            by_label.setdefault(label(record), []).append(record)
    groups = {}
    for text in sorted(by_label, key=lambda text: (len(text), text) if text.isdecimal() else (0, text)):
        grid = Grid.of(by_label[text], names)
        failed = sum(record.error is not None for record in by_label[text])
        groups[text] = GroupSummary(len(grid.questions), failed, _estimates(grid))
    return groups


def _columns_by_questions(values: Floats) -> list[tuple[list[int], np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """Group the columns that apply to the same questions. Return each group with the mask of its questions.

    The columns of a group can share their bootstrap resamples.
    """
    applies = ~np.isnan(values)
    by_questions: dict[bytes, list[int]] = {}
    for column in range(values.shape[1]):
        if applies[:, column].any():
            by_questions.setdefault(applies[:, column].tobytes(), []).append(column)
    return [(columns, applies[:, columns[0]]) for columns in by_questions.values()]


def _mean(values: Iterable[float | None]) -> float:
    numbers = sorted(value for value in values if value is not None)
    return sum(numbers) / len(numbers) if numbers else np.nan


def _question(record: EvalRecord) -> str:
    return record.question


def _curve_over_turns(records: Iterable[EvalRecord]) -> tuple[CurvePoint, ...]:
    """Return the mean state after each turn, up to the last turn of the longest episode."""
    with_context = _with_context(records)
    longest = max((len(record.curve) for record in with_context), default=0)
    return tuple(_point(at, with_context, partial(_after, turns=at)) for at in range(1, longest + 1))


def _curve_over_tokens(records: Iterable[EvalRecord]) -> tuple[CurvePoint, ...]:
    """Return the mean state after 512, 724, 1024, 1448 … tokens were placed, two points for each doubling."""
    with_context = _with_context(records)
    most = max((record.curve[-1].tokens for record in with_context if record.curve), default=0)
    return tuple(_point(at, with_context, partial(_within, tokens=at)) for at in _half_doublings(most))


def _with_context(records: Iterable[EvalRecord]) -> list[EvalRecord]:
    """Return the records of episodes with gold.

    Failed records are included. They count as episodes that found nothing at any turn.
    """
    return [record for record in records if record.scores.get("trajectory_recall") is not None]


def _half_doublings(most: int) -> list[int]:
    points: list[int] = []
    while most and (not points or points[-1] < most):
        points.append(round(FIRST_TOKENS * 2 ** (len(points) / 2)))
    return points


def _after(record: EvalRecord, turns: int) -> tuple[TurnState, bool]:
    """Return the state after `turns` turns, and whether the episode lasted that long."""
    return (record.curve[min(turns, len(record.curve)) - 1] if record.curve else _START), len(record.curve) >= turns


def _within(record: EvalRecord, tokens: int) -> tuple[TurnState, bool]:
    """Return the last state with at most `tokens` tokens placed, and whether the episode placed more tokens later."""
    reached = [turn for turn in record.curve if turn.tokens <= tokens]
    return (reached[-1] if reached else _START), len(reached) < len(record.curve)


def _point(at: int, records: Sequence[EvalRecord], state: Callable[[EvalRecord], tuple[TurnState, bool]]) -> CurvePoint:
    """Return the mean state of the records. Each question has the same weight, which its seeds share."""
    runs = Counter(record.question for record in records)
    seen = in_view = running = 0.0
    pruned = gold = 0
    for record in records:
        turn, is_running = state(record)
        weight = 1 / (runs[record.question] * len(runs))
        if record.error is None:
            seen += turn.seen * weight
            in_view += turn.held * weight
        running += is_running * weight
        pruned += turn.pruned
        gold += turn.pruned_gold
    accuracy = rounded(1 - gold / pruned) if pruned else None
    return CurvePoint(at, rounded(seen), rounded(in_view), rounded(running), accuracy)
