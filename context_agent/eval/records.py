"""What a run writes: its settings, one record per question, and the trajectories that it keeps.

`run.json` has the settings, `records.jsonl` a record per line. A record is on disk before its question counts as done,
so an interrupted run resumes where it stopped. A folder belongs to one set of settings; other settings are refused,
because records of different settings must not be averaged together.

Trajectories are written inside the run's folder and moved to the user's folder when their question is done. A question
that is repeated because its process was killed therefore leaves one complete trajectory, and no partial one.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from context_agent._support.journal import AppendLog, read_log, replace_file
from context_agent._support.small_files import MAX_BYTES, parse_json, read_json
from context_agent._support.suggest import differing_settings
from context_agent.errors import ConfigError, CorpusLockedError, DataError

RUN_FILE, RECORDS_FILE, QUESTIONS_FILE = "run.json", "records.jsonl", "questions.jsonl"
SCHEMA = 1
"""Version of `run.json` and of the records; a reader refuses a newer one."""
UNFINISHED = "unfinished"
"""Folder inside the run's folder for trajectories that are being written."""

RecordKey = tuple[str, str, int, int, str]
"""Benchmark, system, window, seed and question id: they identify a record."""


@dataclass(frozen=True, slots=True)
class TurnState:
    """The state after one turn of an episode; the curves of a report are drawn from these.

    `tokens` counts everything placed in the context so far, `view` the current view, both in tokens. `seen` is the
    trajectory recall so far, `held` the recall of what is in view. `pruned` and `pruned_gold` count the chunks pruned
    so far, and those of them that are gold.
    """

    turn: int
    tokens: int
    view: int
    seen: float
    held: float
    pruned: int = 0
    pruned_gold: int = 0


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """One question answered by one system under one window and seed.

    `scores` has a value for each metric by name, None if the metric does not apply (no answer in the row, nothing
    pruned, a system without a context). A question that failed has quality metrics of 0 and an `error`; it is never
    left out. Two equal runs differ in `seconds` (wall time) and `trajectories` (file names) alone.
    """

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    """The question's id in its benchmark."""
    type: str = ""
    hops: int = 0
    scores: dict[str, float | None] = field(default_factory=dict)
    stop_reason: str = ""
    error: str | None = None
    broken: tuple[str, ...] = ()
    """Errors that ended some of the rollouts; the question was scored with the others."""
    seconds: float = 0.0
    curve: tuple[TurnState, ...] = ()
    ranking: tuple[str, ...] = ()
    """Document ids, best first."""
    trajectories: tuple[str, ...] = ()
    """Paths of the trajectories, relative to the run's folder."""

    @property
    def key(self) -> RecordKey:
        """Benchmark, system, window, seed and question id."""
        return (self.benchmark, self.system, self.window, self.seed, self.question)

    def value(self, metric: str) -> float | None:
        """Return the metric's value; `seconds` is a metric too."""
        return self.seconds if metric == "seconds" else self.scores.get(metric)

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order of keys; `record_from_json` reads it."""
        return asdict(self)


_FIELD_TYPES = {
    "benchmark": str,
    "system": str,
    "question": str,
    "type": str,
    "stop_reason": str,
    "window": int,
    "seed": int,
    "hops": int,
    "seconds": int | float,
    "error": str | None,
}


def record_from_json(row: object, location: str) -> EvalRecord:
    """Return the record of a decoded row; ignores unknown fields. Raises `DataError` that names the `location`."""
    if not isinstance(row, dict):
        raise DataError(f"{location}: not a record of an evaluation")
    names = {field.name for field in fields(EvalRecord)}
    values = {key: value for key, value in row.items() if key in names}
    try:
        curve = tuple(_turn_from_json(turn) for turn in values.pop("curve", ()))
        for name in ("broken", "ranking", "trajectories"):
            values[name] = tuple(str(item) for item in values.get(name, ()))
        scores = {str(name): _score(value) for name, value in dict(values.pop("scores", {})).items()}
        record = EvalRecord(**values, scores=scores, curve=curve)
    except (TypeError, ValueError) as error:
        raise DataError(f"{location}: not a record of an evaluation ({error})") from None
    for name, expected in _FIELD_TYPES.items():
        if not isinstance(getattr(record, name), expected):
            raise DataError(f"{location}: not a record of an evaluation (field {name} is {getattr(record, name)!r})")
    return record


def _turn_from_json(row: Mapping[str, Any]) -> TurnState:
    names = {field.name for field in fields(TurnState)}
    return TurnState(**{key: value for key, value in row.items() if key in names})


def _score(value: float | None) -> float | None:
    number = None if value is None else float(value)
    if number is not None and not math.isfinite(number):
        raise ValueError(f"a score is {value}")
    return number


class RunLog:
    """The records of a run, which grow while it runs. `open_run` opens it."""

    def __init__(self, log: AppendLog) -> None:
        self._log = log
        self.records = {record.key: record for record in _parsed(log.path, log.contents.records)}

    def add(self, record: EvalRecord) -> None:
        """Write a record; it is on disk when this returns."""
        self._log.append(record.to_json())
        self.records[record.key] = record


@contextmanager
def open_run(folder: Path, settings: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[RunLog]:
    """Yield the log of a run with these settings, with the records that an earlier run with the same settings wrote.

    `notes` are written beside the settings and may differ (the license of a benchmark, missing gold). Raises
    `ConfigError` if the folder belongs to other settings, `CorpusLockedError` if another run is writing to it.
    """
    busy = CorpusLockedError(f"another evaluation is writing to {folder}: wait until it ends, or choose another --out")
    with AppendLog(folder / RECORDS_FILE, busy=busy) as log:
        plain = json.loads(json.dumps(settings))
        _check_settings(folder, plain)
        run = {"schema": SCHEMA, "settings": plain, "notes": dict(notes)}
        replace_file(folder / RUN_FILE, json.dumps(run, indent=2) + "\n")
        yield RunLog(log)


def read_run(folder: Path) -> dict[str, Any]:
    """Return the contents of `run.json`: `settings` and `notes`. Raises `DataError`."""
    path = folder / RUN_FILE
    try:
        run: dict[str, Any] = read_json(path)
        schema = run["schema"]
    except OSError as error:
        raise DataError(f"{folder} has no evaluation: {path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}): restore it from a backup, or choose another --out") from error
    if schema > SCHEMA:
        raise DataError(f"{path} has schema {schema}; this version reads up to {SCHEMA}: update context-agent")
    return run


def read_records(folder: Path) -> list[EvalRecord]:
    """Return the records of a run, sorted by key: the same list whatever the order of the answers.

    Ignores an incomplete last line. Raises `DataError` for any other line that is not a record.
    """
    path = folder / RECORDS_FILE
    records = _parsed(path, read_log(path).records) if path.exists() else []
    return [record for _, record in sorted({record.key: record for record in reversed(records)}.items())]


def _parsed(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[EvalRecord]:
    return [record_from_json(row, f"{path}:{number}") for number, row in enumerate(rows, start=1)]


def _check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    if not (folder / RUN_FILE).exists():
        return
    if differences := differing_settings(read_run(folder)["settings"], settings):
        raise ConfigError(
            f"{folder} has a run with other settings: {'; '.join(differences)}. Choose another --out, or pass the same "
            "settings to resume that run"
        )


@dataclass(frozen=True, slots=True)
class TrajectoryStore:
    """The trajectories of a run. `folder` is the user's, `run` the run's folder, which one evaluation writes to."""

    folder: Path
    run: Path

    @property
    def unfinished(self) -> Path:
        """The root of the trajectories that are being written."""
        return self.run / UNFINISHED

    def keep(self, key: RecordKey) -> tuple[str, ...]:
        """Move a question's trajectories, complete or cut, and return their paths relative to the run's folder."""
        paths = []
        for path in self._unfinished_of(key):
            target = self.folder / path.relative_to(self.unfinished)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            paths.append(Path(os.path.relpath(target, self.run)).as_posix())
        return tuple(paths)

    def discard(self, key: RecordKey) -> None:
        """Delete the unfinished trajectories of a question that will be repeated."""
        for path in self._unfinished_of(key):
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete what an interrupted run left unfinished."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def _unfinished_of(self, key: RecordKey) -> list[Path]:
        """Return the question's trajectories by rollout, sub-agents' last. The folder has only those in progress: a
        few.
        """
        benchmark, system, window, seed, question = key
        matches = []
        for path in cell_folder(benchmark_folder(self.unfinished, benchmark), system, window, seed).glob("*.jsonl"):
            header = _header(path)
            if header.get("question_id") == question:
                matches.append((header.get("parent") is not None, header.get("seed", 0), path))
        return [path for *_, path in sorted(matches)]


def benchmark_folder(root: Path, benchmark: str) -> Path:
    """Return the folder of a benchmark's trajectories."""
    return root / benchmark.replace("/", "-")


def cell_folder(folder: Path, system: str, window: int, seed: int) -> Path:
    """Return the folder of a system's trajectories under one window and seed, inside that of the benchmark."""
    return folder / system / f"{window}-{seed}"


def _header(path: Path) -> dict[str, object]:
    """Return the first line; empty if it was cut."""
    try:
        with path.open("rb") as lines:
            return dict(parse_json(lines.readline(MAX_BYTES)))
    except (OSError, ValueError, TypeError):
        return {}
