"""The cutting of tool results into passages, such as search hits, records, rows, elements, sections, log entries and
blocks of code.

A passage is a span of the result's text. The text around removed passages stays the same, byte for byte. Records are
passages in any format (JSON, lines of JSON, Python, XML, CSV, tables), alone or among text. The remaining records still
parse, because a stub replaces a whole record, row or element. The hunks of a diff keep the names of their files.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from context_agent.pruning import xml_documents
from context_agent.pruning.binary import binary_spans, dense_parts, is_dense, is_encoded
from context_agent.pruning.blocks import (
    LARGEST,
    Item,
    Passage,
    Sizes,
    entry_spans,
    inside,
    is_log,
    text_spans,
    with_aligned_numbers,
    with_line_breaks,
)
from context_agent.pruning.captions import COMMIT, LONGEST_LABEL, LONGEST_LINE, Captions, Markup
from context_agent.pruning.diffs import FileDiff, diffs
from context_agent.pruning.outlines import Outline, outline
from context_agent.pruning.record_names import NAMING_KEYS, Run, distinct_names, only_name, own_name
from context_agent.pruning.records import TRUNCATION, Value, value_runs
from context_agent.pruning.scopes import Scope, Title, in_sections, parts_of
from context_agent.pruning.tables import Table, inherited_cells, tables
from context_agent.pruning.terminal import PlainText, without_escapes
from context_agent.text.fences import FENCE

__all__ = ["LARGEST", "Passage", "cut"]

DEEPEST = 6
"""Maximum number of levels of nested values that are opened. A string that contains JSON counts as a level."""
PAIR_CELLS = 2
"""The cells of a row that is a pair, such as a file and its size. Tiny pairs are joined like members of an object."""
FEWEST_MEMBERS = 4
"""Minimum number of members of an object whose members may each be a record, and of parts of a text with titles."""
_SIGNATURE = re.compile(r"\ufeff?WEBVTT(?![^\s])[^\n]*+\n")
"""The first line of subtitles, without which players refuse them."""
_BLANK_LINE = re.compile(r"\n[ \t\r]*+\n")
_REST_OF_LINE = re.compile(r"[ \t\r,]*+(?:\n|\Z)")
"""The rest of the line after a part, if it says nothing."""
_NEXT_LINE = re.compile(r"[ \t\r]*+\n[ \t]*+(?:`{3,}+|~{3,}+)[ \t\r]*+$", re.M)
"""The line after a value, if it closes a fence."""
_ERROR_LINE = re.compile(
    r"[ \t\r]*+\n(?:\w{0,40}error|exception|fatal|failed|exit (?:code|status))\b[^\n]{0,300}$", re.I | re.M
)
"""The line right after a value, if it says that something went wrong."""
_CLOSED = ("```", "~~~", "</")
"""Marks of fences and tags."""


def cut(text: str, *, as_json: bool = False, budget: int | None = None, is_fine: bool = False) -> list[Passage]:
    """Return the passages of a tool result in order, without overlap. The time is linear in the length of the text.

    Args:
        text: The result.
        as_json: True if the text must stay JSON. A text that is not JSON then has no passages.
        budget: The tokens that all results may keep. A small budget gets smaller passages.
        is_fine: True to cut the smallest passages.
    """
    cutter = _Cutter(text, Sizes.of(text, budget, is_fine=is_fine), count(1), 0)
    return cutter.of_json() if as_json else cutter.of_text()


class _Cutter:
    """A component that cuts one text into passages.

    A text inside a string gets its own cutter, which continues the numbers of the groups.
    """

    def __init__(self, text: str, sizes: Sizes, groups: Iterator[int], depth: int) -> None:
        self._text, self._sizes, self._groups, self._depth = text, sizes, groups, depth
        self._row_labels: dict[int, str] = {}
        self._before: Captions | None = None
        self._sections: list[Title] = []
        self._markup: Markup | None = None

    def of_json(self) -> list[Passage]:
        """Return the passages of a JSON text. If the text is not JSON, return none."""
        found = value_runs(self._text, whole=True)
        return self._of_run(found[0], "", keys_stay=True) if found and found[0].is_json else []

    def of_text(self) -> list[Passage]:
        """Return the passages of any text.

        The escape sequences of a terminal are in the spans of the passages, but not in their texts. The states of
        progress bars that later states overwrite are passages of their own.
        """
        plain = PlainText(self._text)
        if plain.text == self._text:
            return self.of_visible()
        if not plain.text:
            return self._of_binary(0, len(self._text), "")
        passages: list[Passage] = []
        position = 0
        placed: dict[Item, Item] = {}
        for passage in _Cutter(plain.text, self._sizes, self._groups, self._depth).of_visible():
            for item in passage.items:
                if item not in placed:
                    first, last = plain.span(item.start, item.end)
                    placed[item] = item._replace(start=max(position, first), end=last)
            items = tuple(placed[item] for item in passage.items)
            for start, end, shown in plain.pieces(passage.start, passage.end):
                # The sequences at the end of a line are in the passage before.
                piece = replace(passage, start=max(position, start), end=end, items=items)
                if shown is None:
                    passages.append(replace(piece, text=self._text[start:end], binary=True))
                else:
                    is_whole = shown == plain.text[passage.start : passage.end]
                    passages.append(piece if is_whole else replace(piece, text=shown))
                position = end
        return passages

    def of_visible(self) -> list[Passage]:
        """Return the passages of a text without escape sequences.

        They come from its values, elements and tables, and from the text between these.
        """
        text = self._text
        passages: list[Passage] = []
        signature = _SIGNATURE.match(text)
        position, label = 0 if signature is None else signature.end(), ""
        group, parts = next(self._groups), self._parts()
        bounds = [bound for start, end, _ in parts for bound in (start, end)]
        self._markup = Markup.of(text, bounds)
        has_titles = len(parts) >= FEWEST_MEMBERS
        for start, end, cut_part in [*parts, (len(text), len(text), None)]:
            first, last = (
                self._with_fence(position, start, end) if has_titles and cut_part is not None else (start, end)
            )
            commit = _last_commit(text, position, start) if text.startswith(("diff ", "--- "), start) else None
            if commit is None:
                between = self._of_plain(position, start, is_alone=(position, start) == (0, len(text)))
                message: list[Passage] = []
            else:
                between = self._of_plain(position, commit.start(), is_alone=False)
                self._before = None
                self._sections.append(Title(commit.start(), 0, commit.end(), commit["subject"]))
                message = self._of_plain(commit.end(), start, is_alone=False)
            passages += between
            if cut_part is None:
                break
            above = _last_line(text[position:start])
            label = self._below_titles(above) if above else between[-1].label if between else label
            title: int | None = first if first < start else None
            if commit is not None:
                title, label = commit.start(), commit["subject"].strip()[:LONGEST_LABEL]
            elif has_titles and not between and (said := self._title_start(position, first, last)) is not None:
                title = said
                lines = " ".join(filter(None, map(_last_line, text[title:start].split("\n"))))[:LONGEST_LABEL]
                label = self._below_titles(lines) if lines else label
            if title is None:
                passages += cut_part(label)
                position = last
                continue
            last = self._error_end(last)
            label = _with_name(label, _last_line(text[end:last]))
            whole = Item(title, last, group, "text")
            for passage in [*message, *cut_part(label)]:
                # The hunks of a diff have the name of their file alone.
                own = passage.label if label in passage.label else _with_name(label, passage.label)
                passages.append(replace(passage, label=own, items=(*passage.items, whole)))
            position = last
        if not parts or not self._sections:
            return passages
        return in_sections(text, passages, self._sections, bounds, self._groups)

    def _with_fence(self, position: int, start: int, end: int) -> tuple[int, int]:
        """Return the span of a part with the fence around it, if there is one after `position`."""
        text = self._text
        opening = text.rfind("\n", position, max(position, start - 1)) + 1 or position
        closing = _NEXT_LINE.match(text, end)
        if closing is None or FENCE.match(text, opening, start) is None:
            return start, end
        return opening, closing.end()

    def _error_end(self, end: int) -> int:
        """Return the end of the line right after a value that says what went wrong with it, or else `end`."""
        line = _ERROR_LINE.match(self._text, end)
        return end if line is None else line.end()

    def _title_start(self, position: int, start: int, end: int) -> int | None:
        """Return the offset of the short text right before a part, which is removed with the part.

        If there is none, return None. The text before the first part is often about all of them. Fences and tags stay,
        because others close them.
        """
        text, between = self._text, self._text[position:start]
        if position == 0 or "\n" not in between or _REST_OF_LINE.match(text, end) is None:
            return None
        line_end, written = text.index("\n", position), position + len(between.rstrip())
        blanks = [match.end() for match in _BLANK_LINE.finditer(text, line_end, written)]
        first = max([line_end + 1, *blanks])
        title = text[first:start]
        return first if title.strip() and not any(mark in title for mark in _CLOSED) else None

    def _parts(self) -> list[tuple[int, int, Callable[[str], list[Passage]]]]:
        """Return the spans that are not plain text, each with the function that cuts it."""
        text = self._text
        if len(text) > self._sizes.target and (outlined := outline(text)) is not None:
            return [(outlined.start, outlined.end, partial(self._of_run, outlined))]
        parts: list[tuple[int, int, Callable[[str], list[Passage]]]] = [
            (files[0].start, files[-1].end, partial(self._of_diff, files)) for files in diffs(text)
        ]
        bounds = [bound for start, end, _ in parts for bound in (start, end)]
        values = [run for run in value_runs(text) if not inside(bounds, run.start)]
        parts += [(run.start, run.end, partial(self._of_run, run)) for run in values]
        parts.sort(key=_start)
        if not parts and (document := xml_documents.document(text, 0, len(text))) is not None:
            parts.append((document.start, document.root.end, partial(self._of_document, document)))
        position = 0
        found: list[Table] = []
        for start, end in [*((start, end) for start, end, _ in parts), (len(text), len(text))]:
            found += tables(text, position, start)
            position = end
        firsts = sorted([*(start for start, _, _ in parts), *(table.first for table in found), len(text)])
        for table in found:
            end = table.rows[-1][1]
            whole: tuple[int, int] | None = None
            if len(found) > 1:
                end = self._footer_end(end, firsts[bisect_left(firsts, end)])
                whole = table.first, end
            parts.append((table.first, end, partial(self._of_rows, table, whole)))
        taken = sorted((start, end) for start, end, _ in parts)
        position = 0
        for start, end in [*taken, (len(text), len(text))]:
            for found_span in binary_spans(text[position:start]):
                span = position + found_span.start, position + found_span.end
                parts.append((*span, partial(self._of_dense if found_span.is_dense else self._of_binary, *span)))
            position = end
        return sorted(parts, key=_start)

    def _of_binary(self, start: int, end: int, label: str) -> list[Passage]:
        return [Passage(self._text[start:end], start, end, label, group=next(self._groups), binary=True)]

    def _of_dense(self, start: int, end: int, label: str) -> list[Passage]:
        group = next(self._groups)
        return [
            Passage(self._text[first:last], first, last, label, group=group, dense=True)
            for first, last in dense_parts(self._text, start, end, self._sizes.target)
        ]

    def _of_plain(self, start: int, end: int, *, is_alone: bool) -> list[Passage]:
        """Return the passages of plain text.

        A short text next to values or rows, such as a code fence, is a frame and stays. If a text has many of these
        parts, the one before each of them is removed with it.
        """
        while not is_alone and start < end:
            # The fence around a value must stay.
            line_end = self._text.find("\n", start, end) + 1 or end
            if start > 0 and self._is_frame(start, line_end, start):
                start = line_end
                continue
            line_start = self._text.rfind("\n", start, end - 1) + 1 or start
            if end < len(self._text) and self._is_frame(line_start, end, end):
                end = line_start
                continue
            break
        if start >= end:
            return []
        lines = with_line_breaks(self._text[start:end])
        markup = None if self._markup is None else self._markup.inside(start, end)
        captions = Captions(with_aligned_numbers(lines), self._before, markup)
        passages = self._of_lines(start, lines, captions, "")
        self._before = captions
        self._sections += [
            Title(start + first, level, start + body, name) for first, (level, body, name) in captions.sections.items()
        ]
        return [] if not is_alone and end - start < self._sizes.small else passages

    def _is_frame(self, start: int, end: int, edge: int) -> bool:
        """Return True if a line is blank, or if it is the fence of code that goes on at the edge of a plain text."""
        line = self._text[start:end]
        if self._markup is None or not line.strip():
            return _is_frame(line)
        return FENCE.match(line) is not None and inside(self._markup.fences, edge)

    def _below_titles(self, line: str) -> str:
        """Return the titles of the open sections and a line. The line is cut for the innermost title alone."""
        titles = [] if self._before is None else self._before.titles
        above = [title[:LONGEST_LINE] for _, title in titles if title and title not in line]
        label = f"{above.pop()} {line}"[:LONGEST_LABEL] if above else line
        while above and len(above[-1]) + 1 + len(label) <= LONGEST_LABEL:
            label = f"{above.pop()} {label}"
        return label

    def _of_lines(self, start: int, text: str, captions: Captions, label: str) -> list[Passage]:
        """Return the passages of lines of text. What is in several passages stays below its first line.

        Args:
            start: The offset where the lines begin.
            text: The lines.
            captions: Their captions, before any of them was asked for.
            label: The label of passages that have none of their own.
        """
        lines, group = captions.text, next(self._groups)
        spans = [*text_spans(lines, self._sizes, captions)]
        made: dict[Scope, tuple[Item, int]] = {}
        passages: list[Passage] = []
        for first, last, own, scopes in parts_of(lines, spans, captions):
            items: list[Item] = []
            inner = group
            for scope in scopes:
                if scope not in made:
                    written = len(lines[scope.start : scope.end].rstrip())
                    item = Item(start + scope.start, start + scope.start + written, inner, "text")
                    made[scope] = item, next(self._groups)
                item, inner = made[scope]
                items.insert(0, item)
            passages.append(
                Passage(text[first:last], start + first, start + last, own or label, group=inner, items=(*items,))
            )
        return passages

    def _of_diff(self, files: Sequence[FileDiff], label: str) -> list[Passage]:
        """Return the hunks of a diff as passages. A small file is one passage, together with its header.

        The header of a larger file is removed with the last of its hunks. A large hunk is cut at lines, and its header
        is removed with the last of its parts.
        """
        passages: list[Passage] = []
        shared = next(self._groups)

        def add(start: int, end: int, group: int, *items: Item) -> None:
            name = file.name[:LONGEST_LABEL]
            passages.append(Passage(self._text[start:end], start, end, name, group=group, items=items))

        for file in files:
            if file.end - file.start <= self._sizes.target:
                add(file.start, file.end, shared)
                continue
            group, whole = next(self._groups), Item(file.start, file.end, shared, "text")
            for hunk in file.hunks:
                if hunk.end - hunk.start <= self._sizes.largest:
                    add(hunk.start, hunk.end, group, whole)
                    continue
                own, large = next(self._groups), Item(hunk.start, hunk.end, group, "text")
                for start, end, _ in entry_spans(self._text, hunk.body, hunk.end, self._sizes.target, self._sizes):
                    add(start, end, own, large, whole)
        return passages

    def _footer_end(self, start: int, end: int) -> int:
        """Return the end of the short text right below a table, such as the number of its rows.

        What follows a blank line is often the title of the next table. A fence does not count.
        """
        blank = _BLANK_LINE.search(self._text, start, end)
        footer = self._text[start : blank.start() if blank else end].rstrip()
        is_short = len(footer) < self._sizes.small and "```" not in footer and "~~~" not in footer
        return start + len(footer) if is_short else start

    def _of_rows(self, table: Table, whole: tuple[int, int] | None, label: str) -> list[Passage]:
        """Return the rows of a table as passages. Tiny rows are joined.

        Args:
            table: The table.
            whole: The span that is removed with the last row. If a text has one table, its header stays.
            label: What the text before the table says.
        """
        label = _last_line(self._text[table.first : table.start]) or label
        label = f"{label} {table.labels}".strip()[:LONGEST_LABEL]
        group, own = next(self._groups), next(self._groups)
        items = () if whole is None else (Item(*whole, own, "text"),)
        is_record = table.cells > PAIR_CELLS
        names = {row[0]: said for row, said in zip(table.rows, inherited_cells(self._text, table), strict=True)}
        passages: list[Passage] = []
        before = table.rows[0][0]
        for first, last in self._collected(table.rows, self._sizes.tiny, self._sizes.rows if is_record else None):
            if TRUNCATION.search(self._text, before, first) is not None:
                # The line between two rows stays, so no stub stands for rows that the tool left out.
                group = next(self._groups)
            passages.append(
                Passage(
                    self._text[first:last],
                    first,
                    last,
                    _with_name(label, names[first]),
                    table.form,
                    group,
                    cells=table.cells,
                    delimiter=table.delimiter,
                    items=items,
                )
            )
            before = last
        return passages

    def _collected(
        self, spans: Iterable[tuple[int, int]], small: int, target: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield the spans. Neighbors that are smaller than `small` are joined up to the target size."""
        target = self._sizes.target if target is None else target
        pending: tuple[int, int] | None = None
        for start, end in spans:
            is_small = end - start < small
            if pending is not None and (not is_small or end - pending[0] > target):
                yield pending
                pending = None
            if is_small:
                pending = (start if pending is None else pending[0], end)
            else:
                yield start, end
        if pending is not None:
            yield pending

    def _of_document(self, document: xml_documents.Document, label: str) -> list[Passage]:
        """Return the elements of an XML document and the comments before its root as passages."""
        group = next(self._groups)
        comments = [
            Passage(self._text[start:end], start, end, label, "element", group)
            for start, end in document.comments
            if end - start > self._sizes.small
        ]
        return comments + self._of_elements(document.root, label)

    def _of_elements(self, element: xml_documents.Element, label: str, depth: int = 0) -> list[Passage]:
        """Return the child elements as passages. Large elements are opened."""
        text, sizes = self._text, self._sizes
        own = xml_documents.name(element, NAMING_KEYS, text)
        if own not in label:
            label = f"{label} {own}".strip()[:LONGEST_LABEL]
        group = next(self._groups)
        if not element.children:
            return self._of_leaf(element.inner, element.inner_end, label)
        if element.name.lower() == "table":
            self._row_labels |= xml_documents.row_labels(element, text)
        passages: list[Passage] = []
        spans: list[tuple[int, int]] = []

        def collect() -> None:
            for start, end in self._collected(spans, sizes.tiny):
                said = _with_name(label, self._row_labels.get(start, ""))
                passages.append(Passage(text[start:end], start, end, said, "element", group))
            spans.clear()

        is_list = depth == 0 or len(element.children) >= FEWEST_MEMBERS
        tags = Counter(child.name for child in element.children if child.children)
        for first, child, key in xml_documents.members(element, text):
            size = child.end - child.start
            is_wrapper = size > sizes.small and len(child.children) > 1 and all(it.children for it in child.children)
            if (size > sizes.largest or is_wrapper) and depth < DEEPEST:
                collect()
                is_distinct = tags[child.name] == 1 and len(tags) > 1
                own = _with_name(label, key or (child.name if is_distinct else ""))
                opened = self._of_elements(child, own, depth + 1)
                if 2 * _covered(opened) >= size:
                    record = Item(first, child.end, group, "element")
                    passages += self._inside(record, opened) if is_list else opened
                    continue
            if is_list or size > sizes.small:
                spans.append((first, child.end))
        collect()
        ends = [element.inner, *(child.end for child in element.children)]
        starts = [*(child.start for child in element.children), element.inner_end]
        for start, end in zip(ends, starts, strict=True):
            passages += self._of_leaf(start, end, label) if end - start > sizes.small else ()
        return sorted(passages, key=lambda passage: passage.start)

    def _of_leaf(self, start: int, end: int, label: str) -> list[Passage]:
        """Return the passages of the text in an element."""
        inner = self._text[start:end]
        if "<" in inner or "&" in inner:
            return []
        if is_encoded(inner):
            return self._of_binary(start, end, label)
        if is_dense(inner):
            return self._of_dense(start, end, label)
        lines = with_line_breaks(self._text[start:end])
        return self._of_lines(start, lines, Captions(with_aligned_numbers(lines)), label)

    def _of_run(self, run: Run, label: str, *, keys_stay: bool = False) -> list[Passage]:
        """Split a series of consecutive values, such as the lines of a JSONL text, into passages and return them.

        A single value is a series of one.
        """
        if len(run.values) > 1:
            return self._of_items(run, run.values, label, 0)
        value = run.values[0]
        is_record = run.is_object(value) and self._is_record(run, value)
        if is_record and not keys_stay:
            return [self._value(value, label)]
        passages = self._opened(run, value, label, 0, keys_stay=keys_stay)
        covered = 2 * _covered(passages) >= value.end - value.start
        return (
            passages
            if covered or keys_stay or value.end - value.start < self._sizes.small
            else [self._value(value, label)]
        )

    def _value(self, value: Value, label: str, text: str | None = None, *, binary: bool = False) -> Passage:
        own = self._text[value.start : value.end] if text is None else without_escapes(text)
        return Passage(own, value.start, value.end, label, "value", next(self._groups), binary=binary)

    def _is_record(self, run: Run, value: Value) -> bool:
        """Return True if a value is kept or removed as a whole.

        Such a value is not large, and it is not a list of records.
        """
        if value.end - value.start > self._sizes.largest:
            return False
        # Values may be nested more deeply than Python recurses.
        pending = [value]
        while pending:
            part = pending.pop()
            if run.is_container(part):
                parts = run.parts(part)
                if sum(map(run.is_container, parts)) > 1 and not run.is_object(part):
                    return False
                pending += parts
            elif run.is_string(part) and (part.end - part.start > self._sizes.target or is_log(run.string(part))):
                return False
        return True

    def _opened(self, run: Run, value: Value, label: str, depth: int, *, keys_stay: bool = False) -> list[Passage]:
        """Return the passages inside a value."""
        if run.is_string(value):
            return self._of_string(run, value, label)
        if depth > DEEPEST or not run.is_container(value):
            return []
        parts = run.parts(value)
        if not run.is_object(value):
            return self._of_items(run, parts, label, depth)
        return self._of_members(run, parts, label, depth, keys_stay=keys_stay)

    def _of_items(self, run: Run, items: Sequence[Value], label: str, depth: int) -> list[Passage]:
        """Return the items of a list as passages.

        A record becomes one passage. Scalars and tiny records are joined. An item that is too large is divided into
        its parts. It is removed with the last of them, unless little is around them, as in `{"type": "text", …}`.
        """
        sizes, group = self._sizes, next(self._groups)
        passages: list[Passage] = []
        spans: list[tuple[int, int]] = []

        def collect(small: int) -> None:
            for start, end in self._collected(spans, small):
                passages.append(Passage(self._text[start:end], start, end, label, "value", group))
            spans.clear()

        small = sizes.tiny if any(map(run.is_container, items[:FEWEST_MEMBERS])) else sizes.small
        names = distinct_names(run, [item for item in items if item.end - item.start > sizes.largest])
        for item in items:
            size = item.end - item.start
            if size > sizes.largest:
                opened = self._opened(run, item, _with_name(label, names.get(item, "")), depth + 1)
                covered = _covered(opened)
                if 2 * covered >= size:
                    collect(small)
                    passages += self._inside(Item(item.start, item.end, group), opened)
                    continue
            spans.append((item.start, item.end))
        collect(small)
        return passages

    def _inside(self, item: Item, passages: list[Passage]) -> list[Passage]:
        """Return the passages of a record as parts of it. If little is around them, return them unchanged."""
        if item.end - item.start - _covered(passages) <= self._sizes.small:
            return passages
        return [replace(passage, items=(*passage.items, item)) for passage in passages]

    def _of_members(
        self, run: Run, members: Sequence[Value], label: str, depth: int, *, keys_stay: bool
    ) -> list[Passage]:
        """Return the larger members of an object as passages.

        The small members are the frame that says what the larger ones belong to. They stay unless they are most of the
        object. The object's name, which may be in a single member such as `metadata`, labels the passages after the
        names of the objects around it. The key of a large member labels its passages if another member is large, too.

        If an object has many records by name, it counts as a list of records. Each name is then removed with its
        record, and labels the parts of a large record.
        """
        sizes = self._sizes
        own = own_name(run, members) or only_name(run, members)
        if own not in label:
            label = f"{label} {own}".strip()[:LONGEST_LABEL]
        large = [member for member in members if member.end - member.start > sizes.small]
        small = sum(member.end - member.first for member in members if member.end - member.start <= sizes.small)
        is_mapping = len(members) >= FEWEST_MEMBERS and 4 * sum(map(run.is_container, members)) >= 3 * len(members)
        has_siblings = sum(map(run.is_container, large)) > 1
        if keys_stay:
            frame_goes = False
        else:
            frame_goes = is_mapping or small > sizes.target or (bool(large) and small > 3 * sizes.small)
        passages: list[Passage] = []
        spans: list[tuple[int, int]] = []
        group = next(self._groups)

        def collect() -> None:
            for start, end in self._collected(spans, sizes.tiny if is_mapping else sizes.small):
                passages.append(Passage(self._text[start:end], start, end, label, "member", group))
            spans.clear()

        for member in members:
            size = member.end - member.start
            name = run.string(member.key) if member.key is not None else ""
            if size <= sizes.small or (is_mapping and not keys_stay and size <= sizes.largest):
                if frame_goes:
                    spans.append((member.first, member.end))
                continue
            collect()
            own = _with_name(label, name) if has_siblings else label or name
            opened = self._of_member(run, member, own, depth, is_field=not keys_stay)
            if not is_mapping:
                passages += opened
                continue
            if keys_stay:
                record = Item(member.start, member.end, next(self._groups))
            else:
                record = Item(member.first, member.end, group, "member")
            passages += self._inside(record, opened)
        collect()
        return passages

    def _of_member(self, run: Run, member: Value, label: str, depth: int, *, is_field: bool) -> list[Passage]:
        """Return the passages of a member whose key stays.

        A text in a field of a record is one passage if it is not large. Around a text in the object that is the whole
        result, there is no record. It is cut like a result in plain text.
        """
        if run.is_string(member):
            text = run.string(member)
            if is_encoded(text):
                return [self._value(member, label, text, binary=True)]
            passages = self._of_string(run, member, label)
            is_plain = all(passage.form == "string" and not (passage.binary or passage.dense) for passage in passages)
            is_small = member.end - member.start <= self._sizes.largest
            is_whole = is_field and is_small and is_plain and not is_log(text)
            return [self._value(member, label, text)] if is_whole else passages
        if run.is_object(member) and self._is_record(run, member):
            return [self._value(member, label)]
        opened = self._opened(run, member, label, depth + 1)
        is_open = 2 * _covered(opened) >= member.end - member.start
        if is_open:
            return opened
        if isinstance(run, Outline) and not run.is_object(member):
            # The dashes of a list may stand in the column of its key, where a stub cannot.
            text = self._text[member.first : member.end]
            return [Passage(text, member.first, member.end, label, "member", next(self._groups))]
        return [self._value(member, label)]

    def _of_string(self, run: Run, value: Value, label: str) -> list[Passage]:
        """Return the passages of the text in a string."""
        text = run.string(value)
        if is_encoded(text):
            return [self._value(value, label, text, binary=True)]
        if self._depth >= DEEPEST:
            return []
        offset = run.offsets(value)
        inner = _Cutter(text, self._sizes, self._groups, self._depth + 1).of_text()
        return [
            replace(
                passage,
                start=offset(passage.start),
                end=offset(passage.end),
                label=passage.label or label,
                form="string" if passage.form == "text" else passage.form,
                strings=passage.strings + 1,
                items=tuple(
                    it._replace(start=offset(it.start), end=offset(it.end), strings=it.strings + 1)
                    for it in passage.items
                ),
            )
            for passage in inner
        ]


def _last_commit(text: str, start: int, end: int) -> re.Match[str] | None:
    """Return the header of the last commit in a part of a text, with the first line of its message."""
    return max(COMMIT.finditer(text, start, end), key=re.Match.start, default=None)


def _start(part: tuple[int, int, Callable[[str], list[Passage]]]) -> int:
    return part[0]


def _with_name(label: str, name: str) -> str:
    """Return a label with the name of a group at its end. If there is too little room, the label is shortened."""
    name = name[-LONGEST_LABEL:]
    return f"{label[: max(0, LONGEST_LABEL - len(name) - 1)]} {name}".strip() if name else label


def _covered(passages: Iterable[Passage]) -> int:
    return sum(passage.end - passage.start for passage in passages)


def _is_frame(line: str) -> bool:
    """Return True if a line is blank or a fence."""
    return not line.strip() or FENCE.match(line) is not None


def _last_line(text: str) -> str:
    """Return the last line of a text that contains letters, without the marks around it."""
    for line in reversed(text[-2 * LONGEST_LABEL :].split("\n")):
        if not _is_frame(line) and not line.lstrip().startswith("<?"):
            return " ".join(line.strip(" \t\r#:*>").split())[:LONGEST_LABEL] if any(map(str.isalpha, line)) else ""
    return ""
