"""The buffer of training that never waits, on disk: what is sampled and not yet trained survives a kill at any moment.

`buffer-0.jsonl` in the run's folder is append-only; each record is a line `crc32 {json}`, synced before it counts:

head        the settings, and the update that the file begins with
parked      an unfinished episode's calls so far, from the call `first` on
done        a finished episode's trajectory, whole
consumed    the groups that a step takes, written before it is trained, and those it leaves to later steps
resumed     a process went on from the checkpoint of an update: what was consumed after it is untrained again

An episode is consumed by at most one step of the course that the checkpoints tell, so none is trained twice; one that
was done and not consumed is there when the run goes on, so none is lost. What a step asks is a function of the settings
and the step, and needs no record. Episodes that all kept checkpoints have behind them are dropped (`compact`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from context_agent.errors import ConfigError, DataError
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import decode, decode_header, encode, encode_header
from context_agent.policies.engines.protocol import Finish, Sample
from context_agent.train.checkpoints import differences
from context_agent.train.rl.lines import Found, LineFile, Record, line, read
from context_agent.train.rl.playing import group_of

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
