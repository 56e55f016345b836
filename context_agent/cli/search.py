"""The commands `ctx1 search` and `ctx1 ask`.

`ctx1 search` answers one question with a ranking, or writes one line for each question of a file. With `ctx1 ask`, a
language model answers from the ranked passages. Without a model, the passages are printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent._support.question_files import JsonRow, question_id, question_text, read_rows
from context_agent.cli import options, output
from context_agent.cli.invocation import given_flags
from context_agent.cli.parameters import (
    COUNT,
    DASH,
    INPUT_FILE_VALUE,
    OWN,
    SECONDS,
    CommonOptions,
    essential,
    options_in,
    section,
)
from context_agent.errors import ConfigError, ContextAgentError

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent._support.worker_pool import CallParent, WorkerPool
    from context_agent.agent import Progress, SearchAgent, SearchResult
    from context_agent.answers import AnswerModel, CheckedAnswer
    from context_agent.retrieval.corpus import Corpus
    from context_agent.retrieval.filters import Where


FILTER_EXAMPLES = 20
"""Number of passages whose metadata is shown if a filter matches nothing."""
MAX_FILTER_VALUE = 60
"""Maximum number of characters of a metadata value that is shown."""

KOption = Annotated[int, COUNT, Parameter(help="Number of documents to return.", name=("--k", "--top-k", "-k"))]


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """The number of documents that a search returns, and the filter on the documents that it searches."""

    k: int
    where: Where | None = None


@options_in(OWN)
@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The information to show in addition to the ranking."""

    steps: bool = False
    """Show every turn as it happens, with its searches, its prunes and the context."""
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"))] = False
    """Print only the ids of the documents, one per line."""


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
    processes: options.ProcessesOption = None
    ray: options.RayOption = None


@essential("k where steps quiet questions path url collection embedder effort")
def search(
    question: Annotated[str | None, DASH] = None,
    /,
    *,
    k: KOption = 10,
    where: options.WhereOption = None,
    show: ShowOptions = ShowOptions(),
    engine: Annotated[str | None, Parameter(metavar="URL", group=section("Index"))] = None,
    batch: BatchOptions = BatchOptions(),
    agent: options.AgentOptions = options.AgentOptions(),
    index: options.CorpusOptions = options.CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Search an index in several steps and rank its documents.

    Each document is printed with its best sentence. If the evidence does not suffice, "Nothing relevant found" comes
    first, and the nearest documents follow. This is not a failure. The exit code is 1 if a question failed.

    Args:
        question: The question in quotes, or - to read it from standard input.
        engine: HTTP endpoint to search through instead of an index. The query replaces {query} in its address.
    """
    if show.quiet and (common.json or show.steps):
        raise ConfigError(
            "--quiet prints only ids, so it cannot be combined with --json or --steps. Remove one of them."
        )
    if question is None and batch.questions is None:
        raise ConfigError("there is no question. Pass one QUESTION in quotes, or a file of questions with --questions.")
    if question is not None and batch.questions is not None:
        raise ConfigError("QUESTION and --questions both name what to search. Remove one of them.")
    if batch.questions is None and (given := given_flags("concurrency", "ordered", "processes", "ray")):
        raise ConfigError(f"{given[0]} is for many questions. Remove it, or pass a file with --questions.")
    if engine is not None and index.named:
        raise ConfigError("--engine replaces an index. Remove --engine, or remove --path and --url.")
    source = SearchSource(agent, index, engine, ResultLimits(k, where), as_json=common.json, quiet=show.quiet)
    if batch.questions is not None:
        return search_many(source, batch)
    with source.agent() as searcher:
        text = question_of(question or "")
        if common.json:
            return search_json(searcher, text, source.limits)
        return search_one(searcher, text, source.limits, show)


@dataclass(frozen=True, slots=True)
class SearchSource:
    """An agent that answers questions, and the format in which the answers to a file are printed.

    Worker processes open it.
    """

    agent_options: options.AgentOptions
    index: options.CorpusOptions
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


def question_of(argument: str) -> str:
    """Return the question on the command line. If it is `-`, return the question on standard input."""
    return (sys.stdin.read() if argument == "-" else argument).strip()


def search_one(agent: SearchAgent, question: str, limits: ResultLimits, show: ShowOptions) -> int:
    """Ask one question, print the ranking, and return the exit code."""
    started = time.perf_counter()
    result = run_with_steps(agent, question, limits, output.stderr()) if show.steps else run(agent, question, limits)
    if show.quiet:
        for document in result.documents:
            output.echo(document.id)
        if result.sufficient is False:
            output.note(output.NOTHING_RELEVANT)
    else:
        output.show_ranking(output.stdout(), result, time.perf_counter() - started)
    if limits.where is not None and not result.documents:
        _note_empty_filter(agent.corpus, limits.where)
    return 1 if result.error else 0


def _note_empty_filter(corpus: Corpus, where: Where) -> None:
    """If no passage matches the filter, print the metadata of some passages, with a value of each entry."""
    if corpus.grep(".", limit=1, where=where):
        return
    passages = [hit.chunk for hit in corpus.grep(".", limit=FILTER_EXAMPLES)]
    entries = {key: str(value) for passage in passages for key, value in passage.metadata.items()}
    examples = (f"{key}={value[:MAX_FILTER_VALUE]}" for key, value in sorted(entries.items()))
    known = f"Passages have, for example: {', '.join(examples)}." if entries else "Passages have no metadata."
    output.note(output.one_line(f"no passage matches --where {json.dumps(where)}. {known}"))


def search_json(agent: SearchAgent, question: str, limits: ResultLimits) -> int:
    """Ask one question, print its result as JSON, and return the exit code."""
    try:
        answer = agent.search(question, k=limits.k, where=limits.where).to_json()
    except ContextAgentError as error:
        output.print_json(_failure(question, str(error)))
        raise
    output.print_json(answer)
    return 1 if answer["error"] else 0


def run(agent: SearchAgent, question: str, limits: ResultLimits) -> SearchResult:
    """Ask a question. On a terminal, a line on stderr shows the progress of the search."""
    log = output.stderr()
    if not log.is_terminal:
        return agent.search(question, k=limits.k, where=limits.where)
    with log.status("searching") as status:
        return asyncio.run(_stream(agent, question, limits, lambda progress: status.update(_state(progress))))


def run_with_steps(agent: SearchAgent, question: str, limits: ResultLimits, log: Console) -> SearchResult:
    """Ask a question and show its turns on `log` as they happen."""
    from context_agent.cli.turns import TurnLog

    with TurnLog(log, rollouts=agent.rollouts) as turns:
        return asyncio.run(_stream(agent, question, limits, turns.show))


def _state(progress: Progress) -> str:
    view = progress.view
    passages = output.count(len(view.editable), "passage")
    return f"turn {view.turn + 1}: {passages} in {view.tokens:,} of {view.budget.window:,} tokens"


async def _stream(
    agent: SearchAgent, question: str, limits: ResultLimits, show: Callable[[Progress], None]
) -> SearchResult:
    from context_agent.agent import SearchResult

    async for item in agent.stream(question, k=limits.k, where=limits.where):
        if isinstance(item, SearchResult):
            return item
        show(item)
    raise AssertionError("a stream ends with its result")


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
            return {**self.result.to_json(), "id": self.row.id}
        return _failure(self.row.question, self.error or "unknown error", self.row.id)

    def to_line(self, *, quiet: bool = False) -> str:
        """Return the id or the question, and the first titles. If the evidence does not suffice, the line says so.

        A `quiet` line has only the ids of the documents.
        """
        name = self.row.id if self.row.id is not None else self.row.question
        if self.result is None:
            return f"{name}\terror: {self.error}"
        if quiet:
            return f"{name}\t{' '.join(document.id for document in self.result.documents)}"
        titles = "; ".join(document.title or document.id for document in self.result.documents[:5])
        if self.result.sufficient is not False:
            return f"{name}\t{titles}"
        return f"{name}\t{output.NOTHING_RELEVANT}{f' The nearest: {titles}' if titles else ''}"


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
        options.worker_pool(source, batch.processes, batch.ray, concurrency=batch.concurrency) as pool,
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
        return BatchRow(id=row_id, problem=f'{row.location}: no "question" with text in it')
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
        return BatchAnswer(row, error=f"unexpected {type(error).__name__}: {error}")
    return BatchAnswer(row, result, result.error)


def _failure(question: str, error: str, question_id: Any = None) -> dict[str, Any]:
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


NO_MODEL = (
    "no language model is named, so these are the passages. To get an answer, pass --model NAME and --base-url URL, or "
    "set CTX1_MODEL and CTX1_BASE_URL"
)


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class AnswerOptions(options.ServerOptions):
    """The language model that answers, and the options for its answer."""

    api: Annotated[
        Literal["openai", "anthropic"] | None,
        Parameter(show_default="anthropic for https://api.anthropic.com, else openai"),
    ] = None
    """API of the server."""
    max_tokens: Annotated[int, COUNT] = 2_000
    """Maximum number of tokens in the answer."""
    timeout: Annotated[float, SECONDS] = 120.0
    """Timeout for the answer to begin, and for each pause in it."""

    def load(self) -> AnswerModel | None:
        """Return the model. If neither the options nor the environment name one, return None."""
        from context_agent.answers import AnswerModel
        from context_agent.policies import from_environment

        named = from_environment({name: value for name, value in asdict(self).items() if value is not None})
        return AnswerModel(**named) if named.get("model") else None


@essential("k effort base_url model api_key_env api path url collection embedder")
def ask(
    question: Annotated[str, DASH],
    /,
    *,
    k: KOption = 5,
    where: options.WhereOption = None,
    effort: options.EffortOption = None,
    server: AnswerOptions = AnswerOptions(),
    index: options.CorpusOptions = options.CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Answer a question with a language model, and check its citations.

    The model gets the passages that ctx1 search would rank. The command marks citations that name no passage, and
    quotations that are in no passage. Without a model, it prints the passages.

    Args:
        question: The question in quotes, or - to read it from standard input.
    """
    from context_agent.agent import SearchAgent

    model = server.load()
    text = question_of(question)
    started = time.perf_counter()
    with index.open() as corpus, SearchAgent(corpus, effort=effort) as agent:
        result = run(agent, text, ResultLimits(k, where))
    answer = None if model is None or not result.documents else _answer(model, result, as_json=common.json)
    if common.json:
        output.print_json(_to_json(result, model, answer))
    elif answer is None:
        output.show_ranking(output.stdout(), result, time.perf_counter() - started)
    if model is None:
        output.note(NO_MODEL)
    return 1 if result.error else 0


def _answer(model: AnswerModel, result: SearchResult, *, as_json: bool) -> CheckedAnswer:
    """Return the answer. Print it as it arrives, unless it becomes JSON, and then print its sources."""
    from context_agent.answers import passages_of

    if result.sufficient is False:
        output.note(f"{output.NOTHING_RELEVANT} The model gets the nearest passages.")

    def show(piece: str) -> None:
        if not as_json:
            output.echo(piece, end="")

    answer = asyncio.run(model.answer(result.question, passages_of(result.documents), show))
    if not as_json:
        output.echo("\n")
        for passage in answer.cited:
            output.echo(
                output.one_line(f"[{passage.number}] {passage.title or passage.document_id}  {passage.document_id}")
            )
    if not answer.cited:
        output.note("the answer cites no passage. Check it against `ctx1 search`.")
    if answer.problems:
        output.note(
            f"the answer has {output.count(len(answer.problems), 'unconfirmed citation')}. See the marks in the answer."
        )
    return answer


def _to_json(result: SearchResult, model: AnswerModel | None, answer: CheckedAnswer | None) -> dict[str, Any]:
    """Return the object that is printed with --json. Without a model, its `answer` is null."""
    return {
        **result.to_json(),
        "model": None if model is None else model.model,
        "answer": None if answer is None else answer.text,
        "cited": [] if answer is None else [asdict(passage) for passage in answer.cited],
        "problems": [] if answer is None else [asdict(problem) for problem in answer.problems],
    }
