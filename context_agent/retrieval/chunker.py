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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from context_agent.errors import ConfigError
from context_agent.retrieval.text_units import Unit, units_of, without_margins
from context_agent.tokens import TokenCounter
from context_agent.types import Chunk, Document, Section

DEFAULT_CHUNK_TOKENS = 512
"""Default tokens of a chunk: the published system's value."""
MIN_CHUNK_TOKENS = 16
"""With fewer tokens a single character with its marks would have to be cut."""


class Span(NamedTuple):
    """Where a chunk is in its document: characters [start, end), and their number of tokens."""

    start: int
    end: int
    tokens: int


_WORD = re.compile(r"\w")


def chunk_document(
    document: Document, *, size: int = DEFAULT_CHUNK_TOKENS, counter: TokenCounter, overlap: int = 0
) -> list[Chunk]:
    """Chunks of at most `size` tokens by `counter`, in document order; none for a document of white space.

    `document.text[c.start:c.end] == c.text` holds for each; a chunk's text has no white space around it, and every
    other character of the document is in some chunk. `overlap` repeats as many whole units (sentences) from the end
    of the previous chunk as fit into that many tokens, none if they are longer. No chunk crosses the border of a
    section, except one that fits into a chunk as a whole, with the sections in it. Raises `ConfigError` for a `size`
    below 16 or an `overlap` outside [0, size).
    """
    if size < MIN_CHUNK_TOKENS:
        raise ConfigError(f"chunk size {size} is too small: use at least {MIN_CHUNK_TOKENS} tokens")
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
    start, end = without_margins(text, start, end)
    if start == end:
        return iter(())
    if end - start <= 4 * size and (tokens := counter.count(text[start:end])) <= size:
        return iter([Span(start, end, tokens)])
    return _Packer(text, list(units_of(text, start, end, size, counter)), size, overlap, counter).spans()


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


@dataclass(frozen=True, slots=True)
class _Packer:
    """Packs units in order. A chunk is units [first, stop); `fresh` is the first unit that no chunk has yet."""

    text: str
    units: Sequence[Unit]
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
