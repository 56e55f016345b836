"""Preparation of tasks for the review page: a sample of tasks, and their documents with the quotes marked."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.quotes import find_quote
from context_agent.synth_data.task import Support, Task
from context_agent.types import Chunk
from context_agent.web.review import DistractorOnPage, Segment, SegmentKind, SupportOnPage, TaskOnPage

LONGEST_DOCUMENT = 20_000
"""The number of characters of a document on the page. A longer document is truncated, with a note."""


def tasks_on_page(tasks: Iterable[Task], corpus: Corpus) -> list[TaskOnPage]:
    """Return the tasks as the page shows them, with the text of their documents from the corpus."""
    return [_task_on_page(task, corpus) for task in tasks]


def draw_sample(tasks: Sequence[Task], count: int | None, seed: int) -> list[Task]:
    """Return at most `count` tasks in random order, so that judges who stop early have seen a fair sample.

    If `count` is None, return all tasks.
    """
    return random.Random(seed).sample(tasks, len(tasks) if count is None else min(count, len(tasks)))


def document_text(chunks: Iterable[Chunk]) -> str:
    """Return a document's text from its chunks.

    Overlaps of chunks appear once. A gap between two chunks becomes a line break.
    """
    text, end = "", 0
    for chunk in chunks:
        text += (
            chunk.text[end - chunk.start :]
            if chunk.start < end
            else ("\n" if end else "") * (chunk.start > end) + chunk.text
        )
        end = max(end, chunk.end)
    return text


def segments(text: str, quotes: Iterable[str], truths: Iterable[str] = ()) -> tuple[list[Segment], list[str]]:
    """Return the text in segments, and the quotes that it does not contain.

    Where a quote and the answer overlap, the segment is marked as the answer.

    Args:
        text: The text.
        quotes: The quotes to mark.
        truths: The forms of the answer to mark.
    """
    kinds: list[SegmentKind] = [""] * len(text)
    lost = []
    marks: list[tuple[SegmentKind, str]] = [
        *(("quote", passage) for passage in quotes),
        *(("truth", passage) for passage in truths),
    ]
    for kind, quote in marks:
        match = find_quote(quote, text)
        if match is None:
            lost.append(quote)
        else:
            kinds[match.start : match.end] = [kind] * (match.end - match.start)
    return _runs(text, kinds), lost


def _runs(text: str, kinds: Sequence[SegmentKind]) -> list[Segment]:
    runs: list[Segment] = []
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or kinds[at] != kinds[start]:
            runs.append((text[start:at], kinds[start]))
            start = at
    return runs


def _task_on_page(task: Task, corpus: Corpus) -> TaskOnPage:
    supporting = task.supporting or tuple(Support(document) for document in task.gold)
    clues, _ = segments(task.clues, (quote for item in supporting for quote in item.clue_quotes))
    return TaskOnPage(
        id=task.id,
        question=task.question,
        answer=task.answer,
        type=task.type,
        hops=task.hops,
        domain=task.domain,
        origin=task.origin,
        clues=clues,
        supporting=[_support(item, task.answer, corpus) for item in supporting],
        distractors=[_distractor(document, task.answer, corpus) for document in task.distractors],
    )


def _support(item: Support, answer: str, corpus: Corpus) -> SupportOnPage:
    title, text = _title_and_text(item.id, corpus)
    # The answer is marked wherever it occurs. Only quotes are reported as missing.
    present = [answer] if find_quote(answer, text) else []
    parts, lost = segments(text, item.item_quotes, [*item.truth_quotes, *present])
    return SupportOnPage(item.id, title, bool(text), item.contains_truth, parts, lost)


def _distractor(document: str, answer: str, corpus: Corpus) -> DistractorOnPage:
    title, text = _title_and_text(document, corpus)
    answered = find_quote(answer, text) is not None
    parts, _ = segments(text, (), [answer] if answered else ())
    return DistractorOnPage(document, title, bool(text), answered, parts)


def _title_and_text(document: str, corpus: Corpus) -> tuple[str, str]:
    """Return the title and text of a document.

    A long text is truncated. If the document is not in the corpus, both are empty.
    """
    chunks = corpus.read(document)
    text = document_text(chunks)
    if len(text) > LONGEST_DOCUMENT:
        text = f"{text[:LONGEST_DOCUMENT]}… ({len(text) - LONGEST_DOCUMENT:,} more characters)"
    return (chunks[0].title if chunks else ""), text
