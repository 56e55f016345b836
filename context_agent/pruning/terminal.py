"""Text that was written for a terminal. Its escape sequences set colors or move the cursor, and say nothing else."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]{0,100}[ -/]{0,10}[@-~]|\][^\x07\x1b\n]{0,1000}(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[=>78DEHMc])"
)
"""A control sequence, a command of the operating system such as a link, or a short escape sequence (ECMA-48)."""
_STARTS = ("\x1b[", "\x1b]", "\\u001b[", "\\x1b[")
"""How most escape sequences begin in a text, in a JSON string and in a Python string."""


def without_escapes(text: str) -> str:
    """Return the text without escape sequences."""
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def has_escapes(text: str) -> bool:
    """Return True if a text has escape sequences, or has strings with escape sequences."""
    return any(start in text for start in _STARTS)


class PlainText:
    """A text without its escape sequences, with the way back to the text that has them.

    Attributes:
        text: The text without escape sequences.
    """

    def __init__(self, text: str) -> None:
        self.text = _ESCAPE.sub("", text)
        self._places: list[int] = []
        self._removed = [0]
        for match in _ESCAPE.finditer(text):
            self._places.append(match.start() - self._removed[-1])
            self._removed.append(self._removed[-1] + match.end() - match.start())

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the text with escape sequences.

        Sequences before the first character belong to the span. Sequences after the last character belong to it only if
        the line ends there.
        """
        ends_line = end == len(self.text) or self.text[end] in "\r\n"
        last = bisect_right(self._places, end) if ends_line else bisect_left(self._places, end)
        return start + self._removed[bisect_left(self._places, start)], end + self._removed[last]
