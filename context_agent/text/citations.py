"""Citations of numbered passages in a text, such as [1] or [2, 3], and a check that the passages support the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from context_agent.text.passages import NumberedPassage
from context_agent.text.sentences import BOUNDARY, ends_sentence
from context_agent.text.words import words

MIN_QUOTED_WORDS = 4
"""A quotation with fewer words is not checked, because most short quotations are names or titles."""
QUOTATION = re.compile(r'"([^"]{1,1000})"|“([^“”]{1,1000})”|„([^„“”]{1,1000})[“”]|«([^«»]{1,1000})»')
_CITATION = re.compile(r"\[(\d{1,6}(?:\s*[,;]\s*\d{1,6})*+)\]")
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


def citations(text: str, start: int = 0, end: int | None = None) -> Iterator[Citation]:
    """Yield the citations in `text[start:end]`, in order."""
    for match in _CITATION.finditer(text, start, len(text) if end is None else end):
        yield Citation(match.start(), match.end(), tuple(map(int, re.findall(r"\d+", match[1]))))


def check_citations(text: str, passages: Sequence[NumberedPassage]) -> tuple[str, list[CitationProblem]]:
    """Mark the citations and quotations that the passages do not support.

    A citation is marked if it names a passage that does not exist. A quotation is marked if no passage has its words.
    If the sentence cites passages after the quotation, only these are searched. Otherwise all passages are searched.

    Args:
        text: An answer with citations such as [1].
        passages: The passages that the answer may cite.

    Returns:
        The text with a mark after each problem, and the problems.

    Example:
        >>> passage = NumberedPassage(1, "light", "Orm Skerry Light", "It was lit in 1868.")
        >>> check_citations("It was lit in 1868 [2].", [passage])[0]
        'It was lit in 1868 [2] [unconfirmed: there is no passage 2].'
    """
    by_number = {passage.number: passage for passage in passages}
    marks: list[tuple[int, CitationProblem]] = []
    for citation in citations(text):
        unknown = [number for number in citation.numbers if number not in by_number]
        if unknown:
            names = ", ".join(map(str, unknown))
            problem = CitationProblem(text[citation.start : citation.end], f"there is no passage {names}")
            marks.append((citation.end, problem))
    for match in QUOTATION.finditer(text):
        quote = next(filter(None, match.groups()))
        if len(words(quote)) < MIN_QUOTED_WORDS:
            continue
        numbers = [number for number in _cited_after(text, match.end()) if number in by_number]
        if not any(_contains(by_number[number].text, quote) for number in numbers or by_number):
            where = f"passage {', '.join(map(str, numbers))}" if numbers else "the passages"
            marks.append((match.end(), CitationProblem(match[0], f"these words are not in {where}")))
    marked, last = "", 0
    for end, problem in sorted(marks, key=lambda mark: mark[0]):
        marked += f"{text[last:end]} [unconfirmed: {problem.reason}]"
        last = end
    return marked + text[last:], [problem for _, problem in marks]


def _cited_after(text: str, position: int) -> tuple[int, ...]:
    """Return the passage numbers of the first citation after a position, before the end of its sentence or line.

    A citation may follow directly after the end. If another quotation begins before it, or there is no such citation,
    return an empty tuple.
    """
    following = QUOTATION.search(text, position)
    end = following.start() if following else len(text)
    for boundary in BOUNDARY.finditer(text, position, end):
        is_end = "\n" in boundary[0] or ends_sentence(text, 0, boundary.start(), boundary.end())
        if is_end and not _CITATION.match(text, boundary.end()):
            end = boundary.start()
            break
    return next((citation.numbers for citation in citations(text, position, end)), ())


def _contains(text: str, quote: str) -> bool:
    """Return True if a text contains all parts of a quotation, in any order.

    The comparison ignores letter case, spaces and typography.
    """
    plain = _plain(text)
    return all(part in plain for part in map(_plain, _ELLIPSIS.split(quote)) if part)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
