"""Rules that decide whether a text states or reveals an answer.

`states_answer` is strict. It accepts the answer, its aliases, and numbers and dates in other notations. A gold document
must pass it. `reveals_answer` is loose. It also accepts a last name alone, initials, and text without accents. A
distractor, a clue or a question must not pass it. `eval.answers` scores answers that people wrote, and does not depend
on this module.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

from context_agent.synth_data.quotes import normalize
from context_agent.text.normalization import normal_form

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
_MOST_DIGITS = 6
"""Numbers with more digits have no name. Python refuses to read numbers of more than 4,300 digits."""
_LONGEST_SCALED = 100
"""The length of the longest number that is multiplied by its scale, in characters."""


_ARTICLES = ("the ", "a ", "an ")


_MONTH = "|".join([*MONTHS, *(month[:3] for month in MONTHS)])


_DAY_FIRST = re.compile(rf"(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\.?,?\s+(\d{{4}})", re.I)


_MONTH_FIRST = re.compile(rf"({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})", re.I)


_ISO = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")


_GROUPED = re.compile(r"(?<=\d)[,\u00a0\u202f'’ ](?=\d{3}(?!\d))")


_SCALED = re.compile(rf"(?<!\d)(\d++(?:\.\d++)?)\s*+({'|'.join(SCALES)})\b", re.I)


def states_answer(text: str, answer: str, aliases: Iterable[str] = ()) -> bool:
    """Return True if the text states the answer or one of its aliases.

    Args:
        text: The text to search.
        answer: The answer.
        aliases: Other ways to write the answer.
    """
    accepted = [form for name in (answer, *aliases) for form in answer_forms(name)]
    return _any_stands(accepted, _canonical(text))


def reveals_answer(text: str, answer: str, aliases: Iterable[str] = ()) -> bool:
    """Return True if the text states the answer, or enough of it to guess the rest.

    Args:
        text: The text to search.
        answer: The answer.
        aliases: Other ways to write the answer.
    """
    revealing = [
        _without_accents(form) for name in (answer, *aliases) for form in (*answer_forms(name), *_partial(name))
    ]
    return _any_stands(revealing, _without_accents(_canonical(text)))


@lru_cache(maxsize=1024)
def answer_forms(answer: str) -> tuple[str, ...]:
    """Return every notation of the answer, normalized."""
    canonical = _canonical(answer)
    distinct = dict.fromkeys([canonical, *_without_article(canonical), *_numbers(canonical), *_dates(answer)])
    return tuple(form for form in distinct if form)


def _any_stands(phrases: Sequence[str], text: str) -> bool:
    padded = f" {text} "
    return any(f" {form} " in padded or _stands_unspaced(form, text) for form in phrases if form)


def _stands_unspaced(form: str, text: str) -> bool:
    """Return True if the form is in a script without spaces and the text contains it."""
    return not form.isascii() and form in text and any(char >= "\u0e00" for char in form)


@lru_cache(maxsize=256)
def _canonical(text: str) -> str:
    """Return the normalized text. Numbers are written in digits, without group separators."""
    ungrouped = _GROUPED.sub("", text)
    scaled = _SCALED.sub(lambda match: _scaled(match[1], match[2]), ungrouped)
    return normalize(scaled)


def _scaled(number: str, scale: str) -> str:
    if len(number) > _LONGEST_SCALED:
        return f"{number} {scale}"
    value = Fraction(number) * SCALES[scale.lower()]  # exact: a float of 8.2 million is not a whole number
    return str(value) if value.denominator == 1 else f"{number} {scale}"


def _without_article(form: str) -> Iterator[str]:
    for article in _ARTICLES:
        if form.startswith(article):
            yield form.removeprefix(article)


def _numbers(form: str) -> Iterator[str]:
    """Yield other notations of an answer that begins with a number, such as `12` for `twelve` or `12th` for `twelfth`.

    A unit after the number is kept.
    """
    first, _, rest = form.partition(" ")
    tail = f" {rest}" if rest else ""
    if first.isdecimal() and len(first) <= _MOST_DIGITS and int(first) in _NAMES:
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
    """Yield other notations of a full date."""
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
    """Yield the parts that reveal the answer: the last word of a name, its initials, or the year of a date."""
    words = answer.split()
    capitalized = [word for word in words if word[:1].isupper() and word.strip(".,").isalpha()]
    if 2 <= len(capitalized) == len(words) <= 4 and len(words[-1]) > 3:
        yield normalize(words[-1])
    if len(capitalized) == len(words) >= 3:
        yield normalize("".join(word[0] for word in words))
    if any(_dates(answer)) and (year := re.search(r"\b\d{4}\b", answer)):
        yield year[0]


def _without_accents(text: str) -> str:
    return "".join(char for char in normal_form("NFKD", text) if not unicodedata.combining(char))
