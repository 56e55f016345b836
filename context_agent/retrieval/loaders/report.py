"""Options of a load, notices about its sources, and the report that collects them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from context_agent.errors import ConfigError

MAX_MB = 16
RULES_FILE = ".gitignore"
LISTED = 10_000
"""Notices in a report; further ones are only counted, so that a corrupt file cannot fill the memory."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How rows and bytes are read.

    `id_key`, `title_key`, `text_key`: the fields of a row (None: id, _id or doc_id; title; text, content, body or
    contents, the first that is not empty). `encoding`: of all text sources (None: by byte order mark, else UTF-8, else
    Windows-1252 if plausible). `delimiter`: of CSV files (None: comma, semicolon, tab or bar, whichever is most
    frequent in the header). `max_mb`: the largest line, row or file that is one document, in megabytes (2**20 bytes).
    `no_ignore`: read also what `.gitignore` names, and the folders of tools (`node_modules`, `venv`, `build` ...).
    """

    id_key: str | None = None
    title_key: str | None = None
    text_key: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    max_mb: int = MAX_MB
    no_ignore: bool = False

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
            raise ConfigError(f"delimiter {self.delimiter!r} must be one character other than a quote or a line break")
        if self.max_mb < 1:
            raise ConfigError(f"max_mb must be at least 1; got {self.max_mb}")

    def too_large(self, part: str) -> str:
        """The notice about a part of a source that exceeds the limit."""
        return f"{part} is larger than {self.max_mb} MB: raise the limit with --max-mb (in Python: LoadOptions.max_mb)"


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a source. `lost` is true if text of it is missing; `line` counts from 1.

    `kind` is the kind of the file (`.png`) if the reason applies to every file of that kind, else empty.
    """

    source: str
    reason: str
    line: int | None = None
    lost: bool = True
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.source}{'' if self.line is None else f':{self.line}'}: {self.reason}"


@dataclass(slots=True)
class LoadReport:
    """Filled while the documents of `load` are read.

    `files` counts sources with documents or at least rows, `documents` the documents, `duplicates` dropped repetitions,
    `skipped` the notices about lost text, `unlisted` the notices beyond the first 10,000. `kinds` counts the notices
    that apply to a kind of files, by kind and reason; of each the first 10,000 are in `notices`. `ignored` counts the
    entries of folders that rules exclude, by `.gitignore` or the folder's name.
    """

    files: int = 0
    documents: int = 0
    duplicates: int = 0
    skipped: int = 0
    unlisted: int = 0
    notices: list[Notice] = field(default_factory=list)
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)

    def skip(self, source: str, reason: str, line: int | None = None, *, kind: str = "") -> None:
        """Records that a file or row was left out."""
        self.skipped += 1
        self._list(Notice(source, reason, line, kind=kind))

    def note(self, source: str, reason: str, *, kind: str = "") -> None:
        """Records a notice about something that lost no text."""
        self._list(Notice(source, reason, lost=False, kind=kind))

    def ignore(self, reason: str) -> None:
        """Counts an entry of a folder that a rule excludes."""
        self.ignored[reason] = self.ignored.get(reason, 0) + 1

    def ignored_text(self) -> str:
        """A sentence about the ignored entries."""
        folders, number = sorted(self.ignored.keys() - {RULES_FILE}), self.ignored.get(RULES_FILE, 0)
        parts = [f"folders named {', '.join(folders)}"] if folders else []
        if number:
            parts.append(f"{number:,} {'entry' if number == 1 else 'entries'} that {RULES_FILE} excludes")
        return f"not read: {' and '.join(parts)}. --no-ignore reads them"

    def lost(self) -> Iterator[Notice]:
        """The listed notices about files and rows that were left out."""
        return (notice for notice in self.notices if notice.lost)

    def _list(self, notice: Notice) -> None:
        if notice.kind:
            numbers = self.kinds.setdefault(notice.kind, {})
            numbers[notice.reason] = numbers.get(notice.reason, 0) + 1
            if numbers[notice.reason] <= LISTED:
                self.notices.append(notice)
        elif len(self.notices) < LISTED:
            self.notices.append(notice)
        else:
            self.unlisted += 1


@dataclass(slots=True)
class Reading:
    """A source that a reader reads: an open seekable stream, the options, and the report for its notices."""

    name: str
    path: str
    stream: BinaryIO
    options: LoadOptions
    report: LoadReport
    _noted: set[str] = field(default_factory=set)

    def skip(self, reason: str, line: int | None = None) -> None:
        """Reports a row or page that is left out."""
        self.report.skip(self.name, reason, line)

    def note_once(self, reason: str) -> None:
        """Reports what applies to many rows and loses no text, once."""
        if reason not in self._noted:
            if len(self._noted) < LISTED:
                self._noted.add(reason)
            self.report.note(self.name, reason)
