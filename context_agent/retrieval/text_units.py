"""The units of a text that a chunk does not divide, mostly sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from context_agent.text.graphemes import whole_character
from context_agent.text.sentences import BOUNDARY, STOPS, WIDE_STOPS, ends_sentence, terminated
from context_agent.tokens import TokenCounter

LONGEST_GAP = 1_000
"""The maximum number of characters of white space inside a chunk. A longer gap ends the chunk, and is not counted."""
SMALLEST_UNIT = 16
"""The minimum number of characters in a unit. A shorter sentence joins the next one, which limits the number of units.
"""
SMALL_GAP = 8
"""The maximum number of characters of white space between short lines or sentences that are joined to one unit."""


class Break(IntEnum):
    """What ends a unit, from the worst place for a break to the best.

    A chunk ends after a heading only if there is no other break.
    """

    INSIDE = 0
    WORD = 1
    CLAUSE = 2
    LINE = 3
    SENTENCE = 4
    PARAGRAPH = 5
    SECTION = 6


@dataclass(frozen=True, slots=True)
class Unit:
    """Characters [start, end) that stay together. `gap` is the number of tokens of the white space before them."""

    start: int
    end: int
    tokens: int
    gap: int
    after: Break


Segment = tuple[int, int, Break]
_HEADING = re.compile(r"#{1,6} ")
_CLAUSE_ENDS = frozenset(",;:，、；：،؛" + STOPS + WIDE_STOPS)


def without_margins(text: str, start: int, end: int) -> tuple[int, int]:
    """Return [start, end) without the white space at either end. If there is nothing else, return (end, end)."""
    piece = text[start:end]
    length = len(piece.rstrip())
    return (start + len(piece) - len(piece.lstrip()), start + length) if length else (end, end)


def units_of(text: str, start: int, end: int, size: int, counter: TokenCounter) -> Iterator[Unit]:
    """Yield all units of [start, end). A unit has at most `size` tokens, unless it is a single code point."""
    before = start
    width = max(SMALLEST_UNIT, size // 4)
    for segment in _joined(text, start, end, width):
        for begin, stop, after, tokens in _fitting(text, segment, width, size, counter):
            yield Unit(begin, stop, tokens, _gap_tokens(text[before:begin], size, counter), after)
            before = stop


def _gap_tokens(gap: str, size: int, counter: TokenCounter) -> int:
    """Return the tokens of the white space between two units. A single space is part of the next word."""
    if gap in {"", " "}:
        return 0
    if len(gap) <= 2:
        return 1
    return size if len(gap) > LONGEST_GAP else counter.count(gap)


def _fitting(
    text: str, segment: Segment, width: int, size: int, counter: TokenCounter
) -> Iterator[tuple[int, int, Break, int]]:
    """Yield the segment with its tokens. If it has more than `size` tokens, yield groups of its words instead."""
    start, end, _ = segment
    if end - start <= 2 * size and (tokens := counter.count(text[start:end])) <= size:
        yield *segment, tokens
        return
    for piece in _words(text, segment, width):
        yield from _halved(text, piece, size, counter)


def _words(text: str, segment: Segment, width: int) -> Iterator[Segment]:
    """Yield the segment in groups of whole words of at most `width` characters. A longer word is divided."""
    position, end, last = segment
    group = re.compile(rf"\S(?:.{{0,{width - 1}}}(?<=\S)(?!\S)|\S{{0,{width - 1}}})", re.DOTALL)
    space = re.compile(r"\s*")
    while position < end and (match := group.match(text, position, end)):
        stop = whole_character(text, match.end(), end)
        following = space.match(text, stop, end)
        position = following.end() if following else stop
        if position >= end:
            yield match.start(), stop, last
        elif text[stop - 1] in _CLAUSE_ENDS:
            yield match.start(), stop, Break.CLAUSE
        else:
            yield match.start(), stop, Break.WORD if position > stop else Break.INSIDE


def _halved(text: str, piece: Segment, size: int, counter: TokenCounter) -> Iterator[tuple[int, int, Break, int]]:
    """Yield the piece with its tokens. If it does not fit, yield its halves, which are halved again until they fit.

    Scripts and counters with many tokens for each character need this.
    """
    start, end = without_margins(text, piece[0], piece[1])
    if start == end:
        return
    tokens = counter.count(text[start:end])
    if tokens <= size or end - start == 1:
        yield start, end, piece[2], tokens
        return
    middle = (start + end) // 2
    cut = whole_character(text, middle, end)
    cut = cut if cut < end else middle
    yield from _halved(text, (start, cut, Break.INSIDE), size, counter)
    yield from _halved(text, (cut, end, piece[2]), size, counter)


def _joined(text: str, start: int, end: int, width: int) -> Iterator[Segment]:
    """Yield the segments. Very short sentences and the lines of a paragraph are joined, so that there are few units."""
    joined: Segment | None = None
    for segment_start, stop, after in _segments(text, start, end):
        if joined and segment_start - joined[1] > SMALL_GAP:
            yield joined
            joined = None
        first = joined[0] if joined else segment_start
        joined = (first, stop, after)
        if stop - first >= (SMALLEST_UNIT if after >= Break.SENTENCE else width):
            yield joined
            joined = None
    if joined:
        yield joined


def _segments(text: str, start: int, end: int) -> Iterator[Segment]:
    """Yield the parts of [start, end) between the ends of sentences and lines, each with the break after it."""
    segment_start = start
    for match in BOUNDARY.finditer(text, start, end):
        after = _kind(text, segment_start, match.start(), match.end())
        if after == Break.WORD:
            continue
        stop = segment_start + len(text[segment_start : match.start()].rstrip())
        if stop > segment_start:
            yield segment_start, stop, after
        segment_start = match.end()
    if segment_start < end:
        yield segment_start, end, Break.PARAGRAPH


def _kind(text: str, segment_start: int, start: int, end: int) -> Break:
    """Return the kind of the boundary [start, end) after a segment that begins at `segment_start`.

    `WORD` means that it is not a boundary between segments.
    """
    lines = text.count("\n", start, end)
    if lines and _HEADING.match(text, end):
        return Break.SECTION
    if lines and _HEADING.match(text, segment_start):
        return Break.INSIDE
    if lines > 1:
        return Break.PARAGRAPH
    if lines:
        return Break.SENTENCE if terminated(text, segment_start, start) else Break.LINE
    return Break.SENTENCE if ends_sentence(text, segment_start, start, end) else Break.WORD
