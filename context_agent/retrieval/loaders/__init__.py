"""Documents from files, folders and streams, one at a time, with a report of what could not be read.

    report = LoadReport()
    for document in load(["notes/", "rows.jsonl.gz", "-"], report=report):
        ...
    for notice in report.notices:
        print(notice)

Reads the formats of `READERS` and folders of them; PDF and parquet need the extra `docs`. At most one file's text, or a
few rows, are in memory; of earlier documents only ids and digests are kept, to recognise duplicates. In a folder, what
`.gitignore` excludes and the folders of tools are passed over (`LoadOptions.no_ignore`).

Sources may come from strangers. A line, a row or a file that is one document has at most `LoadOptions.max_mb`
megabytes. A packed file that unpacks to far more than its size is not read further. Links in a folder are not
followed, so nothing outside it is read. Metadata that Chroma cannot hold is left out. Each of these is reported as a
notice; the rest is read.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.chroma.records import with_storable_metadata
from context_agent.retrieval.loaders.code import BY_LINES, GRAMMARS, read_code, read_notebook
from context_agent.retrieval.loaders.epub import read_epub
from context_agent.retrieval.loaders.files import read_html, read_markdown, read_pdf, read_rst, read_text
from context_agent.retrieval.loaders.mail import read_message
from context_agent.retrieval.loaders.presentation import read_pptx
from context_agent.retrieval.loaders.rows import lines, read_csv, read_jsonl, read_parquet, read_zipped_jsonl
from context_agent.retrieval.loaders.sources import (
    MAX_MB,
    LoadOptions,
    LoadReport,
    Notice,
    Readable,
    Reading,
    SourceFile,
    check_sources,
    expand,
    kind_of,
    opened,
)
from context_agent.retrieval.loaders.word import read_docx
from context_agent.retrieval.loaders.workbook import read_xlsx
from context_agent.types import Document

__all__ = ["READERS", "LoadOptions", "LoadReport", "Notice", "Readable", "Reader", "check_sources", "load"]
Reader = Callable[[Reading], Iterator[Document]]
READERS: Mapping[str, Reader] = {
    **dict.fromkeys((*GRAMMARS, *BY_LINES), read_code),
    ".csv": read_csv,
    ".docx": read_docx,
    ".eml": read_message,
    ".epub": read_epub,
    ".htm": read_html,
    ".html": read_html,
    ".ipynb": read_notebook,
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_zipped_jsonl,
    ".markdown": read_markdown,
    ".md": read_markdown,
    ".ndjson": read_jsonl,
    ".ndjson.gz": read_zipped_jsonl,
    ".parquet": read_parquet,
    ".pdf": read_pdf,
    ".pptx": read_pptx,
    ".rst": read_rst,
    ".text": read_text,
    ".tsv": read_csv,
    ".txt": read_text,
    ".xlsx": read_xlsx,
}
"""The reader of each extension."""
_BY_MAGIC: dict[bytes, Reader] = {b"%PDF-": read_pdf, b"PAR1": read_parquet, b"\x1f\x8b": read_zipped_jsonl}
LONGEST_SNIFFED_LINE = MAX_MB * 2**20
"""Characters of the longest line that is sniffed."""
SNIFFED_LINES = 5
"""First lines of a stream that are sniffed; if one of them is a JSON object, the stream is read as JSONL."""


def load(
    sources: Readable | Iterable[Readable],
    *,
    options: LoadOptions | None = None,
    report: LoadReport | None = None,
    readers: Mapping[str, Reader] = READERS,
) -> Iterator[Document]:
    """The documents of all sources in order, folders sorted; `report` is filled while they are read.

    A source is a path of a file or folder, an open stream, or `-` for standard input. A stream whose name has no known
    extension is read as JSONL if its first lines are JSON objects, else as plain text. Hidden files are ignored. What
    cannot be read becomes a `Notice`, and the rest is read; only an invalid option raises (`ConfigError`).

    A row's id is its own, else a digest of its content; a file's id is its path below the source folder. A document
    with the id and content of an earlier one is dropped and counted; a document with the id of a different one gets the
    id `<id>~2`, `<id>~3` and so on, with a notice.

    `readers` has a reader for each extension, and under "" a reader for all other sources.
    """
    options = options or LoadOptions()
    report = report if report is not None else LoadReport()
    register = _Register(report)
    for source in expand(sources, report, readers, ignore=not options.no_ignore):
        for document in _read(source, options, report, readers):
            if admitted := register.admit(document, source):
                report.documents += 1
                yield admitted


def _read(
    source: SourceFile, options: LoadOptions, report: LoadReport, readers: Mapping[str, Reader]
) -> Iterator[Document]:
    """One source's documents; a failure becomes a notice, after the documents that were read before it."""
    before, count = len(report.notices) + report.unlisted, 0
    try:
        with opened(source) as stream:
            reading = Reading(source.name, source.path, stream, options, report)
            for document in reader_for(source.extension, stream, readers)(reading):
                count += 1
                yield with_storable_metadata(document, reading.note_once)
    except MissingExtraError as error:
        report.skip(source.name, str(error), kind=kind_of(source.path))
    except DataError as error:
        report.skip(source.name, str(error))
    except (OSError, EOFError, zlib.error) as error:
        report.skip(source.name, f"cannot be read: {_reason(error)}" + (f" (after {count} documents)" if count else ""))
    else:
        report.files += 1
        if not count and before == len(report.notices) + report.unlisted:
            report.skip(source.name, "contains no rows")
        return
    report.files += count > 0


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Register:
    """The ids and contents of earlier documents, at about 200 bytes a document."""

    def __init__(self, report: LoadReport) -> None:
        self._report = report
        self._contents: set[tuple[str, bytes]] = set()
        self._copies: dict[str, int] = {}

    def admit(self, document: Document, source: SourceFile) -> Document | None:
        """The document under a unique id; None for a repetition."""
        digest = _digest(document)
        document = document if document.id else replace(document, id=digest[:8].hex())
        if (document.id, digest) in self._contents:
            self._report.duplicates += 1
            return None
        self._contents.add((document.id, digest))
        fresh = self._fresh(document.id)
        if fresh == document.id:
            return document
        self._report.note(source.name, f"id {document.id!r} belongs to another document: renamed to {fresh!r}")
        return replace(document, id=fresh)

    def _fresh(self, name: str) -> str:
        """`name` if no document has it, else with the next free number."""
        number = self._copies.get(name, 0) + 1
        while number > 1 and f"{name}~{number}" in self._copies:
            number += 1
        self._copies[name] = number
        fresh = name if number == 1 else f"{name}~{number}"
        self._copies.setdefault(fresh, 1)
        return fresh


def _digest(document: Document) -> bytes:
    """A digest of title, text and metadata, each preceded by its length so that the parts cannot be confused."""
    state = hashlib.blake2b(digest_size=16)
    for part in (document.title, document.text, repr(sorted(document.metadata.items()))):
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    return state.digest()


def reader_for(extension: str, stream: BinaryIO, readers: Mapping[str, Reader] = READERS) -> Reader:
    """The reader of an extension, else the reader under "", else one chosen by the content."""
    if extension in readers:
        return readers[extension]
    head = stream.read(8)
    stream.seek(0)
    by_magic = next((reader for magic, reader in _BY_MAGIC.items() if head.startswith(magic)), None)
    return by_magic or (read_jsonl if _holds_rows(stream) else read_text)


def _holds_rows(stream: BinaryIO) -> bool:
    try:
        with closing(lines(stream, None, LONGEST_SNIFFED_LINE)) as numbered:
            first = list(islice((line for _, line in numbered if line is None or line.strip()), SNIFFED_LINES))
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
