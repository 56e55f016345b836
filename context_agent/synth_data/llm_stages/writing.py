"""The first stage: an explorer starts from a document of the corpus and gathers the material of one task.

Rows in: `{id, seed}`, a document to start from. Rows out: `{id, seed, documents: [{id, chunks, fact}]}`, three
documents (level 0 of the published format), each with the chunks that the explorer kept in view and the fact it adds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from context_agent.errors import DataError
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data.llm_stages.context import DocumentExcerpt, StageContext, read_excerpt
from context_agent.synth_data.llm_stages.model import InvalidReply, PromptPart
from context_agent.synth_data.matching import answer_forms, normalize, reveals_answer, states_answer
from context_agent.synth_data.stages import DropRow, KeptRows
from context_agent.synth_data.task import Support, Task, aliases, task_of
from context_agent.types import RankedDocument

SUPPORTING_DOCUMENTS = 3
"""Documents of a task at level 0 (the published pipeline's value)."""
FEWEST_WORDS = 10
"""Words a document must have to start from."""


def draw_seeds(corpus: Corpus, count: int, seed: int) -> list[dict[str, Any]]:
    """Rows for `explore`: documents drawn at random, each once, in an order that the seed decides.

    Fewer where the corpus has fewer with enough words. Raises `DataError` for a corpus that no task can be made from.
    """
    words: dict[str, int] = {}
    for chunk in corpus.walk():
        words[chunk.document_id] = words.get(chunk.document_id, 0) + len(chunk.text.split())
    fit = [document for document, length in words.items() if length >= FEWEST_WORDS]
    if len(fit) < SUPPORTING_DOCUMENTS:
        raise DataError(
            f"the corpus is too small: a task needs {SUPPORTING_DOCUMENTS} documents of {FEWEST_WORDS} words or more, and it has "
            f"{len(fit)}"
        )
    # Shuffled as a whole, so that a larger count only adds rows.
    random.Random(seed).shuffle(fit)
    return [{"id": f"t{number:05}", "seed": document} for number, document in enumerate(fit[:count], start=1)]


async def explore(shop: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """The material that the explorer gathers from the row's document. Raises `Unfit`."""
    start = await read_excerpt(shop.corpus, str(row["seed"]))
    found = await shop.explore("explore", [start.part("DOCUMENT")], SUPPORTING_DOCUMENTS)
    documents = distinct_documents(found, SUPPORTING_DOCUMENTS)
    return KeptRows(({"id": row["id"], "seed": row["seed"], "documents": [_document_row(one) for one in documents]},))


def distinct_documents(found: Sequence[RankedDocument], count: int) -> Sequence[RankedDocument]:
    """The first `count` of the documents. Raises `Unfit` for fewer, and for facts that are missing or repeated."""
    if len(found) < count:
        raise DropRow("too few documents", f"the explorer named {len(found)} of {count}")
    facts = {normalize(document.justification) for document in found[:count]} - {""}
    if len(facts) < count:
        raise DropRow("facts missing or repeated", f"{len(facts)} different ones for {count} documents")
    return found[:count]


def _document_row(document: RankedDocument) -> dict[str, Any]:
    chunks = [chunk.id for chunk in document.chunks]
    return {"id": document.id, "chunks": chunks, "fact": document.justification}


LONGEST_ANSWER = 8
"""Words."""
LONGEST_TEXT = 4_000
"""Characters of a question or of clues."""
TASK_TYPE = "clues"
"""The `type` of these tasks: one answer that several described facts point to."""
ORIGIN = "model"


class WrittenTask(BaseModel):
    """What the writer gives."""

    clues: str
    question: str
    answer: str
    truth_type: str
    aliases: list[str] = []


async def write(shop: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """The task that the model writes from the row's documents. Raises `Unfit`."""
    documents = _row_documents(row)
    items = [await read_excerpt(shop.corpus, document, chunks) for document, chunks in documents]
    made = await shop.ask(
        "write",
        [one.part(f"DOCUMENT {number}") for number, one in enumerate(items, start=1)],
        WrittenTask,
        lambda written: check_written(shop, written, items),
        truth_types=shop.truth_types,
    )
    return KeptRows((draft_task(shop, str(row["id"]), made, items).to_json(),))


def draft_task(shop: StageContext, name: str, made: WrittenTask, items: Sequence[DocumentExcerpt]) -> Task:
    """The task of level 0, with its documents as supporting items that nothing has verified yet."""
    return Task(
        id=name,
        question=made.question.strip(),
        answer=made.answer.strip(),
        gold=tuple(one.id for one in items),
        type=TASK_TYPE,
        hops=1,
        level=0,
        clues=made.clues.strip(),
        truth_type=_truth_type_name(shop, made),
        supporting=tuple(Support(one.id, tuple(chunk.id for chunk in one.chunks)) for one in items),
        domain=shop.domain.name,
        origin=ORIGIN,
        labels=with_aliases({}, made),
    )


def with_aliases(labels: Mapping[str, Any], made: WrittenTask) -> dict[str, Any]:
    """The labels with the answer's aliases, where there are any."""
    aliases = [alias.strip() for alias in made.aliases if alias.strip()]
    rest = {key: value for key, value in labels.items() if key != "aliases"}
    return {**rest, "aliases": aliases} if aliases else rest


def check_written(
    shop: StageContext, made: WrittenTask, items: Sequence[DocumentExcerpt], secrets: Sequence[str] = ()
) -> None:
    """What a task must fulfil before anybody reads it. Raises `Wrong`.

    `items` are the documents that the answer may come from; `secrets` are words besides it that must not be said.
    """
    said = f"{made.question}\n{made.clues}"
    if not made.question.strip() or not made.clues.strip() or len(said) > LONGEST_TEXT:
        raise InvalidReply(
            "no question", f"question and clues must not be empty, nor longer than {LONGEST_TEXT} characters"
        )
    if not answer_forms(made.answer) or len(made.answer.split()) > LONGEST_ANSWER:
        raise InvalidReply(
            "no answer", f"the answer must have 1 to {LONGEST_ANSWER} words; it was {made.answer[:80]!r}"
        )
    if shop.truth_type(made.truth_type) is None:
        raise InvalidReply("unknown truth type", f"{made.truth_type[:40]!r} is not one of the kinds of answers listed")
    if not any(states_answer(one.text, made.answer) for one in items):
        raise InvalidReply("answer in no document", f"no document says {made.answer!r}")
    for secret in (made.answer, *secrets):
        if reveals_answer(said, secret):
            raise InvalidReply("answer in the question", f"the question or the clues give {secret!r} away")
    for one in items:
        if _is_name(one.title) and f" {normalize(one.title)} " in f" {normalize(said)} ":
            raise InvalidReply(
                "title in the question", f"the question or the clues name {one.title!r}; describe it instead"
            )


def _is_name(title: str) -> bool:
    """Whether a title says something: a date or a single small word stands in many a sentence."""
    return len(normalize(title)) >= 4 and any(char.isupper() for char in title)


def _truth_type_name(shop: StageContext, made: WrittenTask) -> str:
    kind = shop.truth_type(made.truth_type)
    return kind.name if kind else ""


def _row_documents(row: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The row's documents with their chunks. Raises `DataError` for a row that `explore` did not write."""
    try:
        return [(str(one["id"]), [str(chunk) for chunk in one["chunks"]]) for one in row["documents"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"row {row.get('id')!r} has no documents as `explore` writes them ({error})") from None


ADDED_DOCUMENTS = 3
"""Documents of an extension: one bridging, two supporting (the published pipeline's values)."""


async def extend(shop: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """The task one level higher. Raises `Unfit`."""
    task = task_of(row, f"task {row.get('id')!r}")
    if task.hops >= shop.domain.max_hops:
        raise DropRow("longest already", f"{task.hops} hops are the most for {shop.domain.name}")
    parts = [PromptPart("QUESTION", task.question), PromptPart("CLUES", task.clues), PromptPart("ANSWER", task.answer)]
    items = await _new_excerpts(shop, task, parts)
    names = ["BRIDGING DOCUMENT", "DOCUMENT 2", "DOCUMENT 3"]
    made = await shop.ask(
        "extend",
        [*parts, *(one.part(name) for name, one in zip(names, items, strict=True))],
        WrittenTask,
        lambda written: _check_extension(shop, task, written, items),
        truth_types=shop.truth_types,
    )
    return KeptRows((_extended_task(shop, task, made, items).to_json(),))


async def _new_excerpts(shop: StageContext, task: Task, parts: list[PromptPart]) -> list[DocumentExcerpt]:
    """The bridging document, which says the old answer, and the two others; none of them is the task's already."""
    found = [one for one in await shop.explore("bridge", parts, ADDED_DOCUMENTS) if one.id not in task.gold]
    items = [
        await read_excerpt(shop.corpus, one.id, [chunk.id for chunk in one.chunks])
        for one in distinct_documents(found, ADDED_DOCUMENTS)
    ]
    bridge = next((one for one in items if states_answer(one.text, task.answer, aliases(task))), None)
    if bridge is None:
        raise DropRow("no bridging document", f"none of the documents named says {task.answer!r}")
    return [bridge, *(one for one in items if one is not bridge)]


def _check_extension(shop: StageContext, task: Task, made: WrittenTask, items: list[DocumentExcerpt]) -> None:
    if normalize(made.answer) == normalize(task.answer):
        raise InvalidReply("answer unchanged", f"the new answer is the old one, {task.answer!r}")
    check_written(shop, made, items, secrets=[task.answer, *aliases(task)])
    if betrayed := _answer_in_old_clues(task, made):
        raise InvalidReply("answer in the question", betrayed)


def _answer_in_old_clues(task: Task, made: WrittenTask) -> str:
    """Whether the old clues, which stay, say the new answer."""
    return f"the old clues say {made.answer!r} already" if states_answer(task.clues, made.answer, made.aliases) else ""


def _extended_task(shop: StageContext, task: Task, made: WrittenTask, items: list[DocumentExcerpt]) -> Task:
    kind = shop.truth_type(made.truth_type)
    added = tuple(Support(one.id, tuple(chunk.id for chunk in one.chunks)) for one in items)
    kept = tuple(Support(one.id, one.chunks) for one in task.supporting)
    return replace(
        task,
        id=f"{task.id.removesuffix(f'-{task.level}')}-{task.level + 1}",
        question=made.question.strip(),
        answer=made.answer.strip(),
        gold=(*task.gold, *(one.id for one in items)),
        hops=task.hops + 1,
        facts=(),
        level=task.level + 1,
        clues=f"{task.clues}\n{made.clues.strip()}",
        truth_type=kind.name if kind else "",
        supporting=(*kept, *added),
        distractors=(),
        bridge=items[0].id,
        labels={**with_aliases(task.labels, made), "bridges": [*_bridge_answers(task), task.answer]},
    )


def _bridge_answers(task: Task) -> list[str]:
    """The answers of the levels below, which the question only describes."""
    return [str(one) for one in task.labels.get("bridges", ())]
