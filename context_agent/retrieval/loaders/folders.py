"""The files in a source folder, and the rules that exclude a file or folder.

A folder may come from a stranger, and may change while it is read. Each folder is opened by its descriptor, level by
level from the source folder, and no level may be a link. So if a folder became a link after it was listed, the link
leads nowhere.

Hidden entries, folders that tools fill, indexes, and what a `.gitignore` names are passed over. A `.gitignore` applies
as in Git: to its folder and those below, a deeper file before a higher one. Those of the folders above the source count
up to the repository's root. If such a file cannot be read or compiled, its folder is left out, because nobody knows
what it excludes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from context_agent.errors import DataError, reason_of
from context_agent.retrieval.loaders.gitignore import MAX_RULES_BYTES, GitIgnore

RULES_FILE = ".gitignore"
EXCLUDE_FILE = ".git/info/exclude"
"""The rules of a repository that are not part of it. Rules of any `.gitignore` take precedence."""
TOOL_FOLDERS = frozenset(
    "__pycache__ __pypackages__ bower_components build dist node_modules site-packages target venv".split()
)
"""The names of folders that contain installed packages, caches and build outputs."""
PAGE_FOLDER, PAGE_ENDINGS = "_files", (".html", ".htm")
"""The end of the name of a folder in which a browser saves the styles and scripts of a page, and that of the page."""
CACHE_MARKS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""Files that mark a virtual environment and a cache (https://bford.info/cachedir)."""
INDEX_MARK = "chroma.sqlite3"
"""The file that marks an index, whose files are never read."""
MAX_DEPTH = 200
"""Maximum number of levels of folders below the source folder."""
MAX_PATH_BYTES = 4_096
"""Maximum number of bytes of a path below the source folder. The path becomes the document's id."""
LINK_REASON = "a link in a folder is not followed. To read its target, name it as a source."
LINK_TO_FOLDER = "a link to a folder is not followed"
SPECIAL_REASON = "the path is neither a file nor a folder"
_REASONS = {errno.ELOOP: LINK_REASON, errno.ENXIO: SPECIAL_REASON}
"""The reason that is reported if a file cannot be opened, by the number of the error."""
_TOO_LONG = f"the path has more than {MAX_PATH_BYTES:,} bytes below the source"
_TOO_DEEP = f"the folder is more than {MAX_DEPTH} levels deep. To read it, name it as a source."

Parts = tuple[str, ...]
"""The names on the path from one folder to another."""
Opener = Callable[[str, int], int]
"""The type of the argument `opener` of `open`."""
Skip = Callable[[str, str], None]
"""A function that reports a path that is left out, and the reason."""


class OpenFolder:
    """An open folder, in which files are opened by their names."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def below(cls, root: int, parts: Parts) -> Self:
        """Open the folder at the end of a path that contains no link. If that fails, raise `OSError`."""
        descriptor = os.dup(root)
        for part in parts:
            above = descriptor
            try:
                descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            finally:
                os.close(above)
        return cls(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def entries(self) -> list[os.DirEntry[str]]:
        """Return the entries that are not hidden, sorted by name.

        Raises:
            OSError: If the folder cannot be read.
        """
        with os.scandir(self._descriptor) as found:
            return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)

    def opener(self, name: str, flags: int) -> int:
        """Open a regular file in the folder, for the argument `opener` of `open`.

        Raises:
            DataError: If the entry is a link, a pipe or a device. It may have become one since the folder was listed.
            OSError: If it cannot be opened.
        """
        return open_regular(name, flags, folder=self._descriptor)

    def holds_file(self, path: str) -> bool:
        """Return True if the path, relative to the folder, is a regular file."""
        with suppress(OSError):
            return stat.S_ISREG(os.stat(path, dir_fd=self._descriptor).st_mode)
        return False


def open_regular(path: str, flags: int, *, folder: int | None = None) -> int:
    """Open a regular file that is not a link.

    Raises:
        DataError: If it is something else.
        OSError: If it cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        raise DataError(_REASONS[error.errno]) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise DataError(SPECIAL_REASON)


@dataclass(frozen=True, slots=True)
class FolderFile:
    """An entry of a folder that is not a folder itself. `folder` stays open until the next entry is requested."""

    parts: Parts
    folder: OpenFolder
    trouble: str
    """Why it cannot be read, for example because it is a link or a pipe. Empty for a regular file."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """The files of rules that apply in a folder.

    Attributes:
        files: Each file with the number of parts of its folder's path. The deepest folder comes last.
        size: The size of all files in bytes.
    """

    files: tuple[tuple[int, GitIgnore], ...] = ()
    size: int = 0

    def with_file(self, folder: Path, depth: int, opener: Opener, name: str = RULES_FILE) -> _Rules:
        """Return the rules with those of a folder that has `depth` parts. Raise `DataError` if they are unknown."""
        try:
            with open(name, "rb", opener=opener) as stream:
                data = stream.read(MAX_RULES_BYTES + 1)
            rules = GitIgnore.parse(data, room=MAX_RULES_BYTES - self.size)
        except FileNotFoundError:
            return self
        except (OSError, DataError) as error:
            reason = f"the file cannot be read ({reason_of(error)})" if isinstance(error, OSError) else str(error)
            cause = error if isinstance(error, OSError) else None
            raise _UnknownRulesError(folder / name, reason, cause) from None
        return _Rules((*self.files, (depth, rules)), self.size + len(data))

    def exclude(self, parts: Parts, *, is_folder: bool) -> bool:
        """Return True if the deepest rules that match the path exclude it. `parts` begin at the repository's root."""
        for depth, rules in reversed(self.files):
            decision = rules.excludes(os.fsencode("/".join(parts[depth:])), is_folder=is_folder)
            if decision is not None:
                return decision
        return False


class _UnknownRulesError(DataError):
    """A file of rules that cannot be applied."""

    def __init__(self, file: Path, reason: str, cause: OSError | None) -> None:
        super().__init__(
            f"{reason}. Its folder is not read, because what the file excludes is unknown. To read the folder, pass "
            "--no-ignore."
        )
        self.file, self.cause = file, cause


class FolderWalk:
    """The files below a source folder."""

    def __init__(
        self,
        folder: Path,
        skip: Skip,
        ignore: Callable[[str], None] | None,
        miss: Callable[[str, OSError], None] | None = None,
    ) -> None:
        """Prepare the walk.

        Args:
            folder: The source folder. It may be a link, since the user names it.
            skip: A function that is called with what cannot be read.
            ignore: A function that is called with the reason for each entry that a rule excludes. If it is None, no
                rules apply.
            miss: A function that is called with the path below the source of each folder that cannot be read, and the
                error of the operating system.
        """
        self._folder, self._skip, self._ignore, self._miss = folder, skip, ignore, miss
        self._above: Parts = ()
        """The names from the repository's root to the source folder."""
        self._pending: list[tuple[Parts, _Rules]] = []

    def files(self) -> Iterator[FolderFile]:
        """Yield the entries that are not folders, in sorted order.

        The entries of a folder come before those of its subfolders.
        """
        try:
            rules = _Rules() if self._ignore is None else self._rules_above()
            root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except (_UnknownRulesError, OSError) as error:
            self._report((), error)
            return
        try:
            self._pending = [] if rules is None else [((), rules)]
            while self._pending:
                parts, rules = self._pending.pop()
                yield from self._files_in(root, parts, rules)
        finally:
            os.close(root)

    def _rules_above(self) -> _Rules | None:
        """Return the rules of the folders above the source. If they exclude it, return None."""
        top = Path(os.path.realpath(self._folder))
        root = next((folder for folder in (top, *top.parents) if os.path.lexists(folder / ".git")), top)
        self._above = top.relative_to(root).parts
        rules, folder = _Rules(), root
        if (root / ".git").is_dir():
            rules = rules.with_file(root, 0, _opener_in(root), EXCLUDE_FILE)
        for depth, name in enumerate(self._above):
            rules = rules.with_file(folder, depth, _opener_in(folder))
            if rules.exclude(self._above[: depth + 1], is_folder=True):
                if self._ignore is not None:
                    self._ignore(RULES_FILE)
                return None
            folder /= name
        return rules

    def _files_in(self, root: int, parts: Parts, rules: _Rules) -> Iterator[FolderFile]:
        path = self._folder.joinpath(*parts)
        try:
            with OpenFolder.below(root, parts) as here:
                if self._ignore is not None:
                    rules = rules.with_file(path, len(self._above) + len(parts), here.opener)
                folders, others = self._admitted(here, parts, rules)
                for entry in others:
                    below = (*parts, entry.name)
                    too_long = len(os.fsencode("/".join(below))) > MAX_PATH_BYTES
                    yield FolderFile(below, here, _TOO_LONG if too_long else _trouble(entry))
        except (_UnknownRulesError, OSError) as error:
            self._report(parts, error)
            return
        if folders and len(parts) >= MAX_DEPTH:
            self._skip(str(path / folders[0].name), _TOO_DEEP)
        else:
            self._pending += [((*parts, entry.name), rules) for entry in reversed(folders)]

    def _report(self, parts: Parts, error: _UnknownRulesError | OSError) -> None:
        """Report a folder that is not read."""
        if isinstance(error, OSError):
            self._skip(str(self._folder.joinpath(*parts)), f"the folder cannot be read ({reason_of(error)})")
        else:
            self._skip(str(error.file), str(error))
        cause = error if isinstance(error, OSError) else error.cause
        if self._miss is not None and cause is not None:
            self._miss("/".join(parts), cause)

    def _admitted(
        self, here: OpenFolder, parts: Parts, rules: _Rules
    ) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
        """Return the folders and the other entries that no rule excludes. Links to folders are reported."""
        folders: list[os.DirEntry[str]] = []
        others: list[os.DirEntry[str]] = []
        entries = here.entries()
        pages = {entry.name for entry in entries if entry.name.endswith(PAGE_ENDINGS)}
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and here.holds_file(f"{entry.name}/{INDEX_MARK}"):
                continue
            if self._ignore is not None and (reason := self._exclusion(here, (*parts, entry.name), rules, is_folder)):
                self._ignore(reason)
            elif is_folder and self._ignore is not None and _belongs_to_page(entry.name, pages):
                self._ignore(f"*{PAGE_FOLDER}")
            elif is_folder:
                folders.append(entry)
            elif _leads_to_folder(entry):
                self._skip(str(self._folder.joinpath(*parts, entry.name)), LINK_TO_FOLDER)
            else:
                others.append(entry)
        return folders, others

    def _exclusion(self, here: OpenFolder, parts: Parts, rules: _Rules, is_folder: bool) -> str:
        """Return what excludes an entry: the name of a tool's folder, or `.gitignore`. If nothing does, return ""."""
        name = parts[-1]
        if is_folder and (name in TOOL_FOLDERS or any(here.holds_file(f"{name}/{mark}") for mark in CACHE_MARKS)):
            return name
        return RULES_FILE if rules.exclude((*self._above, *parts), is_folder=is_folder) else ""


def _belongs_to_page(folder: str, pages: Collection[str]) -> bool:
    """Return True if a browser saved the folder with one of the pages, as `Weir_files` with `Weir.html`."""
    name = folder.removesuffix(PAGE_FOLDER)
    return name != folder and any(f"{name}{ending}" in pages for ending in PAGE_ENDINGS)


def _opener_in(folder: Path) -> Opener:
    """Return an opener of the regular files in a folder."""
    return lambda name, flags: open_regular(str(folder / name), flags)


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # links in a circle
        return entry.is_symlink() and entry.is_dir()
    return False


def _trouble(entry: os.DirEntry[str]) -> str:
    """Return why an entry that is not a folder cannot be read. For a regular file, return ""."""
    if entry.is_file(follow_symlinks=False):
        return ""
    if not entry.is_symlink():
        return SPECIAL_REASON
    try:
        entry.stat()
    except OSError as error:
        return f"the file cannot be read ({reason_of(error)})"
    return LINK_REASON


def subfolders(folder: Path, *, no_ignore: bool) -> Iterator[Path]:
    """Yield a folder and those below it, without links, hidden folders and, unless `no_ignore`, folders of tools."""
    pending = [(folder, 0)]
    while pending:
        here, depth = pending.pop()
        yield here
        with suppress(OSError), os.scandir(here) as entries:
            pending += [
                (here / entry.name, depth + 1)
                for entry in entries
                if depth < MAX_DEPTH
                and not is_passed_over(entry.name, no_ignore=no_ignore)
                and entry.is_dir(follow_symlinks=False)
            ]


def is_passed_over(name: str, *, no_ignore: bool) -> bool:
    """Return True if a folder or file with this name is not read, because it is hidden or belongs to a tool."""
    return name.startswith(".") or (name in TOOL_FOLDERS and not no_ignore)
