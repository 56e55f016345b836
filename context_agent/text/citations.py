"""Citations of numbered passages in a text, such as [1] or [2, 3], and a check that the passages support the text.

Models also cite in forms that they were trained on, such as [1-3], [^1], [Passage 1] and 【1†source】. They count too.
Brackets and quotation marks in code are code.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from context_agent.text.fences import fenced_spans
from context_agent.text.passages import NumberedPassage
from context_agent.text.sentences import BOUNDARY, ends_sentence
from context_agent.text.words import words

MIN_QUOTED_WORDS = 4
"""A quotation with fewer words is not checked, because most short quotations are names or titles."""
QUOTATION = re.compile(r'"([^"]{1,1000})"|“([^“”]{1,1000})”|„([^„“”]{1,1000})[“”]|«([^«»]{1,1000})»')
LONGEST_RANGE = 100
"""Passages in the longest range of a citation. Of a longer range, only the ends count."""
NAMED_PASSAGES = 5
"""The number of missing passages that a mark names."""
_RANGE = r"\d{1,6}(?:(?<!\d{4})(?<!\D0)\s{0,2}[-‐-―]\s{0,2}\d{1,3}(?!\d))?"
"""A number, or a range of numbers with at most three digits. Longer numbers in a range are years.

A range from 0, such as [0-100], is an interval.
"""
_CITATION = re.compile(
    r"[\[【［](?:\^|(?:passages?|sources?|documents?|docs?)\s{1,2})?"
    rf"({_RANGE}(?:\s{{0,2}}(?:[,;&]|and\b)\s{{0,2}}{_RANGE})*+)(?:†[^\[\]【】\n]{{0,200}}+)?[\]】］]",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"(\d+)(?:\s*[-‐-―]\s*(\d+))?")
_INLINE_CODE = re.compile(r"`[^`\n]{1,200}+`")
_ELLIPSIS = re.compile(r"(?:(?<!\s)\s++)?\[?(?:\.\.\.|…)\]?\s*+")


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation at `text[start:end]`, and the numbers of the passages that it names."""

    start: int
    end: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CitationProblem:
    """A citation or quotation that was marked in an answer, as written, and the reason for the mark."""

    text: str
    reason: str


def citations(text: str) -> Iterator[Citation]:
    """Yield the citations in a text outside code, in order."""
    return _citations(text, 0, _CodeSpans(text))


def _citations(text: str, start: int, code: _CodeSpans) -> Iterator[Citation]:
    for match in _CITATION.finditer(text, start):
        if match.start() not in code:
            yield Citation(match.start(), match.end(), tuple(_numbers(match[1])))


def _numbers(listed: str) -> Iterator[int]:
    """Yield the numbers of a list of numbers and ranges."""
    for match in _NUMBERS.finditer(listed):
        first, last = int(match[1]), int(match[2] or match[1])
        yield from range(first, last + 1) if 0 <= last - first < LONGEST_RANGE else (first, last)


class _CodeSpans:
    """The positions of code in a Markdown text: blocks between fences, and code between backticks in a line."""

    def __init__(self, text: str) -> None:
        spans = sorted([*fenced_spans(text), *(match.span() for match in _INLINE_CODE.finditer(text))])
        self._starts = [start for start, _ in spans]
        self._ends = list(accumulate((end for _, end in spans), max))

    def __contains__(self, position: int) -> bool:
        index = bisect_right(self._starts, position) - 1
        return index >= 0 and position < self._ends[index]


def check_citations(
    text: str, passages: Sequence[NumberedPassage], *, before: str = ""
) -> tuple[str, list[CitationProblem]]:
    """Mark the citations and quotations that the passages do not support.

    A citation is marked if it names a passage that does not exist. A quotation is marked if no passage has its words.
    If the sentence cites passages after the quotation, only these are searched. Otherwise all passages are searched.

    Args:
        text: An answer with citations such as [1].
        passages: The passages that the answer may cite.
        before: The part of the answer before the text. If it ends inside a block of code, the text begins inside.

    Returns:
        The text with a mark after each problem, and the problems.

    Example:
        >>> passage = NumberedPassage(1, "light", "Orm Skerry Light", "It was lit in 1868.")
        >>> check_citations("It was lit in 1868 [2].", [passage])[0]
        'It was lit in 1868 [2] [unconfirmed: there is no passage 2].'
    """
    by_number = {passage.number: passage for passage in passages}
    whole, start = before + text, len(before)
    code = _CodeSpans(whole)
    plain_text = cache(lambda number: _plain(by_number[number].text))
    found = list(_citations(whole, start, code))
    marks: list[tuple[int, CitationProblem]] = []
    for citation in found:
        if unknown := [number for number in citation.numbers if number not in by_number]:
            problem = CitationProblem(whole[citation.start : citation.end], f"there is no passage {_named(unknown)}")
            marks.append((citation.end, problem))
    for match in QUOTATION.finditer(whole, start):
        quote = next(filter(None, match.groups()))
        if match.start() in code or len(words(quote)) < MIN_QUOTED_WORDS:
            continue
        numbers = [number for number in _cited_after(whole, match.end(), found) if number in by_number]
        if not any(_contains(plain_text(number), quote) for number in numbers or by_number):
            where = f"passage {_named(numbers)}" if numbers else "the passages"
            marks.append((match.end(), CitationProblem(match[0], f"these words are not in {where}")))
    marked, last = "", start
    for end, problem in sorted(marks, key=lambda mark: mark[0]):
        marked += f"{whole[last:end]} [unconfirmed: {problem.reason}]"
        last = end
    return marked + whole[last:], [problem for _, problem in marks]


def _named(numbers: Sequence[int]) -> str:
    more = len(numbers) - NAMED_PASSAGES
    return ", ".join(map(str, numbers[:NAMED_PASSAGES])) + (f" and {more} more" if more > 0 else "")


def _cited_after(text: str, position: int, found: Sequence[Citation]) -> tuple[int, ...]:
    """Return the passage numbers of the first citation after a position, before the end of its sentence or line.

    A citation may follow directly after the end. If another quotation begins before it, or there is no such citation,
    return an empty tuple.

    Args:
        text: The text.
        position: The position.
        found: All citations in the text, in order.
    """
    following = QUOTATION.search(text, position)
    end = following.start() if following else len(text)
    for boundary in BOUNDARY.finditer(text, position, end):
        is_end = "\n" in boundary[0] or ends_sentence(text, 0, boundary.start(), boundary.end())
        if is_end and not _CITATION.match(text, boundary.end()):
            end = boundary.start()
            break
    first = bisect_left(found, position, key=lambda citation: citation.start)
    return next((citation.numbers for citation in found[first : first + 1] if citation.end <= end), ())


def _contains(plain: str, quote: str) -> bool:
    """Return True if a text contains all parts of a quotation, in any order.

    The comparison ignores letter case, spaces and typography. The text has gone through `_plain`.
    """
    return all(part in plain for part in map(_plain, _ELLIPSIS.split(quote)) if part)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
