"""The headings of a PDF file: its bookmarks, and its lines in larger letters.

PDF 1.7 (ISO 32000-1:2008) defines the size of letters in section 9.4.4.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from context_agent.retrieval.loaders.headings import LONGEST_HEADING, Heading, shortened
from context_agent.retrieval.loaders.pdf_bookmarks import bookmarks

if TYPE_CHECKING:
    from pypdf import PdfReader

LARGER = 1.12
"""Minimum size of the letters of a heading, as a multiple of the size that most letters have."""
MOST_LARGE = 0.35
"""The largest share of the letters that headings may have. If more letters are larger, their sizes say nothing."""
LARGEST_SIZE = 1_000
"""The size in points from which letters count neither as text nor as a heading."""
MOST_RUNS = 200_000
"""Maximum number of runs of letters of one size that are remembered."""
LONGEST_RUN = 2 * LONGEST_HEADING
"""Maximum number of characters of a run that are remembered."""
_LEADERS = re.compile(r"\.{4}|(?:\. ){3}")
"""Dots that lead to the number of a page, in a table of contents."""


class _Run(NamedTuple):
    """Letters of one size that follow each other: the index of their page, their size in points, and their text."""

    page: int
    size: float
    text: str


class PrintedSizes:
    """A record of the letters on the pages of a file, with their sizes. pypdf calls it with each piece of text."""

    def __init__(self) -> None:
        self._page = 0
        self._runs: list[_Run] = []
        self._letters: Counter[float] = Counter()

    def begin(self, page: int) -> None:
        """Set the index of the page whose text follows."""
        self._page = page

    def __call__(self, text: str, matrix: Sequence[float], text_matrix: Sequence[float], _: Any, size: float) -> None:
        """Record a piece of text. Its size is that of the font, scaled by both matrices."""
        try:
            scale = math.hypot(text_matrix[2], text_matrix[3]) * math.hypot(matrix[2], matrix[3])
            points = round(abs(size) * scale, 1)
        except OverflowError:  # a whole number of hundreds of digits
            return
        if not points < LARGEST_SIZE:  # also if the size is NaN
            return
        self._letters[points] += len(text.strip())
        last = self._runs[-1] if self._runs else None
        if last and (last.page, last.size) == (self._page, points):
            self._runs[-1] = last._replace(text=(last.text + text[:LONGEST_RUN])[: 4 * LONGEST_RUN])
        elif text.strip() and len(self._runs) < MOST_RUNS:
            self._runs.append(_Run(self._page, points, text[:LONGEST_RUN]))

    def large_lines(self) -> Iterator[tuple[int, int, str]]:
        """Yield the page, the level and the words of each line in larger letters. Level 1 has the largest letters."""
        usual = max(self._letters, key=lambda size: self._letters[size], default=0.0)
        large = sorted((size for size in self._letters if size > LARGER * usual), reverse=True)
        if sum(self._letters[size] for size in large) > MOST_LARGE * self._letters.total():
            return
        levels = {size: level for level, size in enumerate(large, 1)}
        for page, size, text in self._runs:
            if size in levels:
                lines = (line.strip() for line in text.splitlines())
                yield from ((page, levels[size], line) for line in lines if _key(line) and not _LEADERS.search(line))

    def title(self) -> str:
        """Return the line in the largest letters of the first page, or "" if its letters have one size."""
        lines = [(level, words) for page, level, words in self.large_lines() if page == 0]
        first = min((level for level, _ in lines), default=0)
        return shortened(" ".join(words for level, words in lines if level == first), LONGEST_HEADING)


def pdf_headings(reader: PdfReader, pages: Sequence[str], sizes: PrintedSizes) -> list[Heading]:
    """Return the headings of a text that consists of the pages, with a blank line between those that have text.

    Bookmarks name the larger parts. Lines in larger letters that are not bookmarks name parts inside those.

    Args:
        reader: The file.
        pages: The text of each page.
        sizes: The sizes of the letters on the pages.
    """
    marked = list(_placed((mark for mark in bookmarks(reader) if _key(mark.title)), pages))
    taken = {heading.start for heading in marked}
    deepest = max((heading.level for heading in marked), default=0)
    # The text of a damaged page is left out, but the sizes of its letters may have been read.
    large_lines = (line for line in sizes.large_lines() if pages[line[0]])
    printed = (heading for heading in _placed(large_lines, pages) if heading.start not in taken)
    below = [heading._replace(level=deepest + heading.level) for heading in printed]
    return sorted([*marked, *below], key=lambda heading: heading.start)


def page_starts(pages: Sequence[str]) -> list[int]:
    """Return the offset of each page in a text that consists of the pages, with a blank line between those with text.

    A page without text begins where the next page begins.
    """
    return list(accumulate((len(page) + 2 if page else 0 for page in pages[:-1]), initial=0))


def _placed(named: Iterable[tuple[int, int, str]], pages: Sequence[str]) -> Iterator[Heading]:
    """Yield headings with their places. A heading that its page does not have begins with the page.

    A page without text, such as an image of a title, begins where the next page begins.
    """
    starts = page_starts(pages)
    last = max((number for number, page in enumerate(pages) if page), default=-1)
    read: dict[int, _Lines] = {}
    for page, level, words in named:
        if page <= last:
            if page not in read:
                read[page] = _Lines(pages[page])
            offset, line = read[page].next(words)
            yield Heading(starts[page] + offset, level, line)


class _Lines:
    """The lines of a page, by their letters. A heading may be printed in two lines."""

    def __init__(self, page: str) -> None:
        self._found: dict[str, list[tuple[int, str]]] = {}
        self._read = 0
        offset = 0
        lines = []
        for line in page.splitlines(keepends=True):
            if _key(words := line.strip()[:LONGEST_RUN]):
                lines.append((offset, words))
            offset += len(line)
        for place in lines:
            self._found.setdefault(_key(place[1]), []).append(place)
        pairs: dict[str, list[tuple[int, str]]] = {}
        for (offset, words), (_, after) in pairwise(lines):
            pairs.setdefault(_key(f"{words} {after}"), []).append((offset, f"{words} {after}"))
        self._found = pairs | self._found

    def next(self, words: str) -> tuple[int, str]:
        """Return the offset and the words of the next line with these letters, or 0 and the words if there is none.

        Headings come in the order of the text, so the second of two equal ones is further down.
        """
        places = self._found.get(_key(words), [])
        at = bisect_left(places, (self._read, ""))
        if at == len(places):
            return 0, words
        self._read = places[at][0] + 1
        return places[at]


def _key(words: str) -> str:
    """Return the letters and digits of a heading, without the number that it begins with.

    Bookmarks often leave out the number. A heading of digits alone keeps them.
    """
    key = "".join(char for char in words[:LONGEST_RUN].casefold() if char.isalnum())
    return key.lstrip("0123456789") or key
