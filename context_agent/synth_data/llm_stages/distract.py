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
from context_agent.synth_data.llm_stages.context import Item, Workshop, off_loop, whole
from context_agent.synth_data.llm_stages.model import Part, Wrong
from context_agent.synth_data.matching import reveals_answer
from context_agent.synth_data.stages import Kept, Unfit
from context_agent.synth_data.task import Task, aliases, task_of
from context_agent.types import Chunk

COUNT = 10
"""Distractors of a task (the published pipeline's value)."""
QUERIES = 5
DEPTH = 20
"""Hits taken from each query."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


class Queries(BaseModel):
    """What the model proposes to search for."""

    queries: list[str]


class Verdict(BaseModel):
    """What the model says of a candidate."""

    answers: bool


@dataclass(frozen=True, slots=True)
class Mining:
    """How many distractors a task gets, how many it must get, and whether a model looks at each of them."""

    count: int = COUNT
    least: int = 1
    checked: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.count:
            raise ConfigError(f"of {self.count} distractors, at least {self.least} cannot be asked for")


async def distract(shop: Workshop, mining: Mining, row: Mapping[str, Any]) -> Kept:
    """The task with its distractors, by a model's queries. Raises `Unfit`."""
    task = task_of(row, f"task {row.get('id')!r}")
    made = await shop.ask(
        "distract", [Part("QUESTION", task.question), Part("CLUES", task.clues)], Queries, _some, count=QUERIES
    )
    queries = [query for query in made.queries if query.strip()][: 2 * QUERIES]
    return await _mined(shop.corpus, task, queries, mining, shop if mining.checked else None)


async def distract_by_words(corpus: Corpus, mining: Mining, row: Mapping[str, Any]) -> Kept:
    """The task with its distractors, by the question and the sentences of the clues. Raises `Unfit`."""
    task = task_of(row, f"task {row.get('id')!r}")
    queries = [task.question, *_SENTENCE.split(task.clues)]
    return await _mined(corpus, task, [query for query in queries if query.strip()], mining, None)


async def _mined(corpus: Corpus, task: Task, queries: Sequence[str], mining: Mining, judge: Workshop | None) -> Kept:
    if not task.answer.strip():
        raise Unfit("no answer", "without one no distractor can be checked")
    stated = await off_loop(corpus, lambda: corpus.get([chunk for fact in task.facts for chunk in fact]))
    proving = {*task.gold, *(chunk.document_id for chunk in stated)}
    taken: list[str] = []
    for document in [*task.distractors, *await _candidates(corpus, queries)]:
        if len(taken) == mining.count:
            break
        if document in proving or document in taken:
            continue
        if await _harmless(corpus, task, document, judge):
            taken.append(document)
    if len(taken) < mining.least:
        raise Unfit("too few distractors", f"{len(taken)} found, {mining.least} needed")
    return Kept((replace(task, distractors=tuple(taken)).to_json(),))


async def _candidates(corpus: Corpus, queries: Sequence[str]) -> list[str]:
    """Documents in the order in which the queries' ranks bring them up: all firsts, then all seconds."""
    found = await off_loop(corpus, lambda: [corpus.search(query, limit=DEPTH) for query in queries])
    ranked = [hits[rank].chunk.document_id for rank in range(DEPTH) for hits in found if rank < len(hits)]
    return list(dict.fromkeys(ranked))


async def _harmless(corpus: Corpus, task: Task, document: str, judge: Workshop | None) -> bool:
    """Whether the document, all of it, leaves the answer unsaid."""
    try:
        chunks = await whole(corpus, document)
    except Unfit:
        return False
    if any(reveals_answer(chunk.indexed_text, task.answer, aliases(task)) for chunk in chunks):
        return False
    return judge is None or not await _answers(judge, task, chunks)


async def _answers(judge: Workshop, task: Task, chunks: Sequence[Chunk]) -> bool:
    shown = Item(chunks[0].document_id, chunks[0].title, tuple(chunks[:4]))
    parts = [Part("QUESTION", task.question), Part("ANSWER", task.answer), shown.part("DOCUMENT")]
    return (await judge.ask("check", parts, Verdict)).answers


def _some(made: Queries) -> None:
    if not any(query.strip() for query in made.queries):
        raise Wrong("no queries", "at least one query is needed")
