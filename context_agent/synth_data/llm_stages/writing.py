"""The stages in which a language model writes tasks: `explore`, `write` and `extend`.

| stage | rows in | rows out |
|---|---|---|
| explore | `{id, seed}`: a document to start from | `{id, seed, documents: [{id, chunks, fact}]}`, three documents |
| write | those rows | tasks of level 0, not verified |
| extend | verified tasks | tasks of the next level, not verified |

If a rule can check a reply, the stage checks it at once and describes the problem to the model. A document must contain
the answer. The question must contain neither the answer nor a title. The question of an extended task describes the old
answer instead of naming it. So a searcher must first find the old answer, and then the new answer, which the bridging
document connects to it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from context_agent.errors import DataError
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.answers import answer_forms, reveals_answer, states_answer
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.excerpts import DocumentExcerpt, read_excerpt
from context_agent.synth_data.llm_stages.model import InvalidReply
from context_agent.synth_data.llm_stages.templates import PromptPart
from context_agent.synth_data.quotes import normalize
from context_agent.synth_data.stages import DropRow, KeptRows
from context_agent.synth_data.task import Support, Task, task_of
from context_agent.types import RankedDocument

SUPPORTING_DOCUMENTS = 3
"""The number of documents of a task of level 0. The value comes from the published pipeline."""


ADDED_DOCUMENTS = 3
"""The number of documents that an extension adds: one bridging document and two supporting documents.

The values come from the published pipeline.
"""


FEWEST_WORDS = 10
"""The smallest number of words of a document to start from."""


LONGEST_ANSWER = 8
"""The largest number of words of an answer."""


LONGEST_TEXT = 4_000
"""The largest number of characters of question and clues together."""


TASK_TYPE = "clues"
"""The `type` of these tasks: several described facts lead to one answer."""


ORIGIN = "model"


class WrittenTask(BaseModel):
    """The writer's reply: a task that was not checked yet."""

    clues: str
    question: str
    answer: str
    truth_type: str
    aliases: list[str] = []


def draw_seeds(corpus: Corpus, count: int, seed: int) -> list[dict[str, Any]]:
    """Return input rows for `explore`: distinct random documents, in an order that the seed determines.

    If the corpus has fewer than `count` documents with enough words, return fewer rows.

    Raises:
        DataError: If the corpus is too small for a single task.
    """
    lengths: dict[str, int] = {}
    for chunk in corpus.walk():
        lengths[chunk.document_id] = lengths.get(chunk.document_id, 0) + len(chunk.text.split())
    usable = [document for document, length in lengths.items() if length >= FEWEST_WORDS]
    if len(usable) < SUPPORTING_DOCUMENTS:
        raise DataError(
            f"a task needs {SUPPORTING_DOCUMENTS} documents of {FEWEST_WORDS} words or more, but the corpus is too "
            f"small and has {len(usable)}. Index more documents."
        )
    # All documents are shuffled, so that a larger count only adds rows.
    random.Random(seed).shuffle(usable)
    return [{"id": f"t{number:05}", "seed": document} for number, document in enumerate(usable[:count], start=1)]


async def explore(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the documents that the explorer finds from the row's document.

    Raises:
        DropRow: If the explorer finds too few documents, or if their facts are missing or repeated.
    """
    start = await read_excerpt(context.corpus, str(row["seed"]))
    ranked = await context.explore("explore", [start.part("DOCUMENT")], SUPPORTING_DOCUMENTS)
    documents = [_document_row(document) for document in distinct_documents(ranked, SUPPORTING_DOCUMENTS)]
    return KeptRows(({"id": row["id"], "seed": row["seed"], "documents": documents},))


def distinct_documents(ranked: Sequence[RankedDocument], count: int) -> Sequence[RankedDocument]:
    """Return the first `count` documents.

    Raises:
        DropRow: If there are fewer documents, or if their facts are missing or repeated.
    """
    if len(ranked) < count:
        raise DropRow("there are too few documents", f"the explorer named {len(ranked)} of {count} documents")
    facts = {normalize(document.justification) for document in ranked[:count]} - {""}
    if len(facts) < count:
        raise DropRow("facts are missing or repeated", f"the {count} documents have only {len(facts)} different facts")
    return ranked[:count]


def _document_row(document: RankedDocument) -> dict[str, Any]:
    return {"id": document.id, "chunks": [chunk.id for chunk in document.chunks], "fact": document.justification}


async def write(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the task that the model writes from the row's documents.

    Raises:
        DropRow: If a document is missing, or if no reply of the model is valid.
    """
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
    """Return the task of level 0. Its supporting documents are not verified yet."""
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
    """Return the labels with the aliases of the new answer. If the answer has no aliases, remove the old ones."""
    aliases = [alias.strip() for alias in written.aliases if alias.strip()]
    rest = {key: value for key, value in labels.items() if key != "aliases"}
    return {**rest, "aliases": aliases} if aliases else rest


def check_written(
    context: StageContext, written: WrittenTask, excerpts: Sequence[DocumentExcerpt], secrets: Sequence[str] = ()
) -> None:
    """Check the rules for a written task.

    Args:
        context: The corpus, the model and the domain.
        written: The task that the model wrote.
        excerpts: The documents that may state the answer.
        secrets: Further names that the question must not reveal.

    Raises:
        InvalidReply: If the task breaks a rule.
    """
    text = f"{written.question}\n{written.clues}"
    if not written.question.strip() or not written.clues.strip() or len(text) > LONGEST_TEXT:
        raise InvalidReply(
            "no question", f"question and clues must not be empty, nor longer than {LONGEST_TEXT} characters"
        )
    if not answer_forms(written.answer) or len(written.answer.split()) > LONGEST_ANSWER:
        raise InvalidReply(
            "no answer", f"the answer must have 1 to {LONGEST_ANSWER} words; got {written.answer[:80]!r}"
        )
    if context.truth_type(written.truth_type) is None:
        raise InvalidReply(
            "the truth type is unknown", f"{written.truth_type[:40]!r} is not one of the kinds of answers listed"
        )
    if not any(states_answer(excerpt.text, written.answer) for excerpt in excerpts):
        raise InvalidReply("the answer is in no document", f"no document says {written.answer!r}")
    for secret in (written.answer, *written.aliases, *secrets):
        if reveals_answer(text, secret):
            raise InvalidReply("the question contains the answer", f"the question or the clues give {secret!r} away")
    for excerpt in excerpts:
        if _is_name(excerpt.title) and f" {normalize(excerpt.title)} " in f" {normalize(text)} ":
            raise InvalidReply(
                "a title is in the question", f"the question or the clues name {excerpt.title!r}. Describe it instead."
            )


async def extend(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the task of the next level.

    Raises:
        DropRow: If the task has the largest number of hops, if no bridging document is found, or if no reply is valid.
    """
    task = task_of(row, f"task {row.get('id')!r}")
    if task.hops >= context.domain.max_hops:
        raise DropRow("the maximum of hops is reached", f"tasks of {context.domain.name} have at most {task.hops} hops")
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
    """Return the task with one more hop. Its quotes, facts and distractors are empty until later stages fill them."""
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
    """Return the bridging document, which states the old answer, and two other documents.

    All three are new to the task.
    """
    explored = await context.explore("bridge", parts, ADDED_DOCUMENTS)
    ranked = distinct_documents([document for document in explored if document.id not in task.gold], ADDED_DOCUMENTS)
    excerpts = [
        await read_excerpt(context.corpus, document.id, [chunk.id for chunk in document.chunks]) for document in ranked
    ]
    bridge = next((excerpt for excerpt in excerpts if states_answer(excerpt.text, task.answer, task.aliases)), None)
    if bridge is None:
        raise DropRow("no bridging document was named", f"none of the documents named says {task.answer!r}")
    return [bridge, *(excerpt for excerpt in excerpts if excerpt is not bridge)]


def _check_extension(context: StageContext, task: Task, written: WrittenTask, excerpts: list[DocumentExcerpt]) -> None:
    earlier = [*_bridge_answers(task), task.answer]
    if normalize(written.answer) in map(normalize, earlier):
        raise InvalidReply("the answer is unchanged", f"the new answer is an old one, {written.answer!r}")
    # A question that names an earlier answer can be answered without the hops that lead to it.
    check_written(context, written, excerpts, secrets=[*earlier, *task.aliases])
    # The old clues stay in the task, so they must not state the new answer.
    if states_answer(task.clues, written.answer, written.aliases):
        raise InvalidReply("the clues contain the answer", f"the old clues already say {written.answer!r}")


def _bridge_answers(task: Task) -> list[str]:
    """Return the answers of the lower levels. The question must describe them and not name them."""
    return [str(answer) for answer in task.labels.get("bridges", ())]


def _support(excerpt: DocumentExcerpt) -> Support:
    return Support(excerpt.id, tuple(chunk.id for chunk in excerpt.chunks))


def _is_name(title: str) -> bool:
    """Return True if the title identifies its document. A date or one short word does not."""
    return len(normalize(title)) >= 4 and any(char.isupper() for char in title)


def _truth_type_name(context: StageContext, written: WrittenTask) -> str:
    kind = context.truth_type(written.truth_type)
    return kind.name if kind else ""


def _row_documents(row: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the ids of the row's documents, each with the ids of its chunks.

    Raises:
        DataError: If `explore` did not write the row.
    """
    try:
        return [(str(document["id"]), [str(chunk) for chunk in document["chunks"]]) for document in row["documents"]]
    except (KeyError, TypeError) as error:
        raise DataError(
            f"row {row.get('id')!r} has no documents ({error}). Pass rows that `ctx1 synth explore` wrote."
        ) from None
