"""The stage `verify`, which finds the quotes that prove a task.

For each supporting document, a model copies quotes from the clues, quotes from the document, and quotes of the answer.
The published rule has four parts. At least two thirds of the clue quotes, rounded up, are in the clues. The same share
of the document quotes is in the document. All answer quotes are in the document. At least one document contains the
answer. The model has three attempts.

This stage is stricter. A document contains the answer only if one of its quotes states the answer in some form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from context_agent.synth_data.answers import states_answer
from context_agent.synth_data.facts import chunks_stating
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.excerpts import DocumentExcerpt, read_excerpt
from context_agent.synth_data.llm_stages.model import InvalidReply
from context_agent.synth_data.llm_stages.templates import PromptPart
from context_agent.synth_data.quotes import count_quotes, find_quote
from context_agent.synth_data.stages import DropRow, KeptRows, off_loop
from context_agent.synth_data.task import Support, Task, task_of


class ExtractedQuotes(BaseModel):
    """The extractor's reply: the quotes that it copied, and whether the document contains the answer."""

    clue_quotes: list[str]
    item_quotes: list[str]
    contains_answer: bool = False
    answer_quotes: list[str] = []


async def verify(context: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """Return the task with the quotes that prove it, and with its facts as chunk ids.

    Raises:
        DropRow: If the task has no supporting documents, or if no quote states the answer.
    """
    task = task_of(row, f"task {row.get('id')!r}")
    if not task.supporting:
        raise DropRow("no item supports the answer", task.id)
    proofs = [await _verify_document(context, task, support) for support in task.supporting]
    supporting = tuple(support for support, _ in proofs)
    if not any(support.contains_truth for support in supporting):
        raise DropRow("the answer is in no item", f"no quote of a document says {task.answer!r}")
    facts = tuple(dict.fromkeys(fact for _, fact in proofs))
    return KeptRows((replace(task, supporting=supporting, facts=facts).to_json(),))


def quotes_needed(count: int) -> int:
    """Return two thirds of the count, rounded up."""
    return -(-2 * count // 3)


def check_quotes(extracted: ExtractedQuotes, task: Task, excerpt: DocumentExcerpt) -> None:
    """Check the published rule for one document.

    Raises:
        InvalidReply: If too few of the quotes are in their source.
    """
    for name, quotes, source in (
        ("clues", extracted.clue_quotes, task.clues),
        ("document", extracted.item_quotes, excerpt.text),
    ):
        matched, required = count_quotes(quotes, source), max(1, quotes_needed(len(quotes)))
        if matched < required:
            raise InvalidReply(
                f"quotes are not in the {name}",
                f"{matched} of {len(quotes)} quotes are in the {name}, but {required} must be. Missing is "
                f"{_first_missing(quotes, source)!r}.",
            )
    missing = _first_missing(extracted.answer_quotes, excerpt.text)
    if extracted.contains_answer and (missing or not extracted.answer_quotes):
        raise InvalidReply(
            "answer quotes are not in the document",
            f"all answer_quotes must be in the document. Missing is {missing!r}.",
        )


async def _verify_document(context: StageContext, task: Task, support: Support) -> tuple[Support, tuple[str, ...]]:
    """Return the supporting document with its quotes, and the fact: the chunks that state one of the quotes."""
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
    """Return the chunks that state the fact.

    If the quotes are in the title or span two chunks, return all chunks of the excerpt. If the domain scores by fact,
    return every chunk of the corpus that states at least two thirds of the quotes. A chunk that only shares a name or a
    year with the fact does not count.
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
