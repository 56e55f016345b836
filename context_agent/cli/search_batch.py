"""The questions of a file: `ctx1 search --questions` writes one line for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as brief
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent._support.question_files import JsonRow, question_id, question_text, read_rows
from context_agent.cli import output
from context_agent.cli.agent_options import AgentOptions
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.parameters import COUNT, INPUT_FILE_VALUE, options_in
from context_agent.cli.ranking import NOTHING_RELEVANT, search_error
from context_agent.cli.search_run import ResultLimits
from context_agent.cli.worker_options import ProcessesOption, RayOption, worker_pool
from context_agent.errors import ContextAgentError, reason_of

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent, WorkerPool
    from context_agent.agent import SearchAgent, SearchResult
    from context_agent.retrieval.corpus import Corpus


@options_in("Many questions")
@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Questions from a file."""

    questions: Annotated[Path | None, INPUT_FILE_VALUE, Parameter(metavar="FILE.jsonl")] = None
    """Answer a file of lines like {"id": "q1", "question": "..."} (- for stdin)."""
    concurrency: Annotated[int, COUNT] = 8
    """Number of questions at the same time."""
    ordered: bool = False
    """Print the answers in the order of the file instead of as they become ready. Several processes always do."""
    processes: ProcessesOption = None
    ray: RayOption = None


@dataclass(frozen=True, slots=True)
class SearchSource:
    """An agent that answers questions, and the format in which the answers to a file are printed.

    Worker processes open it.
    """

    agent_options: AgentOptions
    index: CorpusOptions
    engine: str | None
    limits: ResultLimits
    as_json: bool = False
    quiet: bool = False

    @contextmanager
    def agent(self) -> Iterator[SearchAgent]:
        """Yield the agent on its corpus while the block runs."""
        with self._corpus() as corpus, self.agent_options.open(corpus) as agent:
            yield agent

    def open(self, call: CallParent) -> Callable[[BatchRow], Callable[[], PrintedAnswer]]:
        """Open the agent of a worker. It stays open until the process ends."""
        agent = self.agent_options.open(self._corpus().__enter__())
        return lambda row: lambda: self.printed(asyncio.run(_ask(agent, row, self.limits)))

    def printed(self, answer: BatchAnswer) -> PrintedAnswer:
        """Return the printed form of an answer."""
        shown = answer.to_json() if self.as_json else answer.to_line(quiet=self.quiet)
        return PrintedAnswer(shown, failed=answer.error is not None)

    def _corpus(self) -> AbstractContextManager[Corpus]:
        if self.engine is None:
            return self.index.open()
        from context_agent.retrieval.engines.corpus import EngineCorpus

        return nullcontext(EngineCorpus(self.engine))


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A line of a question file. If the line is not a valid question, `problem` gives the reason.

    `id` is the row's own id and may have any type.
    """

    question: str = ""
    id: Any = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answer to a row. It is a result, an error, or a result with an error."""

    row: BatchRow
    result: SearchResult | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object that is printed for the row.

        If the question failed, the keys are the same and `error` is set.
        """
        if self.result is not None:
            return {**self.result.to_json(), "error": self.error, "id": self.row.id}
        return failed_search(self.row.question, self.error or "unknown error", self.row.id)

    def to_line(self, *, quiet: bool = False) -> str:
        """Return the id or the question, and the first titles. If the evidence does not suffice, the line says so.

        A `quiet` line has only the ids of the documents.
        """
        return "\t".join(map(output.one_field, self._fields(quiet=quiet)))

    def _fields(self, *, quiet: bool) -> tuple[str, str]:
        name = str(self.row.id) if self.row.id is not None else self.row.question
        if self.result is None or not self.result.searched:
            return name, f"error: {self.error}"
        if quiet:
            return name, " ".join(document.id for document in self.result.documents)
        titles = "; ".join(document.title or document.id for document in self.result.documents[:5])
        if self.result.sufficient is not False:
            return name, titles
        return name, f"{NOTHING_RELEVANT}{f' The nearest: {titles}' if titles else ''}"


@dataclass(frozen=True, slots=True)
class PrintedAnswer:
    """The printed form of an answer: a line, or its object with --json."""

    shown: str | dict[str, Any]
    failed: bool

    def print(self) -> None:
        """Print the result on stdout."""
        if isinstance(self.shown, str):
            output.echo(self.shown)
        else:
            output.print_json(self.shown)


def search_many(source: SearchSource, batch: BatchOptions) -> int:
    """Ask every question of the file, and return the exit code. If a question failed, it is 1.

    `load_questions` refuses a file with a bad row. This function answers the other rows.
    """
    assert batch.questions is not None
    failed = answered = 0
    # Read before the first is asked: an interrupt could not end a read inside the event loop.
    rows = [_batch_row(row) for row in read_rows(str(batch.questions))]
    if not rows:
        output.note(f"{batch.questions} has no questions")
    with (
        output.progress("Searching", "questions") as advance,
        worker_pool(source, batch.processes, batch.ray, concurrency=batch.concurrency) as pool,
    ):

        def take(answer: PrintedAnswer) -> None:
            nonlocal failed, answered
            failed += answer.failed
            answered += 1
            answer.print()
            advance(answered, len(rows))

        if pool is not None:
            _answer_in_pool(source, pool, rows, take)
        else:
            with source.agent() as agent:
                asyncio.run(_answer_all(agent, rows, lambda answer: take(source.printed(answer)), source.limits, batch))
    if failed:
        output.note(f"{failed} of {answered} questions failed")
    return 1 if failed else 0


def _answer_in_pool(
    source: SearchSource,
    pool: WorkerPool[BatchRow, PrintedAnswer],
    rows: Iterable[BatchRow],
    report: Callable[[PrintedAnswer], None],
) -> None:
    """Let worker processes ask every row, and call `report` with the answers in order."""
    from context_agent._support.worker_pool import JobLost

    pending = deque((row, pool.submit(row)) for row in rows)
    while pending:
        row, future = pending.popleft()
        try:
            report(future.result())
        except JobLost as lost:
            report(source.printed(BatchAnswer(row, error=str(lost))))


def _batch_row(row: JsonRow) -> BatchRow:
    """Return the question in a line, or the problem with it."""
    if row.problem:
        return BatchRow(problem=row.problem)
    if not isinstance(row.value, dict):
        return BatchRow(problem=f'{row.location}: not an object like {{"id": "q1", "question": "…"}}')
    text, row_id = question_text(row.value), question_id(row.value)
    if not isinstance(text, str) or not text.strip():
        fields = brief(list(row.value))
        reason = f"the row has no text in a field question or query, and its fields are {fields}. Fill or rename one."
        return BatchRow(id=row_id, problem=f"{row.location}: {reason}")
    return BatchRow(text, row_id)


async def _answer_all(
    agent: SearchAgent,
    rows: Iterable[BatchRow],
    report: Callable[[BatchAnswer], None],
    limits: ResultLimits,
    batch: BatchOptions,
) -> None:
    """Ask every row, and call `report` with each answer. A failure does not stop the other rows."""
    source = enumerate(rows)
    waiting: dict[int, BatchAnswer] = {}
    reported = 0

    async def work() -> None:
        nonlocal reported
        for number, row in source:
            answer = await _ask(agent, row, limits)
            if not batch.ordered:
                report(answer)
                continue
            waiting[number] = answer
            while reported in waiting:
                report(waiting.pop(reported))
                reported += 1

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(batch.concurrency):
                group.create_task(work())
    except ExceptionGroup as failed:
        # Only `report` can fail here, as when the reader of a pipe goes away; the others failed for the same reason.
        raise failed.exceptions[0] from None


async def _ask(agent: SearchAgent, row: BatchRow, limits: ResultLimits) -> BatchAnswer:
    if row.problem is not None:
        return BatchAnswer(row, error=row.problem)
    try:
        question_id = None if row.id is None else str(row.id)
        result = await agent.asearch(row.question, k=limits.k, where=limits.where, question_id=question_id)
    except ContextAgentError as error:
        return BatchAnswer(row, error=str(error))
    except Exception as error:  # noqa: BLE001 (the other questions go on)
        return BatchAnswer(row, error=f"unexpected {type(error).__name__}: {reason_of(error)}")
    return BatchAnswer(row, result, search_error(result))


def failed_search(question: str, error: str, question_id: Any = None) -> dict[str, Any]:
    """Return the object that is printed for a question that could not be answered."""
    return {
        "id": question_id,
        "question": question,
        "documents": [],
        "sufficient": None,
        "confidence": None,
        "stop_reason": "error",
        "turns": 0,
        "tokens": 0,
        "critical_steps": 0,
        "trajectory": None,
        "error": error,
    }
