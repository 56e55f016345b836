"""The run of one search, with its progress on the terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import COUNT
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent.agent import Progress, SearchAgent, SearchResult
    from context_agent.retrieval.filters import Where


KOption = Annotated[int, COUNT, Parameter(help="Number of documents to return.", name=("--k", "--top-k", "-k"))]


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """The number of documents that a search returns, and the filter on the documents that it searches."""

    k: int
    where: Where | None = None


def question_of(argument: str) -> str:
    """Return the question on the command line. If it is `-`, return the question on standard input."""
    return (sys.stdin.read() if argument == "-" else argument).strip()


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
    passages = counted(len(view.editable), "passage")
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
