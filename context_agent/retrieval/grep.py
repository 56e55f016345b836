r"""Regular expressions over all chunks, in time linear in the text (google-re2).

The chunks' texts lie in one UTF-8 buffer, a line break between two, so that the engine runs over a hundred thousand
of them in a few calls instead of in a hundred thousand. The buffer is searched by *finders*, which find at least every
chunk that matches: a literal that each match must contain (found some ten times faster than a general pattern), else
the pattern itself with `^` and `$` at line breaks. What they find is checked on the chunk alone, so a match never spans
two chunks. A finder that is wrong too often is dropped, and the rest of the chunks is checked one by one.

Measured beside Chroma's own `$regex` at 100,000 chunks by benchmarks/search_latency.py. Memory: the buffer is the text
itself (mapped from the index folder where there is one) and 8 bytes a chunk; a pattern takes at most 8 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import PatternError

LONGEST_PATTERN = 4_096
"""Characters."""
SEPARATOR = b"\n"
_PATIENCE = 1_000
"""Chunks that a finder may bring up in vain."""
_FIRST_WINDOW, _LAST_WINDOW = 1 << 16, 1 << 22
"""Bytes searched in one call: small after a find, so that a pattern that reads on to the end stays cheap."""
_SHORTEST_LITERAL = 3


@dataclass(frozen=True, slots=True)
class TextTable:
    """Texts in corpus order: text i is `buffer[starts[i] : starts[i + 1] - 1]`; `starts` has shape (n + 1,), int64."""

    buffer: bytes | mmap
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextTable:
        """A table in memory."""
        encoded = [encode(text) for text in texts]
        return cls(SEPARATOR.join(encoded) + SEPARATOR, starts_of(encoded))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def raw(self, row: int) -> bytes:
        """One text in UTF-8."""
        return self.buffer[int(self.starts[row]) : int(self.starts[row + 1]) - 1]

    def text(self, row: int) -> str:
        """One text."""
        return self.raw(row).decode()

    def row_at(self, offset: int) -> int:
        """The row whose text, or the separator after it, lies at this offset in the buffer."""
        return int(np.searchsorted(self.starts, offset, side="right")) - 1


def encode(text: str) -> bytes:
    """UTF-8; half surrogate pairs, which UTF-8 cannot hold, become question marks."""
    return text.encode("utf-8", errors="replace")


def starts_of(encoded: Sequence[bytes]) -> NDArray[np.int64]:
    """Where each text begins once they are joined by separators, and where the next one would, shape (n + 1,)."""
    starts = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(text) + len(SEPARATOR) for text in encoded], out=starts[1:])
    return starts


class Pattern:
    """A compiled pattern. Case-sensitive unless it says `(?i)`; `.` stops at a line's end unless it says `(?s)`."""

    def __init__(self, source: str) -> None:
        """Raises `PatternError` for an empty, overlong or malformed pattern, look-around and back-references."""
        if not source:
            raise PatternError("the pattern is empty: give at least one character to look for")
        if len(source) > LONGEST_PATTERN:
            raise PatternError(f"the pattern has {len(source):,} characters; at most {LONGEST_PATTERN:,} are allowed")
        self.source = source
        self._exact = _compile(source, source)
        self.finders = self._finders()

    def matches(self, text: bytes) -> bool:
        """Whether the pattern occurs in a text given in UTF-8."""
        return self._exact.search(text) is not None

    def _finders(self) -> list[Any]:
        finders = []
        if literal := required_literal(self.source):
            flags = "(?i)" if _IGNORES_CASE.search(self.source) else ""
            finders.append(_compile(flags + _escape(literal), self.source))
        if not _ANCHORED_TO_TEXT.search(self.source):
            finders.append(_compile(f"(?m)(?:{self.source})", self.source))
        return finders


_ANCHORED_TO_TEXT = re.compile(r"\\[AzQ]|\(\?[a-zA-Z]*-[a-zA-Z]*m")
r"""What `(?m)` does not turn into a condition on lines: \A, \z, (?-m). (\Q would swallow the closing bracket.)"""
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")


def scan(table: TextTable, pattern: Pattern) -> Iterator[int]:
    """The rows that match, ascending, found as they are asked for."""
    row = 0
    for finder in pattern.finders:
        misses = 0
        while misses < _PATIENCE:
            row = _next_candidate(table, finder, row)
            if row == len(table):
                return
            if pattern.matches(table.raw(row)):
                yield row
            else:
                misses += 1
            row += 1
    yield from (rest for rest in range(row, len(table)) if pattern.matches(table.raw(rest)))


def _next_candidate(table: TextTable, finder: Any, row: int) -> int:
    """The first row from `row` on in which the finder finds something; the number of rows when there is none."""
    window = _FIRST_WINDOW
    while row < len(table):
        begin = int(table.starts[row])
        last = min(table.row_at(begin + window), len(table) - 1)
        if found := finder.search(table.buffer, begin, int(table.starts[last + 1]) - 1):
            return min(table.row_at(found.start()), last)
        row, window = last + 1, min(window * 4, _LAST_WINDOW)
    return row


def required_literal(source: str) -> str:
    """The longest run of characters that every match must contain, in either case if the pattern ignores case.

    Looks only outside of groups, and returns the empty string for what it does not understand, for an alternation
    and for less than three characters: it may miss a literal and never invents one.
    """
    runs, position = [""], 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None or found.lastgroup == "alternation":
            return ""
        position = found.end()
        match found.lastgroup:
            case "escaped" | "plain":
                runs[-1] += found.group()[-1]
            case "optional":
                runs[-1] = runs[-1][:-1]
                runs.append("")
            case "group":
                if (position := _end_of_group(source, position)) < 0:
                    return ""
                runs.append("")
            case _:
                runs.append("")
    longest = max(runs, key=len)
    return longest if len(longest) >= _SHORTEST_LITERAL else ""


_CLASS = r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
_TOKEN = re.compile(
    r"(?P<escaped>\\[^a-zA-Z0-9\s])|(?P<set>\\[dDwWsSbBntrfva]|[.^$]|" + _CLASS + r")|(?P<group>\()|(?P<alternation>\|)"
    r"|(?P<optional>[*?]|\{\d+(?:,\d*)?\})|(?P<repeated>\+)|(?P<plain>[^\\\[\](){}|*?+.^$])",
    re.DOTALL,
)
_IN_GROUP = re.compile(rf"\\[^QEpPx0-9]|{_CLASS}|[^\\\[]", re.DOTALL)


def _end_of_group(source: str, position: int) -> int:
    """Where the group ends whose opening bracket stands before `position`; -1 if it cannot be told."""
    depth = 1
    while depth:
        found = _IN_GROUP.match(source, position)
        if found is None:
            return -1
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        position = found.end()
    return position


def _escape(literal: str) -> str:
    import re2  # type: ignore[import-untyped, unused-ignore]

    return str(re2.escape(literal))


def _compile(source: str, shown: str) -> Any:
    import re2

    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except UnicodeEncodeError as error:
        raise PatternError(f"pattern {_short(shown)} holds half a surrogate pair, which no text contains") from error
    except re2.error as error:
        raise PatternError(f"pattern {_short(shown)} cannot be used: {_explain(_said(error))}") from error


def _said(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _explain(reason: str) -> str:
    for refused, meaning in _MEANINGS:
        if refused.search(reason):
            return f"{meaning} ({reason})"
    return reason


_MEANINGS = (
    (re.compile(r"\(\?<?[=!]|perl operator: \(\?<\Z"), "look-ahead and look-behind are not supported"),
    (re.compile(r"escape sequence: \\[1-9kg]|\(\?P=|\(\?P\Z"), "back-references are not supported"),
    (re.compile(r"\(\?>|operator: [*+?]\+"), "atomic groups and possessive quantifiers are not supported, nor needed"),
    (re.compile(r"escape sequence: \\Z"), r"the end of the text is written \z"),
    (re.compile("repetition size"), "a repetition goes up to 1,000, nested ones multiplied"),
    (re.compile("too large"), "it is too large once its repetitions are written out"),
)


def _short(source: str) -> str:
    return repr(source if len(source) <= 80 else source[:77] + "...")
