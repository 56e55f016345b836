"""Resumable stages: a function is applied to each input row, and a killed run resumes without repeating work.

A stage keeps two files beside its output OUT. `OUT.dropped.jsonl` has the inputs that gave no output, each with the
reason. `OUT.journal` has the outcome of every finished input in order of completion; a rerun reads it. The output and
the dropped rows are written from the journal at the end, in input order. An input is identified by its content, so a
rerun after rows were added to the input file processes only the new rows.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from context_agent._support.journal import AppendLog, LogContents
from context_agent._support.suggest import differing_settings
from context_agent._support.worker_pool import CallParent, WorkerPool
from context_agent.errors import ConfigError, DataError
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.row_files import write_rows

T = TypeVar("T")
SCHEMA = 1
"""Version of the journal's format."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The output rows of an input, one or several."""

    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """Why an input gave no output. Reports count the short, stable `reason`; `detail` describes the single row."""

    reason: str
    detail: str = ""


class DropRow(Exception):
    """Raised by a stage's function to drop its row; the same as returning a `DroppedRow`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.dropped = DroppedRow(reason, detail)


class StageHalted(Exception):
    """Raised by a stage's function if no further row can be processed (spending cap, server down). Ends the stage."""


RowOutcome = KeptRows | DroppedRow
RowFunction = Callable[[Mapping[str, Any]], Awaitable[RowOutcome]]
StageFunction = Callable[..., Coroutine[Any, Any, RowOutcome]]
"""Called with what a stage opens, such as a corpus with a model, and the keyword `row`. It must be picklable."""
StagePool = WorkerPool[tuple[StageFunction, Mapping[str, Any]], RowOutcome]
"""Worker processes that open a `StageWorker`."""
ProgressCallback = Callable[[int, int | None], None]
"""Called with the number of finished items and the total, None if unknown."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """Counts of a stage: `kept` output rows, `dropped` inputs by reason, inputs `resumed` from earlier runs.

    `halted` says why the stage ended before all inputs were processed; empty if none is left. `cost` is the cost ledger
    of the model calls, if there were any.
    """

    stage: str
    inputs: int
    kept: int
    dropped: Mapping[str, int]
    resumed: int = 0
    halted: str = ""
    cost: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StageWorker:
    """The setup of worker processes for stages: `open_context` returns what their functions are called with."""

    open_context: Callable[[CallParent], Any]

    def open(self, call: CallParent) -> Callable[[tuple[StageFunction, Mapping[str, Any]]], Callable[[], RowOutcome]]:
        """Open the context, once for all rows."""
        context = self.open_context(call)
        return lambda job: lambda: asyncio.run(job[0](context, row=job[1]))


def row_function(function: StageFunction, context: Any, pool: StagePool | None) -> RowFunction:
    """Return the function with this context or, with a pool, in worker processes with theirs."""
    return (lambda row: function(context, row=row)) if pool is None else (lambda row: pool.run((function, row)))


async def run_stage(
    stage: str,
    inputs: Iterable[Mapping[str, Any]],
    function: RowFunction,
    out: Path,
    *,
    concurrency: int = 8,
    settings: Mapping[str, Any] | None = None,
    depends_on: Callable[[Mapping[str, Any]], str] | None = None,
    advance: ProgressCallback | None = None,
) -> StageReport:
    """Apply the function to every input that the journal does not have, and write the outputs in input order.

    The files have the same bytes whatever the concurrency, and whether or not the run was interrupted. An exception
    drops its row with the exception's type as the reason; it is not journaled, so the next run tries the row again.
    `StageHalted` ends the stage, and the outputs so far are written. `depends_on` gives what a row's outcome depends on
    besides the row and the settings, for example on other rows: a row is processed again if that changes.

    Raises `ConfigError` if the settings (plain JSON data) differ from the journal's, and `DataError` if the journal is
    damaged or another process is writing it.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1; got {concurrency}")
    rows = list(inputs)
    keys = _row_keys(rows, depends_on)
    with _open_journal(out, stage, settings or {}) as (journaled, record):
        finished = {key: journaled[key] for key in keys if key in journaled}
        run = _StageRun(rows, keys, function, finished=finished, record=record, advance=advance)
        await run.process(concurrency)
        _write_outputs(out, rows, keys, run.outcomes)
    return _report(stage, rows, keys, run)


def dropped_path(out: Path) -> Path:
    """Return the file of the dropped inputs."""
    return out.with_name(f"{out.name}.dropped.jsonl")


def journal_path(out: Path) -> Path:
    """Return the journal of the stage that writes `out`."""
    return out.with_name(f"{out.name}.journal")


def redo_inputs(out: Path, is_lost: Callable[[Mapping[str, Any]], bool]) -> int:
    """Remove the inputs with a lost output row from the journal, so that the next run processes them again.

    Returns how many. For stages whose output rows refer to files. Raises `DataError` as `run_stage` does.
    """
    path = journal_path(out)
    if not path.exists():
        return 0
    with _open_log(path) as log:
        entries = list(zip(log.contents.lines, log.contents.records, strict=True))
        remaining = [line for line, row in entries if not any(is_lost(output) for output in row.get("kept", ()))]
        if len(remaining) < len(entries):
            log.replace(remaining)
    return len(entries) - len(remaining)


async def off_loop(corpus: Corpus, call: Callable[[], T]) -> T:
    """Return the value of the call, which runs in a thread if the corpus waits for disk or network."""
    return await asyncio.to_thread(call) if corpus.blocking else call()


class _StageRun:
    """One run of a stage: the rows to process, shared by the workers, and their outcomes."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        keys: Sequence[str],
        function: RowFunction,
        *,
        finished: Mapping[str, RowOutcome],
        record: Callable[[str, RowOutcome], None],
        advance: ProgressCallback | None,
    ) -> None:
        self.outcomes: dict[str, RowOutcome] = dict(finished)
        self.resumed = len(finished)
        self.halted = ""
        self._pending = iter([(key, row) for key, row in zip(keys, rows, strict=True) if key not in finished])
        self._function, self._record, self._advance, self._total = function, record, advance, len(rows)

    async def process(self, concurrency: int) -> None:
        self._report_progress()
        workers = [asyncio.create_task(self._process_pending()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _process_pending(self) -> None:
        for key, row in self._pending:
            try:
                outcome = await self._outcome(row)
            except StageHalted as halt:
                self.halted = self.halted or str(halt)
                return
            except Exception as error:  # noqa: BLE001 (a failing row must not stop the others)
                self.outcomes[key] = DroppedRow(f"failed: {type(error).__name__}", str(error))
            else:
                self._record(key, outcome)
                self.outcomes[key] = outcome
            self._report_progress()
            if self.halted:
                return

    async def _outcome(self, row: Mapping[str, Any]) -> RowOutcome:
        try:
            return await self._function(row)
        except DropRow as drop:
            return drop.dropped

    def _report_progress(self) -> None:
        if self._advance is not None:
            self._advance(len(self.outcomes), self._total)


def _row_keys(rows: Sequence[Mapping[str, Any]], depends_on: Callable[[Mapping[str, Any]], str] | None) -> list[str]:
    """Return a key for each row: the digest of its content and dependencies, and a counter for equal rows."""
    counts: Counter[str] = Counter()
    keys = []
    for row in rows:
        text = json.dumps(row, sort_keys=True) + (depends_on(row) if depends_on is not None else "")
        digest = blake2b(text.encode(), digest_size=12).hexdigest()
        keys.append(f"{digest}-{counts[digest]}")
        counts[digest] += 1
    return keys


def _write_outputs(
    out: Path, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], outcomes: Mapping[str, RowOutcome]
) -> None:
    finished = [(row, outcomes[key]) for row, key in zip(rows, keys, strict=True) if key in outcomes]
    write_rows(out, (output for _, outcome in finished if isinstance(outcome, KeptRows) for output in outcome.rows))
    write_rows(
        dropped_path(out),
        (
            {"reason": outcome.reason, "detail": outcome.detail, "input": row}
            for row, outcome in finished
            if isinstance(outcome, DroppedRow)
        ),
    )


def _report(stage: str, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], run: _StageRun) -> StageReport:
    outcomes = [run.outcomes[key] for key in keys if key in run.outcomes]
    reasons = Counter(outcome.reason for outcome in outcomes if isinstance(outcome, DroppedRow))
    return StageReport(
        stage=stage,
        inputs=len(rows),
        kept=sum(len(outcome.rows) for outcome in outcomes if isinstance(outcome, KeptRows)),
        dropped=dict(sorted(reasons.items())),
        resumed=run.resumed,
        halted=run.halted,
    )


def _open_log(path: Path) -> AppendLog:
    # Records are not synced one by one: that would cost more than most stages, and a killed process loses none of them.
    # The model's replies, which cost money, are synced by their own cache.
    busy = DataError(f"another process is writing {path}: wait until it ends, or write to another file")
    return AppendLog(path, sync=False, busy=busy)


@contextmanager
def _open_journal(
    out: Path, stage: str, settings: Mapping[str, Any]
) -> Iterator[tuple[dict[str, RowOutcome], Callable[[str, RowOutcome], None]]]:
    """Yield the outcomes of earlier runs, and a function that records another one. The journal is locked meanwhile."""
    path = journal_path(out)
    header = {"schema": SCHEMA, "stage": stage, "settings": json.loads(json.dumps(settings))}
    with _open_log(path) as log:
        if not log.contents.records:
            log.append(header)
        yield _journaled(log.contents, path, header), lambda key, outcome: log.append({"key": key, **_entry(outcome)})


def _journaled(contents: LogContents, path: Path, header: Mapping[str, Any]) -> dict[str, RowOutcome]:
    """Return the outcomes in a journal, by key. Raises `ConfigError` for another stage's journal or other settings."""
    if not contents.records:
        return {}
    _check_header(path, contents.records[0], header)
    try:
        return {row["key"]: _outcome_of(row) for row in contents.records[1:]}
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}): delete it to start the stage again") from None


def _check_header(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if (before.get("schema"), before.get("stage")) != (now["schema"], now["stage"]):
        raise ConfigError(
            f"{path} is the journal of stage {before.get('stage')!r}, not of {now['stage']!r}: write to another file"
        )
    if changes := differing_settings(before.get("settings", {}), now["settings"]):
        raise ConfigError(
            f"{path} was started with other settings: {', '.join(changes)}. Use the same settings, or write to another "
            "file"
        )


def _entry(outcome: RowOutcome) -> dict[str, Any]:
    if isinstance(outcome, KeptRows):
        return {"kept": list(outcome.rows)}
    return {"dropped": outcome.reason, "detail": outcome.detail}


def _outcome_of(row: Mapping[str, Any]) -> RowOutcome:
    return KeptRows(tuple(row["kept"])) if "kept" in row else DroppedRow(row["dropped"], row["detail"])
