"""The viewer: a page that shows trajectories turn by turn.

The page unpacks the list of trajectories at once. It unpacks details and texts in parts, when they are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from context_agent.web.page import page
from context_agent.web.viewer.model import ViewData

SCRIPTS = (
    "layout.js",
    "select.js",
    "store.js",
    "strip.js",
    "turn.js",
    "lanes.js",
    "trajectory.js",
    "compare.js",
    "list.js",
    "main.js",
)
PART_SIZE = 400_000
"""The size of a part of the data, in characters of JSON.

A part is small enough to unpack between two frames, and large enough to compress well.
"""
BODY = (
    '<noscript><p class="problems">This page needs JavaScript. It makes no network requests.</p></noscript>\n'
    '<div id="view"></div>'
)


def build_page(view: ViewData, *, title: str = "Trajectories") -> str:
    """Return the viewer's page as HTML.

    Args:
        view: The trajectories to show.
        title: The title of the page, as plain text.
    """
    return page(title, BODY, data=page_data(view), scripts=map(asset, SCRIPTS), styles=[asset("view.css")])


def page_data(view: ViewData) -> dict[str, object]:
    """Return the data of the page by name. Its scripts read each entry with `pageData`."""
    details, texts = list(_parts(view.details)), list(_parts(view.texts))
    index = {
        "rows": [asdict(row) for row in view.rows],
        "problems": view.problems,
        "ignored": view.ignored,
        "details": [len(part) for part in details],
        "texts": [len(part) for part in texts],
    }
    return {
        "index": index,
        **{f"details-{number}": part for number, part in enumerate(details)},
        **{f"texts-{number}": part for number, part in enumerate(texts)},
    }


def _parts(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the items in groups of about `PART_SIZE` characters."""
    part: list[Any] = []
    size = 0
    for item in items:
        part.append(item)
        size += len(json.dumps(item, ensure_ascii=False))
        if size >= PART_SIZE:
            yield part
            part, size = [], 0
    if part:
        yield part


def asset(name: str) -> str:
    """Return the content of a script or style of the viewer."""
    return (files("context_agent.web.viewer") / name).read_text(encoding="utf-8")
