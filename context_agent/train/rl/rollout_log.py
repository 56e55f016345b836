"""A file of records that survives a kill: appended to, each line with its checksum, synced before it counts."""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from context_agent.errors import ConfigError, DataError
from context_agent.policies.engines.protocol import Finish, Sample
from context_agent.train.checkpoints import differences
from context_agent.train.rl.rollouts import group_of
from context_agent.trajectory import Trajectory
from context_agent.trajectory_file import decode, decode_header, encode, encode_header

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What a file holds: its lines and their records. `whole` bytes of `size` are lines that are not cut short."""

    lines: Sequence[tuple[bytes, Record]] = ()
    whole: int = 0
    size: int = 0


class LineFile:
    """The file while one process has it. Not safe to share between threads."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError` where another process has it."""
        self.path = path
        self.size = 0
        self._file: Any = None
        self._lock = _locked(path)

    def go_on(self, whole: int) -> None:
        """Opens the file to append behind its first `whole` bytes, and takes off what comes after them."""
        self.close_file()
        self._file = self.path.open("r+b", buffering=0)
        self._cut(whole)

    def append(self, lines: Sequence[bytes]) -> None:
        """Writes lines that are on disk when it returns, or leaves the file as it was and raises `DataError`."""
        try:
            _write(self._file, lines)
        except OSError as error:
            self._cut(self.size)
            raise DataError(f"{self.path} could not be written: {error.strerror or error}") from error
        self.size += sum(map(len, lines))

    def replace(self, lines: Sequence[bytes]) -> None:
        """Puts a new file in the old one's place, whole or not at all. Raises `DataError`."""
        partial = self.path.with_name(f"{self.path.name}.partial")
        try:
            with partial.open("wb", buffering=0) as file:
                _write(file, lines)
            partial.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise DataError(f"{partial} could not be written: {error.strerror or error}") from error
        self.go_on(sum(map(len, lines)))

    def close_file(self) -> None:
        """Closes the file; it stays this process's."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Closes the file and lets others have it; safe to call twice."""
        self.close_file()
        self._lock.release()

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)
        self.size = size


def line(record: Record) -> bytes:
    """`crc32 {json}`."""
    text = json.dumps(record, ensure_ascii=True, separators=(",", ":"), default=str).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read(path: Path) -> Found:
    """What is in the file; a last line that was cut short is left out. Raises `DataError` for one that is damaged."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    found: list[tuple[bytes, Record]] = []
    whole = 0
    for number, one in enumerate(_split(data), start=1):
        record = _record(one)
        if record is None:
            if whole + len(one) == len(data):
                break
            raise DataError(
                f"{path}, line {number} is damaged, and lines follow it: no kill leaves that. Put a copy back, or take "
                "the file away; what it holds is then sampled anew"
            )
        found.append((one, record))
        whole += len(one)
    return Found(found, whole, len(data))


def _split(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


def _record(text: bytes) -> Record | None:
    """None for a line that is not whole."""
    try:
        if not text.endswith(b"\n") or int(text[:8], 16) != zlib.crc32(text[9:-1]):
            return None
        made: Record = json.loads(text[9:-1])
    except ValueError:
        return None
    return made


def _write(file: Any, lines: Iterable[bytes]) -> None:
    data = memoryview(b"".join(lines))
    while data:
        data = data[file.write(data) :]
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _locked(path: Path) -> Any:
    """A lock that ends with the process at the latest."""
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(f"another process trains with the buffer {path}: wait for it, or end it") from None
    return lock


FORM = 1
"""Version of the form."""
LEAST = 1_000_000
"""Bytes below which a file is not worth compacting."""


@dataclass(frozen=True, slots=True)
class Call:
    """One reply of a parked episode, and the digest of the prompt that it was sampled on."""

    prompt: str
    sample: Sample

    @staticmethod
    def of(data: Record) -> Call:
        """Of a record's plain data."""
        sample = dict(data["sample"])
        sample |= {"ids": tuple(sample["ids"]), "logprobs": tuple(sample["logprobs"])}
        return Call(data["prompt"], Sample(**{**sample, "finish": Finish(sample["finish"])}))


@dataclass(frozen=True, slots=True)
class Consumed:
    """The groups that a step takes, by name, and those that were asked by then and wait for a later one."""

    step: int
    groups: tuple[str, ...]
    left: tuple[str, ...] = ()


class Journal:
    """A run's buffer. Opened by one process at a time; safe to share between its threads."""

    def __init__(
        self,
        path: Path,
        *,
        settings: Mapping[str, Any],
        substeps: int,
        update: int,
        rank: int = 0,
        ranks: int = 1,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Opens the buffer of a run that goes on from `update`, or begins one. `settings` are `Run.plain`.

        A last line that a kill cut short is left out, and told. Raises `ConfigError` for another run's buffer or one
        that another process holds, `DataError` for one that is damaged or does not reach back to `update`.
        """
        self.path = path
        self._settings, self._substeps, self._update = dict(settings), substeps, update
        self._ranks = {"rank": rank, "ranks": ranks}
        self._note = note
        self._lock = threading.Lock()
        self.done: dict[str, Trajectory] = {}
        self.parked: dict[str, tuple[Call, ...]] = {}
        self.consumed: dict[int, Consumed] = {}
        self.base = update
        self._file = LineFile(path)
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    @property
    def first(self) -> int:
        """The step whose rollouts are taken next."""
        return -(-self._update // self._substeps)

    @property
    def left(self) -> tuple[str, ...]:
        """Groups asked by earlier steps that wait to be trained, oldest first."""
        before = self.consumed.get(self.first - 1)
        return before.left if before is not None else ()

    def write(self, records: Sequence[Record]) -> None:
        """Keeps what `finished` and `parked` make; it is on disk when this returns. Raises `DataError`."""
        lines = [line(record) for record in records]
        with self._lock:
            self._file.append(lines)

    def consume(self, consumed: Consumed) -> None:
        """Keeps what a step takes; to be called before it is trained."""
        with self._lock:
            self._file.append([line({"kind": "consumed", **asdict(consumed)})])
            self.consumed[consumed.step] = consumed

    def compact(self, update: int, least: int = LEAST) -> bool:
        """Drops what no checkpoint from `update` on needs, where that is half of the file or more.

        The new file takes the old one's place at once. Raises `DataError`; the old one then stays as it was.
        """
        with self._lock:
            if self._file.size < least:
                return False
            kept = self._kept(-(-update // self._substeps))
            if 2 * sum(map(len, kept)) > self._file.size:
                return False
            self._file.replace([line(self._head(update)), *kept])
            self.base = update
            return True

    def close(self) -> None:
        """Lets go of the file; safe to call twice."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        found = read(self.path) if self.path.exists() else Found()
        if found.size > found.whole:
            cut = found.size - found.whole
            self._note(f"the last line of {self.path} was cut short ({cut} bytes); what it held is not kept")
        if not found.lines:
            if self._update:
                self._note(f"there is no buffer in {self.path}: episodes that it held are sampled anew")
            self._file.replace([line(self._head(self._update))])
            return
        self._check(found.lines[0][1])
        for _, record in found.lines[1:]:
            self._fold(record)
        resumed = {"kind": "resumed", "update": self._update}
        self._fold(resumed)
        self._reach()
        self._file.go_on(found.whole)
        self._file.append([line(resumed)])

    def _head(self, update: int) -> Record:
        return {"kind": "head", "form": FORM, "update": update, **self._ranks, "settings": self._settings}

    def _check(self, head: Record) -> None:
        """Refuses a file that is another run's."""
        if head.get("kind") != "head" or head.get("form") != FORM:
            raise DataError(f"{self.path} is no buffer of this version: its first line is no head of form {FORM}")
        found = differences(head["settings"], self._settings)
        found += [
            f"{name} was {head[name]} and is {value}" for name, value in self._ranks.items() if head[name] != value
        ]
        if found:
            raise ConfigError(
                f"{self.path} is the buffer of another run: {'; '.join(found[:4])}. Go on with those settings, or "
                "train into another folder"
            )
        self.base = int(head["update"])

    def _reach(self) -> None:
        """Refuses a checkpoint that the file does not fit."""
        if self._update < self.base:
            raise DataError(
                f"{self.path} begins at update {self.base}, and the checkpoint is of update {self._update}: it is "
                "older than the buffer. Put the newer checkpoint back, or take the buffer away; what it holds is then "
                "sampled anew"
            )
        needed = self.first - 1
        if needed * self._substeps >= self.base and needed not in self.consumed:
            raise DataError(
                f"{self.path} does not say what step {needed} was trained on, and the checkpoint of update "
                f"{self._update} has it behind it: they are not of one course. Take the buffer away; what it holds is "
                "then sampled anew"
            )

    def _fold(self, record: Record) -> None:
        """What a record changes in what is done, parked and consumed."""
        match record["kind"]:
            case "done":
                trajectory = _to_trajectory(record)
                self.done[trajectory.header.id] = trajectory
                self.parked.pop(trajectory.header.id, None)
            case "parked":
                before = self.parked.get(record["episode"], ())[: record["first"]]
                self.parked[record["episode"]] = (*before, *map(Call.of, record["calls"]))
            case "consumed":
                step = int(record["step"])
                self.consumed[step] = Consumed(step, tuple(record["groups"]), tuple(record["left"]))
            case "resumed":
                for step in [one for one in self.consumed if one * self._substeps >= record["update"]]:
                    del self.consumed[step]

    def _kept(self, step: int) -> list[bytes]:
        """The lines that say something to a process that takes the rollouts of `step` next, or of a later one."""
        gone = {group for one in self.consumed.values() if one.step < step for group in one.groups}

        def needed(record: Record) -> bool:
            match record["kind"]:
                case "done":
                    return group_of(record["header"]["id"]) not in gone
                case "parked":
                    return group_of(record["episode"]) not in gone
                case "consumed":
                    known = self.consumed.get(record["step"])
                    return known is not None and record["step"] >= step - 1 and list(known.groups) == record["groups"]
            return False

        return [one for one, record in read(self.path).lines if needed(record)]


def finished(trajectory: Trajectory) -> Record:
    """The record of an episode that is done."""
    events = [encode(event) for event in trajectory.events]
    return {"kind": "done", "header": encode_header(trajectory.header), "events": events}


def parked(episode: str, first: int, calls: Sequence[Call]) -> Record:
    """The record of an unfinished episode: its calls from the `first` on, which the file doesn't have yet."""
    return {"kind": "parked", "episode": episode, "first": first, "calls": [asdict(call) for call in calls]}


def _to_trajectory(record: Record) -> Trajectory:
    return Trajectory(decode_header(dict(record["header"])), tuple(map(decode, record["events"])))
