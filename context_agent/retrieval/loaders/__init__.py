"""Documents from files, folders and streams, one at a time, with a report of what could not be read.

    report = LoadReport()
    for document in load(["notes/", "rows.jsonl.gz", "-"], report=report):
        ...
    for notice in report.notices:
        print(notice)

Reads the formats of `READERS`, any other file that holds text, and folders of them. What is binary, generated or
minified is left out with a notice, as `sniffing` says. PDF and parquet need the extra `docs`. At most one file's text,
or a few rows, are in memory; of earlier documents only ids and digests are kept, to recognize duplicates. In a folder,
what `.gitignore` excludes and the folders of tools are passed over (`LoadOptions.no_ignore`).

Sources may come from strangers. A line, a row or a file that is one document has at most `LoadOptions.max_mb`
megabytes. A packed file that unpacks to far more than its size is not read further. Links in a folder are not
followed, so nothing outside it is read. Metadata that Chroma cannot hold is left out. Each of these is reported as a
notice; the rest is read.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.document_checks import with_storable_metadata
from context_agent.retrieval.loaders.code import BY_LINES, GRAMMARS, read_code, read_notebook
from context_agent.retrieval.loaders.epub import read_epub
from context_agent.retrieval.loaders.files import read_html, read_markdown, read_pdf, read_rst, read_text
from context_agent.retrieval.loaders.json_files import read_json
from context_agent.retrieval.loaders.mail import read_message
from context_agent.retrieval.loaders.mailbox import read_mail
from context_agent.retrieval.loaders.opendocument import read_odt
from context_agent.retrieval.loaders.presentation import read_pptx
from context_agent.retrieval.loaders.rows import TEXT_KEYS, lines, read_csv, read_jsonl, read_parquet, read_zipped_jsonl
from context_agent.retrieval.loaders.sniffing import LeftOutError, check_head, read_other_text
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
from context_agent.retrieval.loaders.transcripts import read_transcript
from context_agent.retrieval.loaders.word import read_docx
from context_agent.retrieval.loaders.workbook import read_xlsx
from context_agent.retrieval.loaders.xml_text import read_xml
from context_agent.types import Document

__all__ = ["READERS", "LoadOptions", "LoadReport", "Notice", "Readable", "Reader", "check_sources", "load"]
Reader = Callable[[Reading], Iterator[Document]]
_GZIP = b"\x1f\x8b"
_BY_MAGIC: dict[bytes, Reader] = {b"%PDF-": read_pdf, b"PAR1": read_parquet}
LONGEST_SNIFFED_LINE = MAX_MB * 2**20
"""Characters of the longest line that is sniffed."""
SNIFFED_LINES = 5
"""First lines of a stream that are sniffed; if one of them is a JSON object, the stream is read as JSONL."""


def read_any(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a source whose name says nothing: PDF, parquet or JSONL by its content, else plain
    text.
    """
    head = reading.stream.read(8)
    reading.stream.seek(0)
    yield from next((reader for magic, reader in _BY_MAGIC.items() if head.startswith(magic)), _read_other)(reading)


def _read_other(reading: Reading) -> Iterator[Document]:
    if not reading.found and reading.stream.read(2) == _GZIP:
        reading.stream.seek(0)
        yield from read_zipped_jsonl(reading)
        return
    reading.stream.seek(0)
    check_head(reading)
    keys = _text_keys(reading.options) if reading.found else ()
    yield from (read_jsonl if _holds_rows(reading.stream, keys) else read_other_text)(reading)


def _text_keys(options: LoadOptions) -> tuple[str, ...]:
    return TEXT_KEYS if options.text_key is None else (options.text_key,)


READERS: Mapping[str, Reader] = {
    "": read_any,
    **dict.fromkeys((*GRAMMARS, *BY_LINES), read_code),
    ".csv": read_csv,
    ".docx": read_docx,
    ".eml": read_message,
    ".enex": read_xml,
    ".epub": read_epub,
    ".htm": read_html,
    ".html": read_html,
    ".ipynb": read_notebook,
    ".json": read_json,
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_zipped_jsonl,
    ".markdown": read_markdown,
    ".mbox": read_mail,
    ".md": read_markdown,
    ".ndjson": read_jsonl,
    ".ndjson.gz": read_zipped_jsonl,
    ".odt": read_odt,
    ".opml": read_xml,
    ".parquet": read_parquet,
    ".pdf": read_pdf,
    ".pptx": read_pptx,
    ".rst": read_rst,
    ".srt": read_transcript,
    ".text": read_text,
    ".tsv": read_csv,
    ".txt": read_text,
    ".vtt": read_transcript,
    ".xlsx": read_xlsx,
    ".xml": read_xml,
}
"""The reader of each extension, and under "" that of all other sources."""


def load(
    sources: Readable | Iterable[Readable],
    *,
    options: LoadOptions | None = None,
    report: LoadReport | None = None,
    readers: Mapping[str, Reader] = READERS,
) -> Iterator[Document]:
    """Yield the documents of all sources in order, folders sorted; `report` is filled while they are read.

    A source is a path of a file or folder, an open stream, or `-` for standard input. A source whose name has no known
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
            reading = Reading(source.name, source.path, stream, options, report, found=source.folder is not None)
            for document in readers.get(source.extension, read_any)(reading):
                count += 1
                yield with_storable_metadata(document, reading.note_once)
    except MissingExtraError as error:
        problem, kind = str(error), kind_of(source.path)
    except LeftOutError as error:
        problem, kind = str(error), kind_of(source.path) if source.folder else ""
    except DataError as error:
        problem, kind = str(error), ""
    except (OSError, EOFError, zlib.error) as error:
        problem = f"cannot be read: {_reason(error)}" + (f" (after {count} documents)" if count else "")
        kind = ""
    else:
        report.count_read(source.path)
        if not count and before == len(report.notices) + report.unlisted:
            report.skip(source.name, "contains no rows")
        return
    if count:
        report.count_read(source.path)
        report.skip(source.name, problem, kind=kind)
    else:
        report.leave_out(source.name, source.path, problem, kind=kind)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Register:
    """The ids and contents of earlier documents, at about 200 bytes a document."""

    def __init__(self, report: LoadReport) -> None:
        self._report = report
        self._contents: set[tuple[str, bytes]] = set()
        self._copies: dict[str, int] = {}

    def admit(self, document: Document, source: SourceFile) -> Document | None:
        """Return the document under a unique id; None for a repetition."""
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
    """Return a digest of title, text and metadata, each preceded by its length so that the parts cannot be confused."""
    state = hashlib.blake2b(digest_size=16)
    for part in (document.title, document.text, repr(sorted(document.metadata.items()))):
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    return state.digest()


def _holds_rows(stream: BinaryIO, keys: Collection[str]) -> bool:
    """Return whether one of the first lines is a JSON object, with one of the keys if there are any."""
    try:
        with closing(lines(stream, None, LONGEST_SNIFFED_LINE)) as numbered:
            first = list(islice((line for _, line in numbered if line is None or line.strip()), SNIFFED_LINES))
    except DataError:
        return False
    finally:
        stream.seek(0)
    return any(line is not None and _is_row(line, keys) for line in first)


def _is_row(line: str, keys: Collection[str]) -> bool:
    try:
        row = json.loads(line)
        return isinstance(row, dict) and (not keys or any(isinstance(row.get(key), str) for key in keys))
    except (ValueError, RecursionError):
        return False
