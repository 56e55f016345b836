"""Which reader a source gets: by its extension, or by its first bytes where it has none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import BinaryIO

from context_agent.errors import DataError
from context_agent.retrieval.loaders.files import read_html, read_markdown, read_pdf, read_text
from context_agent.retrieval.loaders.report import MAX_MB, Reading
from context_agent.retrieval.loaders.rows import lines, read_csv, read_jsonl, read_parquet, read_zipped_jsonl
from context_agent.types import Document

Reader = Callable[[Reading], Iterator[Document]]

READERS: Mapping[str, Reader] = {
    ".csv": read_csv,
    ".htm": read_html,
    ".html": read_html,
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_zipped_jsonl,
    ".markdown": read_markdown,
    ".md": read_markdown,
    ".ndjson": read_jsonl,
    ".ndjson.gz": read_zipped_jsonl,
    ".parquet": read_parquet,
    ".pdf": read_pdf,
    ".text": read_text,
    ".tsv": read_csv,
    ".txt": read_text,
}
"""The formats that are known by their extension."""
_MAGIC: dict[bytes, Reader] = {b"%PDF-": read_pdf, b"PAR1": read_parquet, b"\x1f\x8b": read_zipped_jsonl}
LONGEST_TRIED = MAX_MB * 2**20
"""Characters of a line that is tried."""
TRIED = 5
"""Lines of which one must be a JSON object for a stream to be read as JSONL."""


def reader_for(extension: str, stream: BinaryIO, readers: Mapping[str, Reader] = READERS) -> Reader:
    """The reader of a known extension; of a source without one, the reader under "", else by its content."""
    if extension in readers:
        return readers[extension]
    head = stream.read(8)
    stream.seek(0)
    by_magic = next((reader for magic, reader in _MAGIC.items() if head.startswith(magic)), None)
    return by_magic or (read_jsonl if _holds_rows(stream) else read_text)


def _holds_rows(stream: BinaryIO) -> bool:
    try:
        with closing(lines(stream, None, LONGEST_TRIED)) as numbered:
            first = list(islice((line for _, line in numbered if line is None or line.strip()), TRIED))
    except DataError:
        return False
    finally:
        stream.seek(0)
    return any(line is not None and _is_object(line) for line in first)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
