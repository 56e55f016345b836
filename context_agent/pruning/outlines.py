"""Outlines in tool results: YAML, and other lines of names and values that are nested by indentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from context_agent.pruning.records import Value

_WORD = r"(?:[^\s:]++|:(?=\S))++"
"""A word of a key."""
_LINE = re.compile(
    r"(?P<indent> *+)(?P<dashes>(?:-(?: ++|$))++)?+"
    r"(?:(?P<key>\"(?:[^\"\\]++|\\.)*+\"|'[^']*+'"
    rf"|(?![-?:,\[\]{{}}#&*!|>'\"%@`]){_WORD}(?=:(?: |$))"
    rf"|(?(dashes)(?!)|(?![-?:,\[\]{{}}#&*!|>'\"%@`\d]|class ){_WORD}(?: (?!#){_WORD}){{1,7}}+)):(?: ++|$))?"
    r"(?P<anchors>(?:[&!]\S*+(?: ++|$))*+)(?P<value>.*)"
)
"""A line: its indentation, the dashes of the items that begin in it, a key, anchors and tags, and a value.

A key may have up to eight words, unless it begins an item or with a digit: most such lines are sentences with a colon,
or entries of a log. A class of Python is no key.
"""
_NUMBER = re.compile(r"[ \t]{0,12}\d{1,9}(?:\t|→| ?[|│] ?)")
"""The number before a line in a listing. A number with a colon is a key."""
_SEPARATOR = re.compile(r"(?:---|\.\.\.)\s*\Z")
_BLOCK = re.compile(r"[|>][-+1-9]{0,2}(?: ++#.*+)?\n")
"""The mark of a block of lines."""
FEWEST_NODES = 6
"""Minimum number of keys and items of an outline."""
DEEPEST = 40
"""Maximum number of keys and items that are nested in each other."""
MOST_LEADING = 3
"""Maximum number of lines of other text before an outline."""


@dataclass(slots=True)
class _Node:
    """A document, a key or an item. The level of an item is odd, and grows with its column, as that of a key does."""

    level: int
    first: int
    start: int
    end: int = field(init=False)
    key: Value | None = None
    has_text: bool = False
    children: Sequence[_Node] = ()
    names: AbstractSet[str] = frozenset()

    def add(self, child: _Node, name: str | None) -> None:
        """Add a child. Most nodes have none, so the containers are made with the first one."""
        self.children = self.children if isinstance(self.children, list) else []
        self.children.append(child)
        if name is not None:
            self.names = self.names if isinstance(self.names, set) else set()
            self.names.add(name)

    def value(self, parts: dict[Value, list[Value]]) -> Value:
        """Return the span of the node's value, and add its parts to a dictionary."""
        own = [child.value(parts) for child in self.children]
        start = self.children[0].first if own else self.start
        value = Value(start if self.key is None else self.first, start, self.end, self.key)
        if own:
            parts[value] = own
        return value


@dataclass(slots=True)
class Outline:
    """The documents of an outline, with access to their parts, as `records.Values` gives it to those of JSON.

    Attributes:
        text: The text.
        values: The spans of the documents.
    """

    text: str
    values: list[Value]
    _parts: dict[Value, list[Value]]

    @property
    def start(self) -> int:
        """The offset where the first document begins."""
        return self.values[0].start

    @property
    def end(self) -> int:
        """The offset after the last document."""
        return self.values[-1].end

    def is_container(self, value: Value) -> bool:
        """Return True if the value has items or members."""
        return bool(self.parts(value))

    def is_object(self, value: Value) -> bool:
        """Return True if the value has members with keys."""
        parts = self.parts(value)
        return bool(parts) and parts[0].key is not None

    def is_string(self, value: Value) -> bool:
        """Return True if the value has no parts."""
        return not self.parts(value)

    def string(self, value: Value) -> str:
        """Return the text of a value without parts: a block without its mark, or a line without its quotes.

        For other values, return an empty string.
        """
        if self.parts(value):
            return ""
        start, end = self._content(value)
        return self.text[start:end]

    def _content(self, value: Value) -> tuple[int, int]:
        raw = self.text[value.start : value.end]
        if block := _BLOCK.match(raw):
            return value.start + block.end(), value.end
        is_quoted = len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'"
        return value.start + is_quoted, value.end - is_quoted

    def offsets(self, value: Value) -> Callable[[int], int]:
        """Return a function that maps an offset in a value's text to an offset in the text, after the indentation."""
        shift, end = self._content(value)

        def offset(position: int) -> int:
            at = shift + position
            while at < end and self.text[at - 1] in "\n " and self.text[at] == " ":
                at += 1
            return at

        return offset

    def parts(self, value: Value) -> list[Value]:
        """Return the items of a list, or the members of an object."""
        return self._parts.get(value, [])


def outline(text: str) -> Outline | None:
    """Return the outline that fills a text. If there is none, return None.

    At most `MOST_LEADING` lines precede it, a fence may surround it, and its lines may be numbered. Each line has a
    key, begins an item or continues a value, or is blank or a comment. No key occurs twice in a mapping. At least half
    of the text is nested. If a key has several words, no other line is like a sentence.
    """
    reader, leading, start = _Reader(), 0, 0
    for line in text.split("\n"):
        number = _NUMBER.match(line)
        content = line if number is None else line[number.end() :]
        position, start = start + len(line) - len(content), start + len(line) + 1
        if not content.strip():
            continue
        is_fence = line.startswith(("```", "~~~"))
        if is_fence and reader.count > MOST_LEADING:
            break
        if is_fence:
            # What is before a fence may end with a colon, as a key does.
            leading, reader = leading + reader.count, _Reader()
        if not is_fence and not reader.read(content.rstrip(), position):
            leading += 1
            if reader.count or leading > MOST_LEADING:
                return None
    return reader.outline(text)


class _Reader:
    """A reader of the lines of an outline."""

    def __init__(self) -> None:
        self.count = 0
        self._has_long_keys = self._has_sentences = False
        self._documents: list[_Node] = []
        self._open: list[_Node] = []
        self._comment: tuple[int, int] = (0, -1)
        self._end = 0

    def read(self, line: str, start: int) -> bool:
        """Read a line. Return False if it cannot be a line of an outline."""
        found = _LINE.match(line)
        if _SEPARATOR.match(line) or found is None:
            self._close(-1)
            return found is not None
        column = found.end("indent")
        continued = next((node for node in reversed(self._open) if node.level < 2 * column), None)
        if continued is None or not continued.has_text:
            if line[column : column + 1] == "#":
                self._comment = self._comment if self._comment[1] == column else (start + column, column)
                return True
            if not (found["dashes"] or found["key"]) or not self._add(found, start):
                return False
        else:
            self._has_sentences = True
        self._end, self._comment = start + len(line), (0, -1)
        return True

    def _add(self, found: re.Match[str], start: int) -> bool:
        """Add the items and the key of a line. Return False if an outline cannot have them there."""
        column = found.end("indent")
        dashes = found["dashes"] or ""
        if dashes.count("-") > DEEPEST:
            return False
        if not self._open:
            self._open.append(_Node(-1, start + column, start + column))
            self._documents.append(self._open[0])
        nodes = [
            _Node(2 * at + 1, start + at, start + column + len(dashes))
            for at in range(column, column + len(dashes))
            if found.string[at] == "-"
        ]
        if (name := found["key"]) is not None:
            at = found.start("key")
            first = self._comment[0] if self._comment[1] == at else start + at
            key = Value(start + at, start + at, start + found.end("key"))
            self._has_long_keys |= " " in name and name[0] not in "\"'"
            nodes.append(_Node(2 * at, first, start + found.start("value"), key=key))
        for node in nodes:
            self._close(node.level)
            parent, own_name = self._open[-1], None if node.key is None else name
            is_mixed = bool(parent.children) and (parent.children[0].key is None) != (node.key is None)
            if parent.has_text or is_mixed or own_name in parent.names or len(self._open) > DEEPEST:
                return False
            parent.add(node, own_name)
            self._open.append(node)
        self._open[-1].has_text = bool(found["value"]) and not found["value"].startswith("#")
        self._has_sentences |= bool(dashes) and name is None and " " in found["value"]
        self.count += len(nodes)
        return True

    def _close(self, level: int) -> None:
        """Close the open nodes from this level on."""
        while self._open and self._open[-1].level >= level:
            node = self._open.pop()
            node.end = max(self._end, node.first)
            node.start = min(node.start, node.end)

    def outline(self, text: str) -> Outline | None:
        """Return the outline of the lines. If they are none, return None."""
        self._close(-1)
        nested = sum(child.end - child.first for it in self._documents for child in it.children if child.children)
        is_prose = self._has_long_keys and self._has_sentences
        if is_prose or self.count < FEWEST_NODES or 2 * nested < self._end - self._documents[0].first:
            return None
        parts: dict[Value, list[Value]] = {}
        return Outline(text, [document.value(parts) for document in self._documents], parts)
