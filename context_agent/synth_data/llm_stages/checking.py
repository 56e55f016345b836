"""The stages that check tasks: `verify` finds the quotes that prove them, `distract` adds documents without the answer.

**Verify.** For each supporting document a model copies quotes from the clues, from the document, and of the answer. The
published rule: at least two thirds, rounded up, of the clue quotes are in the clues and of the document quotes in the
document, all answer quotes are in the document, and at least one document contains the answer; the model has three
attempts. This stage is stricter: a document contains the answer only if a quote found in it states the answer in some
form.

**Distract.** Distractors look relevant and do not contain the answer. The queries come from a model, or else from the
question and its clues, and the corpus' own search runs them. A document is rejected if any of its chunks states the
answer in any form or reveals it, or if it states a fact of the task; a model can judge the rest. Distractors that the
task already has pass the same checks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from context_agent.errors import ConfigError
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.llm_stages.model import (
    EXCERPT_CHUNKS,
    DocumentExcerpt,
    InvalidReply,
    PromptPart,
    StageContext,
    document_chunks,
    read_excerpt,
)
from context_agent.synth_data.matching import chunks_stating, count_quotes, find_quote, reveals_answer, states_answer
from context_agent.synth_data.stages import DropRow, KeptRows, off_loop
from context_agent.synth_data.task import Support, Task, task_of
from context_agent.types import Chunk


class ExtractedQuotes(BaseModel):
    """The extractor's reply."""

    clue_quotes: list[str]
    item_quotes: list[str]
    contains_answer: bool = False
    answer_quotes: list[str] = []


async def verify(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """The task with the quotes that prove it, and its facts as chunk ids. Raises `DropRow`."""
    task = task_of(row, f"task {row.get('id')!r}")
    if not task.supporting:
        raise DropRow("no supporting items", task.id)
    proofs = [await _verify_document(context, task, support) for support in task.supporting]
    supporting = tuple(support for support, _ in proofs)
    if not any(support.contains_truth for support in supporting):
        raise DropRow("answer in no item", f"no quote of a document says {task.answer!r}")
    facts = tuple(dict.fromkeys(fact for _, fact in proofs))
    return KeptRows((replace(task, supporting=supporting, facts=facts).to_json(),))


def quotes_needed(count: int) -> int:
    """Two thirds of the count, rounded up."""
    return -(-2 * count // 3)


def check_quotes(extracted: ExtractedQuotes, task: Task, excerpt: DocumentExcerpt) -> None:
    """The published rule for one document. Raises `InvalidReply`."""
    for name, quotes, source in (
        ("clues", extracted.clue_quotes, task.clues),
        ("document", extracted.item_quotes, excerpt.text),
    ):
        matched, required = count_quotes(quotes, source), max(1, quotes_needed(len(quotes)))
        if matched < required:
            raise InvalidReply(
                f"quotes not in the {name}",
                f"{matched} of {len(quotes)} quotes stand in the {name}, {required} must; not there is "
                f"{_first_missing(quotes, source)!r}",
            )
    missing = _first_missing(extracted.answer_quotes, excerpt.text)
    if extracted.contains_answer and (missing or not extracted.answer_quotes):
        raise InvalidReply(
            "answer quotes not in the document", f"answer_quotes must all stand in the document: {missing!r}"
        )


async def _verify_document(context: StageContext, task: Task, support: Support) -> tuple[Support, tuple[str, ...]]:
    """The supporting document with its quotes, and the fact: the chunks that state one of the document's quotes."""
    excerpt = await read_excerpt(context.corpus, support.id, support.chunks)
    extracted = await context.ask(
        "verify",
        [PromptPart("CLUES", task.clues), PromptPart("ANSWER", task.answer), excerpt.part("DOCUMENT")],
        ExtractedQuotes,
        lambda reply: check_quotes(reply, task, excerpt),
    )
    has_answer = extracted.contains_answer and any(
        states_answer(quote, task.answer, task.aliases) for quote in extracted.answer_quotes
    )
    verified = replace(
        support,
        clue_quotes=_quotes_in(task.clues, extracted.clue_quotes),
        item_quotes=_quotes_in(excerpt.text, extracted.item_quotes),
        contains_truth=has_answer,
        truth_quotes=tuple(extracted.answer_quotes) if has_answer else (),
    )
    return verified, await _fact_chunks(context, verified.item_quotes, excerpt)


def _quotes_in(source: str, quotes: Sequence[str]) -> tuple[str, ...]:
    return tuple(quote for quote in quotes if find_quote(quote, source) is not None)


def _first_missing(quotes: Sequence[str], source: str) -> str:
    return next((quote[:200] for quote in quotes if find_quote(quote, source) is None), "")


async def _fact_chunks(context: StageContext, quotes: Sequence[str], excerpt: DocumentExcerpt) -> tuple[str, ...]:
    """The chunks that state the fact; all chunks of the excerpt if the quotes stand in the title or span two chunks.

    In a domain that scores by fact, every chunk of the corpus counts that states at least two thirds of the quotes. A
    chunk that only shares a name or a year with the fact does not.
    """
    excerpt_chunks = tuple(chunk.id for chunk in excerpt.chunks if count_quotes(quotes, chunk.text))
    excerpt_chunks = excerpt_chunks or tuple(chunk.id for chunk in excerpt.chunks)
    if context.domain.positives != "fact":
        return excerpt_chunks
    stating = await off_loop(
        context.corpus, lambda: [chunk for quote in quotes for chunk in chunks_stating(quote, context.corpus)]
    )
    restating = [chunk for chunk, count in Counter(stating).items() if count >= quotes_needed(len(quotes))]
    return tuple(dict.fromkeys([*excerpt_chunks, *restating]))


DISTRACTORS = 10
"""Distractors of a task (the value of the published pipeline)."""
QUERY_COUNT = 5
"""Queries that the model is asked for."""
HITS_PER_QUERY = 20
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


class SearchQueries(BaseModel):
    """The model's queries."""

    queries: list[str]


class AnswerVerdict(BaseModel):
    """The model's verdict on a document."""

    answers: bool


@dataclass(frozen=True, slots=True)
class DistractorSettings:
    """Most and fewest distractors of a task, and whether a model judges each of them."""

    count: int = DISTRACTORS
    least: int = 1
    checked: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.count:
            raise ConfigError(f"at least {self.least} of {self.count} distractors are impossible: lower the minimum")


async def distract(context: StageContext, settings: DistractorSettings, row: Mapping[str, Any]) -> KeptRows:
    """The task with distractors found by a model's queries. Raises `DropRow`."""
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
    """The task with distractors found by the question and the sentences of the clues. Raises `DropRow`."""
    task = task_of(row, f"task {row.get('id')!r}")
    queries = [task.question, *_SENTENCE.split(task.clues)]
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
        raise DropRow("too few distractors", f"{len(distractors)} found, {settings.least} needed")
    return KeptRows((replace(task, distractors=tuple(distractors)).to_json(),))


async def _candidates(corpus: Corpus, queries: Sequence[str]) -> list[str]:
    """The documents of all hits, ordered by rank: the first hit of each query, then the second of each, and so on."""
    results = await off_loop(corpus, lambda: [corpus.search(query, limit=HITS_PER_QUERY) for query in queries])
    ranked = [hits[rank].chunk.document_id for rank in range(HITS_PER_QUERY) for hits in results if rank < len(hits)]
    return list(dict.fromkeys(ranked))


async def _lacks_answer(corpus: Corpus, task: Task, document: str, judge: StageContext | None) -> bool:
    """Whether no chunk of the document reveals the answer, by rule and, with a judge, by the model's verdict."""
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
