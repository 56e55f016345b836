"""The page on which people judge tasks: one file without network requests.

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


@dataclass(frozen=True, slots=True)
class SupportOnPage:
    """A document that supports the answer, with its quotes marked. `lost` has the quotes that the document lacks."""

    id: str
    title: str
    found: bool
    """False if the corpus has no such document."""
    truth: bool
    """True if the document states the answer."""
    segments: list[Segment]
    lost: list[str]


@dataclass(frozen=True, slots=True)
class DistractorOnPage:
    """A document that does not support the answer. `answer` is True if the answer's words occur in it all the same."""

    id: str
    title: str
    found: bool
    answer: bool
    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class TaskOnPage:
    """A task as its judges see it."""

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
    """Return the page as HTML.

    Raises:
        DataError: If there is no task.
    """
    if not tasks:
        raise DataError("there is no task to review: the file is empty")
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
