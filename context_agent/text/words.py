"""The words of a text in the form that comparisons use. They are found by heuristics for English, without a model.

Words are in lower case and have no accents. Common inflections and related words count as the same word. In scripts
without spaces, the words are the terms of `text.scripts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise

from context_agent.text.normalization import vowel_signs, with_plain_numbers, without_marks, without_silent
from context_agent.text.scripts import SPACED, segmented, unspaced

_WORD = re.compile(r"\d+(?:\.\d++)++|[^\W_]+")
_POSSESSIVE = re.compile(r"(?<=\w)['’][sS]\b")
_BRACKETED = re.compile(r"(?:(?<!\s)\s++)?[(\[].{0,200}?[)\]]")
_VERSION = re.compile(r"\bv(?=\d)")
_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d[-_/](0[1-9]|1[0-2])(?:[-_/]([0-3]\d))?(?!\d)")
_EXTENSION = re.compile(
    r"\.(?:md|markdown|txt|rst|html?|pdf|[ct]sv|jsonl?|ya?ml|docx?|tex|org|adoc|log)$", re.IGNORECASE
)
_HYPHENATED = re.compile(r"(?<![\w-])[^\W\d_]{1,20}+(?:-[^\W\d_]{1,20}+){1,3}+(?![\w-])")
_HUMP = re.compile(r"(?<=[a-z\d])(?=[A-Z])")

_VOWELS = frozenset("aeiouy")
SHORT_WORD = 3
"""The number of letters of a word, such as `gas` or `lie`, that keeps its ending."""

KEY_LENGTH = 6
"""The number of letters of a word that are compared. So `director`, `directed` and `direction` are equal."""

STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be been before being between both but by called can could did do
    does during each for from had has have having he her here him his how i if in into is it its just known may might
    more most must my name named no not of on one only or our over s same shall she should so some such t than that the
    their them then there these they this those through to under us very was we were what when where which who whom
    whose why will with would you your""".split()
)
QUESTION_WORDS = frozenset(
    """wer wem wessen wie was wann wo wohin woher warum wieso welche welcher welches welchen wieviel qui que
    quand où combien pourquoi quel quelle quels quelles qué quién quiénes cuándo dónde cómo cuánto cuánta
    cuántos cuántas cuál cuáles quien quienes cuando donde cual cuales perché quanto quale wat wanneer waar
    waarom welk kto kiedy gdzie dlaczego który która które quem quais hvem hvad hvornår hvor vem vad när kdo kdy
    кто что когда где как сколько почему какой какая какие""".split()
)
"""Words that begin a question in other languages than English. A capital letter does not make them names.

Words that may also begin an English question, such as `comment`, `Como`, `KDE` and `Wen`, are left out.
"""
CALENDAR_WORDS = frozenset(
    """january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday""".split()
)

_MONTH_NAMES = (
    "january february march april may june july august september october november december".split()
)  # fmt: skip

_RELATED_WORDS = {
    "birth": "born", "born": "birth", "birthplace": "born", "birthday": "born", "older": "born", "younger": "born",
    "death": "died dead killed", "die": "died death", "died": "death", "dies": "died",
    "father": "son daughter", "mother": "son daughter", "child": "son daughter father mother",
    "spouse": "wife husband married", "wife": "husband married", "husband": "wife married",
    "sibling": "brother sister", "brother": "sister siblings", "sister": "brother",
    "grandfather": "father son grandson", "grandmother": "mother daughter",
    "nationality": "american british indian french german italian",
    "film": "movie", "movie": "film", "performer": "singer sung recorded band", "singer": "performed recorded",
    "sings": "singer recorded song", "country": "nation", "located": "situated", "capital": "city",
    "founded": "established formed", "established": "founded", "formed": "founded",
    "january": "jan", "february": "feb", "march": "mar", "april": "apr", "june": "jun", "july": "jul", "august": "aug",
    "september": "sep sept", "october": "oct", "november": "nov", "december": "dec", "feb": "february", "jul": "july",
    "aug": "august", "sep": "september sept", "sept": "september sep", "oct": "october", "nov": "november",
    "dec": "december",
}  # fmt: skip
"""Pairs of related words. For example, a question asks for the birth, and the text says `born`.

`jan`, `mar`, `apr` and `jun` have no related words, because they are also names and other words.
"""


def without_possessives(text: str) -> str:
    """Return the text without the endings of possessives: `the canon's` becomes `the canon`."""
    return _POSSESSIVE.sub("", text)


def fold(text: str) -> str:
    """Return the text in lower case, without accents and possessive endings.

    `v2.1` becomes `2.1`, `2,048` becomes `2048` and `16GB` becomes `16 gb`. A date in digits gets its month's name.
    """
    text = with_plain_numbers(_DATE.sub(_spelled, _VERSION.sub("", without_possessives(text.lower()))))
    if text.isascii():
        return text
    return without_marks(without_silent(text))


def _spelled(date: re.Match[str]) -> str:
    day = f" {int(date[2])}" if date[2] else ""
    return f"{date[0]} {_MONTH_NAMES[int(date[1]) - 1]}{day}"


def words(text: str) -> list[str]:
    """Return the runs of letters and digits in the folded text. If the script has no spaces, return its terms.

    A number with dots is one word.
    """
    if text.isascii():
        return _WORD.findall(fold(text))
    # The marks of scripts without spaces are not accents, so only the text between them is folded.
    folded = SPACED.sub(lambda part: fold(part[0]), segmented(text)) if unspaced(text) else fold(text)
    return _word_with_vowel_signs().findall(folded)


@cache
def _word_with_vowel_signs() -> re.Pattern[str]:
    return re.compile(rf"\d+(?:\.\d++)++|[^\W_]+(?:[{vowel_signs()}]+[^\W_]*)*+")


def hyphenated(text: str) -> Iterator[tuple[str, str]]:
    """Yield each hyphenated word, folded without hyphens and as written: `wifi` and `Wi-Fi`."""
    for found in _HYPHENATED.findall(text):
        yield "".join(words(found)), found


def months_in_digits(text: str) -> list[str]:
    """Return two digits for each month next to a number, because many file names write `March 2023` as 2023-03."""
    digits = {name: f"{number:02}" for number, name in enumerate(_MONTH_NAMES, start=1)}
    months = [
        digits[first if first in digits else second]
        for first, second in pairwise(words(text))
        if (first in digits and second.isdigit()) or (first.isdigit() and second in digits)
    ]
    return list(dict.fromkeys(months))


def spelled_title(title: str) -> str:
    """Return a file name as words, and any other title unchanged.

    `2023-05-IncidentReport_final.md` becomes `2023-05-Incident Report final`.
    """
    stem, extensions = _EXTENSION.subn("", title)
    if " " in title or not (extensions or "_" in title):
        return title
    return _HUMP.sub(" ", re.split(r"[/\\]", stem)[-1]).replace("_", " ").strip() or title


def key(word: str) -> str:
    """Return the key of a word for comparisons. The key is the first `KEY_LENGTH` letters."""
    return word[:KEY_LENGTH]


def related_words(word: str) -> list[str]:
    """Return the words that are related to `word`, such as `died` and `killed` to `death`."""
    return _RELATED_WORDS.get(word, "").split()


@lru_cache(maxsize=4096)
def related_keys(word: str) -> frozenset[str]:
    """Return the keys of the words that are related to `word`."""
    return frozenset(map(key, related_words(word)))


@lru_cache(maxsize=4096)
def without_inflection(word: str) -> str:
    """Return an English word without the endings of plurals and verbs. So `melts`, `melted` and `melting` are equal.

    The key of a short word still has its ending. The result need not be a word: `serve` becomes `serv`.
    """
    if len(word) > SHORT_WORD and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    stem = word.removesuffix("ing").removesuffix("ed")
    if stem != word and len(stem) >= SHORT_WORD and not stem.endswith("e") and not _VOWELS.isdisjoint(stem):
        is_doubled = stem[-1] == stem[-2] and stem[-1] in "bdfgmnprt"
        word = stem[:-1] if is_doubled else stem
    elif len(word) > SHORT_WORD:
        word = word.removesuffix("e")
    has_consonant_y = len(word) > 1 and word.endswith("y") and word[-2] not in "aeiou"
    return f"{word[:-1]}i" if has_consonant_y else word


def without_brackets(title: str) -> str:
    """Return the title without its bracketed parts: `Get Low (song)` becomes `Get Low`."""
    return _BRACKETED.sub("", title).strip() or title
