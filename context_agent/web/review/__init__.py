"""The page on which people judge tasks: one file that makes no network requests.

It shows the question, the answer, the clues, and the documents with their quotes marked. It hides the verdict of the
automatic verification from the judges.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib.resources import files
from typing import Literal

from context_agent.errors import DataError
from context_agent.web.page import escape, page

SegmentKind = Literal["", "quote", "truth"]
Segment = tuple[str, SegmentKind]
"""A piece of text, and its kind: a quote, the answer (`truth`), or neither (empty)."""

_BODY = """<header>
<h1>{title}</h1>
<div class="controls">
<label>Judge <input id="judge" autocomplete="off" placeholder="your name"></label>
<button type="button" id="download">Download judgments</button>
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


@dataclass(frozen=True, slots=True)
class SupportOnPage:
    """A document that supports the answer, with its quotes marked.

    Attributes:
        id: The document's id.
        title: The document's title.
        found: False if the corpus does not have the document.
        truth: True if the document states the answer.
        segments: The text, with the quotes and the answer marked.
        lost: The quotes that the document does not contain.
    """

    id: str
    title: str
    found: bool
    truth: bool
    segments: list[Segment]
    lost: list[str]


@dataclass(frozen=True, slots=True)
class DistractorOnPage:
    """A document that does not support the answer.

    Attributes:
        id: The document's id.
        title: The document's title.
        found: False if the corpus does not have the document.
        answer: True if the answer's words nevertheless occur in the document.
        segments: The text. If it contains the answer, the first occurrence is marked.
    """

    id: str
    title: str
    found: bool
    answer: bool
    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class TaskOnPage:
    """A task as its judges see it.

    Attributes:
        id: The task's id.
        question: The question.
        answer: The answer that the judges check.
        type: The kind of the answer, such as a person or a place.
        hops: The number of documents that must be combined.
        domain: The domain that the task was made for.
        origin: How the task was made.
        clues: The clues, with the quoted ones marked.
        supporting: The documents that support the answer.
        distractors: The documents that only look relevant.
    """

    id: str
    question: str
    answer: str
    type: str
    hops: int
    domain: str
    origin: str
    clues: list[Segment]
    supporting: list[SupportOnPage]
    distractors: list[DistractorOnPage]


def review_page(tasks: Sequence[TaskOnPage], title: str) -> str:
    """Return the review page as HTML.

    Args:
        tasks: The tasks to judge.
        title: The title of the page, as plain text.

    Raises:
        DataError: If there are no tasks.
    """
    if not tasks:
        raise DataError(f"{title!r} has no tasks, so there is nothing to review. Pass a file with tasks.")
    task_data = [asdict(task) for task in tasks]
    key = blake2b(json.dumps(task_data).encode(), digest_size=8).hexdigest()
    resources = files("context_agent.web.review")
    return page(
        title,
        _BODY.format(title=escape(title)),
        data={"review": {"key": key, "tasks": task_data}},
        scripts=[resources.joinpath("review.js").read_text(encoding="utf-8")],
        styles=[resources.joinpath("review.css").read_text(encoding="utf-8")],
    )
