"""Text that people don't read: base64, hexadecimal digits, hex dumps, minified code, numbers, long white space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

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
    r"|(?P<octets>(?:^[ \t]*+(?:[0-9a-fA-F]{2}:){7,32}+(?:[0-9a-fA-F]{2})?+[ \t\r]*+\n){3,}+"
    r"(?:[ \t]*+(?:[0-9a-fA-F]{2}:){0,32}+[0-9a-fA-F]{2}[ \t\r]*+$)?+)"
    r"|(?:^[0-9a-fA-F]{4,8}:?[ \t]++(?:[0-9a-fA-F]{2,4}[ \t]++){4,16}[^\n]{0,40}(?:\n|\Z)){3,}+"
    r"|^[^\n]{2000,}+",
    re.M,
)
"""White space, such a run, lines of base64, the bytes of a key or of a signature as OpenSSL writes them, a hex dump, or
a line of at least `MINIFIED_LINE` characters.
"""
_DENSE_ENDS = ("\n", "}", ";", ",")
"""The marks after which a dense text is cut, the best first."""
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


class BinarySpan(NamedTuple):
    """A part of a text that people don't read.

    Attributes:
        start: The offset where it begins.
        end: The offset after it.
        is_dense: True if it is minified code, a hex dump or a line of numbers. An agent may look for something in it.
    """

    start: int
    end: int
    is_dense: bool = False


def binary_spans(text: str) -> Iterator[BinarySpan]:
    """Yield the spans of encoded text, of dense text and of long white space."""
    for match in _CANDIDATE.finditer(text):
        if match[0].isspace():
            # A line break at each end stays between the texts.
            yield BinarySpan(match.start() + 1, match.end() - 1)
        elif match["octets"]:
            yield BinarySpan(match.start(), match.start() + len(match[0].rstrip()))
        elif (dense := _is_dense_run(match[0])) or _is_encoded_run(match[0]):
            yield BinarySpan(match.start(), match.start() + len(match[0].rstrip()), dense)
        elif len(match[0]) >= MINIFIED_LINE:
            # A long line of prose or of records may have encoded text.
            for inner in _RUN.finditer(text, match.start(), match.end()):
                if _is_encoded_run(inner[0]):
                    yield BinarySpan(*inner.span())


def is_encoded(text: str) -> bool:
    """Return True if most of a text is encoded text or long white space."""
    return _consists_of(text, is_dense=False)


def is_dense(text: str) -> bool:
    """Return True if most of a text is minified code, a hex dump or a line of numbers."""
    return _consists_of(text, is_dense=True)


def _consists_of(text: str, *, is_dense: bool) -> bool:
    if len(text) < SHORTEST:
        return False
    return 2 * sum(span.end - span.start for span in binary_spans(text) if span.is_dense == is_dense) > len(text)


def dense_parts(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield parts of a dense text of at most `size` characters.

    They end with a line, or else with a block of code, a statement or an item.
    """
    while end - start > size:
        ends = (text.rfind(mark, start + size // 2, start + size) + 1 for mark in _DENSE_ENDS)
        cut_at = next(filter(None, ends), start + size)
        yield start, cut_at
        start = cut_at
    yield start, end


def _is_encoded_run(run: str) -> bool:
    """Return True if a run is base64 or hexadecimal digits."""
    sample = run[:_SAMPLE]
    if len(set(sample)) < _DISTINCT or " " in sample:
        return False
    if "\n" in sample:
        return _has_digits_and_letters(sample)
    if _MARK.search(sample[100:-2]) or any(map(str.isspace, sample)):
        return False
    body = sample[100:] if sample.startswith("data:") else sample
    is_hex = _HEXADECIMAL.fullmatch(body) and _HEX_LETTER.search(body) and _CLASSES[2].search(body)
    return bool(is_hex) or all(pattern.search(body) for pattern in _CLASSES)


def _is_dense_run(run: str) -> bool:
    """Return True if a run is a hex dump, or a line of minified code or of numbers."""
    sample = run[:_SAMPLE]
    if len(set(sample)) < _DISTINCT:
        return False
    if "\n" in sample:
        return " " in sample and _has_digits_and_letters(sample)
    if not sample.isascii():
        return False
    is_marked = 12 * len(_MARK.findall(sample)) > len(sample) and 12 * sum(map(str.isspace, sample)) < len(sample)
    is_code = all(sample.count(mark) >= _FEWEST_MARKS for mark in _CODE_MARKS)
    return is_marked and (is_code or sum(map(len, _WORD.findall(sample))) < _WORD_SHARE * len(sample))


def _has_digits_and_letters(sample: str) -> bool:
    """Return True if lines that look like base64 or like a hex dump have digits and small letters."""
    return all(pattern.search(sample) for pattern in _CLASSES[::2])
