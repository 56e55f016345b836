"""A stage: rows in, rows out, each row worked on by itself; killed at any moment and resumed without doing it twice.

Beside the output stand two files. `<out>.dropped.jsonl` has the inputs that came to nothing, each with its reason.
`<out>.journal` has what became of every input so far, in the order of completion, and is what a rerun goes on from;
output and dropped rows are written from it at the end, in the order of the inputs. An input is known by its content,
and by what beside it decides its fate, so one that is added to the file later is all that a rerun works on.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from context_agent.errors import ConfigError, DataError
from context_agent.synth_data.task import encode_row, write_rows

SCHEMA = 1
"""Of the journal."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What an input row became: one row or several."""

    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """Why an input came to nothing: short, stable words that reports count; `detail` is for the reader of the row."""

    reason: str
    detail: str = ""


class DropRow(Exception):
    """Raised inside a stage's work, the same as returning `Dropped`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.dropped = DroppedRow(reason, detail)


class StageHalted(Exception):
    """Raised inside a stage's work: no row can go on (the cap is reached). The stage ends, to be resumed later."""


RowFunction = Callable[[Mapping[str, Any]], Awaitable[KeptRows | DroppedRow]]
ProgressCallback = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class StageReport:
    """What a stage did. `kept` counts output rows, `dropped` inputs by reason, `resumed` inputs done in earlier runs.

    `halted` says why the stage ended before all inputs were worked on; empty where none is left. `cost` is the ledger
    of the calls to a model, where there were any.
    """

    stage: str
    inputs: int
    kept: int
    dropped: Mapping[str, int]
    resumed: int = 0
    halted: str = ""
    cost: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "stage": self.stage,
            "inputs": self.inputs,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "resumed": self.resumed,
            "halted": self.halted,
            "cost": dict(self.cost),
        }


async def run_stage(
    stage: str,
    inputs: Iterable[Mapping[str, Any]],
    work: RowFunction,
    out: Path,
    *,
    concurrency: int = 8,
    settings: Mapping[str, Any] | None = None,
    beside: Callable[[Mapping[str, Any]], str] | None = None,
    advance: ProgressCallback | None = None,
) -> StageReport:
    """Works on every input that the journal does not have, and writes the outputs in the order of the inputs.

    Whatever the concurrency, and however often it was killed on the way, the files are the same bytes. An exception
    drops its row, with the exception as the reason, and is not journaled: the next run tries that row again. `Halted`
    ends the stage; what is done by then is written. `beside` says of a row what its outcome depends on beside the row
    and the settings, such as the other rows: where that has changed, the row is worked on anew. Raises `ConfigError`
    for settings (plain JSON data) other than the journal's and `DataError` where the journal is damaged or another
    process is writing.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1; got {concurrency}")
    rows = list(inputs)
    keys = _keys(rows, beside)
    with _journal(out, stage, settings or {}) as (done, note):
        known = {key: done[key] for key in keys if key in done}
        shift = _StageRun(rows, keys, work, known=known, note=note, advance=advance)
        await shift.work(concurrency)
        _write(out, rows, keys, shift.outcomes)
    return _report(stage, rows, keys, shift)


def dropped_path(out: Path) -> Path:
    """Where the inputs that came to nothing are written."""
    return out.with_name(f"{out.name}.dropped.jsonl")


def journal_path(out: Path) -> Path:
    """Where the stage notes what is done."""
    return out.with_name(f"{out.name}.journal")


def redo_inputs(out: Path, lost: Callable[[Mapping[str, Any]], bool]) -> int:
    """Strikes the inputs from the journal of which an output row is lost, so that the next run works on them anew.

    Returns how many. For stages whose rows stand for files of their own. Raises `DataError` as `run` does.
    """
    path = journal_path(out)
    if not path.exists():
        return 0
    with path.open("rb") as stream:
        lock(stream, path)
        try:
            lines = [(line, json.loads(line)) for line in stream.read().splitlines(keepends=True)]
        except ValueError as error:
            raise DataError(f"{path}: damaged ({error}); delete it to begin the stage anew") from None
        kept = [line for line, row in lines if not any(lost(made) for made in row.get("kept", ()))]
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(b"".join(kept))
        partial.replace(path)
    return len(lines) - len(kept)


class _StageRun:
    """The work of one run: what is left to do, shared by its workers, and what became of it."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        keys: Sequence[str],
        work: RowFunction,
        *,
        known: Mapping[str, KeptRows | DroppedRow],
        note: Callable[[str, KeptRows | DroppedRow], None],
        advance: ProgressCallback | None,
    ) -> None:
        self.outcomes: dict[str, KeptRows | DroppedRow] = dict(known)
        self.resumed = len(known)
        self.halted = ""
        self._left = iter([(key, row) for key, row in zip(keys, rows, strict=True) if key not in known])
        self._work, self._note, self._advance, self._total = work, note, advance, len(rows)

    async def work(self, concurrency: int) -> None:
        self._tell()
        workers = [asyncio.create_task(self._serve()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _serve(self) -> None:
        for key, row in self._left:
            try:
                outcome = await self._outcome(row)
            except StageHalted as halt:
                self.halted = self.halted or str(halt)
                return
            except Exception as error:  # noqa: BLE001 (one row stops no other)
                self.outcomes[key] = DroppedRow(f"failed: {type(error).__name__}", str(error))
            else:
                self._note(key, outcome)
                self.outcomes[key] = outcome
            self._tell()
            if self.halted:
                return

    async def _outcome(self, row: Mapping[str, Any]) -> KeptRows | DroppedRow:
        try:
            return await self._work(row)
        except DropRow as unfit:
            return unfit.dropped

    def _tell(self) -> None:
        if self._advance is not None:
            self._advance(len(self.outcomes), self._total)


def _keys(rows: Sequence[Mapping[str, Any]], beside: Callable[[Mapping[str, Any]], str] | None) -> list[str]:
    """What each row is known by: the digest of its content and `beside`, and for equal ones the how-manieth it is."""
    seen: Counter[str] = Counter()
    keys = []
    for row in rows:
        text = json.dumps(row, sort_keys=True) + (beside(row) if beside is not None else "")
        digest = blake2b(text.encode(), digest_size=12).hexdigest()
        keys.append(f"{digest}-{seen[digest]}")
        seen[digest] += 1
    return keys


def _write(
    out: Path, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], outcomes: Mapping[str, KeptRows | DroppedRow]
) -> None:
    ended = [(row, outcomes[key]) for row, key in zip(rows, keys, strict=True) if key in outcomes]
    write_rows(out, (made for _, outcome in ended if isinstance(outcome, KeptRows) for made in outcome.rows))
    write_rows(
        dropped_path(out),
        (
            {"reason": outcome.reason, "detail": outcome.detail, "input": row}
            for row, outcome in ended
            if isinstance(outcome, DroppedRow)
        ),
    )


def _report(stage: str, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], shift: _StageRun) -> StageReport:
    outcomes = [shift.outcomes[key] for key in keys if key in shift.outcomes]
    reasons = Counter(outcome.reason for outcome in outcomes if isinstance(outcome, DroppedRow))
    return StageReport(
        stage=stage,
        inputs=len(rows),
        kept=sum(len(outcome.rows) for outcome in outcomes if isinstance(outcome, KeptRows)),
        dropped=dict(sorted(reasons.items())),
        resumed=shift.resumed,
        halted=shift.halted,
    )


@contextmanager
def _journal(
    out: Path, stage: str, settings: Mapping[str, Any]
) -> Iterator[tuple[dict[str, KeptRows | DroppedRow], Callable[[str, KeptRows | DroppedRow], None]]]:
    """What earlier runs finished, and a function that notes one more. The file is locked while it is open."""
    path = journal_path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        lock(stream, path)
        head = {"schema": SCHEMA, "stage": stage, "settings": json.loads(json.dumps(settings))}
        done = _read(stream, path, head)

        def note(key: str, outcome: KeptRows | DroppedRow) -> None:
            stream.write(f"{encode_row({'key': key, **_noted(outcome)})}\n".encode())
            # Handed to the system, so it outlives the process; a sync to the disk each time would cost more than most
            # stages. What a model was paid for is synced by its own cache.
            stream.flush()

        yield done, note


def lock(stream: IO[bytes], path: Path) -> None:
    """Locks an open file until it is closed. Raises `DataError` where another process holds it."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(f"{path}: another process is at work on it") from None


def _read(stream: IO[bytes], path: Path, head: Mapping[str, Any]) -> dict[str, KeptRows | DroppedRow]:
    """The journal's outcomes. A last line that a kill cut off is cut away; a new journal begins with its head."""
    stream.seek(0)
    data = stream.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        stream.truncate(len(whole))
    lines = whole.splitlines()
    if not lines:
        stream.write(f"{encode_row(head)}\n".encode())
        stream.flush()
        return {}
    try:
        first, *rest = (json.loads(line) for line in lines)
        outcomes = {row["key"]: _outcome(row) for row in rest}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); delete it to begin the stage anew") from None
    _check(path, first, head)
    return outcomes


def _check(path: Path, found: Mapping[str, Any], head: Mapping[str, Any]) -> None:
    if (found.get("schema"), found.get("stage")) != (head["schema"], head["stage"]):
        raise ConfigError(f"{path}: the journal of stage {found.get('stage')!r}, not of {head['stage']!r}")
    before, now = found.get("settings", {}), head["settings"]
    other = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    if other:
        said = ", ".join(f"{key} was {before.get(key)!r} and is now {now.get(key)!r}" for key in other)
        raise ConfigError(f"{path} was begun with other settings: {said}. Use those, or write to another file")


def _noted(outcome: KeptRows | DroppedRow) -> dict[str, Any]:
    if isinstance(outcome, KeptRows):
        return {"kept": list(outcome.rows)}
    return {"dropped": outcome.reason, "detail": outcome.detail}


def _outcome(row: Mapping[str, Any]) -> KeptRows | DroppedRow:
    return KeptRows(tuple(row["kept"])) if "kept" in row else DroppedRow(row["dropped"], row["detail"])
