"""The reader of Jupyter notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from context_agent.errors import DataError
from context_agent.retrieval.loaders.definitions import LONGEST_NAME
from context_agent.retrieval.loaders.headings import marked_headings
from context_agent.retrieval.loaders.outlines import Lines, text_captions
from context_agent.retrieval.loaders.reading import Reading, content, decoded, document, storable
from context_agent.retrieval.loaders.text_files import TITLE_SEARCH_CHARACTERS, markdown_title
from context_agent.retrieval.loaders.titles import placed_title
from context_agent.types import Document

CELL_VALUES = 16
"""The number of characters of the size limit that each JSON value of a notebook uses up.

A parsed value takes about 100 bytes.
"""
_BACKTICKS = re.compile("`{3,}+")
"""Backticks that would end the code of a cell."""


def read_notebook(reading: Reading) -> Iterator[Document]:
    """Yield the cells of a notebook without their outputs, titled by the first heading. Code is fenced."""
    raw = decoded(reading, content(reading)).text
    if sum(map(raw.count, ",[{")) > reading.options.max_size // CELL_VALUES:
        raise DataError(reading.options.too_large("the notebook"))
    try:
        notebook = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the notebook cannot be read ({type(error).__name__}: {error})") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise DataError("the file is not a notebook of format 4. Convert it with `jupyter nbconvert --to notebook`.")
    language = _notebook_language(notebook)
    parts = (_cell_text(cell, language) for cell in cells if isinstance(cell, dict))
    text = "\n\n".join(part for part in parts if part)
    text = storable(text)
    title = markdown_title(text[:TITLE_SEARCH_CHARACTERS])
    captions = text_captions(text, Lines.LIST, headings=marked_headings(text, "markdown"), title=title)
    yield document(
        reading, text, placed_title(reading, title), {"language": language} if language else {}, captions=captions
    )


def _notebook_language(notebook: dict[str, Any]) -> str:
    info: Any = notebook.get("metadata")
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        entry = info.get(key) if isinstance(info, dict) else None
        if isinstance(entry, dict) and isinstance(entry.get(name), str):
            return storable(entry[name])[:LONGEST_NAME]
    return ""


def _cell_text(cell: dict[str, Any], language: str) -> str:
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    if not text.strip():
        return ""
    if cell.get("cell_type") != "code":
        return text.strip()
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text.strip()}\n{fence}"
