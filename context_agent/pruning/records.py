"""Values in a text: JSON, lines of JSON, and Python literals as `repr` writes them.

They may be the whole text, or stand among lines of text. A tool may have cut the last part of a JSON value.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from context_agent.pruning.blocks import SMALL, TARGET

_STRING = r"\"(?:[^\"\\\n]++|\\.)*+\"|'(?:[^'\\\n]++|\\.)*+'"
_START = re.compile(r"^[\[{(]|(?<=[:=] )[\[{]", re.M)
"""The start of a possible value: at the start of a line, or after `name: ` or `name= `."""
_LITERAL = re.compile(
    rf"(?P<blank>\s++)|(?P<string>[bBrRuU]{{0,2}}(?:{_STRING}))|(?P<word>[\w.+-]++)|(?P<open>[\[{{(])|(?P<close>[\]}})])|[,:=]"
)
_NESTED = re.compile(rf"{_STRING}|(?P<open>[\[{{(])|[\]}})]", re.S)
_PART = re.compile(rf"(?P<string>[bBrRuU]{{0,2}}(?:{_STRING}))|(?P<word>[\w.+-]++)|(?P<open>[\[{{(])|[,:=]", re.S)
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\U.{8}|\\x..|\\[0-7]{1,3}|\\N\{[\w -]{1,99}\}|\\.")
"""A character of a string that is written as one escape sequence or as a surrogate pair."""
_PYTHON_ESCAPES = re.compile(r"(?:[^\\]++|\\[abfnrtvxuUN0-7'\"\\\n])*+")
"""A string whose escape sequences Python knows. Python would warn about others."""
_BLANK = re.compile(r"\ufeff?[ \t\r\n]*")
"""The white space before or after a value, and the mark of a byte order."""
_FIRST = ("[", "{", "(", '"')
"""The characters with which a value that is the whole text may begin."""
_REST_OF_LINE = re.compile(r"[ \t]*+(?:,[ \t]*+)?\r?(?:\n|\Z)")
_PIECE = re.compile(r"\"(?:[^\"\\]++|\\.)*+\"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<comma>,)")
TRUNCATION = re.compile(r"\.\.\.|\u2026|truncat|omitted|clipped|characters", re.I)
"""A word or a mark that a tool writes where it cuts its output."""
_DECODER = json.JSONDecoder()
_PAIRS = {"[": "]", "{": "}", "(": ")"}


@dataclass(frozen=True, slots=True)
class Value:
    """The span of a value, or of a member of an object.

    Attributes:
        first: The offset where the member's key begins. Without a key it equals `start`.
        start: The offset where the value begins.
        end: The offset after the value.
        key: The span of the key, if there is one.
    """

    first: int
    start: int
    end: int
    key: Value | None = None


@dataclass(slots=True)
class Values:
    """Consecutive values in a text, with access to their parts.

    Attributes:
        text: The text.
        values: The spans of the values.
        is_json: True if the values are JSON, False if they are Python literals.
        is_cut: True if the last value ends where a tool cut it, without its closing brackets.
    """

    text: str
    values: list[Value]
    is_json: bool
    is_cut: bool = False
    _closers: dict[int, int] = field(default_factory=dict)

    @property
    def start(self) -> int:
        """The offset where the first value begins."""
        return self.values[0].start

    @property
    def end(self) -> int:
        """The offset after the last value."""
        return self.values[-1].end

    def is_container(self, value: Value) -> bool:
        """Return True if the value is a list, an object, or a call such as `User(name='Ana')`."""
        return self.text[value.end - 1] in "]})" or self.text[value.start] in "[{"

    def is_object(self, value: Value) -> bool:
        """Return True if the value has members with keys."""
        if not self.is_container(value):
            return False
        return any(part.key is not None for part in self._parts(value, 1))

    def is_string(self, value: Value) -> bool:
        """Return True if the value is a string."""
        return self.text[value.start] in "\"'"

    def string(self, value: Value) -> str:
        """Return the content of a string, or the written form of another scalar.

        For a list or an object, return an empty string.
        """
        raw = self.text[value.start : value.end]
        if not self.is_string(value):
            return "" if self.is_container(value) else raw
        if "\\" not in raw or not (self.is_json or _PYTHON_ESCAPES.fullmatch(raw)):
            return raw[1:-1]
        try:
            return str(json.loads(raw)) if self.is_json else str(ast.literal_eval(raw))
        except (ValueError, SyntaxError):
            return raw[1:-1]

    def offsets(self, value: Value) -> Callable[[int], int]:
        """Return a function that maps an offset in a string's content to an offset in the text."""
        decoded, shifts, shift = [0], [value.start + 1], value.start + 1
        if len(self.string(value)) != value.end - value.start - 2:
            for match in _ESCAPE.finditer(self.text, value.start + 1, value.end - 1):
                shift += len(match[0]) - 1
                decoded.append(match.end() - shift)
                shifts.append(shift)
        return lambda offset: offset + shifts[bisect_right(decoded, offset) - 1]

    def parts(self, value: Value) -> list[Value]:
        """Return the items of a list, or the members of an object or a call."""
        return self._parts(value)

    def _parts(self, value: Value, most: int | None = None) -> list[Value]:
        if not self._closers:
            self._closers = dict(_closers(self.text, self.start, self.end))
        opener = value.start
        while self.text[opener] not in "[{(":
            opener += 1
        stop = self._closers[opener]
        parts: list[Value] = []
        key: Value | None = None
        first = last = -1
        position = opener + 1
        while (token := _PART.search(self.text, position, stop)) is not None:
            position = token.end()
            if token.lastgroup == "open":
                position = min(self._closers[token.start()] + 1, self.end)
            elif token[0] == ",":
                if first >= 0:
                    parts.append(Value(first if key is None else key.start, first, last, key))
                    if most is not None and len(parts) >= most:
                        return parts
                key, first = None, -1
                continue
            elif token.lastgroup is None:
                if key is None and first >= 0:
                    key, first = Value(first, first, last), -1
                continue
            first, last = (token.start() if first < 0 else first), position
        if first >= 0:
            parts.append(Value(first if key is None else key.start, first, last, key))
        return parts


def _closers(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the offset of each opening bracket with the offset of its closing bracket, or with the end."""
    stack: list[int] = []
    for token in _NESTED.finditer(text, start, end):
        if token.lastgroup == "open":
            stack.append(token.start())
        elif token[0] in _PAIRS.values() and stack:
            yield stack.pop(), token.start()
    yield from ((opener, end) for opener in stack)


def value_runs(text: str, *, whole: bool = False) -> list[Values]:
    """Return the values in a text. Consecutive values are in one run.

    A value counts if it is the whole text, or if it fills lines. A long value may also follow a name on its first line.
    For values that do not parse, about as many characters as the text has are read at most.

    Args:
        text: The text.
        whole: If True, return a value only if it is the whole text.
    """
    runs: list[Values] = []
    decoded = _TextWithoutLines(text)
    first = _after_blank(text, 0)
    # The first value may follow white space, and a string may be the whole text.
    start = first if text[first : first + 1] in _FIRST else _next_start(text, first)
    patience, last_token = len(text) + TARGET, _last_token(text)
    while start is not None and patience > 0:
        if whole and start != first:
            break
        end, is_json, read = _value_end(decoded, start, last_token)
        is_cut = read > 0 and is_json
        patience -= read if end is None or is_cut else 0
        if end is None:
            start = _next_start(text, start + 1)
            continue
        value = Value(start, start, end)
        is_line = start == first or text[start - 1] == "\n"
        is_all = start == first and _after_blank(text, end) == len(text)
        if whole or is_all:
            return [Values(text, [value], is_json)] if is_all and not is_cut else []
        is_next = bool(runs) and is_line and runs[-1].is_json == is_json and not runs[-1].is_cut
        if is_next and not text[runs[-1].end : start].strip(" \t\r\n,"):
            runs[-1].values.append(value)
            runs[-1].is_cut = is_cut
        elif text[start] != '"' and (is_line or end - start > TARGET):
            runs.append(Values(text, [value], is_json, is_cut))
        start = _next_start(text, end)
    all_of_it = len(text[first:].rstrip())
    return [
        run
        for run in runs
        if run.end - run.start == all_of_it
        or (run.end - run.start >= SMALL and (run.is_cut or _REST_OF_LINE.match(text, run.end) is not None))
    ]


def _after_blank(text: str, position: int) -> int:
    """Return the offset after the white space at a position."""
    blank = _BLANK.match(text, position)
    return position if blank is None else blank.end()


def _next_start(text: str, position: int) -> int | None:
    """Return the offset of the next possible value. If there is none, return None."""
    match = _START.search(text, position)
    return None if match is None else match.start()


class _TextWithoutLines(str):
    """A text whose lines `JSONDecodeError` does not count.

    The error counts all lines before it. In a log whose lines begin with brackets, each line causes an error.
    """

    __slots__ = ()

    def count(self, *_: object) -> int:
        return 0

    def rfind(self, *_: object) -> int:
        return -1


def _last_token(text: str) -> int:
    """Return the offset of the last line or of the last quotation mark in it. A cut value ends in what follows."""
    line = text.rfind("\n", 0, len(text.rstrip())) + 1
    quote = text.rfind('"', line)
    while quote > line and text[quote - 1] == "\\":
        quote = text.rfind('"', line, quote)
    return max(line, quote)


def _value_end(text: str, start: int, last_token: int) -> tuple[int | None, bool, int]:
    """Find the end of the value that begins at `start`.

    Args:
        text: The text.
        start: The offset where the value begins.
        last_token: An offset. If the value stops to be JSON after it, the text ends in the value.

    Returns:
        The end, whether the value is JSON, and the number of characters read. If nothing parses, the end is None. For
        JSON that parses, no characters count as read, but for JSON that a tool cut they do.
    """
    read, stop = 1, start
    if text[start] != "(":
        try:
            return _DECODER.raw_decode(text, start)[1], True, 0
        except json.JSONDecodeError as error:
            stop = error.pos
            read = stop - start + 1
        except (ValueError, RecursionError):
            read = len(text)
    end, also_read = _literal_end(text, start)
    if end is None and stop - start > TARGET:
        end = _cut_end(text, start, stop, last_token)
        return end, end is not None, 2 * read + also_read
    return end, False, read + also_read


def _cut_end(text: str, start: int, stop: int, last_token: int) -> int | None:
    """Return the end of the last complete part of a JSON value that a tool cut. If the value is not cut, return None.

    If only a short part is left out then, the parts are those of an outer list or object, so that records stay whole.

    Args:
        text: The text.
        start: The offset where the value begins.
        stop: The offset where it stops to be JSON.
        last_token: The offset after which the text ends in the value.
    """
    if stop < last_token and TRUNCATION.search(text, stop, stop + TARGET) is None:
        return None
    ends: list[int] = []
    for token in _PIECE.finditer(text, start, stop):
        if token["open"]:
            ends.append(-1)
        elif token["close"]:
            ends.pop()
            ends[-1] = token.end()
        elif token["comma"]:
            ends[-1] = token.start()
    outer = next((end for end in ends if end >= 0 and stop - end <= TARGET), None)
    end = max(ends, default=-1) if outer is None else outer
    return end if end - start > TARGET else None


def _literal_end(text: str, start: int) -> tuple[int | None, int]:
    """Return the end of a Python literal, and the number of characters read.

    If two words have no mark between them, the literal is invalid.
    """
    stack: list[str] = []
    position, after_value = start, False
    while (token := _LITERAL.match(text, position)) is not None:
        position = token.end()
        kind = token.lastgroup
        if kind == "blank":
            continue
        if kind in ("word", "string"):
            if after_value:
                break
            after_value = True
        elif kind == "open":
            # The bracket of a call follows its name.
            if after_value and (token[0] != "(" or not (text[token.start() - 1].isalnum())):
                break
            stack.append(_PAIRS[token[0]])
            after_value = False
        elif kind == "close":
            # A string that is the whole text has no bracket to close.
            if not stack or stack.pop() != token[0]:
                break
            if not stack:
                return position, position - start
            after_value = True
        else:
            after_value = False
    return None, position - start + 1
