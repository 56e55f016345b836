"""The log of asynchronous rollouts. If the process is killed, no sampled episode is lost before it is trained.

`buffer-0.jsonl` in the run's folder (one file per rank) is an append-only log with checksums. It has these records:

head        the settings, and the update that the file begins with
paused      the calls so far of an unfinished episode, from the call `first` on
finished    the trajectory of a finished episode
consumed    the groups that a step trains on, written before it is trained, and those that later steps will train on
resumed     a process resumed from the checkpoint of an update: what was consumed after it counts as not trained

A step consumes an episode at most once, so no episode is trained twice. If no step has consumed a finished episode, the
episode is still available when the run resumes. The questions of a step depend only on the settings and the step, and
need no record. `compact` drops the episodes that every kept checkpoint has already trained on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from context_agent._support.journal import AppendLog, JsonObject, encode_line, read_log
from context_agent._support.suggest import differing_settings
from context_agent.errors import ConfigError, DataError
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import decode, decode_header, encode, encode_header
from context_agent.policies.tokens.engines import Finish, Sample
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.train.checkpoints import binding_differences
from context_agent.train.rl.rollouts import group_of
from context_agent.train.rows import update_number

LOG_FORMAT = 1
"""Version of the file format."""


COMPACT_BYTES = 1_000_000
"""Smallest size of a file that is compacted, in bytes."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One reply of a paused episode.

    Attributes:
        prompt: The digest of the prompt.
        sample: The reply.
    """

    prompt: str
    sample: Sample

    @staticmethod
    def of(data: JsonObject) -> RecordedCall:
        """Return the call from a record's plain data."""
        sample = dict(data["sample"])
        sample |= {"ids": tuple(sample["ids"]), "logprobs": tuple(sample["logprobs"])}
        return RecordedCall(data["prompt"], Sample(**{**sample, "finish": Finish(sample["finish"])}))


@dataclass(frozen=True, slots=True)
class ConsumedGroups:
    """The groups that a step consumes.

    Attributes:
        step: The step.
        groups: The groups that it trains on.
        left: Groups that were requested so far and that a later step will train on.
    """

    step: int
    groups: tuple[str, ...]
    left: tuple[str, ...] = ()


class RolloutLog:
    """The rollouts of a run on disk. One process at a time can open it. Its threads may share it.

    Attributes:
        path: The file.
        finished: Trajectories of finished episodes, by id.
        paused: Calls of unfinished episodes, by id.
        consumed: The consumed groups, by step.
        lost: Ids of the episodes in which an interrupted process sampled with newer weights than those of the
            checkpoint from which the next process resumed. These weights are lost.
        first_update: The update that the file begins with.
    """

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
        """Open the log of a run that resumes from an update, or create it.

        An incomplete last line is dropped and reported.

        Args:
            path: The file.
            settings: The settings of the run (`RunConfig.plain`).
            substeps: Number of updates of a step.
            update: The update from which the run resumes.
            rank: The number of this rank.
            ranks: The number of ranks.
            note: A function that receives messages for the user.

        Raises:
            ConfigError: If the log belongs to another run, or another process has it open.
            DataError: If the log is damaged, or does not reach back to `update`.
        """
        self.path = path
        self._settings, self._substeps, self._update = dict(settings), substeps, update
        self._ranks = {"rank": rank, "ranks": ranks}
        self._note = note
        self._lock = threading.Lock()
        self.finished: dict[str, Trajectory] = {}
        self.paused: dict[str, tuple[RecordedCall, ...]] = {}
        self.consumed: dict[int, ConsumedGroups] = {}
        self.lost: frozenset[str] = frozenset()
        self._newest: dict[str, int] = {}
        self.first_update = update
        busy = ConfigError(f"another process trains with the log {path}. Wait until it ends, or stop it.")
        self._log = AppendLog(path, checksum=True, busy=busy)
        try:
            self._open()
        except BaseException:
            self._log.close()
            raise

    @property
    def next_step(self) -> int:
        """Next step that will consume rollouts."""
        return -(-self._update // self._substeps)

    @property
    def left(self) -> tuple[str, ...]:
        """Groups that earlier steps requested and did not train on, oldest first."""
        before = self.consumed.get(self.next_step - 1)
        return before.left if before is not None else ()

    def write(self, records: Sequence[JsonObject]) -> None:
        """Append records made by `finished_record` and `paused_record`. When the method returns, they are on disk.

        Raises:
            DataError: If the records cannot be written.
        """
        with self._lock:
            self._log.append(*records)

    def consume(self, consumed: ConsumedGroups) -> None:
        """Record the groups that a step trains on. Call this before the step is trained."""
        with self._lock:
            self._log.append({"kind": "consumed", **asdict(consumed)})
            self.consumed[consumed.step] = consumed

    def compact(self, update: int, least: int = COMPACT_BYTES) -> bool:
        """Drop the records that no checkpoint from `update` on needs, if they are at least half of the file.

        Args:
            update: The update of the oldest kept checkpoint.
            least: Smallest size of a file that is compacted, in bytes.

        Returns:
            True if the file was compacted.

        Raises:
            DataError: If the file cannot be replaced. The log then stays as it was.
        """
        with self._lock:
            if self._log.size < least:
                return False
            needed = self._needed_lines(-(-update // self._substeps))
            if 2 * sum(map(len, needed)) > self._log.size:
                return False
            self._log.replace([self._head_line(update), *needed])
            self.first_update = update
            return True

    def close(self) -> None:
        """Close the log. A second call does nothing."""
        with self._lock:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        contents = self._log.contents
        if contents.torn_bytes:
            self._note(f"the last line of {self.path} is incomplete, so its {contents.torn_bytes} bytes were dropped")
        if not contents.records:
            if self._update:
                self._note(f"{self.path} does not exist or is empty, so its episodes are sampled again")
            self._log.replace([self._head_line(self._update)])
            return
        self._check_head(contents.records[0])
        for record in contents.records[1:]:
            self._apply(record)
        resumed = {"kind": "resumed", "update": self._update}
        self._apply(resumed)
        self._check_update()
        self._log.append(resumed)

    def _head_line(self, update: int) -> bytes:
        head = {"kind": "head", "form": LOG_FORMAT, "update": update, **self._ranks, "settings": self._settings}
        return encode_line(head, checksum=True)

    def _check_head(self, head: JsonObject) -> None:
        """Raise `DataError` if the log has another format, and `ConfigError` if it belongs to another run."""
        if head.get("kind") != "head" or head.get("form") != LOG_FORMAT:
            raise DataError(
                f"{self.path} is not a rollout log of this version, because its first line is not a head of format "
                f"{LOG_FORMAT}. Delete it, or name another folder with --out."
            )
        differences = binding_differences(head["settings"], self._settings)
        differences += differing_settings({name: head[name] for name in self._ranks}, self._ranks)
        if differences:
            raise ConfigError(
                f"{self.path} belongs to another run ({'; '.join(differences[:4])}). Resume with those settings, or "
                "name another folder with --out."
            )
        self.first_update = int(head["update"])

    def _check_update(self) -> None:
        """Raise `DataError` if the log does not fit the checkpoint."""
        if self._update < self.first_update:
            raise DataError(
                f"{self.path} begins at update {self.first_update}, but the checkpoint is older, from update "
                f"{self._update}. Restore the newer checkpoint, or delete the log to sample its episodes again."
            )
        before = self.next_step - 1
        if before * self._substeps >= self.first_update and before not in self.consumed:
            raise DataError(
                f"{self.path} has no groups of step {before}, but the checkpoint of update {self._update} was trained "
                "on them. The log and the checkpoint belong to different runs. To sample the episodes again, delete "
                "the log."
            )

    def _apply(self, record: JsonObject) -> None:
        """Update the episodes and groups with one record."""
        match record["kind"]:
            case "finished":
                trajectory = Trajectory(decode_header(dict(record["header"])), tuple(map(decode, record["events"])))
                self.finished[trajectory.header.id] = trajectory
                self._note_versions(trajectory.header.id, (call.version for call in calls(trajectory)))
                self.paused.pop(trajectory.header.id, None)
            case "paused":
                episode = record["episode"]
                recorded = (*self.paused.get(episode, ())[: record["first"]], *map(RecordedCall.of, record["calls"]))
                self.paused[episode] = recorded
                self._note_versions(episode, (call.sample.version for call in recorded))
            case "consumed":
                step = int(record["step"])
                self.consumed[step] = ConsumedGroups(step, tuple(record["groups"]), tuple(record["left"]))
            case "resumed":
                for step in [step for step in self.consumed if step * self._substeps >= record["update"]]:
                    del self.consumed[step]
                self.lost |= {episode for episode, newest in self._newest.items() if newest > record["update"]}

    def _note_versions(self, episode: str, versions: Iterable[str]) -> None:
        """Note the newest weights that sampled in an episode."""
        numbers = [number for version in versions if (number := update_number(version)) is not None]
        self._newest[episode] = max([self._newest.get(episode, 0), *numbers])

    def _needed_lines(self, step: int) -> list[bytes]:
        """Return the lines that a process still needs if its next step is `step` or a later one."""
        trained = {group for consumed in self.consumed.values() if consumed.step < step for group in consumed.groups}

        def is_needed(record: JsonObject) -> bool:
            match record["kind"]:
                case "finished":
                    return group_of(record["header"]["id"]) not in trained
                case "paused":
                    return group_of(record["episode"]) not in trained
                case "consumed":
                    current = self.consumed.get(record["step"])
                    is_current = current is not None and list(current.groups) == record["groups"]
                    return is_current and record["step"] >= step - 1
                case "resumed":
                    return True
            return False

        contents = read_log(self.path, checksum=True)
        return [line for line, record in zip(contents.lines, contents.records, strict=True) if is_needed(record)]


def finished_record(trajectory: Trajectory) -> JsonObject:
    """Return the record of a finished episode."""
    events = [encode(event) for event in trajectory.events]
    return {"kind": "finished", "header": encode_header(trajectory.header), "events": events}


def paused_record(episode: str, first: int, calls: Sequence[RecordedCall]) -> JsonObject:
    """Return the record of an unfinished episode, with its calls from index `first` on."""
    return {"kind": "paused", "episode": episode, "first": first, "calls": [asdict(call) for call in calls]}
