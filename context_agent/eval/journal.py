"""What a run leaves on disk while it goes: `run.json` says what was asked for, `records.jsonl` holds what is answered.

A record is one line, written whole and synced before the next question counts as done. A run that was killed goes on
where it was: a line cut in the middle is dropped, its question is asked again. A folder belongs to one set of settings;
others are refused with the difference named, because records of different settings would be averaged together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from context_agent._support.files import open_private, private_folder
from context_agent.errors import ConfigError, CorpusLockedError, DataError
from context_agent.eval.record import Record, record_of

RUN, RECORDS, QUESTIONS = "run.json", "records.jsonl", "questions.jsonl"
SCHEMA = 1
"""Version of both files; a reader refuses a newer one."""


class Journal:
    """The records of a run, appended to as they come. Open it with `journal`."""

    def __init__(self, folder: Path, records: Sequence[Record]) -> None:
        self.folder = folder
        self.records = {one.key: one for one in records}
        self._file = open_private(folder / RECORDS, "a", encoding="utf-8", newline="\n")

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

    private_folder(folder)
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
    with open_private(beside, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
