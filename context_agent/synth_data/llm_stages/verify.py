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

from context_agent.synth_data.llm_stages.context import Item, Workshop, item, off_loop
from context_agent.synth_data.llm_stages.model import Part, Wrong
from context_agent.synth_data.matching import chunks_stating, count_quotes, find_quote, states_answer
from context_agent.synth_data.stages import Kept, Unfit
from context_agent.synth_data.task import Support, Task, aliases, task_of


class Extracted(BaseModel):
    """What the extractor copies."""

    clue_quotes: list[str]
    item_quotes: list[str]
    contains_answer: bool = False
    answer_quotes: list[str] = []


async def verify(shop: Workshop, row: Mapping[str, Any]) -> Kept:
    """The task with the quotes that prove it, and its facts as chunk ids. Raises `Unfit`."""
    task = task_of(row, f"task {row.get('id')!r}")
    if not task.supporting:
        raise Unfit("no supporting items", task.id)
    proofs = [await _proof(shop, task, support) for support in task.supporting]
    supporting = tuple(support for support, _ in proofs)
    if not any(support.contains_truth for support in supporting):
        raise Unfit("answer in no item", f"no quote of an item says {task.answer!r}")
    facts = tuple(dict.fromkeys(fact for _, fact in proofs))
    return Kept((replace(task, supporting=supporting, facts=facts).to_json(),))


def needed(count: int) -> int:
    """⌈2/3⌉ of so many quotes."""
    return -(-2 * count // 3)


async def _proof(shop: Workshop, task: Task, support: Support) -> tuple[Support, tuple[str, ...]]:
    """The item with its quotes, and the fact: the chunks in which one of the item's quotes stands."""
    shown = await item(shop.corpus, support.id, support.chunks)
    made = await shop.ask(
        "verify",
        [Part("CLUES", task.clues), Part("ANSWER", task.answer), shown.part("DOCUMENT")],
        Extracted,
        lambda extracted: check_quotes(extracted, task, shown),
    )
    stated = made.contains_answer and any(
        states_answer(quote, task.answer, aliases(task)) for quote in made.answer_quotes
    )
    proved = replace(
        support,
        clue_quotes=_standing(made.clue_quotes, task.clues),
        item_quotes=_standing(made.item_quotes, shown.text),
        contains_truth=stated,
        truth_quotes=tuple(made.answer_quotes) if stated else (),
    )
    return proved, await _fact(shop, proved.item_quotes, shown)


def check_quotes(made: Extracted, task: Task, shown: Item) -> None:
    """The published rule for one item. Raises `Wrong`."""
    text = shown.text
    for name, quotes, source in (("clues", made.clue_quotes, task.clues), ("document", made.item_quotes, text)):
        there, least = count_quotes(quotes, source), max(1, needed(len(quotes)))
        if there < least:
            lost = next((quote for quote in quotes if find_quote(quote, source) is None), "")
            raise Wrong(
                f"quotes not in the {name}",
                f"{there} of {len(quotes)} quotes stand in the {name}, {least} must; not there is {lost[:200]!r}",
            )
    lost = next((quote for quote in made.answer_quotes if find_quote(quote, text) is None), "")
    if made.contains_answer and (lost or not made.answer_quotes):
        raise Wrong(
            "answer quotes not in the document", f"answer_quotes must all stand in the document: {lost[:200]!r}"
        )


def _standing(quotes: Sequence[str], source: str) -> tuple[str, ...]:
    return tuple(quote for quote in quotes if find_quote(quote, source) is not None)


async def _fact(shop: Workshop, quotes: Sequence[str], shown: Item) -> tuple[str, ...]:
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
    elsewhere = [chunk for chunk, count in Counter(stated).items() if count >= needed(len(quotes))]
    return tuple(dict.fromkeys([*own, *elsewhere]))
