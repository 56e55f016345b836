"""Regular expressions over all chunks, in time linear in the text (google-re2).

All texts are in one UTF-8 buffer, separated by line breaks, so the engine searches a hundred thousand of them in a few
calls. *Finders* search the buffer. A finder finds at least every chunk that matches. The first finder is a literal that
each match must contain. It is about ten times as fast as a general pattern. The second is the pattern itself, with `^`
and `$` at line breaks. Each candidate chunk is then checked alone, so a match never spans two chunks. If a finder has
too many false candidates, it is dropped. If no finder is left, the remaining chunks are checked one by one.

`benchmarks/search_latency.py` compares this with Chroma's own `$regex` at 100,000 chunks. The buffer takes as much
memory as the text (mapped from an index folder), and 8 bytes for each chunk. A pattern takes at most 8 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from context_agent.errors import PatternError
from context_agent.retrieval.index.text_table import TextTable

LONGEST_PATTERN = 4_096
"""The maximum number of characters in a pattern."""
_MAX_MISSES = 1_000
"""The number of false candidates after which a finder is dropped."""
_FIRST_WINDOW, _LAST_WINDOW = 1 << 16, 1 << 22
"""The minimum and maximum number of bytes that one call searches.

The window is small after a match, because some patterns read to the end of the window.
"""
_SHORTEST_LITERAL = 3


class Pattern:
    """A compiled pattern.

    It is case-sensitive unless it has `(?i)`. `.` does not match a line break unless the pattern has `(?s)`.
    """

    def __init__(self, source: str) -> None:
        """Compile a pattern.

        Args:
            source: The pattern in RE2's syntax.

        Raises:
            PatternError: If the pattern is empty, too long or malformed, or has look-around or back-references.
        """
        if not source:
            raise PatternError("the pattern is empty. Pass at least one character.")
        if len(source) > LONGEST_PATTERN:
            raise PatternError(f"the pattern must have at most {LONGEST_PATTERN:,} characters; got {len(source):,}")
        self.source = source
        self._exact = _compile(source, source)
        self.finders = self._finders()

    def matches(self, text: bytes) -> bool:
        """Return True if the pattern occurs in a UTF-8 text."""
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
r"""Parts of a pattern that `(?m)` does not apply to lines: \A, \z and (?-m). \Q is here too, because it would swallow
the closing bracket.
"""
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")


def scan(table: TextTable, pattern: Pattern) -> Iterator[int]:
    """Yield the rows that match, ascending. The search is lazy."""
    row = 0
    for finder in pattern.finders:
        misses = 0
        while misses < _MAX_MISSES:
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
    """Return the first row, starting at `row`, that the finder matches. If there is none, return the number of rows."""
    window = _FIRST_WINDOW
    while row < len(table):
        begin = int(table.starts[row])
        last = min(table.row_at(begin + window), len(table) - 1)
        if matched := finder.search(table.buffer, begin, int(table.starts[last + 1]) - 1):
            return min(table.row_at(matched.start()), last)
        row, window = last + 1, min(window * 4, _LAST_WINDOW)
    return row


def required_literal(source: str) -> str:
    """Return the longest run of characters that every match must contain.

    If the pattern ignores case, a match may have the run in upper or lower case. The function reads only the parts
    outside of groups. It returns the empty string for syntax that it does not understand, for an alternation, and for
    fewer than three characters. So it may miss a literal, but never returns a wrong one.
    """
    runs, position = [""], 0
    while position < len(source):
        token = _PATTERN_TOKEN.match(source, position)
        if token is None or token.lastgroup == "alternation":
            return ""
        position = token.end()
        match token.lastgroup:
            case "escaped" | "plain":
                runs[-1] += token.group()[-1]
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


_CHARACTER_CLASS = r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
_PATTERN_TOKEN = re.compile(
    r"(?P<escaped>\\[^a-zA-Z0-9\s])|(?P<set>\\[dDwWsSbBntrfva]|[.^$]|"
    + _CHARACTER_CLASS
    + r")|(?P<group>\()|(?P<alternation>\|)"
    r"|(?P<optional>[*?]|\{\d+(?:,\d*)?\})|(?P<repeated>\+)|(?P<plain>[^\\\[\](){}|*?+.^$])",
    re.DOTALL,
)
_IN_GROUP = re.compile(rf"\\[^QEpPx0-9]|{_CHARACTER_CLASS}|[^\\\[]", re.DOTALL)


def _end_of_group(source: str, position: int) -> int:
    """Return the end of the group whose opening bracket is before `position`. If it is unclear, return -1."""
    depth = 1
    while depth:
        token = _IN_GROUP.match(source, position)
        if token is None:
            return -1
        depth += {"(": 1, ")": -1}.get(token.group(), 0)
        position = token.end()
    return position


def _escape(literal: str) -> str:
    import re2  # type: ignore[import-untyped, unused-ignore]

    return str(re2.escape(literal))


def _compile(source: str, original: str) -> Any:
    import re2

    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except UnicodeEncodeError as error:
        raise PatternError(
            f"the pattern {_short(original)} contains a lone surrogate, which no text contains. Remove it."
        ) from error
    except re2.error as error:
        raise PatternError(f"the pattern {_short(original)} cannot be used: {_explain(_message(error))}") from error


def _message(error: Exception) -> str:
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
    (re.compile("too large"), "the pattern is too large once its repetitions are written out"),
)


def _short(source: str) -> str:
    return repr(source if len(source) <= 80 else source[:77] + "...")
