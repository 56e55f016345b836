"""What a load is told and what it tells: options, notices and the report they gather in."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from context_agent.errors import ConfigError

MAX_MB = 16
LISTED = 10_000
"""Notices kept; further ones are only counted, so that a file of rubbish cannot fill the memory."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How rows and bytes are read; None stands for what the field says.

    `id_key`, `title_key`, `text_key`: the fields of a row (None: id, _id or doc_id; title; text, content, body or
    contents, the first one that is filled). `encoding`: of all text sources (None: by byte order mark, else UTF-8,
    else Windows-1252 where that is plausible). `delimiter`: of CSV files (None: comma, semicolon, tab or bar, whichever
    the header has most of). `max_mb`: megabytes (2**20) that a line, a row or a file that is one
    document may have.
    """

    id_key: str | None = None
    title_key: str | None = None
    text_key: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    max_mb: int = MAX_MB

    @property
    def max_size(self) -> int:
        """`max_mb` in bytes, or in characters of decoded text."""
        return self.max_mb * 2**20

    def __post_init__(self) -> None:
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise ConfigError(f"unknown encoding {self.encoding!r}: try utf-8, cp1252 or shift_jis") from error
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ConfigError(f"delimiter {self.delimiter!r} must be one character, and no quote or line break")
        if self.max_mb < 1:
            raise ConfigError(f"max_mb must be at least 1; got {self.max_mb}")

    def too_large(self, part: str) -> str:
        """The notice about a part of a source that is over the limit."""
        return f"{part} is larger than {self.max_mb} MB: raise the limit with --max-mb (in Python LoadOptions.max_mb)"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to know about a source. `lost` says that text of it is missing; `line` counts from 1."""

    source: str
    reason: str
    line: int | None = None
    lost: bool = True

    def __str__(self) -> str:
        return f"{self.source}{'' if self.line is None else f':{self.line}'}: {self.reason}"


@dataclass(slots=True)
class LoadReport:
    """Filled while documents are drawn from `load`.

    `files` sources gave documents or at least rows, `documents` were given, `duplicates` dropped as exact repetitions;
    `skipped` counts the notices about lost text, `unlisted` the notices beyond the first 10,000.
    """

    files: int = 0
    documents: int = 0
    duplicates: int = 0
    skipped: int = 0
    unlisted: int = 0
    notices: list[Notice] = field(default_factory=list)

    def skip(self, source: str, reason: str, line: int | None = None) -> None:
        """Records that a file or row was left out."""
        self.skipped += 1
        self._list(Notice(source, reason, line))

    def note(self, source: str, reason: str, line: int | None = None) -> None:
        """Records something that cost no text."""
        self._list(Notice(source, reason, line, lost=False))

    def lost(self) -> Iterator[Notice]:
        """The listed notices about files and rows that were left out."""
        return (notice for notice in self.notices if notice.lost)

    def _list(self, notice: Notice) -> None:
        if len(self.notices) < LISTED:
            self.notices.append(notice)
        else:
            self.unlisted += 1


@dataclass(slots=True)
class Reading:
    """One source while a reader works on it: an open seekable stream, and where to say what is wrong with it."""

    name: str
    path: str
    stream: BinaryIO
    options: LoadOptions
    report: LoadReport
    _said: set[str] = field(default_factory=set)

    def skip(self, reason: str, line: int | None = None) -> None:
        """A row or page that is left out."""
        self.report.skip(self.name, reason, line)

    def note_once(self, reason: str) -> None:
        """Something that holds for many rows and costs no text."""
        if reason not in self._said:
            if len(self._said) < LISTED:
                self._said.add(reason)
            self.report.note(self.name, reason)
