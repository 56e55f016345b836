"""The division of a document into chunks with a maximum number of tokens and exact offsets.

`text_units` first divides a document into units, mostly sentences. The tokens of each unit are counted once. Units are
then packed greedily. If the next unit does not fit, the chunk ends at the best break in its second half. The breaks,
best first, are: before a heading, at a blank line, after a sentence, at the end of a line, after a clause, between
words. Text is divided inside a word only if it has no such break, and never between a letter and its combining marks or
within a joined emoji.

The work is linear in the document. No token count covers more than a few thousand characters, because byte-pair merging
is quadratic on a run without spaces. Sentences are found by rules, so any script and 10 MB of any text need no model.
If the rules miss a sentence that begins with a lower-case letter, the break is less natural, but no text is lost.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from context_agent.errors import ConfigError
from context_agent.retrieval.text_units import Unit, units_of, without_margins
from context_agent.tokens import TokenCounter
from context_agent.types import Caption, Chunk, Document, Section

DEFAULT_CHUNK_TOKENS = 512
"""The default number of tokens in a chunk. It is the value of the Context-1 report."""
MIN_CHUNK_TOKENS = 16
"""The minimum size of a chunk in tokens. With fewer, a single character with its marks might have to be divided."""

LONGEST_CAPTION = 240
"""The maximum number of characters of the captions in a chunk's title."""


class Span(NamedTuple):
    """Where a chunk is in its document: characters [start, end), and their number of tokens."""

    start: int
    end: int
    tokens: int


_WORD = re.compile(r"\w")


def chunk_document(
    document: Document, *, size: int = DEFAULT_CHUNK_TOKENS, counter: TokenCounter, overlap: int = 0
) -> list[Chunk]:
    """Divide a document into chunks of at most `size` tokens.

    For each chunk, `document.text[c.start:c.end] == c.text` holds. A chunk's text has no white space around it, and
    every other character of the document is in some chunk. A chunk does not cross the border of a section, with one
    exception: a section that fits in a chunk is not divided at the sections inside it.

    If there are several chunks, the title of each has the captions of the parts that it begins in, or that all of it
    belongs to. If more than half of it is in a later part, that part is named, too. The pages of the chunk follow in
    parentheses.

    Args:
        document: The document.
        size: The maximum number of tokens in a chunk, at least 16.
        counter: The token counter.
        overlap: The number of tokens at the end of a chunk that the next chunk repeats, in whole units. If the last
            unit is longer, nothing is repeated.

    Returns:
        The chunks in document order. A document of white space gives none.

    Raises:
        ConfigError: If `size` is below 16, or `overlap` is not in [0, size).
    """
    if size < MIN_CHUNK_TOKENS:
        raise ConfigError(f"chunk size must be at least {MIN_CHUNK_TOKENS} tokens; got {size}")
    if not 0 <= overlap < size:
        raise ConfigError(f"chunk overlap must be from 0 to {size - 1}, below the chunk size {size}; got {overlap}")
    titled = [
        (span, part)
        for part in _parts(document, size, counter)
        for span in _spans(document.text, part.start, part.end, size=size, overlap=overlap, counter=counter)
    ]
    captions = _Captions(document.captions if len(titled) > 1 else ())
    pages = document.pages if len(titled) > 1 else ()
    chunks: list[Chunk] = []
    for index, (span, part) in enumerate(titled):
        title = captions.title(span, part.title, is_inner=part.title != document.title) + _on_pages(span, pages)
        chunks.append(replace(chunk_at(document, index, span), title=title.lstrip()))
    return chunks


def _on_pages(span: Span, pages: Sequence[int]) -> str:
    """Return the pages of a chunk in parentheses, with a space before them, or "" if there are no pages."""
    first, last = (bisect_right(pages, position) for position in (span.start, span.end - 1))
    if not first:
        return ""
    return f" (p. {first})" if first == last else f" (pp. {first}-{last})"


class _Captions:
    """The captions of a document, for chunks in the order of their starts."""

    def __init__(self, captions: Sequence[Caption]) -> None:
        self._captions = captions
        self._read = 0
        self._open: list[Caption] = []

    def title(self, span: Span, title: str, *, is_inner: bool) -> str:
        """Return the title of a chunk: that of its document or section, and its captions, the innermost one last.

        If the captions are too long, those in the middle are left out, and then the end of the innermost one.
        """
        while self._read < len(self._captions) and self._captions[self._read].start <= span.start:
            caption = self._captions[self._read]
            self._close(caption.start)
            self._open.append(caption)
            self._read += 1
        self._close(span.start)
        # The text of the chunk has the name of a part that begins with it and ends inside of it.
        names: list[str] = []
        end = span.end
        for caption in self._open:
            is_around = caption.start < span.start or caption.end >= span.end
            if is_around and not any(_says(said, caption.text) for said in (title, *names)):
                names.append(caption.text)
                end = caption.end
        while len(names) > 2 and sum(map(len, names)) > LONGEST_CAPTION:
            del names[len(names) // 2]
        said = " > ".join(names)[:LONGEST_CAPTION]
        for caption in self._main_parts(span):
            if not any(_says(it, caption.text) for it in (title, said)):
                said = f"{said}{' > ' if caption.start < end else '; '}{caption.text}" if said else caption.text
                end = caption.end
        said = said[: 2 * LONGEST_CAPTION]
        return f"{title}{' > ' if is_inner else ': '}{said}" if title and said else title or said

    def _main_parts(self, span: Span) -> Iterator[Caption]:
        """Yield the captions of the parts that begin inside a chunk and that more than half of it is in."""
        for at in range(self._read, len(self._captions)):
            caption = self._captions[at]
            if caption.start >= span.end:
                return
            if 2 * (min(caption.end, span.end) - caption.start) > span.end - span.start:
                yield caption

    def _close(self, position: int) -> None:
        while self._open and self._open[-1].end <= position:
            self._open.pop()


def _says(said: str, name: str) -> bool:
    """Return True if a text has a name as a whole."""
    at = said.find(name)
    while at >= 0:
        end = at + len(name)
        if not (said[at - 1 : at].isalnum() or said[end : end + 1].isalnum()):
            return True
        at = said.find(name, at + 1)
    return False


def _spans(text: str, start: int, end: int, *, size: int, overlap: int, counter: TokenCounter) -> Iterator[Span]:
    """Return the spans of the chunks in [start, end)."""
    start, end = without_margins(text, start, end)
    if start == end:
        return iter(())
    if end - start <= 4 * size and (tokens := counter.count(text[start:end])) <= size:
        return iter([Span(start, end, tokens)])
    return _Packer(text, list(units_of(text, start, end, size, counter)), size, overlap, counter).spans()


def _parts(document: Document, size: int, counter: TokenCounter) -> list[Section]:
    """Return the document divided at its sections, without gaps.

    The text between two sections belongs to the section around them. If a section fits in a chunk, it is not divided at
    the sections inside it. A part without any word, such as a closing brace, joins the part before it.
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
    """A packer that puts units into chunks, in order.

    A chunk consists of the units [first, stop). `fresh` is the first unit that is in no chunk yet.
    """

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
        """Return `stop` at the best break, judged by the sum of the units' tokens."""
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
        """Move `stop` back until the whole text fits. Return it with the exact number of tokens.

        The sum of the units' tokens is only an estimate of that number.
        """
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
        """Return the first unit of the next chunk. It is `stop`, or earlier if units before it fit in the overlap."""
        start, room = stop, self.overlap
        while start - 1 > first and self.units[start - 1].tokens + self.units[start - 1].gap <= room:
            start -= 1
            room -= self.units[start].tokens + self.units[start].gap
        return start
