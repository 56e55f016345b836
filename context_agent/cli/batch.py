"""Many questions at once: rows of a JSONL file in, one answer a row out, as each is done or in the file's order.

Unlike `load_questions`, which refuses a file with a bad row, this answers what can be answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from context_agent.agent import SearchAgent, SearchResult
from context_agent.errors import ContextAgentError


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A line of the file. `problem` says why it cannot be asked; `id` is the row's own, whatever its type."""

    line: int
    question: str = ""
    id: Any = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a row: a result, or an error."""

    row: AnswerRow
    result: SearchResult | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object printed for the row; a failed one has the same keys, and `error` filled."""
        if self.result is not None:
            return {**self.result.to_json(), "id": self.row.id}
        return failure(self.row.question, self.error or "unknown error", self.row.id)


def failure(question: str, error: str, question_id: Any = None) -> dict[str, Any]:
    """The object printed for a question that could not be answered."""
    return {
        "id": question_id,
        "question": question,
        "documents": [],
        "stop_reason": "error",
        "turns": 0,
        "tokens": 0,
        "critical_steps": 0,
        "trajectory": None,
        "error": error,
    }


def read_rows(lines: Iterable[bytes]) -> Iterator[AnswerRow]:
    """Rows of a JSONL file; a line that is no question becomes a row with a `problem`. Blank lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _row(number, line)


def _row(number: int, line: bytes) -> AnswerRow:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        return AnswerRow(number, problem=f"line {number} is no valid JSON: {error}")
    if not isinstance(data, dict):
        return AnswerRow(number, problem=f'line {number} should be an object like {{"id": "q1", "question": "…"}}')
    question, row_id = data.get("question", data.get("query")), data.get("id", data.get("_id"))
    if not isinstance(question, str) or not question.strip():
        return AnswerRow(number, id=row_id, problem=f'line {number} has no "question" with text in it')
    return AnswerRow(number, question, row_id)


async def answer_all(
    agent: SearchAgent,
    rows: Iterable[AnswerRow],
    done: Callable[[Answer], None],
    *,
    k: int,
    concurrency: int,
    ordered: bool,
) -> None:
    """Asks every row, at most `concurrency` at a time, and calls `done` with each answer. One failure stops nothing."""
    source = enumerate(rows)
    waiting: dict[int, Answer] = {}
    printed = 0

    async def work() -> None:
        nonlocal printed
        for number, row in source:
            answer = await _ask(agent, row, k)
            if not ordered:
                done(answer)
                continue
            waiting[number] = answer
            while printed in waiting:
                done(waiting.pop(printed))
                printed += 1

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except ExceptionGroup as failed:
        # Only `done` can fail here, as when the reader of a pipe goes away; the others failed for the same reason.
        raise failed.exceptions[0] from None


async def _ask(agent: SearchAgent, row: AnswerRow, k: int) -> Answer:
    if row.problem is not None:
        return Answer(row, error=row.problem)
    try:
        result = await agent.asearch(row.question, k=k, question_id=None if row.id is None else str(row.id))
    except ContextAgentError as error:
        return Answer(row, error=str(error))
    except Exception as error:  # noqa: BLE001 (the other questions go on)
        return Answer(row, error=f"unexpected {type(error).__name__}: {error}")
    return Answer(row, result, result.error)
