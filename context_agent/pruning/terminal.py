"""Text that was written for a terminal.

Its escape sequences set colors or move the cursor, and say nothing else. A carriage return inside a line goes back to
its beginning, so a progress bar overwrites its earlier states.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]{0,100}[ -/]{0,10}[@-~]|\][^\x07\x1b\n]{0,1000}(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[=>78DEHMc])"
)
"""A control sequence, a command of the operating system such as a link, or a short escape sequence (ECMA-48)."""
_STARTS = ("\x1b[", "\x1b]", "\\u001b[", "\\x1b[")
"""How most escape sequences begin in a text, in a JSON string and in a Python string."""
_RETURN = re.compile(r"\r(?!\r?\n)|\\r(?!\\n)")
"""A carriage return that ends no line, in a text or in a JSON string."""
_OVERWRITTEN_LINE = re.compile(r"^[^\n]*\r(?!\r?\n)[^\n]*+", re.M)
_WORD = re.compile(r"[^\W\d_]{3,}+")
_PROGRESS = re.compile(r"\d ?%|\d[:/]\d|^[ \t]*+[-|/\\\u2800-\u28ff][ \t]*+$")
"""What a state of a progress bar without words has: a share, a count, a time, or the mark of a spinner."""
LEAST_OVERWRITTEN = 200
"""Minimum number of overwritten characters that are a passage of their own."""


def without_escapes(text: str) -> str:
    """Return the text without escape sequences."""
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def has_hidden(text: str) -> bool:
    """Return True if a text may have parts that a terminal does not show, or has strings with such parts."""
    return any(start in text for start in _STARTS) or _RETURN.search(text) is not None


def overwritten(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the states of progress bars that later states overwrite.

    A state has the same words as the one after it. In text with carriage returns as line ends, lines have other words.
    """
    for line in _OVERWRITTEN_LINE.finditer(text):
        states = line[0].split("\r")
        words: list[set[str] | None] = []
        for state in states:
            # Blanks erase a state.
            words.append(_words(state) if state.strip() else words[-1] if words else None)
        for row in reversed(range(len(states))):
            if states[row].strip():
                break
            words[row] = None
        start = line.start()
        first: int | None = None
        for state, own, following in zip(states, words, [*words[1:], None], strict=True):
            if own is not None and own == following:
                first = start if first is None else first
            elif first is not None:
                yield first, start
                first = None
            start += len(state) + 1


def _words(state: str) -> set[str] | None:
    """Return the words of a state of a progress bar. A line without words that shows no progress has none."""
    state = without_escapes(state)
    words = {*_WORD.findall(state)}
    return words if words or _PROGRESS.search(state) else None


class PlainText:
    """A text without what a terminal does not show, with the way back to the whole text.

    Attributes:
        text: The text without escape sequences and without overwritten states of progress bars.
        runs: The offset in this text, and the span in the whole text, of each long series of overwritten states.
    """

    def __init__(self, text: str) -> None:
        self.runs: list[tuple[int, int, int]] = []
        self._places: list[int] = []
        self._removed = [0]
        parts: list[str] = []
        position = 0
        for start, end in _hidden(text):
            parts.append(text[position:start])
            self._places.append(start - self._removed[-1])
            if end - start >= LEAST_OVERWRITTEN:
                self.runs.append((self._places[-1], start, end))
            self._removed.append(self._removed[-1] + end - start)
            position = end
        self.text = "".join([*parts, text[position:]])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the whole text.

        What is hidden before the first character belongs to the span. What is hidden after the last character belongs
        to it only if the line ends there.
        """
        ends_line = end == len(self.text) or self.text[end] in "\r\n"
        last = bisect_right(self._places, end) if ends_line else bisect_left(self._places, end)
        return start + self._removed[bisect_left(self._places, start)], end + self._removed[last]

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, str | None]]:
        """Yield the spans in the whole text of the pieces of a span, each with its text.

        A long series of overwritten states is a piece without a text.
        """
        whole_start, whole_end = self.span(start, end)
        for place, first, last in self.runs[
            bisect_left(self.runs, (start, 0, 0)) : bisect_left(self.runs, (end, 0, 0))
        ]:
            if start < place:
                yield whole_start, first, self.text[start:place]
            yield first, last, None
            start, whole_start = place, last
        yield whole_start, whole_end, self.text[start:end]


def _hidden(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans that a terminal does not show, ascending and without overlap."""
    position = 0
    for start, end in [*overwritten(text), (len(text), len(text))]:
        for match in _ESCAPE.finditer(text, position, start):
            yield match.span()
        if start < end:
            yield start, end
        position = end
