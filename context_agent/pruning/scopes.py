"""Scopes of plain text: lines that a line before them names, such as the matches in a file or the lines of a method.

If a scope is cut into several passages, its first line stays as long as one of them stays. A reader then sees what the
passage is about.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from context_agent.pruning.blocks import Item, Passage, Span, is_log_entry, trimmed, with_line_breaks
from context_agent.pruning.captions import (
    CLOSING,
    ENDS,
    LETTER_LEVEL,
    LONGEST_HEADER,
    LONGEST_LABEL,
    LONGEST_LINE,
    NAMED,
    SOURCE,
    Captions,
    indented,
)
from context_agent.pruning.keyed_records import RULE
from context_agent.text.fences import FENCE

LONGEST_HEADING = 200
"""Maximum number of characters of the first line of a scope. A longer line is a passage of its own."""
MOST_SCOPES = 8
"""Maximum number of scopes that a passage is in, the outermost ones."""
_LINE = re.compile(r"[^\n]*+(?:\n|\Z)")
_LETTER = re.compile(r"[^\W_]")
_FOUND = re.compile(r"\d{1,9}[:-]")
"""The start of a line that a search found in the file that a heading names."""
_LISTED = re.compile(r"[^\s:][^\n]{0,198}:[ \t\r]*$|==> [^\n]{1,180} <==[ \t\r]*$")
"""A line before what it names: a folder or a command with a colon, or a file of `head` or `tail`."""

SECTION, RECORD, LIST, ENTRY, FENCED, INDENTED = range(6)
"""The kinds of scopes. One of a later kind may be inside one of an earlier kind."""
Rank = tuple[int, int]
"""The kind of a scope, and its level or indentation. A scope ends where one of the same or a lower rank begins."""


class Scope(NamedTuple):
    """A span of a text whose first line names it.

    Attributes:
        start: The offset of its first line.
        body: The offset after its first line. A record may have several first lines.
        tail: The offset of the line that closes it. If there is none, it is the end.
        end: The offset after it.
        name: What the first line says.
    """

    start: int
    body: int
    tail: int
    end: int
    name: str


class Title(NamedTuple):
    """The title of a section: the offset where it begins, its level, the offset after its lines, and what it says."""

    start: int
    level: int
    body: int
    name: str


class Part(NamedTuple):
    """A span of a text with its label, and the scopes that it is a part of, the outermost first."""

    start: int
    end: int
    label: str
    scopes: tuple[Scope, ...]


def parts_of(text: str, spans: Sequence[Span], captions: Captions) -> Iterator[Part]:
    """Yield the spans of a text as parts of their scopes.

    A span is cut where a scope begins or ends that is in several spans. The first line of such a scope is in no part.

    Args:
        text: The text.
        spans: The start, the end and the label of each passage, ascending.
        captions: The captions of the text, which have read all of it.
    """
    bounds = [start for start, _, _ in spans]
    # A scope that one span holds needs no line of its own.
    cut = [it for it in _scopes(text, captions) if bisect_right(bounds, it.start) < bisect_left(bounds, it.end)]
    waiting = sorted(cut, key=lambda it: (it.start, -it.end))[::-1]
    edges = sorted({edge for it in cut for edge in (it.start, it.body, it.tail, it.end)})
    around: list[Scope] = []
    for start, end, label in spans:
        inner = edges[bisect_right(edges, start) : bisect_left(edges, end)]
        for first, last in pairwise([start, *inner, end]):
            while waiting and waiting[-1].start <= first:
                around = [it for it in around if it.end > waiting[-1].start]
                scope = waiting.pop()
                around += [scope] if len(around) < MOST_SCOPES else []
            around = [it for it in around if it.end > first]
            is_frame = any(first < it.body or first >= it.tail for it in around)
            if not is_frame and (span := trimmed(text, first, last)) is not None:
                names = [it.name for it in around if it.name not in label]
                yield Part(*span, " ".join([label, *names])[-LONGEST_LABEL:].strip(), (*around,))


def in_sections(
    text: str, passages: Sequence[Passage], titles: Iterable[Title], parts: Sequence[int], groups: Iterator[int]
) -> list[Passage]:
    """Return the passages of a text as parts of the sections that go on after a table, a value or encoded text.

    The title of such a section stays as long as any of its passages stays. It is in no passage.

    Args:
        text: The text.
        passages: Its passages, ascending.
        titles: The titles of its sections, ascending.
        parts: The bounds of the tables, the values and the encoded texts, ascending.
        groups: The numbers of further groups.
    """
    found = _Scopes()
    for title in titles:
        found.open_section(title)
    found.close((SECTION, LETTER_LEVEL), len(text))
    starts, ends = [it.start for it in passages], [it.end for it in passages]

    def goes_on(section: Scope) -> bool:
        first, last = bisect_right(ends, section.body), bisect_left(starts, section.end) - 1
        if last < first or bisect_left(parts, section.start) == bisect_left(parts, section.end):
            return False
        is_in_passage = starts[bisect_right(ends, section.start)] < section.body
        if not is_in_passage and bisect_right(parts, starts[first]) == bisect_right(parts, starts[last]):
            # The title and the frame of a single table stay.
            return False
        # A table with a title is already one item with it.
        return all(it.start >= section.body or it.end < ends[last] for it in passages[first].items)

    sections = sorted(filter(goes_on, found.scopes))
    if not sections:
        return [*passages]
    edges = sorted({edge for it in sections for edge in (it.start, it.body, it.end)})
    placed: list[Passage] = []
    around = _Sections(text, sections, parts, groups)
    for passage in passages:
        inner = edges[bisect_right(edges, passage.start) : bisect_left(edges, passage.end)]
        for first, last in pairwise([passage.start, *inner, passage.end]):
            if around.move_to(first) and (span := trimmed(text, first, last)) is not None:
                placed.append(around.placed(passage, *span))
    return placed


class _Sections:
    """The sections that a position of a text is in. Positions ascend."""

    def __init__(self, text: str, sections: list[Scope], parts: Sequence[int], groups: Iterator[int]) -> None:
        self._text, self._parts, self._groups = text, parts, groups
        self._waiting = sections[::-1]
        self._open: list[tuple[Scope, Item]] = []
        self._inner = [next(groups)]

    def move_to(self, position: int) -> bool:
        """Close the sections before a position, and open those around it. Return False if it is in a title."""
        while self._waiting and self._waiting[-1].start <= position:
            section = self._waiting.pop()
            self._close(section.start)
            written = len(self._text[section.start : section.end].rstrip())
            self._open.append((section, Item(section.start, section.start + written, self._inner[-1], "text")))
            self._inner.append(next(self._groups))
        self._close(position)
        return not self._open or position >= self._open[-1][0].body

    def placed(self, passage: Passage, start: int, end: int) -> Passage:
        """Return the part of a passage with this span, below the titles of the sections around it."""
        items = [*passage.items]
        for section, _ in self._open:
            items = self._below(section, items)
        group = passage.group
        if items:
            items[-1] = items[-1]._replace(group=self._group(items[-1]))
        else:
            group = self._group(Item(start, end, group))
        items += [item for _, item in reversed(self._open)]
        moved = replace(passage, group=group, items=(*items,))
        if (start, end) == (passage.start, passage.end):
            return moved
        names = [section.name for section, _ in self._open if section.name not in passage.label]
        label = " ".join([passage.label, *names])[-LONGEST_LABEL:].strip()
        return replace(moved, text=with_line_breaks(self._text[start:end]), start=start, end=end, label=label)

    def _close(self, position: int) -> None:
        while self._open and self._open[-1][0].end <= position:
            self._open.pop()
            self._inner.pop()

    def _group(self, item: Item) -> int:
        """Return the group of an item. Plain text of a section and its whole tables with their headers have one."""
        row = bisect_right(self._parts, item.start)
        is_inner = row % 2 == 1 and (item.form != "text" or self._parts[row - 1 : row + 1] != [item.start, item.end])
        return item.group if is_inner else self._inner[-1]

    def _below(self, section: Scope, items: Iterable[Item]) -> list[Item]:
        """Return items without the title of a section. An item for the section up to its first table or value goes."""
        kept: list[Item] = []
        for item in items:
            if not section.start <= item.start < section.body:
                kept.append(item)
            elif bisect_left(self._parts, item.start) < bisect_left(self._parts, item.end):
                rest = self._text[section.body : item.end]
                kept.append(item._replace(start=section.body + len(rest) - len(rest.lstrip())))
        return kept


def _scopes(text: str, captions: Captions) -> list[Scope]:
    """Return the scopes of a text. The time is linear in its length."""
    found = _Scopes()
    fences = dict(zip(captions.fences[::2], captions.fences[1::2], strict=True))
    lines = [match.span() for match in _LINE.finditer(text)]
    keys = _record_keys(text)
    fence_end = body = 0
    after_blank, source = True, ""
    for (start, end), (following, last) in pairwise([*lines, (len(text), len(text))]):
        if fence_end and start >= fence_end:
            found.close((FENCED, 0), fence_end)
            fence_end = 0
        line = text[start:end]
        if start < body:
            continue
        if (named := SOURCE.match(line)) and named["source"] != source:
            source = named["source"]
            found.close((ENTRY, 0), start)
        if (section := captions.sections.get(start)) is not None:
            level, body, name = section
            found.open_section(Title(start, level, body, name))
        elif not line.strip():
            found.close_blocks(start)
            after_blank = True
            continue
        elif start in fences:
            fence_end = fences[start]
            found.open_fence(start, end, line, tail=_closing_fence(text, end, fence_end))
        elif not fence_end and after_blank and _begins_list(line, text[following:last]):
            found.open((LIST, 0), start, end, line)
        elif not fence_end and after_blank and (named := NAMED.match(line)) and named["key"].lower() in keys:
            found.open((RECORD, 0), start, end, named["name"])
        elif not fence_end and start in captions.records:
            found.open((RECORD, 0), start, end, line)
        elif not fence_end and is_log_entry(line) and not found.is_inner(line):
            found.open((ENTRY, 0), start, end, line)
        else:
            found.add_line(start, end, line, text[following:last])
        # The rule between two records has no name.
        after_blank = section is not None and not section[2]
    found.close((SECTION, LETTER_LEVEL), len(text))
    return found.scopes


def _record_keys(text: str) -> set[str]:
    """Return the keys that begin several records, such as `Name:`. A record begins after a blank line or a rule."""
    counts = Counter[str]()
    for match in NAMED.finditer(text):
        start = match.start()
        line_before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : start]
        counts[match["key"].lower()] += not line_before.rstrip("\n").strip(RULE)
    return {key for key, count in counts.items() if count > 1}


class _Scopes:
    """The scopes of the lines so far. Those that are open are in each other, the outermost first."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self._open: list[tuple[Rank, Scope]] = []

    def open(
        self, rank: Rank, start: int, body: int, name: str, *, tail: int = 0, longest: int = LONGEST_HEADING
    ) -> None:
        """Open a scope, and close those that it ends. If its first lines are too long, it is not opened."""
        self.close(rank, start)
        if body - start <= longest:
            self._open.append((rank, Scope(start, body, tail, 0, name.strip(f"{ENDS}\n")[:LONGEST_LABEL])))

    def open_section(self, title: Title) -> None:
        """Open the scope of a section."""
        longest = LONGEST_HEADER if title.level <= 0 else LONGEST_HEADING
        self.open((SECTION, title.level), title.start, title.body, title.name, longest=longest)

    def open_fence(self, start: int, body: int, line: str, *, tail: int) -> None:
        """Open the scope of fenced code, unless its fence is before the text."""
        if FENCE.match(line):
            self.open((FENCED, 0), start, body, "", tail=tail)

    def close(self, rank: Rank, end: int, *, closing: int = 0) -> None:
        """Close the scopes of this rank and of higher ranks. The innermost of this rank has a closing line."""
        while self._open and self._open[-1][0] >= rank:
            own, scope = self._open.pop()
            last = closing if closing and own == rank else end
            if scope.body < last:
                self.scopes.append(scope._replace(tail=scope.tail or last, end=last))

    def close_blocks(self, end: int) -> None:
        """Close lists and log entries, which end at a blank line."""
        rank = next((rank for rank, _ in self._open if rank[0] in (LIST, ENTRY)), None)
        if rank is not None:
            self.close(rank, end)

    def is_inner(self, line: str) -> bool:
        """Return True if a line is below a less indented one, such as a statement that names a level."""
        return any((INDENTED, 0) <= rank < (INDENTED, indented(line)[0]) for rank, _ in self._open)

    def add_line(self, start: int, end: int, line: str, following: str) -> None:
        """Close the scopes that a line ends. Open one if the following line is indented more."""
        indent, said = indented(line)
        if CLOSING.match(said) is not None:
            self.close((INDENTED, indent + 1), start)
            self.close((INDENTED, indent), start, closing=end)
        elif _LETTER.search(said):
            if following.strip() and indented(following)[0] > indent:
                self.open((INDENTED, indent), start, end, said[:LONGEST_LINE])
            else:
                self.close((INDENTED, indent), start)


def _begins_list(line: str, following: str) -> bool:
    """Return True if a line after a blank one is a heading of the lines below it."""
    if not line[:1].strip() or not following[:1].strip():
        return False
    is_file = _FOUND.match(following) is not None and _FOUND.match(line) is None
    return is_file or _LISTED.match(line) is not None


def _closing_fence(text: str, start: int, end: int) -> int:
    """Return the offset of the line that closes fenced code. If the code is not closed, return 0."""
    last = text.rfind("\n", start, end) + 1
    return last if last > start and not text[last:end].strip(" \t\r`~") else 0
