"""Unified diffs in tool results, such as those of `git diff` and `git show`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FILE = re.compile(
    r"^(?:diff --git [^\n]*\n(?:(?!diff --git |--- |@@ )[^\n]+\n){0,8})?"
    r"--- (?P<old>[^\n]*)\n\+\+\+ (?P<new>[^\n]*)\n(?=@@ -)",
    re.M,
)
"""The header of a file in a diff, before its first hunk."""
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(?P<old>\d{1,9}))? \+\d{1,9}(?:,(?P<new>\d{1,9}))? @@[^\n]*(?:\n|\Z)")
"""The header of a hunk, with its numbers of old and new lines."""
_PREFIX = re.compile(r"[abciow]/")
"""What Git writes before the path of a file."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """A hunk of a diff.

    Attributes:
        start: The offset of its header.
        body: The offset after its header.
        end: The offset after its last line, without the line end.
    """

    start: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The part of a diff that changes one file.

    Attributes:
        start: The offset of its header.
        name: The path of the file.
        hunks: Its hunks, at least one.
    """

    start: int
    name: str
    hunks: tuple[Hunk, ...]

    @property
    def end(self) -> int:
        """The offset after its last line, without the line end."""
        return self.hunks[-1].end


def diffs(text: str) -> Iterator[list[FileDiff]]:
    """Yield the diffs in a text. The files of a diff follow each other without other lines between them."""
    files: list[FileDiff] = []
    position = 0
    while (header := _FILE.search(text, position)) is not None:
        position = header.end()
        if not (hunks := tuple(_hunks(text, position))):
            continue
        position = hunks[-1].end
        if files and text[files[-1].end : header.start()].strip("\r\n"):
            yield files
            files = []
        path = header["old"] if header["new"].startswith("/dev/null") else header["new"]
        files.append(FileDiff(header.start(), _PREFIX.sub("", path.split("\t")[0].strip(), count=1), hunks))
    if files:
        yield files


def _hunks(text: str, position: int) -> Iterator[Hunk]:
    """Yield the hunks from a position on. Their headers say how many lines they have."""
    while (header := _HUNK.match(text, position)) is not None:
        old, new = (int(header[side] or 1) for side in ("old", "new"))
        end = position = header.end()
        while position < len(text):
            line_end = text.find("\n", position)
            line_end = len(text) if line_end < 0 else line_end
            mark = text[position : position + 1].strip("\r\n") if line_end > position else ""
            if mark != "\\":
                old -= mark != "+"
                new -= mark != "-"
                if old < 0 or new < 0 or mark not in ("", " ", "+", "-"):
                    break
            end, position = line_end, line_end + 1
        if end <= header.end():
            return
        yield Hunk(header.start(), header.end(), end - text.endswith("\r", header.end(), end))
