"""The fourth stage: documents that look relevant and do not contain the answer.

Queries come from a model, else from the question and its clues; the harness's own search runs them. A candidate is
taken only where no chunk of it says the answer in any form, nor enough of it to guess; a model may be asked as well.
What a task brings along as distractors passes the same check. A document that
states one of the task's facts is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from context_agent.errors import ConfigError
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data.llm_stages.context import DocumentExcerpt, StageContext, document_chunks, off_loop
from context_agent.synth_data.llm_stages.model import InvalidReply, PromptPart
from context_agent.synth_data.matching import reveals_answer
from context_agent.synth_data.stages import DropRow, KeptRows
from context_agent.synth_data.task import Task, aliases, task_of
from context_agent.types import Chunk

DISTRACTORS = 10
"""Distractors of a task (the published pipeline's value)."""
QUERY_COUNT = 5
HITS_PER_QUERY = 20
"""Hits taken from each query."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


class SearchQueries(BaseModel):
    """What the model proposes to search for."""

    queries: list[str]


class AnswerVerdict(BaseModel):
    """What the model says of a candidate."""

    answers: bool


@dataclass(frozen=True, slots=True)
class DistractorSettings:
    """How many distractors a task gets, how many it must get, and whether a model looks at each of them."""

    count: int = DISTRACTORS
    least: int = 1
    checked: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.count:
            raise ConfigError(f"of {self.count} distractors, at least {self.least} cannot be asked for")


async def distract(shop: StageContext, mining: DistractorSettings, row: Mapping[str, Any]) -> KeptRows:
    """The task with its distractors, by a model's queries. Raises `Unfit`."""
    task = task_of(row, f"task {row.get('id')!r}")
    made = await shop.ask(
        "distract",
        [PromptPart("QUESTION", task.question), PromptPart("CLUES", task.clues)],
        SearchQueries,
        _check_queries,
        count=QUERY_COUNT,
    )
    queries = [query for query in made.queries if query.strip()][: 2 * QUERY_COUNT]
    return await _with_distractors(shop.corpus, task, queries, mining, shop if mining.checked else None)


async def distract_by_words(corpus: Corpus, mining: DistractorSettings, row: Mapping[str, Any]) -> KeptRows:
    """The task with its distractors, by the question and the sentences of the clues. Raises `Unfit`."""
    task = task_of(row, f"task {row.get('id')!r}")
    queries = [task.question, *_SENTENCE.split(task.clues)]
    return await _with_distractors(corpus, task, [query for query in queries if query.strip()], mining, None)


async def _with_distractors(
    corpus: Corpus, task: Task, queries: Sequence[str], mining: DistractorSettings, judge: StageContext | None
) -> KeptRows:
    if not task.answer.strip():
        raise DropRow("no answer", "without one no distractor can be checked")
    stated = await off_loop(corpus, lambda: corpus.get([chunk for fact in task.facts for chunk in fact]))
    proving = {*task.gold, *(chunk.document_id for chunk in stated)}
    taken: list[str] = []
    for document in [*task.distractors, *await _candidates(corpus, queries)]:
        if len(taken) == mining.count:
            break
        if document in proving or document in taken:
            continue
        if await _leaves_answer_unsaid(corpus, task, document, judge):
            taken.append(document)
    if len(taken) < mining.least:
        raise DropRow("too few distractors", f"{len(taken)} found, {mining.least} needed")
    return KeptRows((replace(task, distractors=tuple(taken)).to_json(),))


async def _candidates(corpus: Corpus, queries: Sequence[str]) -> list[str]:
    """Documents in the order in which the queries' ranks bring them up: all firsts, then all seconds."""
    found = await off_loop(corpus, lambda: [corpus.search(query, limit=HITS_PER_QUERY) for query in queries])
    ranked = [hits[rank].chunk.document_id for rank in range(HITS_PER_QUERY) for hits in found if rank < len(hits)]
    return list(dict.fromkeys(ranked))


async def _leaves_answer_unsaid(corpus: Corpus, task: Task, document: str, judge: StageContext | None) -> bool:
    """Whether the document, all of it, leaves the answer unsaid."""
    try:
        chunks = await document_chunks(corpus, document)
    except DropRow:
        return False
    if any(reveals_answer(chunk.indexed_text, task.answer, aliases(task)) for chunk in chunks):
        return False
    return judge is None or not await _answers_question(judge, task, chunks)


async def _answers_question(judge: StageContext, task: Task, chunks: Sequence[Chunk]) -> bool:
    shown = DocumentExcerpt(chunks[0].document_id, chunks[0].title, tuple(chunks[:4]))
    parts = [PromptPart("QUESTION", task.question), PromptPart("ANSWER", task.answer), shown.part("DOCUMENT")]
    return (await judge.ask("check", parts, AnswerVerdict)).answers


def _check_queries(made: SearchQueries) -> None:
    if not any(query.strip() for query in made.queries):
        raise InvalidReply("no queries", "at least one query is needed")
