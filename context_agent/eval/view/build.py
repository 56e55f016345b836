"""The viewer's page: the list at once, the rest in parts that the page unpacks as they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from context_agent.eval.page import page
from context_agent.eval.view.model import Exhibit

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
PART = 400_000
"""Characters of JSON in a part: small enough to unpack between two frames, large enough to compress well."""
BODY = (
    '<noscript><p class="problems">This page needs JavaScript; it asks no network.</p></noscript>\n'
    '<div id="view"></div>'
)


def build(shown: Exhibit, *, title: str = "Trajectories") -> str:
    """The page as text."""
    details, texts = list(_parts(shown.details)), list(_parts(shown.texts))
    index = {
        "rows": [asdict(row) for row in shown.rows],
        "problems": shown.problems,
        "ignored": shown.ignored,
        "details": [len(part) for part in details],
        "texts": [len(part) for part in texts],
    }
    data = {
        "index": index,
        **{f"details-{number}": part for number, part in enumerate(details)},
        **{f"texts-{number}": part for number, part in enumerate(texts)},
    }
    return page(title, BODY, data=data, scripts=map(_asset, SCRIPTS), styles=[_asset("view.css")])


def _parts(items: Iterable[Any]) -> Iterator[list[Any]]:
    """The items in stretches of about `PART` characters."""
    part: list[Any] = []
    size = 0
    for item in items:
        part.append(item)
        size += len(json.dumps(item, ensure_ascii=False))
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _asset(name: str) -> str:
    return (files("context_agent.eval.view") / name).read_text(encoding="utf-8")
