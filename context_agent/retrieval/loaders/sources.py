"""The sources of a load: folders, files, standard input and file objects."""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from context_agent._support.arguments import items_of, require_members
from context_agent.errors import DataError, reason_of
from context_agent.retrieval.loaders.folders import FolderWalk, OpenFolder
from context_agent.retrieval.loaders.reading import identifier
from context_agent.retrieval.loaders.report import LoadReport, kind_of

Readable = str | os.PathLike[str] | IO[bytes] | IO[str]
"""A path, `-` for standard input, or an open stream."""
Extensions = Collection[str]
"""The extensions of the files to read, in lower case. "" stands for any other extension."""

NO_READER = "no reader"
IN_MEMORY = 16 * 2**20
"""Maximum number of bytes of a pipe that stay in memory. A larger pipe is copied to a temporary file."""
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file or stream to open.

    Attributes:
        name: The name of the source in notices.
        path: The path below the source folder.
        extension: The extension that selects the reader, or "" if the content decides.
        origin: The path or the stream.
        folder: The open folder in which the file was found. None for a source that the user named.
    """

    name: str
    path: str
    extension: str
    origin: Path | BinaryIO
    folder: OpenFolder | None = None


def check_sources(sources: Iterable[str]) -> None:
    """Raise `DataError` if one of the paths is a URL or does not exist, before anything is read."""
    sources = list(sources)
    for source in sources:
        if _URL.match(source):
            raise DataError(_no_url(source))
    missing = [source for source in sources if source != "-" and not os.path.lexists(source)]
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        names = ", ".join(source if source.strip() else repr(source) for source in missing)
        raise DataError(f"{names} {verb} not exist, so nothing was read. Check the path.")


def _no_url(source: str) -> str:
    return (
        f"{source} is a URL, but a source must be a file or a folder. Download it, for example with `curl -O`, and "
        "name the file."
    )


def expand(
    sources: Readable | Iterable[Readable], report: LoadReport, extensions: Extensions, *, ignore: bool = True
) -> Iterator[SourceFile]:
    """Yield the files and streams of the sources, and report the others. `ignore` applies the rules of folders.

    Raises:
        DataError: If none of the sources exists.
    """
    sources = _listed(sources)
    if isinstance(sources, Sequence):
        _require_one(sources)
    for source in sources:
        if isinstance(source, str) and source == "-":
            yield _from_stream(sys.stdin, extensions)
        elif isinstance(source, str) and _URL.match(source):
            report.skip(source, _no_url(source))
        elif isinstance(source, str | os.PathLike):
            yield from _from_path(Path(source), report, extensions, ignore=ignore)
        else:
            require_members(source, "sources", ("read",), "a path, an open file, or a list of them")
            yield _from_stream(source, extensions)


def _require_one(sources: Sequence[Readable]) -> None:
    """Raise `DataError` if the sources are paths of which none exists. Missing paths among others are reported."""
    paths = [os.fsdecode(source) for source in sources if isinstance(source, str | os.PathLike)]
    exists = (path == "-" or (os.path.lexists(path) and not _URL.match(path)) for path in paths)
    if paths and len(paths) == len(sources) and not any(exists):
        check_sources(paths)


def _listed(sources: Readable | Iterable[Readable]) -> Iterable[Readable]:
    """Return the sources as an iterable. A single source becomes a list.

    Otherwise `load("notes")` would read the files `n`, `o`, `t` and so on.
    """
    if isinstance(sources, str | os.PathLike) or hasattr(sources, "read"):
        return [cast("Readable", sources)]
    return items_of(sources, "sources", "a path, an open file, or a list of them")


def _from_stream(stream: IO[Any], extensions: Extensions) -> SourceFile:
    name = getattr(stream, "name", None)
    file = Path(name).name if isinstance(name, str) and name != "<stdin>" else "stdin"
    return SourceFile(file, file, extension_of(file, extensions) or "", _binary(stream))


def _binary(stream: IO[Any]) -> BinaryIO:
    """Return the binary buffer of a text stream. A `StringIO` has none, so its text is encoded."""
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
        report.leave_out(str(path), path.name, f"the file cannot be read ({reason_of(error)})")
        report.miss("", error)
        return
    if stat.S_ISDIR(mode):
        yield from _from_folder(path, report, extensions, ignore=ignore)
    elif (extension := extension_of(path.name, extensions)) is not None or not stat.S_ISREG(mode):
        yield SourceFile(str(path), path.name, extension or "", path)
    else:
        report.leave_out(str(path), path.name, f"{NO_READER}. To index it as text, run `ctx1 index - < FILE`.")


def _from_folder(folder: Path, report: LoadReport, extensions: Extensions, *, ignore: bool) -> Iterator[SourceFile]:
    """Yield the files below a folder that have a reader, and report the others."""

    def miss(path: str, error: OSError) -> None:
        report.miss(identifier(path), error)

    for file in FolderWalk(folder, report.skip, report.ignore if ignore else None, miss).files():
        name = file.parts[-1]
        path = folder.joinpath(*file.parts)
        if (extension := extension_of(name, extensions)) is None:
            report.leave_out(str(path), name, NO_READER, kind=kind_of(name))
        elif file.trouble:
            report.leave_out(str(path), name, file.trouble)
        else:
            yield SourceFile(str(path), "/".join(file.parts), extension, path, file.folder)


def extension_of(name: str, extensions: Extensions) -> str | None:
    """Return the extension of a file name in lower case, if a reader has it.

    If no reader has it, return "" if `extensions` contains "", and None otherwise.
    """
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    candidates = ("".join(suffixes[-2:]), *suffixes[-1:], "")
    return next((extension for extension in candidates if extension in extensions), None)


@contextmanager
def opened(source: SourceFile) -> Iterator[BinaryIO]:
    """Yield the bytes of a source as a seekable stream, from the beginning. A stream of the caller stays open."""
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
    """A file of a folder, limited to its size when it was opened.

    Reading therefore ends even if the file keeps growing.
    """

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
