"""The files that a run writes: its settings, one record for each question, and the trajectories that it keeps.

`run.json` contains the settings, and `records.jsonl` one record per line. A record is on disk before its question
counts as done, so an interrupted run resumes where it stopped. A folder belongs to one set of settings. Other settings
are refused, because records of different settings must not be averaged.

A worker writes trajectories inside the run's folder. When the question is done, the worker moves them to the user's
folder. If a process is killed and its question is repeated, only the complete trajectory is kept.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any

from context_agent._support.atomic_files import replace_file
from context_agent._support.journal import AppendLog, read_log
from context_agent._support.small_files import MAX_BYTES, files_in, parse_json, read_json, require_files
from context_agent._support.suggest import differing_settings, listed_changes
from context_agent.errors import ConfigError, CorpusLockedError, DataError, reason_of

RUN_FILE, RECORDS_FILE, QUESTIONS_FILE = "run.json", "records.jsonl", "questions.jsonl"
RUN_SCHEMA = 1
"""The schema version of `run.json` and of the records. A reader refuses a newer version."""
UNFINISHED = "unfinished"
"""The name of the folder, inside the run's folder, for trajectories that are still being written."""

RecordKey = tuple[str, str, int, int, str]
"""The benchmark, system, window, seed and question id, which together identify a record."""


@dataclass(frozen=True, slots=True)
class TurnState:
    """The state after one turn of an episode. The curves of a report are drawn from these states.

    Attributes:
        turn: The number of the turn, from 1.
        tokens: The number of tokens placed in the context so far, whether pruned or not.
        view: The number of tokens in the current view.
        seen: Trajectory recall so far, from 0 to 1.
        held: Recall of the chunks that are in the view now, from 0 to 1.
        pruned: The number of chunks pruned so far.
        pruned_gold: The number of pruned chunks that are gold.
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
    """The result of one question, answered by one system under one window and seed.

    A question that failed has an `error`, and its quality metrics are 0. It is never left out. Two equal runs differ
    only in `seconds` and `trajectories`.

    Attributes:
        benchmark: The name of the benchmark.
        system: The name of the system.
        window: The context window in tokens, or 0 for a system without a context.
        seed: The seed of the episode.
        question: The question's id in its benchmark.
        type: The type of the question, if the benchmark has types.
        hops: The number of hops, or 0 if it is unknown.
        scores: The value of each metric by name. It is None if the metric does not apply, for example if nothing was
            pruned.
        stop_reason: The reason for the end of the episode.
        error: The reason why the question failed. It is None if it did not fail.
        broken: Errors that ended some of the rollouts. The question was scored with the others.
        seconds: The wall time in seconds.
        curve: The state after each turn.
        ranking: Document ids, best first.
        trajectories: Paths of the trajectories, relative to the run's folder.
    """

    benchmark: str
    system: str
    window: int
    seed: int
    question: str
    type: str = ""
    hops: int = 0
    scores: dict[str, float | None] = field(default_factory=dict)
    stop_reason: str = ""
    error: str | None = None
    broken: tuple[str, ...] = ()
    seconds: float = 0.0
    curve: tuple[TurnState, ...] = ()
    ranking: tuple[str, ...] = ()
    trajectories: tuple[str, ...] = ()

    @property
    def key(self) -> RecordKey:
        """The benchmark, system, window, seed and question id, which identify the record."""
        return (self.benchmark, self.system, self.window, self.seed, self.question)

    def value(self, metric: str) -> float | None:
        """Return the value of a metric. If the metric is `seconds`, return the wall time of the record."""
        return self.seconds if metric == "seconds" else self.scores.get(metric)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data, with keys in a fixed order. `record_from_json` reads it back."""
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
    """Return the record in a decoded row. Unknown fields are ignored.

    Args:
        row: The decoded JSON of the row.
        location: The place of the row, such as a path and a line number. Error messages start with it.

    Raises:
        DataError: If the row is not a record.
    """
    if not isinstance(row, dict):
        raise _refusal(location, "it is not a JSON object")
    names = {field.name for field in fields(EvalRecord)}
    values = {key: value for key, value in row.items() if key in names}
    try:
        curve = tuple(_turn_from_json(turn) for turn in values.pop("curve", ()))
        for name in ("broken", "ranking", "trajectories"):
            values[name] = tuple(str(item) for item in values.get(name, ()))
        scores = {str(name): _score(value) for name, value in dict(values.pop("scores", {})).items()}
        record = EvalRecord(**values, scores=scores, curve=curve)
    except (TypeError, ValueError, OverflowError) as error:
        raise _refusal(location, str(error)) from None
    for name, expected in _FIELD_TYPES.items():
        if not isinstance(getattr(record, name), expected):
            raise _refusal(location, f"field {name} is {getattr(record, name)!r}")
    if not math.isfinite(record.seconds):
        raise _refusal(location, f"field seconds is {record.seconds}")
    return record


def _refusal(location: str, reason: str) -> DataError:
    return DataError(
        f"{location}: the line is not a record of an evaluation ({reason:.200}). Restore the file, or choose another "
        "--out."
    )


def _turn_from_json(row: object) -> TurnState:
    if not isinstance(row, dict):
        raise TypeError(f"a turn of the curve must be an object; got {row!r:.80}")
    values = {field.name: row[field.name] for field in fields(TurnState) if field.name in row}
    for name, value in values.items():
        if not (isinstance(value, int | float) and math.isfinite(value)):
            raise ValueError(f"field {name} of a turn must be a finite number; got {value!r:.80}")
    return TurnState(**values)


def _score(value: float | None) -> float | None:
    number = None if value is None else float(value)
    if number is not None and not math.isfinite(number):
        raise ValueError(f"a score must be a finite number; got {value}")
    return number


class RunLog:
    """The records of a run, which grow while it runs. `open_run` opens the log."""

    def __init__(self, log: AppendLog) -> None:
        self._log = log
        self.records = {record.key: record for record in _parsed(log.path, log.contents.records)}

    def add(self, record: EvalRecord) -> None:
        """Append a record to the log. The record is on disk when this method returns."""
        self._log.append(record.to_json())
        self.records[record.key] = record


@contextmanager
def open_run(folder: Path, settings: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[RunLog]:
    """Open the log of a run, with the records that an earlier run with the same settings wrote.

    Args:
        folder: The run's folder.
        settings: Plain data that affects the results.
        notes: Plain data to store with the settings, such as the license of a benchmark. Notes may differ between
            runs.

    Yields:
        The log. It is closed when the block ends.

    Raises:
        ConfigError: If the folder has a run with other settings.
        CorpusLockedError: If another run is writing to the folder.
        DataError: If the folder contains a link.
    """
    # The run moves and deletes files in its folder. A link would lead it to files of another folder.
    require_files(files_in(folder), links=False)
    busy = CorpusLockedError(f"another evaluation is writing to {folder}. Wait until it ends, or choose another --out.")
    with AppendLog(folder / RECORDS_FILE, busy=busy) as log:
        plain = json.loads(json.dumps(settings))
        _check_settings(folder, plain)
        run = {"schema": RUN_SCHEMA, "settings": plain, "notes": dict(notes)}
        replace_file(folder / RUN_FILE, json.dumps(run, indent=2) + "\n")
        yield RunLog(log)


def read_run(folder: Path) -> dict[str, Any]:
    """Return the contents of `run.json`: `schema`, `settings` and `notes`.

    Raises:
        DataError: If the file is missing or damaged, or if its schema is newer than `RUN_SCHEMA`.
    """
    path = folder / RUN_FILE
    try:
        run: dict[str, Any] = read_json(path)
        is_newer = run["schema"] > RUN_SCHEMA
        if not is_newer:
            run |= {"settings": dict(run["settings"]), "notes": dict(run["notes"])}
    except OSError as error:
        raise DataError(
            f"{folder} has no evaluation, because {path} cannot be read ({reason_of(error)}). Pass the --out folder of "
            "`ctx1 eval`."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is damaged ({error}). Restore the file from a backup, or choose another --out."
        ) from error
    if is_newer:
        raise DataError(
            f"{path} has schema {run['schema']}, but this version reads up to {RUN_SCHEMA}. Update context-agent."
        )
    return run


def read_records(folder: Path) -> list[EvalRecord]:
    """Return the records of a run, sorted by key.

    The list does not depend on the order in which the questions were answered. If a question that failed was answered
    again, its last record counts. An incomplete last line is ignored.

    Raises:
        DataError: If any other line is not a record.
    """
    path = folder / RECORDS_FILE
    records = _parsed(path, read_log(path).records) if path.exists() else []
    return [record for _, record in sorted({record.key: record for record in records}.items())]


def _parsed(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[EvalRecord]:
    return [record_from_json(row, f"{path}:{number}") for number, row in enumerate(rows, start=1)]


_UNREPEATABLE = ("version", ".corpus")
"""The ends of the names of settings that no option sets back."""


def _check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    if not (folder / RUN_FILE).exists():
        return
    if differences := differing_settings(read_run(folder)["settings"], settings):
        gone = any(difference.split(" was ")[0].endswith(_UNREPEATABLE) for difference in differences)
        remedy = (
            "The documents or context-agent changed since, so choose another --out."
            if gone
            else "Choose another --out, or pass the same settings to resume that run."
        )
        raise ConfigError(f"{folder} has a run with other settings: {listed_changes(differences)}. {remedy}")


@dataclass(frozen=True, slots=True)
class TrajectoryStore:
    """The storage for the trajectories of a run.

    Attributes:
        folder: The user's folder for complete trajectories.
        run: The run's folder, which only one evaluation writes to.
    """

    folder: Path
    run: Path

    @property
    def unfinished(self) -> Path:
        """The folder for trajectories that are still being written."""
        return self.run / UNFINISHED

    def keep(self, key: RecordKey) -> tuple[str, ...]:
        """Move a question's trajectories, complete or not, to the user's folder.

        Returns:
            The new paths, relative to the run's folder.
        """
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

    def forget(self, record: EvalRecord) -> None:
        """Delete the trajectories of a failed question that was answered again."""
        benchmark, system, window, seed, _ = record.key
        folder = cell_folder(benchmark_folder(self.folder, benchmark), system, window, seed)
        for path in record.trajectories:
            # Only the name is used. The record is a line of a file, which may name a file of another folder.
            (folder / PurePath(path).name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete the unfinished trajectories that an interrupted run left."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def _unfinished_of(self, key: RecordKey) -> list[Path]:
        """Return the paths of the question's trajectories, ordered by rollout, with those of sub-agents last.

        The search reads every header in the folder. Few trajectories are in progress at a time, so this is cheap.
        """
        benchmark, system, window, seed, question = key
        matches = []
        for path in cell_folder(benchmark_folder(self.unfinished, benchmark), system, window, seed).glob("*.jsonl"):
            header = _header(path)
            if header.get("question_id") == question:
                matches.append((header.get("parent") is not None, header.get("seed", 0), path))
        return [path for *_, path in sorted(matches)]


def benchmark_folder(root: Path, benchmark: str) -> Path:
    """Return the folder for a benchmark's trajectories."""
    return root / benchmark.replace("/", "-")


def cell_folder(folder: Path, system: str, window: int, seed: int) -> Path:
    """Return the folder, inside the benchmark's folder, for a system's trajectories under one window and seed."""
    return folder / system / f"{window}-{seed}"


def _header(path: Path) -> dict[str, object]:
    """Return the header from the trajectory's first line. If the line is incomplete, return an empty dictionary."""
    try:
        with path.open("rb") as lines:
            return dict(parse_json(lines.readline(MAX_BYTES)))
    except (OSError, ValueError, TypeError):
        return {}
