"""The sources of a load (folders, files, standard input, file objects), its options, and the report about them."""

from __future__ import annotations

import codecs
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from urllib.parse import quote

from context_agent.errors import ConfigError, DataError
from context_agent.retrieval.loaders.folders import RULES_FILE, FolderWalk, OpenFolder

MAX_MB = 16
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
        """Return the notice about a part of a source that exceeds the limit."""
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
    entries of folders that rules exclude, by `.gitignore` or the folder's name. `files_read` and `files_left_out` count
    the files by kind. Of a file that was left out, nothing was read.
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
        """Return a sentence about the ignored entries."""
        folders, number = sorted(self.ignored.keys() - {RULES_FILE}), self.ignored.get(RULES_FILE, 0)
        parts = [f"folders named {', '.join(folders)}"] if folders else []
        if number:
            parts.append(f"{number:,} {'entry' if number == 1 else 'entries'} that {RULES_FILE} excludes")
        return f"not read: {' and '.join(parts)}. --no-ignore reads them"

    def lost(self) -> Iterator[Notice]:
        """Return the listed notices about files and rows that were left out."""
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
    found: bool = False
    """True for a file that was found in a folder, False for a source that the user named."""
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


Readable = str | os.PathLike[str] | IO[bytes] | IO[str]
"""A path, `-` for standard input, or an open stream."""
Extensions = Collection[str]
"""Extensions of the files to read, in lower case; "" means any other extension."""

NO_READER = "no reader"
LONGEST_KIND = 12
"""Characters of an extension that name a kind."""
IN_MEMORY = 16 * 2**20
"""Bytes of a pipe in memory before it goes to a temporary file."""
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w./@+~,=-]")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file or stream to open. `path` is relative to the source folder; `extension` is "" if the content decides.

    `folder` is the open folder in which a file was found, or None for a source that the user named.
    """

    name: str
    path: str
    extension: str
    origin: Path | BinaryIO
    folder: OpenFolder | None = None


def check_sources(sources: Iterable[str]) -> None:
    """Raises `DataError` if one of the paths is a URL or does not exist, before anything is read."""
    sources = list(sources)
    for source in sources:
        if _URL.match(source):
            raise DataError(_no_url(source))
    missing = [source for source in sources if source != "-" and not os.path.lexists(source)]
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        raise DataError(f"{', '.join(missing)} {verb} not exist, so nothing was read: check the path")


def _no_url(source: str) -> str:
    return f"{source} is a URL; a source is a file or folder: download it, for example with curl -O, and name the file"


def expand(
    sources: Readable | Iterable[Readable], report: LoadReport, extensions: Extensions, *, ignore: bool = True
) -> Iterator[SourceFile]:
    """Yield the files and streams of the sources; others are reported. `ignore` applies the rules of folders."""
    for source in _listed(sources):
        if isinstance(source, str) and source == "-":
            yield _from_stream(sys.stdin, extensions)
        elif isinstance(source, str) and _URL.match(source):
            report.skip(source, _no_url(source))
        elif isinstance(source, str | os.PathLike):
            yield from _from_path(Path(source), report, extensions, ignore=ignore)
        else:
            yield _from_stream(source, extensions)


def _listed(sources: Readable | Iterable[Readable]) -> Iterable[Readable]:
    """Return a single source becomes a list: `load("notes")` must not read files `n`, `o`, `t` ..."""
    if isinstance(sources, str | os.PathLike) or hasattr(sources, "read"):
        return [cast("Readable", sources)]
    return sources


def _from_stream(stream: IO[Any], extensions: Extensions) -> SourceFile:
    name = getattr(stream, "name", None)
    file = Path(name).name if isinstance(name, str) and name != "<stdin>" else "stdin"
    return SourceFile(file, file, extension_of(file, extensions) or "", _binary(stream))


def _binary(stream: IO[Any]) -> BinaryIO:
    """Return the binary buffer of a text stream; a `StringIO`, which has none, is encoded."""
    buffer: BinaryIO | None = getattr(stream, "buffer", None)
    if buffer is not None:
        return buffer
    if hasattr(stream, "encoding"):
        return io.BytesIO(stream.read().encode("utf-8", "surrogatepass"))
    return cast("BinaryIO", stream)


def _from_path(path: Path, report: LoadReport, extensions: Extensions, *, ignore: bool) -> Iterator[SourceFile]:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        report.leave_out(str(path), path.name, f"cannot be read: {error.strerror or error}")
        return
    if stat.S_ISDIR(mode):
        yield from _from_folder(path, report, extensions, ignore=ignore)
    elif (extension := extension_of(path.name, extensions)) is not None or not stat.S_ISREG(mode):
        yield SourceFile(str(path), path.name, extension or "", path)
    else:
        report.leave_out(str(path), path.name, f"{NO_READER}. To index it as text: ctx1 index - < FILE")


def _from_folder(folder: Path, report: LoadReport, extensions: Extensions, *, ignore: bool) -> Iterator[SourceFile]:
    """Yield the files below a folder that have a reader, and report the others."""
    for file in FolderWalk(folder, report.skip, report.ignore if ignore else None).files():
        name = file.parts[-1]
        path = folder.joinpath(*file.parts)
        if (extension := extension_of(name, extensions)) is None:
            report.leave_out(str(path), name, NO_READER, kind=kind_of(name))
        elif file.trouble:
            report.leave_out(str(path), name, file.trouble)
        else:
            yield SourceFile(str(path), "/".join(file.parts), extension, path, file.folder)


def kind_of(name: str) -> str:
    """Return the kind of a file for a summary of many: its extension, or `extensionless`."""
    return Path(name).suffix.lower()[:LONGEST_KIND] or "extensionless"


def extension_of(name: str, extensions: Extensions) -> str | None:
    """Return the extension of a file name in lower case if it is among `extensions`; else "" if that is, else None."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    candidates = ("".join(suffixes[-2:]), *suffixes[-1:], "")
    return next((extension for extension in candidates if extension in extensions), None)


def identifier(path: str) -> str:
    """Return a relative path as a document id: letters of any script stay, special characters are percent-encoded.

    Different paths have different ids; composed and decomposed accents, which file systems mix, have the same id.
    """
    composed = unicodedata.normalize("NFC", path)
    return _UNSAFE.sub(lambda match: quote(match[0], safe="", errors="surrogateescape"), composed)


@contextmanager
def opened(source: SourceFile) -> Iterator[BinaryIO]:
    """Yield the source's bytes, from the beginning, seekable. A stream of the caller stays open."""
    if isinstance(source.origin, Path) and source.folder is not None:
        with io.BufferedReader(_Frozen(source.origin.name, source.folder)) as frozen:
            yield cast("BinaryIO", frozen)
    elif isinstance(source.origin, Path):
        with source.origin.open("rb") as stream, _seekable(stream) as seekable:
            yield seekable
    else:
        with _seekable(source.origin) as seekable:
            yield seekable


class _Frozen(io.FileIO):
    """A file of a folder, up to its size when it was opened: a file that grows while it is read comes to an end."""

    def __init__(self, name: str, folder: OpenFolder) -> None:
        super().__init__(name, opener=folder.opener)
        self._end = os.fstat(self.fileno()).st_size

    def _left(self) -> int:
        return max(0, self._end - self.tell())

    def readinto(self, buffer: Any) -> int | None:
        return super().readinto(memoryview(buffer)[: self._left()])

    def readall(self) -> bytes:
        return self.read(self._left()) or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(self._end + offset) if whence == os.SEEK_END else super().seek(offset, whence)


@contextmanager
def _seekable(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Yield the stream itself, or a temporary copy of a pipe."""
    if stream.seekable():
        stream.seek(0)
        yield stream
        return
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as copy:
        shutil.copyfileobj(stream, copy)
        copy.seek(0)
        yield cast("BinaryIO", copy)
