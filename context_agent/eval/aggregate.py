"""From records to figures: the values of a cell, its differences from the reference, its breakdowns, and pools."""

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
from context_agent.eval.metrics import Metric, lead, ordered
from context_agent.eval.records import Record, Turn
from context_agent.eval.statistics import Floats
from context_agent.eval.summary import Cell, Failure, Group, Missing, Point, Pool, Summary, Value, Worst

NAMED = 5
"""Missing questions named of each run."""
WORST = 10
"""Badly answered questions named of each benchmark."""

Key = tuple[str, str, int, int, str]


def summarise(
    records: Iterable[Record],
    *,
    settings: Mapping[str, Any] | None = None,
    order: Sequence[str] = (),
    reference: str | None = None,
    expected: Iterable[Key] = (),
    problems: Iterable[str] = (),
    seed: int = 0,
) -> Summary:
    """The summary of a run.

    `order` names systems in the order to show them; others follow by name. `reference` is the system that the others
    are compared with, by default the first that keeps no context, else the first. `expected` are the keys of the
    records there should be. Raises `ConfigError` for a reference that no record is of.
    """
    kept, repeated = _unique(records)
    present = {one.system for one in kept}
    systems = tuple(dict.fromkeys([*(one for one in order if one in present), *sorted(present)]))
    metrics = ordered({name for one in kept for name in one.scores} | ({"seconds"} if kept else set()))
    names = [one.name for one in metrics]
    reference = _reference(kept, systems, reference)
    grouped = {key: list(group) for key, group in groupby(sorted(kept, key=_place(systems)), key=_cell)}
    grids = {key: Grid.of(group, names) for key, group in grouped.items()}
    others = {key: _other(key, grids, reference) for key in grids}
    cells = {key: cell(group, metrics, others[key], seed) for key, group in grouped.items()}
    return Summary(
        cells=tuple(cells.values()),
        pools=_pools(cells, grids, others, systems, seed),
        systems=systems,
        reference=reference,
        metrics=tuple(names),
        failures=tuple(
            Failure(*one.key, one.error, one.trajectories) for one in sorted(kept, key=_key) if one.error is not None
        ),
        worst=tuple(_worst(kept, lead(names))),
        missing=_missing({one.key for one in kept}, expected),
        problems=tuple(dict.fromkeys([*problems, *repeated, *_broken(kept)])),
        settings=dict(settings or {}),
    )


def _unique(records: Iterable[Record]) -> tuple[list[Record], list[str]]:
    """One record a key, and what to say of keys whose records differ: the first in order of content stays."""
    found: dict[Key, list[Record]] = {}
    for one in records:
        same = found.setdefault(one.key, [])
        twin = next((number for number, other in enumerate(same) if _timeless(other) == _timeless(one)), None)
        if twin is None:
            same.append(one)
        elif one.seconds < same[twin].seconds:
            same[twin] = one
    said = [
        f"{' / '.join(map(str, key))}: {len(same)} different records, of which one counts"
        for key, same in sorted(found.items())
        if len(same) > 1
    ]
    return [same[0] if len(same) == 1 else min(same, key=_content) for same in found.values()], said


def _timeless(record: Record) -> Record:
    return replace(record, seconds=0.0)


def _content(record: Record) -> str:
    return json.dumps(_timeless(record).to_json(), sort_keys=True)


def _reference(records: Sequence[Record], systems: Sequence[str], asked: str | None) -> str | None:
    if asked is not None and systems and asked not in systems:
        raise ConfigError(f"no record of the reference system {asked!r}: there are {', '.join(systems)}")
    with_context = {one.system for one in records if one.scores.get("trajectory_recall") is not None}
    plain = [one for one in systems if one not in with_context]
    return asked or next(iter([*plain, *systems]), None)


def _other(key: tuple[str, str, int], grids: Mapping[tuple[str, str, int], Grid], reference: str | None) -> Grid | None:
    """The reference's values for a cell: under the same window, else its own without one."""
    benchmark, system, window = key
    if reference is None or system == reference:
        return None
    return grids.get((benchmark, reference, window)) or grids.get((benchmark, reference, 0))


def _pools(
    cells: Mapping[tuple[str, str, int], Cell],
    grids: Mapping[tuple[str, str, int], Grid],
    others: Mapping[tuple[str, str, int], Grid | None],
    systems: Sequence[str],
    seed: int,
) -> tuple[Pool, ...]:
    """Systems by window, where there are several benchmarks and they ran on all of them: others can't be compared."""
    groups: dict[tuple[int, int], list[tuple[str, str, int]]] = {}
    for key in cells:
        groups.setdefault((key[2], systems.index(key[1])), []).append(key)
    count = len({key[0] for key in cells})
    return tuple(
        pool([cells[key] for key in keys], [grids[key] for key in keys], [others[key] for key in keys], seed)
        for _, keys in sorted(groups.items())
        if len(keys) == count > 1
    )


def _missing(present: set[Key], expected: Iterable[Key]) -> tuple[Missing, ...]:
    absent = sorted(set(expected) - present)
    counts = Counter(key[:4] for key in absent)
    first: dict[tuple[str, str, int, int], list[str]] = {}
    for key in absent:
        first.setdefault(key[:4], []).append(key[4])
    return tuple(Missing(*run, count, tuple(first[run][:NAMED])) for run, count in sorted(counts.items()))


def _worst(records: Iterable[Record], measure: str) -> Iterator[Worst]:
    """Of each benchmark, the records of agents with the lowest values; failed ones are told elsewhere."""
    found: dict[str, list[Worst]] = {}
    for one in records:
        value = one.scores.get(measure)
        if one.error is None and one.curve and value is not None and value < 1:
            found.setdefault(one.benchmark, []).append(Worst(*one.key, value, one.trajectories))
    for _, some in sorted(found.items()):
        yield from sorted(some, key=lambda one: (one.value, one.question, one.system, one.window, one.seed))[:WORST]


def _broken(records: Iterable[Record]) -> list[str]:
    """What to say of questions of which a rollout broke off and others did not."""
    found: dict[tuple[str, str, int], list[Record]] = {}
    for one in sorted(records, key=_key):
        if one.broken:
            found.setdefault(_cell(one), []).append(one)
    return [
        f"{benchmark}, {system}, window {window:,}: rollouts broke off in {len(some)} records, which are scored; "
        f"first {some[0].question} (seed {some[0].seed}): {some[0].broken[0]}"
        for (benchmark, system, window), some in found.items()
    ]


def _key(record: Record) -> Key:
    return record.key


def _cell(record: Record) -> tuple[str, str, int]:
    return record.key[:3]


def _place(systems: Sequence[str]) -> Any:
    """Sorts records by benchmark, window and system; within a cell by question and seed."""
    number = {system: place for place, system in enumerate(systems)}
    return lambda one: (one.benchmark, one.window, number[one.system], one.question, one.seed)


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of a cell, shape (questions, metrics), NaN where a metric does not apply; seeds are averaged away."""

    questions: tuple[str, ...]
    names: tuple[str, ...]
    values: Floats

    @classmethod
    def of(cls, records: Iterable[Record], names: Sequence[str]) -> Grid:
        """Questions in the order of their ids."""
        asked = {key: list(group) for key, group in groupby(sorted(records, key=_question), key=_question)}
        rows = [[_mean(one.value(name) for one in group) for name in names] for group in asked.values()]
        return cls(tuple(asked), tuple(names), np.array(rows, dtype=np.float64).reshape(len(asked), len(names)))

    def minus(self, other: Grid) -> Grid:
        """The paired differences; NaN for a question that the other has not."""
        row = {question: number for number, question in enumerate(other.questions)}
        theirs = np.full(self.values.shape, np.nan)
        for number, question in enumerate(self.questions):
            if question in row:
                theirs[number] = other.values[row[question]]
        return Grid(self.questions, self.names, self.values - theirs)


def estimates(grid: Grid, seed: int) -> dict[str, Value]:
    """Means and intervals of the metrics that apply to a question at least."""
    found: dict[str, Value] = {}
    for columns, rows in _alike(grid.values):
        figures = statistics.figures(grid.values[rows][:, columns], seed=seed)
        out = len(grid.questions) - int(rows.sum())
        found |= {
            grid.names[column]: Value(*figure, n=int(rows.sum()), left_out=out)
            for column, figure in zip(columns, figures, strict=True)
        }
    return {name: found[name] for name in grid.names if name in found}


def cell(records: Sequence[Record], metrics: Sequence[Metric], reference: Grid | None, seed: int) -> Cell:
    """The figures of one system on one benchmark under one window."""
    grid = Grid.of(records, [metric.name for metric in metrics])
    first = records[0]
    return Cell(
        benchmark=first.benchmark,
        system=first.system,
        window=first.window,
        questions=len(grid.questions),
        records=len(records),
        failed=sum(one.error is not None for one in records),
        seeds=tuple(sorted({one.seed for one in records})),
        metrics=estimates(grid, seed),
        differences={} if reference is None else estimates(grid.minus(reference), seed),
        breakdown=_breakdown(records, [metric.name for metric in metrics if metric.headline], seed),
        turns=by_turn(records),
        tokens=by_tokens(records),
    )


def pool(cells: Sequence[Cell], grids: Sequence[Grid], references: Sequence[Grid | None], seed: int) -> Pool:
    """One system over the benchmarks of its cells; differences over those where the reference is there to compare."""
    both = [grid.minus(other) for grid, other in zip(grids, references, strict=True) if other is not None]
    return Pool(
        system=cells[0].system,
        window=cells[0].window,
        benchmarks=tuple(one.benchmark for one in cells),
        questions=sum(one.questions for one in cells),
        failed=sum(one.failed for one in cells),
        metrics=_pooled(grids, seed),
        differences=_pooled(both, seed) if len(both) == len(grids) else {},
    )


def _pooled(grids: Sequence[Grid], seed: int) -> dict[str, Value]:
    """The metrics that every benchmark has."""
    found: dict[str, Value] = {}
    masks = [~np.isnan(grid.values) for grid in grids]
    alike: dict[tuple[bytes, ...], list[int]] = {}
    for column in range(len(grids[0].names)):
        if all(mask[:, column].any() for mask in masks):
            alike.setdefault(tuple(mask[:, column].tobytes() for mask in masks), []).append(column)
    for columns in alike.values():
        rows = [mask[:, columns[0]] for mask in masks]
        strata = [grid.values[kept][:, columns] for grid, kept in zip(grids, rows, strict=True)]
        n = sum(int(kept.sum()) for kept in rows)
        out = sum(len(kept) for kept in rows) - n
        for column, figure in zip(columns, statistics.pooled(strata, seed=seed), strict=True):
            found[grids[0].names[column]] = Value(*figure, n=n, left_out=out)
    return {name: found[name] for name in grids[0].names if name in found}


def _breakdown(records: Sequence[Record], names: Sequence[str], seed: int) -> dict[str, dict[str, Group]]:
    ways: Mapping[str, Callable[[Record], str]] = {
        "type": lambda one: one.type,
        "hops": lambda one: str(one.hops or ""),
        "seed": lambda one: str(one.seed),
    }
    found = {by: _groups(records, label, names, seed) for by, label in ways.items()}
    return {by: groups for by, groups in found.items() if len(groups) > 1}


def _groups(
    records: Sequence[Record], label: Callable[[Record], str], names: Sequence[str], seed: int
) -> dict[str, Group]:
    """Records by label; those without one are in no group."""
    by_label: dict[str, list[Record]] = {}
    for record in records:
        if label(record):
            by_label.setdefault(label(record), []).append(record)
    groups = {}
    for one in sorted(by_label, key=lambda text: (len(text), text) if text.isdecimal() else (0, text)):
        grid = Grid.of(by_label[one], names)
        failed = sum(record.error is not None for record in by_label[one])
        groups[one] = Group(len(grid.questions), failed, estimates(grid, seed))
    return groups


def _alike(values: Floats) -> list[tuple[list[int], np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """Columns that apply to the same questions, and those questions: they can share their resamples."""
    applies = ~np.isnan(values)
    alike: dict[bytes, list[int]] = {}
    for column in range(values.shape[1]):
        if applies[:, column].any():
            alike.setdefault(applies[:, column].tobytes(), []).append(column)
    return [(columns, applies[:, columns[0]]) for columns in alike.values()]


def _mean(values: Iterable[float | None]) -> float:
    known = sorted(value for value in values if value is not None)
    return sum(known) / len(known) if known else np.nan


def _question(record: Record) -> str:
    return record.question


LEAST_TOKENS = 512
_START = Turn(0, 0, 0, 0.0, 0.0)


def by_turn(records: Iterable[Record]) -> tuple[Point, ...]:
    """The mean state after each turn, up to the last turn of the longest episode."""
    kept = _with_context(records)
    longest = max((len(one.curve) for one in kept), default=0)
    return tuple(_point(at, kept, partial(_after, turns=at)) for at in range(1, longest + 1))


def by_tokens(records: Iterable[Record]) -> tuple[Point, ...]:
    """The mean state when 512, 724, 1024, 1448 ... tokens were placed: two points for each doubling."""
    kept = _with_context(records)
    most = max((one.curve[-1].tokens for one in kept if one.curve), default=0)
    return tuple(_point(at, kept, partial(_within, tokens=at)) for at in _doublings(most))


def _with_context(records: Iterable[Record]) -> list[Record]:
    """Those whose episode, had it one, could be scored; a failed one found nothing at any turn."""
    return [one for one in records if one.scores.get("trajectory_recall") is not None]


def _doublings(most: int) -> list[int]:
    found: list[int] = []
    while most and (not found or found[-1] < most):
        found.append(round(LEAST_TOKENS * 2 ** (len(found) / 2)))
    return found


def _after(record: Record, turns: int) -> tuple[Turn, bool]:
    """The state after that many turns, and whether the episode was that long."""
    return (record.curve[min(turns, len(record.curve)) - 1] if record.curve else _START), len(record.curve) >= turns


def _within(record: Record, tokens: int) -> tuple[Turn, bool]:
    """The last state that needed no more tokens, and whether the episode placed more."""
    reached = [turn for turn in record.curve if turn.tokens <= tokens]
    return (reached[-1] if reached else _START), len(reached) < len(record.curve)


def _point(at: int, records: Sequence[Record], state: Callable[[Record], tuple[Turn, bool]]) -> Point:
    """Seeds of a question share its weight."""
    runs = Counter(record.question for record in records)
    seen = held = running = 0.0
    pruned = gold = 0
    for record in records:
        turn, on = state(record)
        share = 1 / (runs[record.question] * len(runs))
        if record.error is None:
            seen += turn.seen * share
            held += turn.held * share
        running += on * share
        pruned += turn.pruned
        gold += turn.pruned_gold
    return Point(at, _short(seen), _short(held), _short(running), _short(1 - gold / pruned) if pruned else None)


def _short(value: float) -> float:
    return float(f"{value:.10g}")
