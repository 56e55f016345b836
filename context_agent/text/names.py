"""The names in a text: capitalized runs and quotations, whole and in parts.

They are found by heuristics for English, without a list of names.

In scripts without spaces, names are quotations, runs of katakana, and words in Latin letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from context_agent.text.identifiers import identifier_spans
from context_agent.text.scripts import UNSPACED, unspaced
from context_agent.text.words import CALENDAR_WORDS, QUESTION_WORDS, STOP_WORDS, words

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
).union(QUESTION_WORDS)
_LISTED = re.compile(r"(?<!\s)\s++(?:and|or)\s++|,\s*+")
_NESTED = re.compile(r"(?<!\s)\s++(?:and|or|of|in|at|by|for|to|from|with|on)\s++(?:the\s++)?")
_OPTIONS = re.compile(r"(?:[,?]|(?<![\s,?]))\s++(?:or|and)\s++")
_ENDING = re.compile(r"[’']s$")
_MAX_OPTION_WORDS = 10
_MAX_CONNECTORS = 3
_MAX_NAME_TOKENS = 60
"""The maximum number of words and marks in a capitalized run. A longer run is several names."""
_SHORTEST_NAME = 3
_SENTENCE_MARKS = ".?!:;("
"""The marks after which a sentence or its part begins."""


class Mention(NamedTuple):
    """A name in a text, with its start, its spelling in the text, and its folded words."""

    start: int
    surface: str
    name: str


def mentions(text: str) -> list[Mention]:
    """Return the names in a text, each once, in order of discovery. The parts of a compound name are also returned."""
    names: dict[str, Mention] = {}
    for start, span in _names(text):
        _add(names, start, span)
        for separator in (_LISTED, _NESTED):
            parts = separator.split(span)
            for part in parts if len(parts) > 1 else ():
                if part[:1].isupper():
                    _add(names, start + span.find(part), part)
    return list(names.values())


def sentence_openers(text: str) -> list[str]:
    """Return the folded names of one word that begin a sentence, or a part after a colon, a semicolon or a bracket.

    Such a word may be an ordinary one, whose capital letter is that of the sentence.
    """
    before = ((mention.name, text[: mention.start].rstrip()[-1:]) for mention in mentions(text))
    return [name for name, mark in before if " " not in name and (not mark or mark in _SENTENCE_MARKS)]


def question_entities(question: str) -> list[str]:
    """Return the names in a question, as written.

    They are quotations, capitalized runs, identifiers, and the options of a comparison.
    """
    names: dict[str, Mention] = {}
    for start, identifier in identifier_spans(question):
        _add(names, start, identifier, dates=False)
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
    """Yield the two sides of the last `or` or `and` if they are short. Titles are not always capitalized."""
    sides = _OPTIONS.split(question)
    if len(sides) < 2:
        return
    first = re.search(r"[,:?]\s*([^,:]+)$", sides[0])
    if first and len(first[1].split()) < _MAX_OPTION_WORDS:
        yield first[1]
    if len(sides[-1].split()) < _MAX_OPTION_WORDS:
        yield sides[-1].split(",")[0]


def _add(names: dict[str, Mention], start: int, surface: str, *, dates: bool = True) -> None:
    surface = _ENDING.sub("", surface.strip(" .,?'’\"-"))
    name = " ".join(words(surface))
    if len(name) < _SHORTEST_NAME or name in STOP_WORDS or name in CALENDAR_WORDS or (dates and name.isdigit()):
        return
    names.setdefault(name, Mention(start, surface, name))


def _names(text: str, *, quoted_first: bool = False) -> Iterator[tuple[int, str]]:
    quoted = [(match.start(1), match[1]) for match in _QUOTED.finditer(text)]
    if unspaced(text):
        quoted += [(match.start(), match[0]) for match in _UNSPACED_NAME.finditer(text)]
        # Latin words beside such a script are separate words.
        text = UNSPACED.sub("·", text)
    runs = list(_runs(text))
    yield from (*quoted, *runs) if quoted_first else (*runs, *quoted)


def _runs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the start and the text of each run of capitalized words, with the connectors inside it."""
    run: list[tuple[str, int, bool]] = []
    pending: list[tuple[str, int, bool]] = []
    opening = True
    for match in _TOKEN.finditer(text):
        piece, start = match.group(), match.start()
        low = piece.lower()
        if len(run) >= _MAX_NAME_TOKENS:
            yield from _closed(run, text)
            run, pending = [], []
        if (piece[0].isupper() and (run or low not in CALENDAR_WORDS)) or (piece[0].isdigit() and run and not pending):
            run += [*pending, (piece, start, opening or low in {"the", "a", "an"})]
            pending = []
        elif run and low in _CONNECTORS and len(pending) < _MAX_CONNECTORS:
            pending.append((piece, start, False))
        elif run:
            yield from _closed(run, text)
            run, pending = [], []
        opening = piece in f'{_SENTENCE_MARKS}"“”¿¡'
    yield from _closed(run, text)


def _closed(run: list[tuple[str, int, bool]], text: str) -> Iterator[tuple[int, str]]:
    """Yield the run. If its first word only begins a sentence, leave this word out."""
    while run and run[0][2] and run[0][0].lower() in _OPENERS:
        run = run[1:]
    if run:
        start, end = run[0][1], run[-1][1] + len(run[-1][0])
        yield start, text[start:end].strip(" .'’-")
