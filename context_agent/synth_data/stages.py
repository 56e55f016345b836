"""Resumable stages: a function is applied to each input row, and a killed run resumes without repeating work.

A stage writes two files next to its output OUT. `OUT.dropped.jsonl` has the inputs without an output, each with the
reason. `OUT.journal` has the outcome of every finished input, in order of completion, and a rerun reads it. At the end,
the output and the dropped rows are written from the journal in input order. An input is identified by its content. If
rows were added to the input file, a rerun processes only the new rows.
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
from context_agent._support.suggest import differing_settings, listed_changes
from context_agent._support.worker_pool import CallParent, WorkerPool
from context_agent.errors import ConfigError, DataError
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.json_files import write_rows

T = TypeVar("T")
JOURNAL_SCHEMA = 1
"""The version of the journal's format."""
FAILED = "failed: "
"""The start of the reason of an input whose function raised an exception."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The output rows of an input. An input may have several output rows."""

    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """The reason why an input gave no output.

    Attributes:
        reason: A short, stable reason, which reports count.
        detail: A description of this row's problem.
    """

    reason: str
    detail: str = ""


class DropRow(Exception):
    """An error that a stage's function raises to drop its row. Returning a `DroppedRow` has the same effect."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.dropped = DroppedRow(reason, detail)


class StageHalted(Exception):
    """An error that a stage's function raises if no further row can be processed. It ends the stage.

    Examples are a spending cap that is reached, and a server that is down.
    """


RowOutcome = KeptRows | DroppedRow
RowFunction = Callable[[Mapping[str, Any]], Awaitable[RowOutcome]]
StageFunction = Callable[..., Coroutine[Any, Any, RowOutcome]]
"""A picklable function that takes a stage's context, such as a corpus with a model, and the keyword `row`."""
StagePool = WorkerPool[tuple[StageFunction, Mapping[str, Any]], RowOutcome]
"""Worker processes that open a `StageWorker`."""
ProgressCallback = Callable[[int, int | None], None]
"""A function that is called with the number of finished items and the total. If the total is unknown, it is None."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """The report of a stage.

    Attributes:
        stage: The name of the stage.
        inputs: The number of input rows.
        kept: The number of output rows.
        dropped: The number of dropped inputs by reason.
        resumed: The number of inputs that earlier runs finished.
        halted: The reason why the stage ended before all inputs were processed. Empty if all were.
        failure: The error of the first input that failed. Empty if none did.
        cost: The totals of the model calls. Empty if there were no calls.
    """

    stage: str
    inputs: int
    kept: int
    dropped: Mapping[str, int]
    resumed: int = 0
    halted: str = ""
    failure: str = ""
    cost: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, with keys in a fixed order."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StageWorker:
    """The setup of a worker process for stages. `open_context` returns the context of the stages' functions."""

    open_context: Callable[[CallParent], Any]

    def open(self, call: CallParent) -> Callable[[tuple[StageFunction, Mapping[str, Any]]], Callable[[], RowOutcome]]:
        """Open the context once for all rows, and return a function that prepares a row's job."""
        context = self.open_context(call)
        return lambda job: lambda: asyncio.run(job[0](context, row=job[1]))


def row_function(function: StageFunction, context: Any, pool: StagePool | None) -> RowFunction:
    """Return a function that processes one row.

    Without a pool, it calls the stage's function with this context. With a pool, a worker process calls it with its own
    context.
    """
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

    The files have the same bytes whatever the concurrency, and whether or not the run was interrupted. If the function
    raises an exception, its row is dropped with the exception's type as the reason. Such a row is not journaled, so the
    next run tries it again. `StageHalted` ends the stage, and the outputs so far are written.

    Args:
        stage: The name of the stage.
        inputs: The input rows.
        function: The function to apply.
        out: The output file.
        concurrency: The number of rows that are processed at once.
        settings: The settings of the stage, as plain JSON data.
        depends_on: A function that returns the further data on which a row's outcome depends, such as other rows. If
            this data changes, the row is processed again.
        advance: A function that is called with the number of finished rows and the total.

    Raises:
        ConfigError: If the settings differ from those in the journal.
        DataError: If the journal is damaged, or if another process is writing it.
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
    """Return the path of the file with the dropped inputs."""
    return out.with_name(f"{out.name}.dropped.jsonl")


def journal_path(out: Path) -> Path:
    """Return the path of the journal of the stage that writes `out`."""
    return out.with_name(f"{out.name}.journal")


def redo_inputs(out: Path, is_lost: Callable[[Mapping[str, Any]], bool]) -> int:
    """Remove the inputs with a lost output row from the journal, and return their number.

    The next run processes them again. This is for stages with output rows that refer to files.

    Args:
        out: The output file of the stage.
        is_lost: A function that returns True if an output row is lost.

    Raises:
        DataError: If the journal is damaged, or if another process is writing it.
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
    """Make the call and return its value. If the corpus waits for disk or network, the call runs in a thread."""
    return await asyncio.to_thread(call) if corpus.blocking else call()


class _StageRun:
    """One run of a stage: the rows to process, which the workers share, and their outcomes."""

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
                self.outcomes[key] = DroppedRow(f"{FAILED}{type(error).__name__}", str(error))
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
    """Return a key for each row: a digest of its content and dependencies, and a counter that separates equal rows."""
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
    dropped = [outcome for outcome in outcomes if isinstance(outcome, DroppedRow)]
    return StageReport(
        stage=stage,
        inputs=len(rows),
        kept=sum(len(outcome.rows) for outcome in outcomes if isinstance(outcome, KeptRows)),
        dropped=dict(sorted(Counter(outcome.reason for outcome in dropped).items())),
        resumed=run.resumed,
        halted=run.halted,
        failure=next((outcome.detail for outcome in dropped if outcome.reason.startswith(FAILED)), ""),
    )


def _open_log(path: Path) -> AppendLog:
    # Records are not synced one by one, because that would cost more than most stages. A killed process loses none.
    # The model's replies, which cost money, are synced by their own cache.
    busy = DataError(f"another process is writing {path}. Wait until it ends, or write to another file.")
    return AppendLog(path, sync=False, busy=busy)


@contextmanager
def _open_journal(
    out: Path, stage: str, settings: Mapping[str, Any]
) -> Iterator[tuple[dict[str, RowOutcome], Callable[[str, RowOutcome], None]]]:
    """Lock the journal, and yield the outcomes of earlier runs and a function that records another one."""
    path = journal_path(out)
    header = {"schema": JOURNAL_SCHEMA, "stage": stage, "settings": json.loads(json.dumps(settings))}
    with _open_log(path) as log:
        if not log.contents.records:
            log.append(header)
        yield _journaled(log.contents, path, header), lambda key, outcome: log.append({"key": key, **_entry(outcome)})


def _journaled(contents: LogContents, path: Path, header: Mapping[str, Any]) -> dict[str, RowOutcome]:
    """Return the outcomes in a journal, by key.

    Raises:
        ConfigError: If the journal belongs to another stage or has other settings.
        DataError: If the journal is damaged.
    """
    if not contents.records:
        return {}
    _check_header(path, contents.records[0], header)
    try:
        return {row["key"]: _outcome_of(row) for row in contents.records[1:]}
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}). Delete it to start the stage again.") from None


def _check_header(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if (before.get("schema"), before.get("stage")) != (now["schema"], now["stage"]):
        raise ConfigError(
            f"{path} is the journal of stage {before.get('stage')!r}, not of {now['stage']!r}. Write to another file."
        )
    if changes := differing_settings(before.get("settings", {}), now["settings"]):
        raise ConfigError(
            f"{path} was started with other settings ({listed_changes(changes)}). Use the same settings, or write to "
            "another file."
        )


def _entry(outcome: RowOutcome) -> dict[str, Any]:
    if isinstance(outcome, KeptRows):
        return {"kept": list(outcome.rows)}
    return {"dropped": outcome.reason, "detail": outcome.detail}


def _outcome_of(row: Mapping[str, Any]) -> RowOutcome:
    return KeptRows(tuple(row["kept"])) if "kept" in row else DroppedRow(row["dropped"], row["detail"])
