"""The page on which people judge tasks: question, answer, clues, and the documents with their quotes marked.

The page is one file without network requests. It hides the verdict of the automatic verification from the judges.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Literal

from context_agent.errors import DataError
from context_agent.eval.page import escape, page
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.matching import find_quote
from context_agent.synth_data.task import Support, Task
from context_agent.types import Chunk

LONGEST_DOCUMENT = 20_000
"""Characters of a document on the page; a longer document is cut, with a note."""

SegmentKind = Literal["", "quote", "truth"]
Segment = tuple[str, SegmentKind]
"""A piece of text, and whether it is a quote, the answer, or neither."""

_BODY = """<header>
<h1>{title}</h1>
<div class="controls">
<label>Judge <input id="judge" autocomplete="off" placeholder="your name"></label>
<button type="button" id="download">Download judgements</button>
<label>Continue from <input type="file" id="import" accept=".jsonl"></label>
<span id="count"></span>
</div>
<p class="muted"><kbd>j</kbd> next, <kbd>k</kbd> back, <kbd>a</kbd> accept, <kbd>r</kbd> reject, <kbd>c</kbd> comment,
<kbd>Esc</kbd> leave the comment. Accept a task if the documents prove the answer and no other answer is right.</p>
<p id="status" role="status"></p>
<ol id="tasks"></ol>
</header>
<main id="task"></main>
<noscript><p>This page needs JavaScript. It makes no request.</p></noscript>"""


def review_page(tasks: Sequence[Task], corpus: Corpus, title: str) -> str:
    """The page as HTML. Raises `DataError` without tasks."""
    if not tasks:
        raise DataError("there is no task to review: the file is empty")
    task_data = [_task_data(task, corpus) for task in tasks]
    key = blake2b(json.dumps(task_data).encode(), digest_size=8).hexdigest()
    resources = files(__package__)
    return page(
        title,
        _BODY.format(title=escape(title)),
        data={"review": {"key": key, "tasks": task_data}},
        scripts=[resources.joinpath("review.js").read_text(encoding="utf-8")],
        styles=[resources.joinpath("review.css").read_text(encoding="utf-8")],
    )


def draw_sample(tasks: Sequence[Task], count: int | None, seed: int) -> list[Task]:
    """At most `count` tasks (None for all) in random order: judges who stop early have seen a fair sample."""
    return random.Random(seed).sample(tasks, len(tasks) if count is None else min(count, len(tasks)))


def document_text(chunks: Iterable[Chunk]) -> str:
    """A document's text from its chunks; overlaps appear once, and a gap between two chunks is a line break."""
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
    """The text in segments, and the quotes that it lacks. Where a quote and the answer overlap, the answer wins."""
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


def _task_data(task: Task, corpus: Corpus) -> dict[str, Any]:
    """The data of a task for the page."""
    supporting = task.supporting or tuple(Support(document) for document in task.gold)
    clues, _ = segments(task.clues, (quote for item in supporting for quote in item.clue_quotes))
    return {
        "id": task.id,
        "question": task.question,
        "answer": task.answer,
        "type": task.type,
        "hops": task.hops,
        "domain": task.domain,
        "origin": task.origin,
        "clues": clues,
        "supporting": [_support_data(item, task.answer, corpus) for item in supporting],
        "distractors": [_distractor_data(document, task.answer, corpus) for document in task.distractors],
    }


def _support_data(item: Support, answer: str, corpus: Corpus) -> dict[str, Any]:
    title, text = _title_and_text(item.id, corpus)
    # The answer is marked wherever it stands, though only quotes are said to be missing.
    present = [answer] if find_quote(answer, text) else []
    parts, lost = segments(text, item.item_quotes, [*item.truth_quotes, *present])
    return {
        "id": item.id,
        "title": title,
        "found": bool(text),
        "truth": item.contains_truth,
        "segments": parts,
        "lost": lost,
    }


def _distractor_data(document: str, answer: str, corpus: Corpus) -> dict[str, Any]:
    title, text = _title_and_text(document, corpus)
    answered = find_quote(answer, text) is not None
    parts, _ = segments(text, (), [answer] if answered else ())
    return {"id": document, "title": title, "found": bool(text), "answer": answered, "segments": parts}


def _title_and_text(document: str, corpus: Corpus) -> tuple[str, str]:
    """Title and text of a document, cut if long; empty if the corpus lacks the document."""
    chunks = corpus.read(document)
    text = document_text(chunks)
    if len(text) > LONGEST_DOCUMENT:
        text = f"{text[:LONGEST_DOCUMENT]}… ({len(text) - LONGEST_DOCUMENT:,} more characters)"
    return (chunks[0].title if chunks else ""), text
