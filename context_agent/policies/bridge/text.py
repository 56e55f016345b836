"""Words and names in text, as the embedded policy compares them. English heuristics, no model, no list of names.

Words are lower case and without accents; common inflections and related words count as the same. Names are capitalized
runs and quotations, whole and in parts. In scripts without spaces the words are the terms of `retrieval.languages`, and
the names are quotations, runs of katakana, and what is written in Latin letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import filterfalse, pairwise
from typing import NamedTuple

from context_agent._support.normalization import normal_form
from context_agent.retrieval.languages import SPACED, UNSPACED, segmented, unspaced

_WORD = re.compile(r"\d+(?:\.\d+)+|[^\W_]+")
_UNSPACED_WORD = re.compile(r"\d+(?:\.\d+)+|(?:[^\W_]|[\u0e31-\u0e3a])+")
"""Also the vowel signs of Thai, which are not alphanumeric."""
_POSSESSIVE = re.compile(r"['’]s\b")
_BRACKETED = re.compile(r"(?:(?<!\s)\s++)?[(\[].{0,200}?[)\]]")
_VERSION = re.compile(r"\bv(?=\d)")
_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d[-_/](0[1-9]|1[0-2])(?:[-_/]([0-3]\d))?(?!\d)")
_EXTENSION = re.compile(
    r"\.(?:md|markdown|txt|rst|html?|pdf|[ct]sv|jsonl?|ya?ml|docx?|tex|org|adoc|log)$", re.IGNORECASE
)
_HUMP = re.compile(r"(?<=[a-z\d])(?=[A-Z])")

KEY_LENGTH = 6
"""Letters of a word that a comparison uses: director, directed and direction are equal."""

STOP = frozenset(
    """a about after all also am an and any are as at be been before being between both but by called can could did do
    does during each for from had has have having he her here him his how i if in into is it its just known may might
    more most must my name named no not of on one only or our over s same shall she should so some such t than that the
    their them then there these they this those through to under us very was we were what when where which who whom
    whose why will with would you your""".split()
)
MONTHS = frozenset(
    """january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday""".split()
)

_MONTH_NAMES = (
    "january february march april may june july august september october november december".split()
)  # fmt: skip

_KIN = {
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
}  # fmt: skip
"""Related words: a question asks for the birth, the text says born."""


def fold(text: str) -> str:
    """Lower case, without accents and possessive endings; `v2.1` as 2.1, a date in digits with its month's name."""
    text = _DATE.sub(_spelled, _VERSION.sub("", _POSSESSIVE.sub("", text.lower())))
    if text.isascii():
        return text
    return "".join(filterfalse(unicodedata.combining, normal_form("NFKD", text)))


def _spelled(date: re.Match[str]) -> str:
    day = f" {int(date[2])}" if date[2] else ""
    return f"{date[0]} {_MONTH_NAMES[int(date[1]) - 1]}{day}"


def words(text: str) -> list[str]:
    """Return the runs of letters and digits of the folded text, or its terms where the script has no spaces.

    A number with dots is one word.
    """
    if not unspaced(text):
        return _WORD.findall(fold(text))
    # The marks of these scripts are no accents: only what is between them is folded.
    return _UNSPACED_WORD.findall(SPACED.sub(lambda part: fold(part[0]), segmented(text)))


def months_in_digits(text: str) -> list[str]:
    """Return the two digits of each month beside a number: `March 2023` is 2023-03 in many file names."""
    digits = {name: f"{number:02}" for number, name in enumerate(_MONTH_NAMES, start=1)}
    months = [
        digits[first if first in digits else second]
        for first, second in pairwise(words(text))
        if (first in digits and second.isdigit()) or (first.isdigit() and second in digits)
    ]
    return list(dict.fromkeys(months))


def spelled_title(title: str) -> str:
    """Return a file name as words: `2023-05-IncidentReport_final.md` is `2023-05-Incident Report final`; others
    unchanged.
    """
    stem, extensions = _EXTENSION.subn("", title)
    if " " in title or not (extensions or "_" in title):
        return title
    return _HUMP.sub(" ", re.split(r"[/\\]", stem)[-1]).replace("_", " ").strip() or title


def key(word: str) -> str:
    """Return the part of a word that a comparison uses."""
    return word[:KEY_LENGTH]


@lru_cache(maxsize=4096)
def kin(word: str) -> frozenset[str]:
    """Keys of the words related to this one."""
    return frozenset(map(key, _KIN.get(word, "").split()))


def without_brackets(title: str) -> str:
    """Return the title without its bracketed parts: `Get Low (song)` names `Get Low`."""
    return _BRACKETED.sub("", title).strip() or title


_TOKEN = re.compile(r"\b[A-Z]\.(?=\s?\w)|\b(?:St|Jr|Sr|Dr|Mt|Mr|Mrs|No|vs)\.(?=\s)|[\w’'\-&!]+(?:\.(?=\w))?|[^\w\s]")
_UNSPACED_NAME = re.compile(r"(?<=[「『《〈])[^」』》〉]{2,40}(?=[」』》〉])|[\u30a1-\u30fe\uff66-\uff9f]{3,}")
"""Quotations, and katakana with middle dots."""
_QUOTED = re.compile(r"[\"“«`]{1,2}\s{0,9}([^\"”»`]{2,80}?)\s{0,9}(?:[\"”»]|'')")
_CONNECTORS = frozenset(
    """of the de du des la le les von van der den del della di da dos das y e and & in on for at to a an al el bin ibn
    upon by from with or""".split()
)
_OPENERS = frozenset(
    """the in on at he she it they his her their its this that these those a an and but or as for from with by after
    before during when where which what who whose whom how why is are was were did does do has have had if while since
    until although though both also one two three there here between among to of not many some most several other name
    under following born then i you we""".split()
)
_LISTED = re.compile(r"(?<!\s)\s++(?:and|or)\s++|,\s*+")
_NESTED = re.compile(r"(?<!\s)\s++(?:and|or|of|in|at|by|for|to|from|with|on)\s++(?:the\s++)?")
_OPTIONS = re.compile(r"(?:[,?]|(?<![\s,?]))\s++(?:or|and)\s++")
_ENDING = re.compile(r"[’']s$")
_LONGEST_OPTION = 10
_MOST_CONNECTORS = 3
_LONGEST_NAME = 60
"""Words and marks of a capitalized run; a longer one is several names."""
_LEAST = 3


class Mention(NamedTuple):
    """A name in a text: its start in characters, the name as written, and its folded words."""

    start: int
    surface: str
    name: str


def mentions(text: str) -> list[Mention]:
    """Return the names of a text, each once, in order of discovery; compound names also in parts."""
    names: dict[str, Mention] = {}
    for start, span in _names(text):
        _add(names, start, span)
        for separator in (_LISTED, _NESTED):
            parts = separator.split(span)
            for part in parts if len(parts) > 1 else ():
                if part[:1].isupper():
                    _add(names, start + span.find(part), part)
    return list(names.values())


def question_entities(question: str) -> list[str]:
    """Return what a question names: quotations, capitalized runs, and the options of a comparison, as written."""
    names: dict[str, Mention] = {}
    for start, span in _names(question, quoted_first=True):
        _add(names, start, span, dates=False)
    for mention in list(names.values()):
        for part in _LISTED.split(mention.surface):
            if part[:1].isupper():
                _add(names, mention.start, part, dates=False)
    for option in _options(question):
        _add(names, 0, option, dates=False)
    return [mention.surface for mention in names.values()]


def _options(question: str) -> Iterator[str]:
    """Yield the two sides of the outermost `or` or `and` if they are short: titles are not always capitalized."""
    sides = _OPTIONS.split(question)
    if len(sides) < 2:
        return
    first = re.search(r"[,:?]\s*([^,:]+)$", sides[0])
    if first and len(first[1].split()) < _LONGEST_OPTION:
        yield first[1]
    if len(sides[-1].split()) < _LONGEST_OPTION:
        yield sides[-1].split(",")[0]


def _add(names: dict[str, Mention], start: int, surface: str, *, dates: bool = True) -> None:
    surface = _ENDING.sub("", surface.strip(" .,?'’\"-"))
    name = " ".join(words(surface))
    if len(name) < _LEAST or name in STOP or name in MONTHS or (dates and name.isdigit()):
        return
    names.setdefault(name, Mention(start, surface, name))


def _names(text: str, *, quoted_first: bool = False) -> Iterator[tuple[int, str]]:
    quoted = [(match.start(1), match[1]) for match in _QUOTED.finditer(text)]
    if unspaced(text):
        quoted += [(match.start(), match[0]) for match in _UNSPACED_NAME.finditer(text)]
        # Latin words beside such a script are words of their own.
        text = UNSPACED.sub("·", text)
    runs = list(_runs(text))
    yield from (*quoted, *runs) if quoted_first else (*runs, *quoted)


def _runs(text: str) -> Iterator[tuple[int, str]]:
    """Capitalized runs with the connectors inside them, each with its start."""
    run: list[tuple[str, int, bool]] = []
    pending: list[tuple[str, int, bool]] = []
    opening = True
    for match in _TOKEN.finditer(text):
        piece, start = match.group(), match.start()
        low = piece.lower()
        if len(run) >= _LONGEST_NAME:
            yield from _closed(run, text)
            run, pending = [], []
        if (piece[0].isupper() and (run or low not in MONTHS)) or (piece[0].isdigit() and run and not pending):
            run += [*pending, (piece, start, opening or low in {"the", "a", "an"})]
            pending = []
        elif run and low in _CONNECTORS and len(pending) < _MOST_CONNECTORS:
            pending.append((piece, start, False))
        else:
            yield from _closed(run, text)
            run, pending = [], []
        opening = piece in '.?!:;"“”('
    yield from _closed(run, text)


def _closed(run: list[tuple[str, int, bool]], text: str) -> Iterator[tuple[int, str]]:
    """Yield the run without a sentence's opening word."""
    while run and run[0][2] and run[0][0].lower() in _OPENERS:
        run = run[1:]
    if run:
        start, end = run[0][1], run[-1][1] + len(run[-1][0])
        yield start, text[start:end].strip(" .'’-")
