"""The stage `distract`, which adds documents that look relevant and do not contain the answer.

The queries come from a model, or from the question and its clues. The corpus's own search runs them. A document is
rejected if one of its chunks states or reveals the answer in any form, or states a fact of the task. A model can judge
the rest. Distractors that the task already has must pass the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from context_agent.errors import ConfigError
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.answers import reveals_answer
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.excerpts import EXCERPT_CHUNKS, DocumentExcerpt, document_chunks
from context_agent.synth_data.llm_stages.model import InvalidReply
from context_agent.synth_data.llm_stages.templates import PromptPart
from context_agent.synth_data.stages import DropRow, KeptRows, off_loop
from context_agent.synth_data.task import Task, task_of
from context_agent.text.sentences import sentences
from context_agent.types import Chunk

DISTRACTORS = 10
"""The number of distractors of a task. The value comes from the published pipeline."""


QUERY_COUNT = 5
"""The number of queries that the model is asked for."""


HITS_PER_QUERY = 20


class SearchQueries(BaseModel):
    """The model's reply with queries."""

    queries: list[str]


class AnswerVerdict(BaseModel):
    """The model's verdict on whether a document answers the question."""

    answers: bool


@dataclass(frozen=True, slots=True)
class DistractorSettings:
    """The settings of the stage.

    Attributes:
        count: The largest number of distractors of a task.
        least: The smallest number of distractors of a task.
        checked: True if a model judges each distractor.
    """

    count: int = DISTRACTORS
    least: int = 1
    checked: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.count:
            raise ConfigError(
                f"at least {self.least} of {self.count} distractors are impossible. Lower the minimum, or raise the "
                "number."
            )


async def distract(context: StageContext, settings: DistractorSettings, row: Mapping[str, Any]) -> KeptRows:
    """Return the task with distractors that a model's queries find.

    Raises:
        DropRow: If the task has no answer, or if too few distractors are found.
    """
    task = task_of(row, f"task {row.get('id')!r}")
    proposal = await context.ask(
        "distract",
        [PromptPart("QUESTION", task.question), PromptPart("CLUES", task.clues)],
        SearchQueries,
        _check_queries,
        count=QUERY_COUNT,
    )
    queries = [query for query in proposal.queries if query.strip()][: 2 * QUERY_COUNT]
    return await _with_distractors(context.corpus, task, queries, settings, context if settings.checked else None)


async def distract_by_words(corpus: Corpus, settings: DistractorSettings, row: Mapping[str, Any]) -> KeptRows:
    """Return the task with distractors that the question and the sentences of the clues find.

    Raises:
        DropRow: If the task has no answer, or if too few distractors are found.
    """
    task = task_of(row, f"task {row.get('id')!r}")
    queries = [task.question, *sentences(task.clues)]
    return await _with_distractors(corpus, task, [query for query in queries if query.strip()], settings, None)


async def _with_distractors(
    corpus: Corpus, task: Task, queries: Sequence[str], settings: DistractorSettings, judge: StageContext | None
) -> KeptRows:
    if not task.answer.strip():
        raise DropRow("no answer", "distractors cannot be checked without an answer")
    fact_chunks = await off_loop(corpus, lambda: corpus.get([chunk for fact in task.facts for chunk in fact]))
    proving = {*task.gold, *(chunk.document_id for chunk in fact_chunks)}
    distractors: list[str] = []
    for document in [*task.distractors, *await _candidates(corpus, queries)]:
        if len(distractors) == settings.count:
            break
        if document in proving or document in distractors:
            continue
        if await _lacks_answer(corpus, task, document, judge):
            distractors.append(document)
    if len(distractors) < settings.least:
        raise DropRow("there are too few distractors", f"{len(distractors)} found, {settings.least} needed")
    return KeptRows((replace(task, distractors=tuple(distractors)).to_json(),))


async def _candidates(corpus: Corpus, queries: Sequence[str]) -> list[str]:
    """Return the documents of all hits, ordered by rank.

    The first hit of each query comes first, then the second hit of each, and so on.
    """
    results = await off_loop(corpus, lambda: [corpus.search(query, k=HITS_PER_QUERY) for query in queries])
    ranked = [hits[rank].chunk.document_id for rank in range(HITS_PER_QUERY) for hits in results if rank < len(hits)]
    return list(dict.fromkeys(ranked))


async def _lacks_answer(corpus: Corpus, task: Task, document: str, judge: StageContext | None) -> bool:
    """Return True if no chunk of the document reveals the answer. With a judge, the model must agree."""
    try:
        chunks = await document_chunks(corpus, document)
    except DropRow:
        return False
    if any(reveals_answer(chunk.indexed_text, task.answer, task.aliases) for chunk in chunks):
        return False
    return judge is None or not await _answers_question(judge, task, chunks)


async def _answers_question(judge: StageContext, task: Task, chunks: Sequence[Chunk]) -> bool:
    excerpt = DocumentExcerpt(chunks[0].document_id, chunks[0].title, tuple(chunks[:EXCERPT_CHUNKS]))
    parts = [PromptPart("QUESTION", task.question), PromptPart("ANSWER", task.answer), excerpt.part("DOCUMENT")]
    return (await judge.ask("check", parts, AnswerVerdict)).answers


def _check_queries(proposal: SearchQueries) -> None:
    if not any(query.strip() for query in proposal.queries):
        raise InvalidReply("no queries", "at least one query is needed")
