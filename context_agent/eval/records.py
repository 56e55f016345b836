"""What is kept of one evaluated question: the unit that runs write, resume from, and that reports are made of."""

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

from context_agent.errors import ConfigError, CorpusLockedError, DataError


@dataclass(frozen=True, slots=True)
class Turn:
    """The state after one turn of an episode: what the curves of a report are drawn from.

    `tokens` is what was ever placed in the context up to here, `view` the size of the view now, both in tokens.
    `seen` is trajectory recall so far, `held` recall over the documents in view. `pruned` and `pruned_gold` count the
    chunks pruned so far, and those of them that are gold.
    """

    turn: int
    tokens: int
    view: int
    seen: float
    held: float
    pruned: int = 0
    pruned_gold: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One question answered by one system under one window and seed.

    `scores` holds a value for each metric by name, None where the metric does not apply (no answer in the row, nothing
    pruned, a system without a context). A question that failed has its quality metrics at 0 and `error` filled; it is
    never left out. `seconds` is wall time and `trajectories` are names of files: two equal runs differ in them alone.
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
    """Errors that ended some of its rollouts; the question was scored all the same."""
    seconds: float = 0.0
    curve: tuple[Turn, ...] = ()
    ranking: tuple[str, ...] = ()
    """Document ids, best first."""
    trajectories: tuple[str, ...] = ()
    """Where they were saved, seen from the run's folder."""

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        """What makes it one: benchmark, system, window, seed, question."""
        return (self.benchmark, self.system, self.window, self.seed, self.question)

    def value(self, metric: str) -> float | None:
        """The metric's value; `seconds` is one of them."""
        return self.seconds if metric == "seconds" else self.scores.get(metric)

    def to_json(self) -> dict[str, Any]:
        """Plain data, in a fixed order of keys; `record_of` reads it."""
        return asdict(self)


def record_of(row: object, place: str) -> Record:
    """The record of a decoded row; fields it does not know are passed over. Raises `DataError` naming the `place`."""
    if not isinstance(row, dict):
        raise DataError(f"{place}: not a record of an evaluation")
    known = {one.name for one in fields(Record)}
    values = {key: value for key, value in row.items() if key in known}
    try:
        curve = tuple(_turn(turn) for turn in values.pop("curve", ()))
        for name in ("broken", "ranking", "trajectories"):
            values[name] = tuple(str(one) for one in values.get(name, ()))
        scores = {str(name): _score(value) for name, value in dict(values.pop("scores", {})).items()}
        record = Record(**values, scores=scores, curve=curve)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: not a record of an evaluation ({error})") from None
    for name, kind in _KINDS.items():
        if not isinstance(getattr(record, name), kind):
            raise DataError(f"{place}: not a record of an evaluation (field {name} is {getattr(record, name)!r})")
    return record


_KINDS = {
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


def _turn(row: Mapping[str, Any]) -> Turn:
    known = {one.name for one in fields(Turn)}
    return Turn(**{key: value for key, value in row.items() if key in known})


def _score(value: float | None) -> float | None:
    number = None if value is None else float(value)
    if number is not None and not math.isfinite(number):
        raise ValueError(f"a score is {value}")
    return number


RUN, RECORDS, QUESTIONS = "run.json", "records.jsonl", "questions.jsonl"
SCHEMA = 1
"""Version of both files; a reader refuses a newer one."""


class Journal:
    """The records of a run, appended to as they come. Open it with `journal`."""

    def __init__(self, folder: Path, records: Sequence[Record]) -> None:
        self.folder = folder
        self.records = {one.key: one for one in records}
        self._file = (folder / RECORDS).open("a", encoding="utf-8", newline="\n")

    def add(self, record: Record) -> None:
        """Writes a record so that a kill cannot take it back."""
        self._file.write(json.dumps(record.to_json(), allow_nan=False, separators=(",", ":")) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.records[record.key] = record

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


@contextmanager
def journal(folder: Path, settings: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal of a run with these settings, with what an earlier run of the same settings left in it.

    `notes` are kept beside the settings and may differ (the licence of a benchmark, what is missing). Raises
    `ConfigError` where the folder belongs to other settings, `CorpusLockedError` where another run writes to it.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise CorpusLockedError(f"another evaluation is writing to {folder}: wait for it, or choose another") from None
    try:
        plain = json.loads(json.dumps(settings))
        _check(folder, plain)
        replace(folder / RUN, json.dumps({"schema": SCHEMA, "settings": plain, "notes": dict(notes)}, indent=2) + "\n")
        opened = Journal(folder, _resumed(folder / RECORDS))
        try:
            yield opened
        finally:
            opened.close()
    finally:
        lock.release()


def read_run(folder: Path) -> dict[str, Any]:
    """What `run.json` says: `settings` and `notes`. Raises `DataError`."""
    path = folder / RUN
    try:
        run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        schema = run["schema"]
    except OSError as error:
        raise DataError(f"{folder} holds no evaluation: {path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    if schema > SCHEMA:
        raise DataError(f"{path} has schema {schema}; this version reads up to {SCHEMA}: update context-agent")
    return run


def read_records(folder: Path) -> list[Record]:
    """The records of a run, in the order of their keys: the same for any order they were answered in.

    A last line that was cut is passed over. Raises `DataError` for any other line that is no record.
    """
    records, _ = _read(folder / RECORDS)
    return in_order(records)


def in_order(records: Sequence[Record]) -> list[Record]:
    """The records sorted by key, each key once."""
    return [one for _, one in sorted({one.key: one for one in reversed(records)}.items())]


def _resumed(path: Path) -> list[Record]:
    """The records so far; a line that was cut is cut off, so that the next one starts on its own."""
    records, whole = _read(path)
    if path.exists() and path.stat().st_size > whole:
        os.truncate(path, whole)
    return records


def _read(path: Path) -> tuple[list[Record], int]:
    """The records of a file, and how many of its bytes are whole lines."""
    records: list[Record] = []
    whole = 0
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break
                records.append(_record(line, f"{path}:{number}"))
                whole += len(line)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return records, whole


def _record(line: bytes, place: str) -> Record:
    try:
        return record_of(json.loads(line), place)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{place}: not valid JSON ({error}); delete the line to have its question asked again"
        ) from None


def _check(folder: Path, settings: Mapping[str, Any]) -> None:
    if not (folder / RUN).exists():
        return
    earlier = read_run(folder)["settings"]
    if different := differences(earlier, settings):
        raise ConfigError(
            f"{folder} holds a run with other settings: {'; '.join(different)}. Choose another folder, or the same "
            "settings to go on with it"
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any], at: str = "") -> list[str]:
    """What differs between two sets of settings, a line each: `windows was [1024], is [2048]`."""
    found: list[str] = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{at}{key}.")
        elif old != new:
            found.append(f"{at}{key} was {json.dumps(old)}, is {json.dumps(new)}")
    return found


def replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    beside = path.with_name(f"{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


UNFINISHED = "unfinished"
"""Where in the run's folder trajectories lie while they are written."""

Key = tuple[str, str, int, int, str]
"""Benchmark, system, window, seed, question: the key of a record."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """`folder` is where the user wants them, `run` the folder of the run, which one evaluation alone writes to."""

    folder: Path
    run: Path

    @property
    def unfinished(self) -> Path:
        """The root of what is being written."""
        return self.run / UNFINISHED

    def keep(self, key: Key) -> tuple[str, ...]:
        """Moves what was written for a question, whole or cut, and gives the paths as seen from the run's folder."""
        kept = []
        for path in self._written(key):
            target = self.folder / path.relative_to(self.unfinished)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            kept.append(Path(os.path.relpath(target, self.run)).as_posix())
        return tuple(kept)

    def drop(self, key: Key) -> None:
        """Removes what was written for a question that is asked again."""
        for path in self._written(key):
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes what a run that was killed left."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def _written(self, key: Key) -> list[Path]:
        """The question's trajectories by rollout, sub-agents' last. The folder holds a handful: those under way."""
        benchmark, system, window, seed, question = key
        found = []
        for path in cell(of_benchmark(self.unfinished, benchmark), system, window, seed).glob("*.jsonl"):
            header = _header(path)
            if header.get("question_id") == question:
                found.append((header.get("parent") is not None, header.get("seed", 0), path))
        return [path for *_, path in sorted(found)]


def of_benchmark(root: Path, benchmark: str) -> Path:
    """The folder of a benchmark's trajectories."""
    return root / benchmark.replace("/", "-")


def cell(folder: Path, system: str, window: int, seed: int) -> Path:
    """The folder of a system's trajectories under one window and seed, below that of the benchmark."""
    return folder / system / f"{window}-{seed}"


def _header(path: Path) -> dict[str, object]:
    """The first line; nothing where that was cut."""
    try:
        with path.open("rb") as lines:
            return dict(json.loads(lines.readline()))
    except (OSError, ValueError, TypeError):
        return {}
