"""Tool results cut into passages: search hits, JSON items, Markdown sections, paragraphs, log entries, blocks of code.

A passage is a span of the result's text, so that what remains around removed passages is the original, byte for byte.
Text is cut at headings and blank lines, long blocks at lines that begin an entry, long lines at sentences. JSON stays
JSON: a value that is larger than a passage is opened, and a stub takes the place of a value or of a part of a string.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

SMALL, TARGET, LARGEST = 100, 600, 1_200
"""Characters: shorter blocks join the next one, entries are collected up to the target, longer blocks are cut."""
MOST_SHORT = 2_000
"""Blocks of one text that may be short because a heading follows them."""
LOG_PREFIX = 48
"""Characters of a log's entry in which its time and level are looked for."""
DEEPEST = 6
"""Levels of JSON that are opened."""
LONGEST_LABEL = 120
_LABELS = ("title", "name", "path", "file", "filename", "url", "id")
"""Members of a JSON object that say what its other members are about."""
_PARAGRAPH = re.compile(r"\n(?:[ \t\r]*\n)+")
_HEADING = re.compile(r"^#{1,6}[ \t]+\S.*$", re.M)
_TITLE = re.compile(
    r"(?:#{1,6}[ \t]++(?P<heading>\S.*)$"
    r"|(?:<(?!title>)[a-z][^>\n]*+>\s*+)*+<title>(?P<element>[^\n<]*+)</title>"
    r"|\[\d{1,4}\][ \t]++(?P<bracketed>[^\n]*[^\s.!?;,])[ \t\r]*$"
    r"|(?:\d{1,4}[.)]|(?:result|document|hit|source|passage) ?#?\d{1,4}+\W*+)[ \t]*+"
    r"(?P<numbered>[^\n]*[^\s.!?;,])[ \t\r]*\n[ \t\r]*$)",
    re.M | re.I,
)
"""A heading, the title of a tagged hit, the line behind a number in brackets, or a numbered line and a blank one.

Runs are possessive: what a run has taken is not tried again in parts, so a match takes linear time.
"""
_HIT = re.compile(
    r"^(?:<(?:document|doc|result|item|source|passage|chunk)\b|\[\d+\]|[-=*_]{3,}[ \t]*$"
    r"|(?:result|document|hit|source|passage|chunk) ?#?\d)",
    re.M | re.I,
)
"""The line that begins a search hit in the formats that common tools write."""
_FENCE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)", re.M | re.S)
_LINE = re.compile(r"[^\n]*\n?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_LOGGED = re.compile(
    r"\d\d:\d\d:\d\d|\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRITICAL)\b|\blevel\W{1,4}[a-z]"
)
"""What most lines of a log have: the time of day, or a level."""
_LOCATION = re.compile(r"([^\s:]+)[:-]\d+[:-]")
"""The file in a line of grep's output."""
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.")
"""A character of a JSON string that is written as an escape, or as two."""
_LETTER = re.compile(r"[^\W_]")
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()

Form = Literal["text", "value", "string"]
"""Where a passage stands: in plain text, in place of JSON values, or inside a JSON string."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a tool result that is kept or removed as a whole.

    `start` and `end` are offsets in the result's text, `text` is what the passage says (a JSON string without its
    escapes), `label` what it belongs to, e.g. its heading. Neighbours of the same `group` can share a stub.
    """

    text: str
    start: int
    end: int
    label: str = ""
    form: Form = "text"
    group: int = 0
    tokens: int = 0


Span = tuple[int, int, str]
"""(start, end, label)"""


def cut(text: str, *, as_json: bool = False) -> list[Passage]:
    """Return the passages of a tool result in order, without overlap. Linear in the length of the text.

    Args:
        text: The result.
        as_json: The text must stay JSON: a text that is not JSON has no passages.
    """
    passages = _json_passages(text)
    if as_json:
        return passages
    if 2 * sum(passage.end - passage.start for passage in passages) >= len(text.strip()):
        return passages
    return [Passage(text[start:end], start, end, label) for start, end, label in _text_spans(text)]


def _text_spans(text: str) -> Iterator[Span]:
    """Yield the blocks between blank lines and headings. Short ones join the next, long ones are cut."""
    label = ""
    blocks = [*_joined_blocks(text)]
    for (start, end), (following, _) in pairwise([*blocks, (len(text), len(text))]):
        # A title lies in its own block. One more character tells whether a blank line follows it.
        if title := _TITLE.match(text, start, following + 1):
            label = str(title[title.lastgroup or 0]).strip()[:LONGEST_LABEL]
        elif _HIT.match(text, start):
            label = ""
        is_log = _is_log(text[start:end])
        if is_log or end - start > LARGEST:
            target = SMALL if is_log else TARGET
            yield from ((first, last, label) for first, last in _entries(text, start, end, target))
        else:
            yield start, end, "" if title else label


def _joined_blocks(text: str) -> Iterator[tuple[int, int]]:
    heads = {match.start() for pattern in (_HEADING, _HIT) for match in pattern.finditer(text)}
    starts = heads | {0} | {match.end() for match in _PARAGRAPH.finditer(text)}
    if fences := _fences(text):
        starts = {start for start in starts if not _inside(fences, start)}
    pending: tuple[int, int] | None = None
    short_left = MOST_SHORT
    for first, last in pairwise([*sorted(starts), len(text)]):
        block = _trimmed(text, first, last)
        if block is None:
            continue
        if pending is not None:
            is_short = pending[1] - pending[0] < SMALL and block[1] - pending[0] <= LARGEST
            if is_short and not (first in heads and short_left > 0 and _LETTER.search(text, *pending)):
                block = (pending[0], block[1])
            else:
                short_left -= is_short
                yield pending
        pending = block
    if pending is not None:
        yield pending


def _fences(text: str) -> list[int]:
    """The bounds of the fenced code blocks, ascending."""
    return [bound for match in _FENCE.finditer(text) for bound in match.span()]


def _inside(bounds: Sequence[int], position: int) -> bool:
    row = bisect_right(bounds, position)
    return row % 2 == 1 and bounds[row - 1] < position


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The span without blank lines before it and white space after it, None if nothing remains."""
    end = start + len(text[start:end].rstrip())
    indented = start + len(text[start:end]) - len(text[start:end].lstrip())
    start = max(start, text.rfind("\n", start, indented) + 1)
    return (start, end) if start < end else None


def _is_log(block: str) -> bool:
    """Whether most of the lines are entries of a log."""
    lines = block.split("\n")
    return len(lines) > 2 and 2 * sum(map(is_log_entry, lines)) > len(lines)


def is_log_entry(line: str) -> bool:
    """Whether a line has what the entries of a log begin with: a time of day, or a level."""
    return _LOGGED.search(line, 0, LOG_PREFIX) is not None


def _entries(text: str, start: int, end: int, target: int) -> Iterator[tuple[int, int]]:
    """A block cut at lines, at most `target` characters together. An indented line belongs to the one before it, lines
    of one file belong together."""
    first, size, location = start, 0, ""
    for match in _LINE.finditer(text, start, end):
        line = match[0]
        begins = not line[:1].isspace() and bool(line)
        here = (located[1] if (located := _LOCATION.match(line)) else "") if begins else location
        moves = here != location and size >= SMALL
        if size and (size + len(line) > LARGEST or (begins and (moves or size + len(line) > target))):
            yield from _sentences(text, first, match.start())
            first, size = match.start(), 0
        size += len(line)
        location = here
    yield from _sentences(text, first, end)


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span, or if it is still too long its sentences, collected up to the target."""
    if end - start <= LARGEST:
        span = _trimmed(text, start, end)
        yield from () if span is None else (span,)
        return
    ends = [match.end() for match in _SENTENCE_END.finditer(text, start, end)]
    first = start
    for last, following in pairwise([*ends, end, end + LARGEST]):
        while last - first > LARGEST:
            blank = text.rfind(" ", first + SMALL, first + TARGET)
            cut_at = blank + 1 if blank > 0 else first + TARGET
            yield first, cut_at
            first = cut_at
        if following - first > TARGET and (span := _trimmed(text, first, last)):
            yield span
            first = last


def _json_passages(text: str) -> list[Passage]:
    """The passages of a result that is JSON; none if it is not."""
    start = _skip(text, 0)
    if text[start : start + 1] not in ("[", "{"):
        return []
    try:
        value, end = _DECODER.raw_decode(text, start)
        if _skip(text, end) != len(text):
            return []
        return _JsonCutter(text).opened(value, start, "", 0)
    except (ValueError, RecursionError):
        return []


class _JsonCutter:
    """Cuts one JSON text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._groups = 0

    def opened(self, value: Any, start: int, label: str, depth: int) -> list[Passage]:
        """The passages inside the value that begins at `start`."""
        self._groups += 1
        if isinstance(value, str):
            return self._of_string(value, start, label)
        if depth > DEEPEST:
            return []
        if isinstance(value, list):
            return self._of_items(list(self._items(start)), label, depth)
        return self._of_members(value, start, label, depth) if isinstance(value, dict) else []

    def _of_items(self, items: list[tuple[Any, int, int]], label: str, depth: int) -> list[Passage]:
        """Items as passages, short ones together, and what is in those that are too large."""
        passages: list[Passage] = []
        group = self._groups
        first: int | None = None
        for (value, start, end), following in zip(items, [*items[1:], None], strict=True):
            if end - start > LARGEST:
                passages += self.opened(value, start, label, depth + 1)
                continue
            first = start if first is None else first
            is_last = following is None or following[2] - following[1] > SMALL
            if end - start >= SMALL or is_last or end - first > TARGET:
                passages.append(Passage(self._text[first:end], first, end, label, "value", group))
                first = None
        return passages

    def _of_members(self, value: dict[str, Any], start: int, label: str, depth: int) -> list[Passage]:
        """The larger members; the others are the frame that says what these belong to."""
        titles = (value.get(name) for name in _LABELS)
        label = next((title[:LONGEST_LABEL] for title in titles if isinstance(title, str) and title), label)
        passages: list[Passage] = []
        for key, member, first, end in self._members(start):
            if end - first <= SMALL:
                continue
            if isinstance(member, str) and end - first <= LARGEST and not _is_log(member):
                self._groups += 1
                passages.append(Passage(member, first, end, label or key, "value", self._groups))
            else:
                passages += self.opened(member, first, label or key, depth + 1)
        return passages

    def _of_string(self, value: str, start: int, label: str) -> list[Passage]:
        """Passages inside a string, as those of a text. Offsets skip what escapes are longer than their characters."""
        group, end = self._groups, self._end(start)
        decoded, shifts, shift = [0], [start + 1], start + 1
        for match in _ESCAPE.finditer(self._text, start + 1, end):
            shift += len(match[0]) - 1
            decoded.append(match.end() - shift)
            shifts.append(shift)

        def raw(offset: int) -> int:
            return offset + shifts[bisect_right(decoded, offset) - 1]

        return [
            Passage(value[first:last], raw(first), raw(last), own or label, "string", group)
            for first, last, own in _text_spans(value)
        ]

    def _items(self, start: int) -> Iterator[tuple[Any, int, int]]:
        """(value, start, end) of each item of the array that begins at `start`."""
        at = _skip(self._text, start + 1)
        while self._text[at] != "]":
            value, end = _DECODER.raw_decode(self._text, at)
            yield value, at, end
            at = self._next(end)

    def _members(self, start: int) -> Iterator[tuple[str, Any, int, int]]:
        """(key, value, start, end) of each member of the object that begins at `start`."""
        at = _skip(self._text, start + 1)
        while self._text[at] != "}":
            key, end = _DECODER.raw_decode(self._text, at)
            at = _skip(self._text, _skip(self._text, end) + 1)
            value, end = _DECODER.raw_decode(self._text, at)
            yield key, value, at, end
            at = self._next(end)

    def _next(self, end: int) -> int:
        """The position of what follows a value: the next one behind a comma, or the closing bracket."""
        end = _skip(self._text, end)
        return _skip(self._text, end + 1) if self._text[end] == "," else end

    def _end(self, start: int) -> int:
        """The position of the closing quote of a string."""
        return int(_DECODER.raw_decode(self._text, start)[1]) - 1


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def runs(rows: Iterable[int], share_stub: Callable[[int, int], bool]) -> list[list[int]]:
    """The rows, ascending, in runs of neighbours that share a stub."""
    grouped: list[list[int]] = []
    for row in sorted(rows):
        if grouped and grouped[-1][-1] == row - 1 and share_stub(row - 1, row):
            grouped[-1].append(row)
        else:
            grouped.append([row])
    return grouped


def without(text: str, passages: Sequence[Passage], removed: Iterable[int], stub: Callable[[list[int]], str]) -> str:
    """The text with a stub in place of each run of removed passages, which are given by index."""
    parts: list[str] = []
    position = 0
    for run in runs(removed, lambda row, other: passages[row].group == passages[other].group):
        first, last = passages[run[0]], passages[run[-1]]
        parts += [text[position : first.start], _framed(stub(run), first.form)]
        position = last.end
    return "".join([*parts, text[position:]])


def _framed(stub: str, form: Form) -> str:
    """The stub as it stands in a JSON text."""
    if form == "text":
        return stub
    literal = json.dumps(stub, ensure_ascii=False)
    return literal if form == "value" else literal[1:-1]
