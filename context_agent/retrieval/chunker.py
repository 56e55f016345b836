"""Cuts a document into chunks with a maximum number of tokens and exact offsets.

A document is first cut into units, mostly sentences, each counted once. Units are then packed greedily, and a chunk
that cannot take the next unit ends at the best break in its second half: before a heading, at a blank line, after a
sentence, at a line's end, after a clause, between words, in that order. Only a run without any such break is cut
inside, but never between a letter and its combining marks or within a joined emoji.

The work is linear in the document, and no token count covers more than a few thousand characters: byte-pair merging is
quadratic on a run without spaces. Sentences are found by rules, so that any script and 10 MB of any text need no model;
what the rules miss (a sentence that begins in lower case) leads to a less natural cut and loses no text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from context_agent.errors import ConfigError
from context_agent.text.sentences import BOUNDARY, STOPS, WIDE_STOPS, ends_sentence, terminated
from context_agent.tokens import TokenCounter
from context_agent.types import Chunk, Document, Section

SIZE = 512
"""Default tokens of a chunk: the published system's value."""
SMALLEST_SIZE = 16
"""With fewer tokens a single character with its marks would have to be cut."""
LONGEST_GAP = 1_000
"""A gap of more white space characters always ends a chunk, and is not counted."""
LONGEST_CLUSTER = 32
"""Code points that form one character at most; a longer stack of combining marks is cut."""
SMALLEST_UNIT = 16
"""Characters; a shorter sentence is joined to the next one, which bounds the number of units."""
SMALL_GAP = 8
"""Characters of white space across which short lines and sentences are joined to a unit."""


class Break(IntEnum):
    """What ends a unit, the worst cut first. A chunk ends after a heading only if there is no other break."""

    INSIDE = 0
    WORD = 1
    CLAUSE = 2
    LINE = 3
    SENTENCE = 4
    PARAGRAPH = 5
    SECTION = 6


@dataclass(frozen=True, slots=True)
class _Unit:
    """Characters [start, end) that stay together; `gap` is the number of tokens of the white space before them."""

    start: int
    end: int
    tokens: int
    gap: int
    after: Break


class Span(NamedTuple):
    """Where a chunk is in its document: characters [start, end), and their number of tokens."""

    start: int
    end: int
    tokens: int


_Segment = tuple[int, int, Break]

_HEADING = re.compile(r"#{1,6} ")
_WORD = re.compile(r"\w")
_CLAUSE_ENDS = frozenset(",;:，、；：،؛" + STOPS + WIDE_STOPS)


def chunk_document(document: Document, *, size: int = SIZE, counter: TokenCounter, overlap: int = 0) -> list[Chunk]:
    """Chunks of at most `size` tokens by `counter`, in document order; none for a document of white space.

    `document.text[c.start:c.end] == c.text` holds for each; a chunk's text has no white space around it, and every
    other character of the document is in some chunk. `overlap` repeats as many whole units (sentences) from the end
    of the previous chunk as fit into that many tokens, none if they are longer. No chunk crosses the border of a
    section, except one that fits into a chunk as a whole, with the sections in it. Raises `ConfigError` for a `size`
    below 16 or an `overlap` outside [0, size).
    """
    if size < SMALLEST_SIZE:
        raise ConfigError(f"chunk size {size} is too small: use at least {SMALLEST_SIZE} tokens")
    if not 0 <= overlap < size:
        raise ConfigError(f"chunk overlap {overlap} does not work with chunk size {size}: use 0 to {size - 1}")
    if not document.sections:
        spans = _spans(document.text, 0, len(document.text), size=size, overlap=overlap, counter=counter)
        return [chunk_at(document, index, span) for index, span in enumerate(spans)]
    titled = (
        (span, part.title)
        for part in _parts(document, size, counter)
        for span in _spans(document.text, part.start, part.end, size=size, overlap=overlap, counter=counter)
    )
    return [replace(chunk_at(document, index, span), title=title) for index, (span, title) in enumerate(titled)]


def _spans(text: str, start: int, end: int, *, size: int, overlap: int, counter: TokenCounter) -> Iterator[Span]:
    """Return the chunks of [start, end)."""
    start, end = _strip(text, start, end)
    if start == end:
        return iter(())
    if end - start <= 4 * size and (tokens := counter.count(text[start:end])) <= size:
        return iter([Span(start, end, tokens)])
    return _Packer(text, list(_units(text, start, end, size, counter)), size, overlap, counter).spans()


def _parts(document: Document, size: int, counter: TokenCounter) -> list[Section]:
    """Return the document cut at its sections, without gaps: the text between two sections belongs to the one around
    them.

    A section that fits into a chunk is not cut at the sections in it. A part without any word, such as a closing brace,
    joins the part before it.
    """
    text, parts, inside = document.text, list[Section](), [Section(0, len(document.text), document.title)]
    position = 0

    def close(end: int, title: str) -> None:
        nonlocal position
        if end <= position:
            return
        if parts and not _WORD.search(text, position, end):
            parts[-1] = replace(parts[-1], end=end)
        else:
            parts.append(Section(position, end, title))
        position = end

    for section in document.sections:
        while len(inside) > 1 and section.start >= inside[-1].end:
            close(inside[-1].end, inside.pop().title)
        if section.start < position:  # inside of one that is not cut
            continue
        close(section.start, inside[-1].title)
        short = section.end - section.start <= 8 * size and counter.count(text[section.start : section.end]) <= size
        if short:
            close(section.end, section.title)
        else:
            inside.append(section)
    while inside:
        close(inside[-1].end, inside.pop().title)
    return parts


def chunk_at(document: Document, index: int, span: Span) -> Chunk:
    """Return the chunk of a document at a span."""
    start, end, tokens = span
    return Chunk(
        id=f"{document.id}_{index}",
        document_id=document.id,
        index=index,
        text=document.text[start:end],
        start=start,
        end=end,
        tokens=tokens,
        title=document.title,
        metadata=document.metadata,
    )


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    """[start, end) without the white space at either end; empty (end, end) if there is nothing else."""
    piece = text[start:end]
    length = len(piece.rstrip())
    return (start + len(piece) - len(piece.lstrip()), start + length) if length else (end, end)


# Packing: units to chunks.


@dataclass(frozen=True, slots=True)
class _Packer:
    """Packs units in order. A chunk is units [first, stop); `fresh` is the first unit that no chunk has yet."""

    text: str
    units: Sequence[_Unit]
    size: int
    overlap: int
    counter: TokenCounter

    def spans(self) -> Iterator[Span]:
        """Yield the span of each chunk."""
        first = fresh = 0
        while fresh < len(self.units):
            stop, tokens = self._exact(first, self._fill(first, fresh))
            if stop <= fresh:  # the overlap left no room for anything new
                first = fresh
                continue
            yield Span(self.units[first].start, self.units[stop - 1].end, tokens)
            first, fresh = self._step_back(first, stop), stop

    def _fill(self, first: int, fresh: int) -> int:
        """`stop` at the best break, by the sum of the units' tokens."""
        units, size = self.units, self.size
        total, stop = units[first].tokens, first + 1
        while stop < len(units) and total + units[stop].gap + units[stop].tokens <= size:
            total += units[stop].gap + units[stop].tokens
            stop += 1
        if stop == len(units):
            return stop
        best = stop
        while stop > fresh + 1 and 2 * total > size:
            if units[stop - 1].after > units[best - 1].after:
                best = stop
            stop -= 1
            total -= units[stop].gap + units[stop].tokens
        return best

    def _exact(self, first: int, stop: int) -> tuple[int, int]:
        """`stop` moved back until the whole text fits, and its tokens: the tokens of the parts add up only roughly."""
        while stop - first > 1:
            tokens = self.counter.count(self.text[self.units[first].start : self.units[stop - 1].end])
            over = tokens - self.size
            if over <= 0:
                return stop, tokens
            while over > 0 and stop - first > 1:
                stop -= 1
                over -= self.units[stop].tokens
        return stop, self.units[first].tokens

    def _step_back(self, first: int, stop: int) -> int:
        """Return the first unit of the next chunk: `stop`, or earlier by the units that fit into the overlap."""
        start, room = stop, self.overlap
        while start - 1 > first and self.units[start - 1].tokens + self.units[start - 1].gap <= room:
            start -= 1
            room -= self.units[start].tokens + self.units[start].gap
        return start


# Cutting: text to units.


def _units(text: str, start: int, end: int, size: int, counter: TokenCounter) -> Iterator[_Unit]:
    """Yield all units of [start, end): none above `size` tokens, unless one code point alone is."""
    before = start
    width = max(SMALLEST_UNIT, size // 4)
    for segment in _joined(text, start, end, width):
        for begin, stop, after, tokens in _fitting(text, segment, width, size, counter):
            yield _Unit(begin, stop, tokens, _gap_tokens(text[before:begin], size, counter), after)
            before = stop


def _gap_tokens(gap: str, size: int, counter: TokenCounter) -> int:
    """Tokens of the white space between two units: a single space is part of the next word."""
    if gap in {"", " "}:
        return 0
    if len(gap) <= 2:
        return 1
    return size if len(gap) > LONGEST_GAP else counter.count(gap)


def _fitting(
    text: str, segment: _Segment, width: int, size: int, counter: TokenCounter
) -> Iterator[tuple[int, int, Break, int]]:
    """Yield the segment and its tokens; a segment of more than `size` tokens as word groups with their tokens."""
    start, end, _ = segment
    if end - start <= 2 * size and (tokens := counter.count(text[start:end])) <= size:
        yield *segment, tokens
        return
    for piece in _words(text, segment, width):
        yield from _halved(text, piece, size, counter)


def _words(text: str, segment: _Segment, width: int) -> Iterator[_Segment]:
    """Yield the segment in groups of whole words of at most `width` characters; a longer word is cut."""
    position, end, last = segment
    group = re.compile(rf"\S(?:.{{0,{width - 1}}}(?<=\S)(?!\S)|\S{{0,{width - 1}}})", re.DOTALL)
    space = re.compile(r"\s*")
    while position < end and (match := group.match(text, position, end)):
        stop = _whole(text, match.end(), end)
        following = space.match(text, stop, end)
        position = following.end() if following else stop
        if position >= end:
            yield match.start(), stop, last
        elif text[stop - 1] in _CLAUSE_ENDS:
            yield match.start(), stop, Break.CLAUSE
        else:
            yield match.start(), stop, Break.WORD if position > stop else Break.INSIDE


def _halved(text: str, piece: _Segment, size: int, counter: TokenCounter) -> Iterator[tuple[int, int, Break, int]]:
    """Yield the piece with its tokens, halved until each part fits: for scripts and counters of many tokens a
    character.
    """
    start, end = _strip(text, piece[0], piece[1])
    if start == end:
        return
    tokens = counter.count(text[start:end])
    if tokens <= size or end - start == 1:
        yield start, end, piece[2], tokens
        return
    middle = (start + end) // 2
    cut = _whole(text, middle, end)
    cut = cut if cut < end else middle
    yield from _halved(text, (start, cut, Break.INSIDE), size, counter)
    yield from _halved(text, (cut, end, piece[2]), size, counter)


def _joined(text: str, start: int, end: int, width: int) -> Iterator[_Segment]:
    """Yield the segments, very short sentences and the lines of one paragraph joined, so that units are few."""
    joined: _Segment | None = None
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


def _segments(text: str, start: int, end: int) -> Iterator[_Segment]:
    """Yield the parts of [start, end) between sentence ends and line ends, with what ends each."""
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
    """Return the kind of the boundary [start, end) after a segment from `segment_start`; `WORD` if it is not a
    boundary.
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


# Characters: one may consist of several code points.


def _whole(text: str, position: int, end: int) -> int:
    """`position`, or the end of the character that contains it."""
    limit = min(end, position + LONGEST_CLUSTER)
    while position < limit and _continues(text, position):
        position += 1
    return position


def _continues(text: str, position: int) -> bool:
    """Return whether the code point at `position` belongs to the one before: marks, joined emoji, flags, jamo, CR
    LF.
    """
    before, here = text[position - 1], text[position]
    if here.isascii():
        return before == "\r" and here == "\n"
    if before == "\u200d" or here == "\u200d" or unicodedata.category(here)[0] == "M":
        return True
    if "\U0001f1e6" <= here <= "\U0001f1ff":
        return _flags_before(text, position) % 2 == 1
    return (
        "\U0001f3fb" <= here <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= here <= "\U000e007f"  # tags, as in the flag of Scotland
        or "\u1160" <= here <= "\u11ff"  # Hangul vowels and finals
        or ("\udc00" <= here <= "\udfff" and "\ud800" <= before <= "\udbff")
    )


def _flags_before(text: str, position: int) -> int:
    """Regional indicators in a row before `position`, counted up to a few: two make a flag."""
    count = 0
    while count < LONGEST_CLUSTER and count < position and "\U0001f1e6" <= text[position - 1 - count] <= "\U0001f1ff":
        count += 1
    return count
