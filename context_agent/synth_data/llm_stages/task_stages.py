"""The stages that write and check tasks, each by a language model.

`explore` gathers documents, `write` makes a question, `extend` adds a hop; `verify` finds the quotes that prove a task,
`distract` adds documents without the answer.

| stage | rows in | rows out |
|---|---|---|
| explore | `{id, seed}`: a document to start from | `{id, seed, documents: [{id, chunks, fact}]}`, three documents |
| write | those rows | tasks of level 0, not verified |
| extend | verified tasks | tasks of the next level, not verified |

What a rule can check is checked at once, and the model is told what to correct: a document must contain the answer, and
the question must contain neither the answer nor a title. The question of an extended task describes the old answer
instead of naming it, so a searcher must find the old answer first, and then what the bridging document connects it to.

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

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from context_agent.errors import ConfigError, DataError
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
from context_agent.synth_data.matching import (
    answer_forms,
    chunks_stating,
    count_quotes,
    find_quote,
    normalize,
    reveals_answer,
    states_answer,
)
from context_agent.synth_data.stages import DropRow, KeptRows, off_loop
from context_agent.synth_data.task import Support, Task, task_of
from context_agent.text.sentences import sentences
from context_agent.types import Chunk, RankedDocument

SUPPORTING_DOCUMENTS = 3
"""Documents of a task of level 0 (the value of the published pipeline)."""
ADDED_DOCUMENTS = 3
"""Documents that an extension adds: one bridging, two supporting (the values of the published pipeline)."""
FEWEST_WORDS = 10
"""Words that a document must have to start from."""
LONGEST_ANSWER = 8
"""Most words of an answer."""
LONGEST_TEXT = 4_000
"""Most characters of question and clues together."""
TASK_TYPE = "clues"
"""The `type` of these tasks: several described facts point to one answer."""
ORIGIN = "model"


class WrittenTask(BaseModel):
    """The writer's reply."""

    clues: str
    question: str
    answer: str
    truth_type: str
    aliases: list[str] = []


def draw_seeds(corpus: Corpus, count: int, seed: int) -> list[dict[str, Any]]:
    """Input rows for `explore`: distinct random documents in an order that the seed determines.

    Fewer than `count` if the corpus has fewer documents with enough words. Raises `DataError` if it is too small.
    """
    lengths: dict[str, int] = {}
    for chunk in corpus.walk():
        lengths[chunk.document_id] = lengths.get(chunk.document_id, 0) + len(chunk.text.split())
    usable = [document for document, length in lengths.items() if length >= FEWEST_WORDS]
    if len(usable) < SUPPORTING_DOCUMENTS:
        raise DataError(
            f"the corpus is too small: a task needs {SUPPORTING_DOCUMENTS} documents of {FEWEST_WORDS} words or more, "
            f"and it has {len(usable)}"
        )
    # All documents are shuffled, so that a larger count only adds rows.
    random.Random(seed).shuffle(usable)
    return [{"id": f"t{number:05}", "seed": document} for number, document in enumerate(usable[:count], start=1)]


async def explore(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the documents that the explorer gathers from the row's document. Raises `DropRow`."""
    start = await read_excerpt(context.corpus, str(row["seed"]))
    ranked = await context.explore("explore", [start.part("DOCUMENT")], SUPPORTING_DOCUMENTS)
    documents = [_document_row(document) for document in distinct_documents(ranked, SUPPORTING_DOCUMENTS)]
    return KeptRows(({"id": row["id"], "seed": row["seed"], "documents": documents},))


def distinct_documents(ranked: Sequence[RankedDocument], count: int) -> Sequence[RankedDocument]:
    """Return the first `count` documents. Raises `DropRow` if there are fewer, or if their facts are missing or
    repeated.
    """
    if len(ranked) < count:
        raise DropRow("too few documents", f"the explorer named {len(ranked)} of {count}")
    facts = {normalize(document.justification) for document in ranked[:count]} - {""}
    if len(facts) < count:
        raise DropRow("facts missing or repeated", f"{len(facts)} different facts for {count} documents")
    return ranked[:count]


def _document_row(document: RankedDocument) -> dict[str, Any]:
    return {"id": document.id, "chunks": [chunk.id for chunk in document.chunks], "fact": document.justification}


async def write(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the task that the model writes from the row's documents. Raises `DropRow`."""
    excerpts = [await read_excerpt(context.corpus, document, chunks) for document, chunks in _row_documents(row)]
    written = await context.ask(
        "write",
        [excerpt.part(f"DOCUMENT {number}") for number, excerpt in enumerate(excerpts, start=1)],
        WrittenTask,
        lambda reply: check_written(context, reply, excerpts),
        truth_types=context.truth_types,
    )
    return KeptRows((draft_task(context, str(row["id"]), written, excerpts).to_json(),))


def draft_task(context: StageContext, name: str, written: WrittenTask, excerpts: Sequence[DocumentExcerpt]) -> Task:
    """Return the task of level 0; its supporting documents are not verified yet."""
    return Task(
        id=name,
        question=written.question.strip(),
        answer=written.answer.strip(),
        gold=tuple(excerpt.id for excerpt in excerpts),
        type=TASK_TYPE,
        hops=1,
        level=0,
        clues=written.clues.strip(),
        truth_type=_truth_type_name(context, written),
        supporting=tuple(_support(excerpt) for excerpt in excerpts),
        domain=context.domain.name,
        origin=ORIGIN,
        labels=with_aliases({}, written),
    )


def with_aliases(labels: Mapping[str, Any], written: WrittenTask) -> dict[str, Any]:
    """Return the labels with the aliases of the new answer, if it has any."""
    aliases = [alias.strip() for alias in written.aliases if alias.strip()]
    rest = {key: value for key, value in labels.items() if key != "aliases"}
    return {**rest, "aliases": aliases} if aliases else rest


def check_written(
    context: StageContext, written: WrittenTask, excerpts: Sequence[DocumentExcerpt], secrets: Sequence[str] = ()
) -> None:
    """The rules for a written task. Raises `InvalidReply`.

    `excerpts` are the documents that may state the answer; `secrets` are further names that must not be given away.
    """
    text = f"{written.question}\n{written.clues}"
    if not written.question.strip() or not written.clues.strip() or len(text) > LONGEST_TEXT:
        raise InvalidReply(
            "no question", f"question and clues must not be empty, nor longer than {LONGEST_TEXT} characters"
        )
    if not answer_forms(written.answer) or len(written.answer.split()) > LONGEST_ANSWER:
        raise InvalidReply(
            "no answer", f"the answer must have 1 to {LONGEST_ANSWER} words; it was {written.answer[:80]!r}"
        )
    if context.truth_type(written.truth_type) is None:
        raise InvalidReply(
            "unknown truth type", f"{written.truth_type[:40]!r} is not one of the kinds of answers listed"
        )
    if not any(states_answer(excerpt.text, written.answer) for excerpt in excerpts):
        raise InvalidReply("answer in no document", f"no document says {written.answer!r}")
    for secret in (written.answer, *secrets):
        if reveals_answer(text, secret):
            raise InvalidReply("answer in the question", f"the question or the clues give {secret!r} away")
    for excerpt in excerpts:
        if _is_name(excerpt.title) and f" {normalize(excerpt.title)} " in f" {normalize(text)} ":
            raise InvalidReply(
                "title in the question", f"the question or the clues name {excerpt.title!r}; describe it instead"
            )


async def extend(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the task of the next level. Raises `DropRow`."""
    task = task_of(row, f"task {row.get('id')!r}")
    if task.hops >= context.domain.max_hops:
        raise DropRow("maximum hops reached", f"tasks of {context.domain.name} have at most {task.hops} hops")
    parts = [PromptPart("QUESTION", task.question), PromptPart("CLUES", task.clues), PromptPart("ANSWER", task.answer)]
    excerpts = await _new_excerpts(context, task, parts)
    names = ["BRIDGING DOCUMENT", "DOCUMENT 2", "DOCUMENT 3"]
    written = await context.ask(
        "extend",
        [*parts, *(excerpt.part(name) for name, excerpt in zip(names, excerpts, strict=True))],
        WrittenTask,
        lambda reply: _check_extension(context, task, reply, excerpts),
        truth_types=context.truth_types,
    )
    return KeptRows((extended_task(context, task, written, excerpts).to_json(),))


def extended_task(context: StageContext, task: Task, written: WrittenTask, excerpts: list[DocumentExcerpt]) -> Task:
    """Return the task with one more hop; its quotes, facts and distractors are those of no verified task yet."""
    return replace(
        task,
        id=f"{task.id.removesuffix(f'-{task.level}')}-{task.level + 1}",
        question=written.question.strip(),
        answer=written.answer.strip(),
        gold=(*task.gold, *(excerpt.id for excerpt in excerpts)),
        hops=task.hops + 1,
        facts=(),
        level=task.level + 1,
        clues=f"{task.clues}\n{written.clues.strip()}",
        truth_type=_truth_type_name(context, written),
        supporting=(
            *(Support(support.id, support.chunks) for support in task.supporting),
            *(_support(excerpt) for excerpt in excerpts),
        ),
        distractors=(),
        bridge=excerpts[0].id,
        labels={**with_aliases(task.labels, written), "bridges": [*_bridge_answers(task), task.answer]},
    )


async def _new_excerpts(context: StageContext, task: Task, parts: list[PromptPart]) -> list[DocumentExcerpt]:
    """Return the bridging document, which states the old answer, and two others; the task has none of them already."""
    explored = await context.explore("bridge", parts, ADDED_DOCUMENTS)
    ranked = distinct_documents([document for document in explored if document.id not in task.gold], ADDED_DOCUMENTS)
    excerpts = [
        await read_excerpt(context.corpus, document.id, [chunk.id for chunk in document.chunks]) for document in ranked
    ]
    bridge = next((excerpt for excerpt in excerpts if states_answer(excerpt.text, task.answer, task.aliases)), None)
    if bridge is None:
        raise DropRow("no bridging document", f"none of the documents named says {task.answer!r}")
    return [bridge, *(excerpt for excerpt in excerpts if excerpt is not bridge)]


def _check_extension(context: StageContext, task: Task, written: WrittenTask, excerpts: list[DocumentExcerpt]) -> None:
    if normalize(written.answer) == normalize(task.answer):
        raise InvalidReply("answer unchanged", f"the new answer is the old one, {task.answer!r}")
    check_written(context, written, excerpts, secrets=[task.answer, *task.aliases])
    # The old clues stay part of the task.
    if states_answer(task.clues, written.answer, written.aliases):
        raise InvalidReply("answer in the question", f"the old clues say {written.answer!r} already")


def _bridge_answers(task: Task) -> list[str]:
    """Return the answers of the lower levels, which the question only describes."""
    return [str(answer) for answer in task.labels.get("bridges", ())]


def _support(excerpt: DocumentExcerpt) -> Support:
    return Support(excerpt.id, tuple(chunk.id for chunk in excerpt.chunks))


def _is_name(title: str) -> bool:
    """Return whether a title identifies its document; a date or one short word occurs in many sentences."""
    return len(normalize(title)) >= 4 and any(char.isupper() for char in title)


def _truth_type_name(context: StageContext, written: WrittenTask) -> str:
    kind = context.truth_type(written.truth_type)
    return kind.name if kind else ""


def _row_documents(row: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the row's documents with their chunks. Raises `DataError` for a row that `explore` did not write."""
    try:
        return [(str(document["id"]), [str(chunk) for chunk in document["chunks"]]) for document in row["documents"]]
    except (KeyError, TypeError) as error:
        raise DataError(
            f"row {row.get('id')!r} has no documents ({error}): it must be a row that `ctx1 synth explore` wrote"
        ) from None


class ExtractedQuotes(BaseModel):
    """The extractor's reply."""

    clue_quotes: list[str]
    item_quotes: list[str]
    contains_answer: bool = False
    answer_quotes: list[str] = []


async def verify(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the task with the quotes that prove it, and its facts as chunk ids. Raises `DropRow`."""
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
    """Return the supporting document with its quotes, and the fact: the chunks that state one of the document's
    quotes.
    """
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
    """Return the chunks that state the fact; all chunks of the excerpt if the quotes stand in the title or span two
    chunks.

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
    """Return the task with distractors found by a model's queries. Raises `DropRow`."""
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
    """Return the task with distractors found by the question and the sentences of the clues. Raises `DropRow`."""
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
        raise DropRow("too few distractors", f"{len(distractors)} found, {settings.least} needed")
    return KeptRows((replace(task, distractors=tuple(distractors)).to_json(),))


async def _candidates(corpus: Corpus, queries: Sequence[str]) -> list[str]:
    """Return the documents of all hits, ordered by rank: the first hit of each query, then the second of each, and so
    on.
    """
    results = await off_loop(corpus, lambda: [corpus.search(query, k=HITS_PER_QUERY) for query in queries])
    ranked = [hits[rank].chunk.document_id for rank in range(HITS_PER_QUERY) for hits in results if rank < len(hits)]
    return list(dict.fromkeys(ranked))


async def _lacks_answer(corpus: Corpus, task: Task, document: str, judge: StageContext | None) -> bool:
    """Return whether no chunk of the document reveals the answer, by rule and, with a judge, by the model's verdict."""
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
