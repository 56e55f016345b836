"""What the loaders read from files, and what they say about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.types import Document


def drawn(*sources: Any, **options: Any) -> tuple[list[Document], LoadReport]:
    report = LoadReport()
    return list(load(sources, options=LoadOptions(**options), report=report)), report


def said(report: LoadReport) -> list[tuple[str, int | None, str]]:
    return [(Path(notice.source).name, notice.line, notice.reason) for notice in report.notices]


def only(path: Path, **options: Any) -> Document:
    (document,), report = drawn(path, **options)
    assert report.skipped == 0, said(report)
    return document
