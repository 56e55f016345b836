"""From what the caller names to open streams: folders, files, standard input, file objects."""

from __future__ import annotations

import errno
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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from urllib.parse import quote

from context_agent.errors import DataError
from context_agent.retrieval.loaders.report import LoadReport

Readable = str | os.PathLike[str] | IO[bytes] | IO[str]
"""A path, `-` for standard input, or an open stream."""
Known = Collection[str]
"""Extensions of files that are read, in lower case; "" among them stands for every other."""

LINK = "a link in a folder is not followed: name the file it leads to as a source of its own"
SPECIAL = "is neither a file nor a folder"
IN_MEMORY = 16 * 2**20
"""Bytes of a pipe held in memory before it goes to a temporary file."""
_UNSAFE = re.compile(r"[^\w./@+~,=-]")


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to open. `path` is relative to the source folder; `extension` is "" where the content must tell.

    `listed` says that a folder held it, not that a user named it: then it must be a regular file.
    """

    name: str
    path: str
    extension: str
    origin: Path | BinaryIO
    listed: bool = False


def expand(sources: Readable | Iterable[Readable], report: LoadReport, known: Known) -> Iterator[Source]:
    """The files and streams that the sources stand for; what is none of them is reported."""
    for source in _listed(sources):
        if isinstance(source, str) and source == "-":
            yield _from_stream(sys.stdin, known)
        elif isinstance(source, str | os.PathLike):
            yield from _from_path(Path(source), report, known)
        else:
            yield _from_stream(source, known)


def _listed(sources: Readable | Iterable[Readable]) -> Iterable[Readable]:
    """A lone source is taken for a list of one: `load("notes")` must not read files `n`, `o`, `t` ..."""
    if isinstance(sources, str | os.PathLike) or hasattr(sources, "read"):
        return [cast("Readable", sources)]
    return sources


def _from_stream(stream: IO[Any], known: Known) -> Source:
    name = getattr(stream, "name", None)
    file = Path(name).name if isinstance(name, str) and name != "<stdin>" else "stdin"
    return Source(file, file, extension_of(file, known) or "", _binary(stream))


def _binary(stream: IO[Any]) -> BinaryIO:
    """The bytes below a text stream; those of one that has none (`StringIO`) are made."""
    below: BinaryIO | None = getattr(stream, "buffer", None)
    if below is not None:
        return below
    if hasattr(stream, "encoding"):
        return io.BytesIO(stream.read().encode("utf-8", "surrogatepass"))
    return cast("BinaryIO", stream)


def _from_path(path: Path, report: LoadReport, known: Known) -> Iterator[Source]:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        report.skip(str(path), f"cannot be read: {error.strerror or error}")
        return
    if stat.S_ISDIR(mode):
        yield from _from_folder(path, report, known)
    elif (extension := extension_of(path.name, known)) is not None or not stat.S_ISREG(mode):
        yield Source(str(path), path.name, extension or "", path)
    else:
        report.skip(str(path), _unknown(path.name, known))


def _from_folder(folder: Path, report: LoadReport, known: Known) -> Iterator[Source]:
    """Files below the folder in sorted order, a folder's own before those of its subfolders."""

    def unreadable(error: OSError) -> None:
        report.skip(str(error.filename), f"cannot be read: {error.strerror}")

    for here, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in [name for name in folders if (Path(here) / name).is_symlink()]:
            report.skip(str(Path(here) / name), "a link to a folder is not followed")
        for name in sorted(name for name in files if not name.startswith(".")):
            path = Path(here) / name
            if (extension := extension_of(name, known)) is None:
                report.skip(str(path), _unknown(name, known))
            elif path.is_symlink():
                report.skip(str(path), LINK if path.exists() else "cannot be read: No such file or directory")
            elif path.exists() and not path.is_file():
                report.skip(str(path), SPECIAL)
            else:
                yield Source(str(path), path.relative_to(folder).as_posix(), extension, path, listed=True)


def extension_of(name: str, known: Known) -> str | None:
    """The known extension of a file name, in lower case; for any other "" where that is known, else None."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    return next((one for one in ("".join(suffixes[-2:]), *suffixes[-1:], "") if one in known), None)


def _unknown(name: str, known: Known) -> str:
    return f"unknown extension {Path(name).suffix!r}: known are {' '.join(sorted(known))}"


def identifier(path: str) -> str:
    """A relative path as a document id: letters of any script stay, what an id should not hold is percent-encoded.

    Different paths have different ids, and composed and decomposed accents (which file systems mix) the same one.
    """
    composed = unicodedata.normalize("NFC", path)
    return _UNSAFE.sub(lambda match: quote(match[0], safe="", errors="surrogateescape"), composed)


@contextmanager
def opened(source: Source) -> Iterator[BinaryIO]:
    """The source's bytes, from the beginning, seekable. Only what was opened here is closed again."""
    if isinstance(source.origin, Path):
        opener = _regular if source.listed else None
        with open(source.origin, "rb", opener=opener) as stream, _seekable(stream) as seekable:
            yield seekable
    else:
        with _seekable(source.origin) as seekable:
            yield seekable


def _regular(path: str, flags: int) -> int:
    """Opens a regular file: it may have become a link or a pipe since its folder was listed. Raises `DataError`."""
    try:
        handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise (DataError(LINK) if error.errno == errno.ELOOP else error) from None
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise DataError(SPECIAL)


@contextmanager
def _seekable(stream: BinaryIO) -> Iterator[BinaryIO]:
    """The stream itself, or a temporary copy of a pipe."""
    if stream.seekable():
        stream.seek(0)
        yield stream
        return
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as copy:
        shutil.copyfileobj(stream, copy)
        copy.seek(0)
        yield cast("BinaryIO", copy)
