"""The third stage: a model extracts quotes, and the cascade says which of them really stand where they should.

For each supporting item a model copies quotes from the clues, from the item, and of the answer. The published rule: at
least two thirds, rounded up, of the clue quotes stand in the clues and of the item quotes in the item, all quotes of
the answer stand in the item, and at least one item contains the answer; up to three tries. Stricter here: an item
contains the answer only where a quote that stands in it says the answer in some form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from context_agent.synth_data.llm_stages.context import DocumentExcerpt, StageContext, off_loop, read_excerpt
from context_agent.synth_data.llm_stages.model import InvalidReply, PromptPart
from context_agent.synth_data.matching import chunks_stating, count_quotes, find_quote, states_answer
from context_agent.synth_data.stages import DropRow, KeptRows
from context_agent.synth_data.task import Support, Task, aliases, task_of


class ExtractedQuotes(BaseModel):
    """What the extractor copies."""

    clue_quotes: list[str]
    item_quotes: list[str]
    contains_answer: bool = False
    answer_quotes: list[str] = []


async def verify(shop: StageContext, row: Mapping[str, Any]) -> KeptRows:
    """The task with the quotes that prove it, and its facts as chunk ids. Raises `Unfit`."""
    task = task_of(row, f"task {row.get('id')!r}")
    if not task.supporting:
        raise DropRow("no supporting items", task.id)
    proofs = [await _verify_document(shop, task, support) for support in task.supporting]
    supporting = tuple(support for support, _ in proofs)
    if not any(support.contains_truth for support in supporting):
        raise DropRow("answer in no item", f"no quote of an item says {task.answer!r}")
    facts = tuple(dict.fromkeys(fact for _, fact in proofs))
    return KeptRows((replace(task, supporting=supporting, facts=facts).to_json(),))


def quotes_needed(count: int) -> int:
    """⌈2/3⌉ of so many quotes."""
    return -(-2 * count // 3)


async def _verify_document(shop: StageContext, task: Task, support: Support) -> tuple[Support, tuple[str, ...]]:
    """The item with its quotes, and the fact: the chunks in which one of the item's quotes stands."""
    shown = await read_excerpt(shop.corpus, support.id, support.chunks)
    made = await shop.ask(
        "verify",
        [PromptPart("CLUES", task.clues), PromptPart("ANSWER", task.answer), shown.part("DOCUMENT")],
        ExtractedQuotes,
        lambda extracted: check_quotes(extracted, task, shown),
    )
    stated = made.contains_answer and any(
        states_answer(quote, task.answer, aliases(task)) for quote in made.answer_quotes
    )
    proved = replace(
        support,
        clue_quotes=_quotes_in(made.clue_quotes, task.clues),
        item_quotes=_quotes_in(made.item_quotes, shown.text),
        contains_truth=stated,
        truth_quotes=tuple(made.answer_quotes) if stated else (),
    )
    return proved, await _fact_chunks(shop, proved.item_quotes, shown)


def check_quotes(made: ExtractedQuotes, task: Task, shown: DocumentExcerpt) -> None:
    """The published rule for one item. Raises `Wrong`."""
    text = shown.text
    for name, quotes, source in (("clues", made.clue_quotes, task.clues), ("document", made.item_quotes, text)):
        there, least = count_quotes(quotes, source), max(1, quotes_needed(len(quotes)))
        if there < least:
            lost = next((quote for quote in quotes if find_quote(quote, source) is None), "")
            raise InvalidReply(
                f"quotes not in the {name}",
                f"{there} of {len(quotes)} quotes stand in the {name}, {least} must; not there is {lost[:200]!r}",
            )
    lost = next((quote for quote in made.answer_quotes if find_quote(quote, text) is None), "")
    if made.contains_answer and (lost or not made.answer_quotes):
        raise InvalidReply(
            "answer quotes not in the document", f"answer_quotes must all stand in the document: {lost[:200]!r}"
        )


def _quotes_in(quotes: Sequence[str], source: str) -> tuple[str, ...]:
    return tuple(quote for quote in quotes if find_quote(quote, source) is not None)


async def _fact_chunks(shop: StageContext, quotes: Sequence[str], shown: DocumentExcerpt) -> tuple[str, ...]:
    """The chunks that state it; all of the item's where the quotes stand in the title or across two chunks.

    In a domain that repeats itself, any chunk of the corpus counts that states as many of the quotes as verification
    asks for: one that shares a name or a year with the fact states it no more than any other does.
    """
    own = tuple(chunk.id for chunk in shown.chunks if count_quotes(quotes, chunk.text))
    own = own or tuple(chunk.id for chunk in shown.chunks)
    if shop.domain.positives != "fact":
        return own
    stated = await off_loop(
        shop.corpus, lambda: [one for quote in quotes for one in chunks_stating(quote, shop.corpus)]
    )
    elsewhere = [chunk for chunk, count in Counter(stated).items() if count >= quotes_needed(len(quotes))]
    return tuple(dict.fromkeys([*own, *elsewhere]))
