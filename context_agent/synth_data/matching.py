"""Whether a text contains a quote, an answer or a fact.

**Quotes.** `find_quote` applies the comparisons of the published pipeline (Context-1, section 2) from strict to loose:
exact, whitespace folded, links stripped, punctuation normalized, first five long words in order. What the report leaves
open is decided for precision:

- A quote starts and ends at word boundaries: "art" is not found in "party". Scripts without spaces are exempt.
- Punctuation, case and Unicode forms are normalized together. A mark between letters is dropped, others become spaces.
- The five words must follow one another in the text without another content word between them; the quote's other
  content words must follow in order and nearby. So function words may differ and the quote may skip text, but a word
  that the text lacks makes it a paraphrase. Numbers and negations are content words whatever their length.

**Answers.** `states_answer` is strict: the answer, its aliases, and numbers and dates in other notations; a gold
document must pass it. `reveals_answer` is loose: a surname alone, initials, a text without accents; a distractor, a
clue or a question must not pass it. `eval.answers` scores answers that people wrote and does not depend on this module.

**Facts.** If a corpus repeats itself, a fact is found by any chunk that states it, so the gold of a fact is a list of
chunk ids. A chunk states a quote if it has the quote's words, or if one of its sentences or table rows has every number
of the quote and most of its other words. A quote without numbers is only restated by its words.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice

from context_agent.retrieval.corpus import CANDIDATES, Corpus
from context_agent.text.normalization import normal_form
from context_agent.text.sentences import sentences
from context_agent.types import Chunk

TELLING_LENGTH = 4
"""Letters from which a word is a content word."""
LEADING_WORDS = 5
"""Content words that must follow one another."""
SKIPPED_WORDS = 3
"""Content words of the text that may be skipped before each further word of the quote."""

# Markdown (images too), wiki links with or without a label, HTML tags and comments, bare addresses, footnote marks.
_LINK = re.compile(
    r"!?\[(?P<label>(?:[^\[\]\n]|\[[^\[\]\n]*\]){0,500})\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s+\"[^\"\n]*\")?\)|\[[^\[\]\n]{0,200}\])"
    r"|\[\[(?:[^\[\]|\n]{0,300}\|)?(?P<name>[^\[\]|\n]{1,300})\]\]"
    r"|<!--(?:(?!<!--).)*?-->|</?[A-Za-z][^<>]{0,2000}>"
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
"""Characters of a quote, and the places of its first words in a text that are tried, because a text may repeat them."""


class MatchStep(StrEnum):
    """The comparison that found a quote, strictest first."""

    EXACT = "exact"
    WHITESPACE = "whitespace"
    LINKS = "links"
    PUNCTUATION = "punctuation"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class QuoteMatch:
    """A quote's position: `text[start:end]` of the original text, in characters."""

    step: MatchStep
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _FoldedText:
    """A text in another form.

    `origin[i]` is the position of character `i` in the original, with one more entry for the end.
    """

    text: str
    origin: Sequence[int]


def find_quote(quote: str, text: str) -> QuoteMatch | None:
    """Return the first match of the quote in the text by the strictest step that finds one, else None.

    A quote without a letter or digit is never found, nor one of more than `LONGEST_QUOTE` characters.
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
    """Return how many of the quotes the text contains."""
    return sum(find_quote(quote, text) is not None for quote in quotes)


def normalize(text: str) -> str:
    """Return the text as the fourth step compares it: no links, punctuation or case, single spaces between words."""
    return _fold_punctuation(text).text


def _locate(needle: str, text: str) -> tuple[int, int] | None:
    """Return the first occurrence at word boundaries."""
    start = text.find(needle)
    while start >= 0:
        end = start + len(needle)
        if not _joined(text, start) and not _joined(text, end):
            return start, end
        start = text.find(needle, start + 1)
    return None


def _joined(text: str, at: int) -> bool:
    """Return whether the position is inside a word."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    return _is_part(before) and _is_part(after) and not _UNSPACED.match(before) and not _UNSPACED.match(after)


def _is_part(char: str) -> bool:
    return char.isalnum() or unicodedata.combining(char) > 0


def _span(source: _FoldedText, start: int, end: int) -> tuple[int, int]:
    """Return the span in the original. The end follows the last character, so stripped text after it is excluded."""
    return source.origin[start], source.origin[end - 1] + 1


def _assembled(parts: Iterator[tuple[str, int]], length: int) -> _FoldedText:
    """Return a text from characters with their positions; runs of spaces become one, and both ends are trimmed."""
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
    """Yield the characters that a reader sees, with positions: the labels of links, no tags and addresses."""
    yield from _visible(text, 0, len(text), depth=3)


def _visible(text: str, start: int, end: int, *, depth: int) -> Iterator[tuple[str, int]]:
    """As `_visible_text`, for a span. A label may contain links (an image in a link), nested `depth` levels."""
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
    """Return a character as letters, digits and spaces, decomposed and without case; apostrophes vanish."""
    if char in _INVISIBLE or char in _APOSTROPHES:
        return ""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(part if _is_part(part) else " " for part in plain)


def _by_words(quote: str, source: _FoldedText) -> QuoteMatch | None:
    """Return the last step, on texts without punctuation and case."""
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
    """Return the index of the last word of `rest` if all of them stand from `start` on, in order and nearby; else
    None.
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


MONTHS = "january february march april may june july august september october november december".split()
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_ORDINALS = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_WORDS = {
    **{word: value for value, word in enumerate(_UNITS)},
    **{word: 20 + 10 * number for number, word in enumerate(_TENS)},
    **{
        f"{ten} {unit}": 20 + 10 * number + value
        for number, ten in enumerate(_TENS)
        for value, unit in enumerate(_UNITS[:10])
        if value
    },
}
_NAMES = {value: word for word, value in _WORDS.items()}
_ARTICLES = ("the ", "a ", "an ")
_MONTH = "|".join([*MONTHS, *(month[:3] for month in MONTHS)])
_DAY_FIRST = re.compile(rf"(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\.?,?\s+(\d{{4}})", re.I)
_MONTH_FIRST = re.compile(rf"({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})", re.I)
_ISO = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_GROUPED = re.compile(r"(?<=\d)[,\u00a0\u202f'’ ](?=\d{3}(?!\d))")
_SCALED = re.compile(rf"(?<!\d)(\d++(?:\.\d++)?)\s*+({'|'.join(SCALES)})\b", re.I)


def states_answer(text: str, answer: str, aliases: Iterable[str] = ()) -> bool:
    """Return whether the text states the answer or one of its aliases."""
    accepted = [form for name in (answer, *aliases) for form in answer_forms(name)]
    return _any_stands(accepted, _canonical(text))


def reveals_answer(text: str, answer: str, aliases: Iterable[str] = ()) -> bool:
    """Return whether the text states the answer, or enough of it to guess."""
    revealing = [
        _without_accents(form) for name in (answer, *aliases) for form in (*answer_forms(name), *_partial(name))
    ]
    return _any_stands(revealing, _without_accents(_canonical(text)))


@lru_cache(maxsize=1024)
def answer_forms(answer: str) -> tuple[str, ...]:
    """Return the notations of the answer, normalized."""
    canonical = _canonical(answer)
    distinct = dict.fromkeys([canonical, *_without_article(canonical), *_numbers(canonical), *_dates(answer)])
    return tuple(form for form in distinct if form)


def _any_stands(phrases: Sequence[str], text: str) -> bool:
    padded = f" {text} "
    return any(f" {form} " in padded or _stands_unspaced(form, text) for form in phrases if form)


def _stands_unspaced(form: str, text: str) -> bool:
    """For scripts that put no spaces between words."""
    return not form.isascii() and form in text and any(char >= "\u0e00" for char in form)


@lru_cache(maxsize=256)
def _canonical(text: str) -> str:
    """Normalized text with ungrouped numbers in digits."""
    ungrouped = _GROUPED.sub("", text)
    scaled = _SCALED.sub(lambda match: _scaled(match[1], match[2]), ungrouped)
    return normalize(scaled)


def _scaled(number: str, scale: str) -> str:
    value = float(number) * SCALES[scale.lower()]
    return str(int(value)) if value == int(value) else f"{number} {scale}"


def _without_article(form: str) -> Iterator[str]:
    for article in _ARTICLES:
        if form.startswith(article):
            yield form.removeprefix(article)


def _numbers(form: str) -> Iterator[str]:
    """`twelve` for `12` and `12` for `twelve`, `12th` for `twelfth` and back; units stay."""
    first, _, rest = form.partition(" ")
    tail = f" {rest}" if rest else ""
    if first.isdigit() and int(first) in _NAMES:
        yield _NAMES[int(first)] + tail
    ordinal = re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)", first)
    if ordinal and int(ordinal[1]) < len(_ORDINALS):
        yield _ORDINALS[int(ordinal[1])] + tail
    for word, value in _WORDS.items():
        if form == word or form.startswith(f"{word} "):
            yield f"{value}{form.removeprefix(word)}"
    for value, word in enumerate(_ORDINALS):
        if form == word or form.startswith(f"{word} "):
            yield f"{value}{_suffix(value)}{form.removeprefix(word)}"


def _suffix(value: int) -> str:
    return "th" if 10 <= value % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")


def _dates(answer: str) -> Iterator[str]:
    """Yield a full date in the common notations."""
    if match := _DAY_FIRST.search(answer):
        day, month, year = int(match[1]), _month(match[2]), match[3]
    elif match := _MONTH_FIRST.search(answer):
        day, month, year = int(match[2]), _month(match[1]), match[3]
    elif match := _ISO.search(answer):
        day, month, year = int(match[3]), int(match[2]), match[1]
    else:
        return
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return
    for name in (MONTHS[month - 1], MONTHS[month - 1][:3]):
        for day_form in (f"{day}", f"{day}{_suffix(day)}"):
            yield from (f"{day_form} {name} {year}", f"{name} {day_form} {year}", f"{day_form} of {name} {year}")
    for d, m in ((f"{day}", f"{month}"), (f"{day:02}", f"{month:02}")):
        yield from (f"{year} {m} {d}", f"{d} {m} {year}", f"{m} {d} {year}")


def _month(name: str) -> int:
    return next(number for number, month in enumerate(MONTHS, start=1) if month.startswith(name.lower()[:3]))


def _partial(answer: str) -> Iterator[str]:
    """Parts that reveal the answer: the last word of a name, its initials, the year of a date."""
    words = answer.split()
    capitalized = [word for word in words if word[:1].isupper() and word.strip(".,").isalpha()]
    if 2 <= len(capitalized) == len(words) <= 4 and len(words[-1]) > 3:
        yield normalize(words[-1])
    if len(capitalized) == len(words) >= 3:
        yield normalize("".join(word[0] for word in words))
    if any(_dates(answer)) and (year := re.search(r"\b\d{4}\b", answer)):
        yield year[0]


def _without_accents(text: str) -> str:
    """Return the text without accents."""
    return "".join(char for char in normal_form("NFKD", text) if not unicodedata.combining(char))


SHARED_WORDS = 0.6
"""Share of a quote's other words that a sentence must have, besides all its numbers."""
SHORTEST_WORD = 3
"""Letters from which a word counts."""
_FIGURE = re.compile(
    rf"(?<![\w.])(\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?)\s*(%|(?:percent|{'|'.join(SCALES)})\b)?",
    re.I,
)
_LETTERS = re.compile(r"[^\W\d_]+")


def chunks_stating(quote: str, corpus: Corpus, *, limit: int = CANDIDATES) -> tuple[str, ...]:
    """Ids of the chunks that state the quote among the hits of a search for it, ordered by document and position."""
    return chunks_restating(quote, (hit.chunk for hit in corpus.search(quote, k=limit)))


def chunks_restating(quote: str, chunks: Iterable[Chunk]) -> tuple[str, ...]:
    """Ids of the chunks that state the quote, ordered by document and position."""
    stating = {(chunk.document_id, chunk.index, chunk.id) for chunk in chunks if states_fact(chunk.text, quote)}
    return tuple(chunk_id for _, _, chunk_id in sorted(stating))


def states_fact(text: str, quote: str) -> bool:
    """Return whether the text states what the quote states."""
    folded = _joined_words(quote)
    if not folded:
        return False
    if f" {folded} " in f" {_joined_words(text)} ":
        return True
    numbers, words = numbers_in(quote), _content_words(quote)
    return bool(numbers) and any(
        numbers <= numbers_in(sentence) and len(words & _content_words(sentence)) >= SHARED_WORDS * len(words)
        for sentence in sentences(text)
    )


def numbers_in(text: str) -> frozenset[str]:
    """Return the numbers of a text in comparable form: `$1.2 million` is `1200000`; a percentage keeps its sign."""
    numbers = set()
    for match in _FIGURE.finditer(text):
        value, unit = float(match[1].replace(",", "")), (match[2] or "").lower()
        if unit in ("%", "percent"):
            numbers.add(f"{value:.12g}%")
        else:
            numbers.add(f"{value * SCALES.get(unit, 1):.12g}")
    return frozenset(numbers)


def _joined_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _content_words(text: str) -> frozenset[str]:
    """Return the words that carry meaning, cut to six letters so that inflections agree; units belong to the
    numbers.
    """
    folded = (word.casefold() for word in _LETTERS.findall(text))
    return frozenset(word[:6] for word in folded if len(word) >= SHORTEST_WORD and word not in _UNCOUNTED)


_UNCOUNTED = frozenset(
    "the and for was were are has had have been with from that this its our which percent approximately about".split()
) | frozenset(SCALES)
