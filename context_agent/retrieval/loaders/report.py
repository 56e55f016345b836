"""The report of a load: what was read, what was left out, and why."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from context_agent.errors import MissingExtraError
from context_agent.retrieval.loaders.folders import RULES_FILE

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""The errors of a path that does not exist, or that is something other than before."""
_ENDS = re.compile("[/#~]")
"""The characters in an id before which the id of a folder, of a file or of a document with the same id may end."""
MAX_LISTED_NOTICES = 10_000
"""Maximum number of notices in a report. Others are only counted, so that a damaged file cannot fill the memory."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a source.

    Attributes:
        source: The name of the source.
        reason: The problem, and what to do about it.
        line: The line number, from 1. It is None if the notice is about the whole source.
        lost: True if text of the source is missing.
        kind: The kind of the file (`.png`), if the reason applies to every file of that kind. Otherwise empty.
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
    """A report on what a load read and what it left out. It is filled while the documents are read.

    Attributes:
        files: The number of files that were read.
        documents: The number of documents.
        duplicates: The number of repeated documents that were dropped.
        skipped: The number of notices about lost text.
        unlisted: The number of notices beyond the first 10,000.
        notices: The first 10,000 notices. Notices that apply to a kind of file are listed up to 10,000 for each reason.
        kinds: The number of notices that apply to a kind of file, by kind and reason.
        ignored: The number of entries of folders that are excluded, by rule: `.gitignore` or the folder's name.
        files_read: The number of files that were read, by kind.
        files_left_out: The number of files of which nothing was read, by kind.
        unreadable: The ids of the documents whose files could not be opened or read although they exist, also because
            a package is missing, and the beginnings of the ids of those in such folders. "" stands for all documents.
    """

    files: int = 0
    documents: int = 0
    duplicates: int = 0
    skipped: int = 0
    unlisted: int = 0
    notices: list[Notice] = field(default_factory=list)
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    files_read: dict[str, int] = field(default_factory=dict)
    files_left_out: dict[str, int] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def count_read(self, path: str) -> None:
        """Count a file that was read."""
        self.files += 1
        kind = kind_of(path)
        self.files_read[kind] = self.files_read.get(kind, 0) + 1

    def leave_out(self, source: str, path: str, reason: str, *, kind: str = "") -> None:
        """Record that nothing of a file was read."""
        self.skip(source, reason, kind=kind)
        name = kind_of(path)
        self.files_left_out[name] = self.files_left_out.get(name, 0) + 1

    def miss(self, identifier: str, error: OSError | MissingExtraError) -> None:
        """Record that a file or folder could not be read, unless it is gone or has become something else.

        Args:
            identifier: The id of its document, or the beginning of the ids of its documents.
            error: The error of the operating system, or the one that names the missing package. An `OSError` of
                another kind has no number, and is not recorded.
        """
        if isinstance(error, OSError) and (error.errno is None or error.errno in _GONE):
            return
        if len(self.unreadable) == MAX_LISTED_NOTICES:
            self.unreadable[:] = [""]
        if "" not in self.unreadable:
            self.unreadable.append(identifier)

    def may_hold(self, document: str) -> bool:
        """Return True if a file or folder that could not be read may hold the document with this id."""
        if not self.unreadable:
            return False
        whole = {"", document, *(document[: end.start()] for end in _ENDS.finditer(document))}
        return not whole.isdisjoint(self.unreadable)

    def skip(self, source: str, reason: str, line: int | None = None, *, kind: str = "") -> None:
        """Record that a file or row was left out."""
        self.skipped += 1
        self._list(Notice(source, reason, line, kind=kind))

    def note(self, source: str, reason: str, *, kind: str = "") -> None:
        """Record a notice about something that lost no text."""
        self._list(Notice(source, reason, lost=False, kind=kind))

    def ignore(self, reason: str) -> None:
        """Count an entry of a folder that a rule excludes."""
        self.ignored[reason] = self.ignored.get(reason, 0) + 1

    def ignored_text(self) -> str:
        """Return a sentence about the ignored entries."""
        folders, number = sorted(self.ignored.keys() - {RULES_FILE}), self.ignored.get(RULES_FILE, 0)
        parts = [f"folders named {', '.join(folders)}"] if folders else []
        if number:
            parts.append(f"{number:,} {'entry' if number == 1 else 'entries'} that {RULES_FILE} excludes")
        return f"not read: {' and '.join(parts)}. To read them, pass --no-ignore."

    def lost(self) -> Iterator[Notice]:
        """Yield the listed notices about files and rows that were left out."""
        return (notice for notice in self.notices if notice.lost)

    def _list(self, notice: Notice) -> None:
        if notice.kind:
            numbers = self.kinds.setdefault(notice.kind, {})
            numbers[notice.reason] = numbers.get(notice.reason, 0) + 1
            if numbers[notice.reason] <= MAX_LISTED_NOTICES:
                self.notices.append(notice)
        elif len(self.notices) < MAX_LISTED_NOTICES:
            self.notices.append(notice)
        else:
            self.unlisted += 1


LONGEST_KIND = 12
"""Maximum number of characters of an extension that name a kind."""


def kind_of(name: str) -> str:
    """Return the kind of a file for a summary: its extension, or `extensionless`."""
    return Path(name).suffix.lower()[:LONGEST_KIND] or "extensionless"
