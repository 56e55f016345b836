"""Whether a quote stands in a text: a cascade of ever looser comparisons, each of which says where it found it.

The steps are those of the published pipeline (Context-1, section 2): exact, whitespace folded, links stripped,
punctuation normalised, first five long words in order. What the report leaves open is decided for precision:

- A quote ends at the ends of words: "art" is not found in "party". Scripts without spaces are exempt.
- Punctuation, case and Unicode forms go together; a mark between letters is dropped, any other is a space.
- The five words must follow one another in the text with no other telling word between them, and the quote's further
  telling words behind them, in order and nearby. So small words may differ and the quote may skip some text, but a
  word that the text does not have makes it a paraphrase. Numbers and negations tell whatever their length.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

LONG = 4
"""Letters from which on a word is telling."""
FIRST = 5
"""Telling words that must follow one another."""
REACH = 3
"""How many telling words of the text may be passed over for each further word of the quote."""

# Markdown (images too), wiki links with or without a label, HTML tags and comments, bare addresses, footnote marks.
_LINK = re.compile(
    r"!?\[(?P<label>(?:[^\[\]\n]|\[[^\[\]\n]*\]){0,500})\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s+\"[^\"\n]*\")?\)|\[[^\[\]\n]{0,200}\])"
    r"|\[\[(?:[^\[\]|\n]{0,300}\|)?(?P<name>[^\[\]|\n]{1,300})\]\]"
    r"|<!--.*?-->|</?[A-Za-z][^<>]{0,2000}>"
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


class Step(StrEnum):
    """The comparison by which a quote was found, strictest first."""

    EXACT = "exact"
    WHITESPACE = "whitespace"
    LINKS = "links"
    PUNCTUATION = "punctuation"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class Match:
    """Where a quote was found: `text[start:end]` of the original text, in characters."""

    step: Step
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Folded:
    """A text in another form; `origin[i]` is where its character `i` came from, one entry more than characters."""

    text: str
    origin: Sequence[int]


def find(quote: str, text: str) -> Match | None:
    """The first place where the quote stands in the text, by the strictest step that finds it; None where none does.

    A quote without a letter or digit is found nowhere.
    """
    if not any(char.isalnum() for char in quote):
        return None
    at = _locate(quote, text)
    if at is not None:
        return Match(Step.EXACT, *at)
    for step, fold in _FOLDS:
        source, wanted = fold(text), fold(quote).text
        at = _locate(wanted, source.text) if wanted else None
        if at is not None:
            return Match(step, *_span(source, *at))
    return _by_words(_punctuation(quote).text, _punctuation(text))


def found(quotes: Sequence[str], text: str) -> int:
    """How many of the quotes stand in the text."""
    return sum(find(quote, text) is not None for quote in quotes)


def plain(text: str) -> str:
    """The text as the fourth step compares it: no links, marks and case; words with single spaces between them."""
    return _punctuation(text).text


def _locate(wanted: str, text: str) -> tuple[int, int] | None:
    """The first occurrence that begins and ends where words do."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _joined(text, start) and not _joined(text, end):
            return start, end
        start = text.find(wanted, start + 1)
    return None


def _joined(text: str, at: int) -> bool:
    """Whether a word goes on across this place."""
    if not 0 < at < len(text):
        return False
    left, right = text[at - 1], text[at]
    return _is_part(left) and _is_part(right) and not _UNSPACED.match(left) and not _UNSPACED.match(right)


def _is_part(char: str) -> bool:
    return char.isalnum() or unicodedata.combining(char) > 0


def _span(source: _Folded, start: int, end: int) -> tuple[int, int]:
    """The place in the original. The end is taken from the last character: what was stripped behind it stays out."""
    return source.origin[start], source.origin[end - 1] + 1


def _assembled(parts: Iterator[tuple[str, int]], length: int) -> _Folded:
    """A text from characters with their origins; runs of spaces become one, and none stands at either end."""
    chars: list[str] = []
    origin = array("l")
    pending = -1
    for char, place in parts:
        if char == " ":
            pending = place if pending < 0 else pending
            continue
        if pending >= 0 and chars:
            chars.append(" ")
            origin.append(pending)
        pending = -1
        chars.append(char)
        origin.append(place)
    origin.append(length)
    return _Folded("".join(chars), origin)


@lru_cache(maxsize=64)
def _whitespace(text: str) -> _Folded:
    return _assembled(((" " if char.isspace() else char, place) for place, char in enumerate(text)), len(text))


@lru_cache(maxsize=64)
def _links(text: str) -> _Folded:
    kept = ((char, place) for char, place in _unlinked(text))
    return _assembled(((" " if char.isspace() else char, place) for char, place in kept), len(text))


@lru_cache(maxsize=64)
def _punctuation(text: str) -> _Folded:
    return _assembled(_plain(_unlinked(text)), len(text))


_FOLDS: tuple[tuple[Step, Callable[[str], _Folded]], ...] = (
    (Step.WHITESPACE, _whitespace),
    (Step.LINKS, _links),
    (Step.PUNCTUATION, _punctuation),
)


def _unlinked(text: str) -> Iterator[tuple[str, int]]:
    """The characters a reader sees: the labels of links, nothing of tags and addresses."""
    yield from _visible(text, 0, len(text), depth=3)


def _visible(text: str, start: int, end: int, *, depth: int) -> Iterator[tuple[str, int]]:
    """As `_unlinked`, for a stretch. A label may hold a link of its own (an image in a link), `depth` levels deep."""
    done = start
    for match in _LINK.finditer(text, start, end) if depth else ():
        yield from zip(text[done : match.start()], range(done, match.start()), strict=True)
        group = "label" if match["label"] is not None else "name"
        if match[group] is not None:
            yield from _visible(text, *match.span(group), depth=depth - 1)
        done = match.end()
    yield from zip(text[done:end], range(done, end), strict=True)


def _plain(chars: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for char, place in chars:
        for plain in _forms(char):
            yield plain, place


@lru_cache(maxsize=4096)
def _forms(char: str) -> str:
    """A character as letters, digits and spaces: decomposed and without case; marks are spaces, apostrophes nothing."""
    if char in _INVISIBLE or char in _APOSTROPHES:
        return ""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(one if _is_part(one) else " " for one in plain)


def _by_words(quote: str, source: _Folded) -> Match | None:
    """The last step of the cascade, on texts without punctuation and case."""
    wanted = [word for word in quote.split() if _tells(word)]
    if len(wanted) < FIRST:
        return None
    places = [(match[0], match.start(), match.end()) for match in _WORD.finditer(source.text) if _tells(match[0])]
    words = [word for word, _, _ in places]
    first, rest = wanted[:FIRST], wanted[FIRST:]
    for at in range(len(words) - FIRST + 1):
        if words[at : at + FIRST] == first and (last := _follows(rest, words, at + FIRST)) is not None:
            return Match(Step.WORDS, *_span(source, places[at][1], places[last][2]))
    return None


def _tells(word: str) -> bool:
    return len(word) >= LONG or word in _NEGATIONS or any(char.isdigit() for char in word)


def _follows(rest: Sequence[str], words: Sequence[str], start: int) -> int | None:
    """The index of the last of the `rest`, where all of them stand from `start` on, in order and nearby."""
    at = start
    for word in rest:
        place = next((index for index in range(at, min(len(words), at + REACH + 1)) if words[index] == word), None)
        if place is None:
            return None
        at = place + 1
    return at - 1
