"""`ctx1 search`: one question, shown live on a terminal, or many from a file."""

from __future__ import annotations

import asyncio
import gzip
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import click

from context_agent.cli import console, options
from context_agent.errors import ContextAgentError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent.agent import SearchAgent, SearchResult
    from context_agent.cli.batch import Answer
    from context_agent.cli.live import TurnLog


@click.command()
@click.argument("question", required=False)
@click.option(
    "--questions",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE.jsonl",
    help='Answer a file of {"id": …, "question": …} lines (- for stdin), a line each as it is done.',
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Questions of a file at once."
)
@click.option("--ordered", is_flag=True, help="Print a file's answers in the file's order.")
@click.option("--k", type=click.IntRange(1), default=10, show_default=True, help="Documents to return.")
@options.agent
@options.index
@options.opening
@options.common
def search(
    *,
    question: str | None,
    questions: Path | None,
    concurrency: int,
    ordered: bool,
    k: int,
    as_json: bool,
    agent: options.AgentOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Search an index in several steps and rank its documents.

    QUESTION may be - to read it from stdin. The exit code is 1 when a question failed.
    """
    if (question is None) == (questions is None):
        raise click.UsageError("give one QUESTION, or a file of them with --questions")
    with options.open_corpus(index, opening) as corpus, options.open_agent(agent, corpus) as searcher:
        if questions is not None:
            return search_many(searcher, questions, k=k, concurrency=concurrency, ordered=ordered, as_json=as_json)
        asked = sys.stdin.read() if question == "-" else question or ""
        return search_one(searcher, asked.strip(), k=k, as_json=as_json)


def search_one(agent: SearchAgent, question: str, *, k: int, as_json: bool) -> int:
    """Asks one question and prints its result; returns the exit code."""
    if not as_json:
        from context_agent.cli.results import show

        started = time.perf_counter()
        result = run_live(agent, question, k=k)
        show(console.stdout(), result, time.perf_counter() - started)
        return 1 if result.error else 0
    try:
        found = agent.search(question, k=k).to_json()
    except ContextAgentError as error:
        from context_agent.cli.batch import failure

        console.print_json(failure(question, str(error)))
        raise
    console.print_json(found)
    return 1 if found["error"] else 0


def run_live(agent: SearchAgent, question: str, *, k: int, log: Console | None = None) -> SearchResult:
    """Asks a question and shows its turns as they happen: on `log`, or on stderr where that is a terminal."""
    if log is None:
        log = console.stderr()
        if not log.is_terminal:
            return agent.search(question, k=k)
    from context_agent.cli.live import TurnLog

    with TurnLog(log, rollouts=agent.rollouts) as turns:
        return asyncio.run(_stream(agent, question, k, turns))


async def _stream(agent: SearchAgent, question: str, k: int, turns: TurnLog) -> SearchResult:
    from context_agent.agent import SearchResult

    async for item in agent.stream(question, k=k):
        if isinstance(item, SearchResult):
            return item
        turns.show(item)
    raise AssertionError("a stream ends with its result")


def search_many(agent: SearchAgent, file: Path, *, k: int, concurrency: int, ordered: bool, as_json: bool) -> int:
    """Asks every question of a JSONL file; returns the exit code, 1 when any of them failed."""
    from context_agent.cli.batch import answer_all, read_rows

    failed = 0
    # Read before the first is asked: an interrupt could not end a read inside the event loop.
    with _lines(file) as lines:
        rows = list(read_rows(lines))
    with console.progress("Searching", "questions") as advance:
        done = 0

        def take(answer: Answer) -> None:
            nonlocal failed, done
            failed += answer.error is not None
            done += 1
            _print_answer(answer, as_json)
            advance(done, len(rows))

        asyncio.run(answer_all(agent, rows, take, k=k, concurrency=concurrency, ordered=ordered))
    if failed:
        console.note(f"ctx1 search: {failed} of {done} questions failed")
    return 1 if failed else 0


def _print_answer(answer: Answer, as_json: bool) -> None:
    if as_json:
        console.print_json(answer.to_json())
        return
    name = answer.row.id if answer.row.id is not None else answer.row.question
    if answer.result is None:
        click.echo(console.printable(f"{name}\terror: {answer.error}"))
        return
    titles = "; ".join(document.title or document.id for document in answer.result.documents[:5])
    click.echo(console.printable(f"{name}\t{titles}"))


@contextmanager
def _lines(file: Path) -> Iterator[IO[bytes]]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            yield cast("IO[bytes]", opened)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read the question file {file}: {reason}") from error
