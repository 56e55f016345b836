"""Search for a quote in a text.

`find_quote` applies the comparisons of the published pipeline (Context-1, section 2). From strict to loose they are:
exact, whitespace folded, links stripped, punctuation normalized, first five long words in order. The report leaves some
points open. This module decides them in favor of precision:

- A quote starts and ends at word boundaries, so "art" is not found in "party". Scripts without spaces are exempt.
- Punctuation, case and Unicode forms are normalized together. A mark between letters is dropped. Other marks become
  spaces.
- In the text, the five words must follow one another without another content word between them. The quote's other
  content words must follow in order and nearby. So function words may differ, and the quote may skip text. A word that
  the text lacks makes the quote a paraphrase. Numbers and negations are content words whatever their length.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice

TELLING_LENGTH = 4
"""The length of the shortest content word, in letters."""


LEADING_WORDS = 5
"""The number of content words that must follow one another."""


SKIPPED_WORDS = 3
"""The number of content words of the text that may be skipped before each further word of the quote."""


# Matches Markdown links and images, wiki links, HTML tags and comments, bare addresses, and footnote marks.
_LINK = re.compile(
    r"!?\[(?P<label>(?:[^\[\]\n]|\[[^\[\]\n]*\]){0,500})\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*+(?:\s+\"[^\"\n]*\")?\)|\[[^\[\]\n]{0,200}\])"
    r"|\[\[(?:[^\[\]|\n]{0,300}\|)?(?P<name>[^\[\]|\n]{1,300})\]\]"
    r"|<!--(?:(?!<!--|-->).)*+-->|</?[A-Za-z][^<>]{0,2000}>"
    r"|<?https?://[^\s<>()\[\]]+>?"
    r"|\[\^?\d{1,4}\]",
    re.S,
)


_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


_WORD = re.compile(r"\S+")


_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")


_APOSTROPHES = frozenset("'\u2018\u2019\u02bc\u2032`\u00b4")


_NEGATIONS = frozenset(["no", "not", "nor", "non", "never", "without", "none", "cannot"])


LONGEST_QUOTE, MOST_PLACES = 5_000, 200
"""The largest length of a quote in characters, and the number of places where its first words are tried.

A text may repeat the first words of a quote many times.
"""


class MatchStep(StrEnum):
    """The comparison that found a quote. The strictest comparison comes first."""

    EXACT = "exact"
    WHITESPACE = "whitespace"
    LINKS = "links"
    PUNCTUATION = "punctuation"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class QuoteMatch:
    """The position of a quote: `text[start:end]` of the original text, in characters."""

    step: MatchStep
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _FoldedText:
    """A text in another form.

    `origin[i]` is the position of character `i` in the original text. One more entry gives the end of the original
    text.
    """

    text: str
    origin: Sequence[int]


def find_quote(quote: str, text: str) -> QuoteMatch | None:
    """Return the first match of the quote in the text. If there is none, return None.

    The strictest comparison that finds a match determines it. A quote without a letter or digit, or with more than
    `LONGEST_QUOTE` characters, is never found.
    """
    if len(quote) > LONGEST_QUOTE or not any(char.isalnum() for char in quote):
        return None
    at = _locate(quote, text)
    if at is not None:
        return QuoteMatch(MatchStep.EXACT, *at)
    for step, fold in _FOLDS:
        source, needle = fold(text), fold(quote).text
        at = _locate(needle, source.text) if needle else None
        if at is not None:
            return QuoteMatch(step, *_span(source, *at))
    return _by_words(_fold_punctuation(quote).text, _fold_punctuation(text))


def count_quotes(quotes: Sequence[str], text: str) -> int:
    """Return the number of quotes that the text contains."""
    return sum(find_quote(quote, text) is not None for quote in quotes)


def normalize(text: str) -> str:
    """Return the text in the form that the fourth comparison uses.

    Links, punctuation and case are removed, and one space separates two words.
    """
    return _fold_punctuation(text).text


def _locate(needle: str, text: str) -> tuple[int, int] | None:
    """Return the start and end of the first occurrence at word boundaries. If there is none, return None."""
    start = text.find(needle)
    while start >= 0:
        end = start + len(needle)
        if not _joined(text, start) and not _joined(text, end):
            return start, end
        start = text.find(needle, start + 1)
    return None


def _joined(text: str, at: int) -> bool:
    """Return True if the position is inside a word."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    return _is_part(before) and _is_part(after) and not _UNSPACED.match(before) and not _UNSPACED.match(after)


def _is_part(char: str) -> bool:
    return char.isalnum() or unicodedata.combining(char) > 0


def _span(source: _FoldedText, start: int, end: int) -> tuple[int, int]:
    """Return the span in the original text.

    The span ends directly after its last character, so it excludes text that was stripped after that character.
    """
    return source.origin[start], source.origin[end - 1] + 1


def _assembled(parts: Iterator[tuple[str, int]], length: int) -> _FoldedText:
    """Return a text from characters with their positions.

    Runs of spaces become one space, and both ends are trimmed.
    """
    chars: list[str] = []
    origin = array("l")
    pending = -1
    for char, position in parts:
        if char == " ":
            pending = position if pending < 0 else pending
            continue
        if pending >= 0 and chars:
            chars.append(" ")
            origin.append(pending)
        pending = -1
        chars.append(char)
        origin.append(position)
    origin.append(length)
    return _FoldedText("".join(chars), origin)


@lru_cache(maxsize=64)
def _fold_whitespace(text: str) -> _FoldedText:
    return _assembled(((" " if char.isspace() else char, position) for position, char in enumerate(text)), len(text))


@lru_cache(maxsize=64)
def _fold_links(text: str) -> _FoldedText:
    visible = ((char, position) for char, position in _visible_text(text))
    return _assembled(((" " if char.isspace() else char, position) for char, position in visible), len(text))


@lru_cache(maxsize=64)
def _fold_punctuation(text: str) -> _FoldedText:
    return _assembled(_normalized_chars(_visible_text(text)), len(text))


_FOLDS: tuple[tuple[MatchStep, Callable[[str], _FoldedText]], ...] = (
    (MatchStep.WHITESPACE, _fold_whitespace),
    (MatchStep.LINKS, _fold_links),
    (MatchStep.PUNCTUATION, _fold_punctuation),
)


def _visible_text(text: str) -> Iterator[tuple[str, int]]:
    """Yield the characters that a reader sees, with their positions.

    Links appear as their labels, without tags or addresses.
    """
    yield from _visible(text, 0, len(text), depth=3)


def _visible(text: str, start: int, end: int, *, depth: int) -> Iterator[tuple[str, int]]:
    """Yield the visible characters of a span. A label may contain links, nested up to `depth` levels."""
    done = start
    for match in _LINK.finditer(text, start, end) if depth else ():
        yield from zip(text[done : match.start()], range(done, match.start()), strict=True)
        group = "label" if match["label"] is not None else "name"
        if match[group] is not None:
            yield from _visible(text, *match.span(group), depth=depth - 1)
        done = match.end()
    yield from zip(text[done:end], range(done, end), strict=True)


def _normalized_chars(chars: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for char, position in chars:
        for plain in _normalized_char(char):
            yield plain, position


@lru_cache(maxsize=4096)
def _normalized_char(char: str) -> str:
    """Return a character as letters, digits and spaces, decomposed and without case. Apostrophes are removed."""
    if char in _INVISIBLE or char in _APOSTROPHES:
        return ""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(part if _is_part(part) else " " for part in plain)


def _by_words(quote: str, source: _FoldedText) -> QuoteMatch | None:
    """Return the match by the last comparison, which ignores punctuation and case."""
    quote_words = [word for word in quote.split() if _tells(word)]
    if len(quote_words) < LEADING_WORDS:
        return None
    text_words = [(match[0], match.start(), match.end()) for match in _WORD.finditer(source.text) if _tells(match[0])]
    words = [word for word, _, _ in text_words]
    first, rest = quote_words[:LEADING_WORDS], quote_words[LEADING_WORDS:]
    positions = range(len(words) - LEADING_WORDS + 1)
    places = (at for at in positions if words[at] == first[0] and words[at : at + LEADING_WORDS] == first)
    for at in islice(places, MOST_PLACES):
        if (last := _follows(rest, words, at + LEADING_WORDS)) is not None:
            return QuoteMatch(MatchStep.WORDS, *_span(source, text_words[at][1], text_words[last][2]))
    return None


def _tells(word: str) -> bool:
    return len(word) >= TELLING_LENGTH or word in _NEGATIONS or any(char.isdigit() for char in word)


def _follows(rest: Sequence[str], words: Sequence[str], start: int) -> int | None:
    """Return the index in `words` at which the last word of `rest` was found.

    The search begins at the index `start`. If not all words follow, in order and nearby, return None.
    """
    at = start
    for word in rest:
        found_at = next(
            (index for index in range(at, min(len(words), at + SKIPPED_WORDS + 1)) if words[index] == word), None
        )
        if found_at is None:
            return None
        at = found_at + 1
    return at - 1
