"""Which files and folders of a source folder are passed over: `.gitignore`, and the folders that tools fill.

A `.gitignore` applies as in Git: to its folder and those below, a deeper file before a higher one; those of the
folders above count up to the repository's root. Its patterns may come from strangers, so they run on RE2, in linear
time; a link is not read, and of a
file the first `LARGEST_RULES` bytes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from context_agent.errors import DataError
from context_agent.retrieval.loaders.report import RULES_FILE

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

TOOL_FOLDERS = frozenset(
    "__pycache__ __pypackages__ bower_components build dist node_modules site-packages target venv".split()
)
"""Names of folders that hold installed packages, caches and build outputs."""
CACHE_MARKS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""Files that mark a virtual environment and a cache (https://bford.info/cachedir)."""
LARGEST_RULES = 2**20

Opener = Callable[[str, int], int]


class IgnoreRules:
    """The rules that hold in a source folder. `problems` collects what is wrong with the files that state them."""

    def __init__(self, folder: Path, opener: Opener) -> None:
        """`opener` opens regular files alone, as `open` takes it."""
        self._opener = opener
        self._specs: dict[Path, GitIgnoreSpec | None] = {}
        self.problems: list[tuple[Path, str]] = []
        self._top = folder.absolute()
        self._root = next((above for above in _upwards(self._top) if (above / ".git").exists()), self._top)

    def reason(self, folder: Path, name: str, *, is_folder: bool) -> str:
        """What excludes an entry of a folder: the name of a tool's folder, or `.gitignore`; "" if nothing does."""
        path = folder.absolute() / name
        if is_folder and (name in TOOL_FOLDERS or any((path / mark).is_file() for mark in CACHE_MARKS)):
            return name
        return RULES_FILE if self._excluded(path, is_folder) else ""

    def _excluded(self, path: Path, is_folder: bool) -> bool:
        for above in _upwards(path.parent):
            if spec := self._spec(above):
                name = path.relative_to(above).as_posix() + "/" * is_folder
                include = spec.check_file(name).include
                if include is not None:
                    return include
            if above == self._root:
                break
        return False

    def _spec(self, folder: Path) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            self._specs[folder] = self._read(folder / RULES_FILE)
        return self._specs[folder]

    def _read(self, file: Path) -> GitIgnoreSpec | None:
        import re2
        from pathspec import GitIgnoreSpec

        try:
            with open(file, "rb", opener=self._opener) as stream:
                data = stream.read(LARGEST_RULES)
            with warnings.catch_warnings(action="ignore"):  # `re` warns of odd character sets
                return GitIgnoreSpec.from_lines(data.decode("utf-8", "replace").splitlines(), backend="re2")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, DataError, re.error, re2.error) as error:
            self.problems.append((file, f"is not applied: {error}"))
            return None


def _upwards(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.parents
