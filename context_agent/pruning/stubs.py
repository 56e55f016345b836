"""The texts that mark removed passages, and the requests to restore the passages that they name."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

_IDS = r"p(\d{1,9})\b(?:-(\d{1,9})\b|(?: ?[-\u2010-\u2014] ?| (?:to|through) )p(\d{1,9})\b)?"
"""An id or a range of ids, as models write it: `p3`, `p3-p5`, `p3-5`, or `p3 to p5`."""
_BETWEEN = r"(?:(?:,? {1,3}(?:and|or) {1,3}|[\s,;&/\"'`*\\\[\]\u3001\uff0c\uff1b-]{1,8})(?:passages? )?)"
"""What may be between two ids: commas, the marks of lists in JSON and in Markdown, `and` or `or`."""
_REQUEST = re.compile(rf"\brestore\W{{1,8}}(?:(?:passages?|ids?)\W{{1,3}})?(?P<ids>{_IDS}(?:{_BETWEEN}{_IDS})*+)", re.I)
_ID_RANGE = re.compile(_IDS, re.I)
_LOOKS_LIKE_STUB = re.compile(
    r"\[\d+ (?:passage|result)s? pruned, [\d,]+ tokens; restore: p\d|\[p\d[\dp, -]{0,99} pruned\]"
)
LONGEST_RANGE = 100_000
"""Maximum number of ids of a range that count. New ids come after the requested ones, and must stay short."""


def full_stub(ids: Sequence[str], tokens: int, *, results: int = 0) -> str:
    """Return a stub with the number of removed passages, or of the removed results if `results` is not 0."""
    count, noun = (results, "result") if results else (len(ids), "passage")
    return f"[{count} {noun}{'' if count == 1 else 's'} pruned, {tokens:,} tokens; restore: {id_ranges(ids)}]"


def brief_stub(ids: Sequence[str]) -> str:
    """Return a stub that contains only the ids."""
    return f"[{id_ranges(ids)} pruned]"


def looks_like_stub(text: str) -> bool:
    """Return True if a text contains what looks like a stub."""
    return _LOOKS_LIKE_STUB.search(text) is not None


class RequestedIds:
    """The numbers of the passages that messages ask to restore, as ranges."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for numbers in sorted((numbers for text in texts for numbers in _requested(text)), key=lambda it: it.start):
            if self._stops and numbers.start <= self._stops[-1]:
                self._stops[-1] = max(self._stops[-1], numbers.stop)
            else:
                self._starts.append(numbers.start)
                self._stops.append(numbers.stop)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, number: int) -> bool:
        return self.next_free(number) != number

    def next_free(self, number: int) -> int:
        """Return the smallest number, at least `number`, that no message asks to restore."""
        position = bisect_right(self._starts, number)
        return max(number, self._stops[position - 1]) if position else number


def _requested(text: str) -> Iterator[range]:
    """Yield the ranges of numbers that a text asks to restore.

    Stubs write them as `restore: p3-p5, p9`. The marks around them may differ, as in the JSON of a call.
    """
    for request in _REQUEST.finditer(text):
        for first, *last in _ID_RANGE.findall(request["ids"]):
            low, high = sorted((int(first), int("".join(last) or first)))
            yield range(low, high + 1)[:LONGEST_RANGE]


def id_ranges(ids: Sequence[str]) -> str:
    """Return ids as text, with consecutive ids as a range: `p3-p5, p9`."""
    ranges: list[list[str]] = []
    for name in ids:
        if ranges and int(ranges[-1][-1][1:]) + 1 == int(name[1:]):
            ranges[-1] = [ranges[-1][0], name]
        else:
            ranges.append([name])
    return ", ".join("-".join(bounds) for bounds in ranges)
