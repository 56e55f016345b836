"""Text that people don't read: base64, hexadecimal digits, hex dumps, minified code, numbers, long white space."""

from __future__ import annotations

import re
from collections.abc import Iterator

SHORTEST = 200
"""Minimum number of characters of a run that counts as binary."""
MINIFIED_LINE = 2_000
"""Minimum number of characters of a line that counts as minified code."""
_ENCODED = r"(?<![A-Za-z0-9+/_-])(?:data:[\w/+.;=-]{1,80},)?[A-Za-z0-9+/_-]{200,}+={0,2}"
_RUN = re.compile(_ENCODED)
"""A run of at least `SHORTEST` characters of base64 or hexadecimal digits, in a data URL or alone."""
_CANDIDATE = re.compile(
    r"(?<!\s)\s{1000,}+"
    rf"|{_ENCODED}"
    r"|(?:^[A-Za-z0-9+/]{48,80}\r?\n){3,}+(?:[A-Za-z0-9+/]{1,80}={0,2})?"
    r"|(?:^[0-9a-fA-F]{4,8}:?[ \t]++(?:[0-9a-fA-F]{2,4}[ \t]++){4,16}[^\n]{0,40}(?:\n|\Z)){3,}+"
    r"|^[^\n]{2000,}+",
    re.M,
)
"""White space, such a run, lines of base64, a hex dump, or a line of at least `MINIFIED_LINE` characters."""
_SAMPLE = 1_000
_MARK = re.compile(r"[;{}()=,]")
_CODE_MARKS, _FEWEST_MARKS = (";", "{"), 2
"""The marks of each kind that a sample of minified code has. Records in one line lack one of the two."""
_WORD = re.compile(r"[A-Za-z]{3,}")
_WORD_SHARE = 0.2
"""The share of the characters of records that are in words. If there are fewer, they are numbers."""
_CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]")))
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
_HEX_LETTER = re.compile(r"[a-fA-F]")
_DISTINCT = 8
"""Minimum number of distinct characters of a run that encodes something."""


def binary_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of encoded text, of minified code and of long white space."""
    for match in _CANDIDATE.finditer(text):
        if match[0].isspace():
            # A line break at each end stays between the texts.
            yield match.start() + 1, match.end() - 1
        elif _is_binary(match[0]):
            yield match.start(), match.start() + len(match[0].rstrip())
        elif len(match[0]) >= MINIFIED_LINE:
            # A long line of prose or of records may have encoded text.
            for inner in _RUN.finditer(text, match.start(), match.end()):
                if _is_binary(inner[0]):
                    yield inner.span()


def is_binary(text: str) -> bool:
    """Return True if most of a text is encoded text, minified code or long white space."""
    return len(text) >= SHORTEST and 2 * sum(end - start for start, end in binary_spans(text)) > len(text)


def _is_binary(run: str) -> bool:
    sample = run[:_SAMPLE]
    if len(set(sample)) < _DISTINCT:
        return False
    blanks = sum(map(str.isspace, sample))
    if "\n" not in sample and blanks == 0 and not _MARK.search(sample[100:-2]):
        body = sample[100:] if sample.startswith("data:") else sample
        is_hex = _HEXADECIMAL.fullmatch(body) and _HEX_LETTER.search(body) and _CLASSES[2].search(body)
        return bool(is_hex) or all(pattern.search(body) for pattern in _CLASSES)
    if "\n" in sample:
        # These are lines of base64 or of a hex dump.
        return all(pattern.search(sample) for pattern in _CLASSES[::2])
    if not sample.isascii():
        return False
    is_dense = 12 * len(_MARK.findall(sample)) > len(sample) and 12 * blanks < len(sample)
    is_code = all(sample.count(mark) >= _FEWEST_MARKS for mark in _CODE_MARKS)
    return is_dense and (is_code or sum(map(len, _WORD.findall(sample))) < _WORD_SHARE * len(sample))
