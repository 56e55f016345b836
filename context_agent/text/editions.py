"""Editions of a text: its place in a series by the date or the version in its title.

The minutes of a council, the releases of a program and the versions of a policy are series. The titles of a series
differ only in the date or the version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from context_agent.text.dates import dates
from context_agent.text.normalization import without_marks
from context_agent.text.words import spelled_title, words

_NEWEST = re.compile(
    r"\b(?:latest|newest|most recent(?:ly)?|up[ -]to[ -]date|current(?:ly)?|as of (?:now|today)|nowadays|in force)\b"
    r"|\btoday(?= *[?.!]*$)"
    r"|\b(?:the|'s|its|their|your|our|my) last (?!(?:year|month|week|night|names?|few|two|three|resort|minute|digits?"
    r"|characters?|lines?|steps?|rows?|columns?|pages?)\b)\w|^last (?:version|release|update|meeting|minutes|report)\b"
    # German; French, Spanish, Portuguese and Italian; Dutch and Scandinavian; Polish; Russian and Ukrainian.
    r"|\b(?:neue?ste[nrs]?|jungste[nrs]?|letzte[nrs]?|zuletzt|aktuell\w*|derzeit\w*"
    r"|dernier\w*|plus recente?s?|actuel\w*|ultim[aoie]s?|mas recientes?|mais recentes?|atua(?:l|is)|piu recent[ei]"
    r"|attual[ei]|nieuwste|laatste|huidige|meest recente|senaste|nyeste|seneste|nuvarande"
    r"|najnowsz\w+|ostatni\w*|obecn\w+|последн\w+|новейш\w+|текущ\w+|останн\w+|поточн\w+)\b"
    r"|最新|直近|現在|目前|最近|当前|최신|최근|현재"
)
"""Words that ask for the newest edition, without accents."""
_OLDEST = re.compile(
    r"\b(?:earliest|oldest)\b"
    r"|\bfirst (?:\w+ ){0,2}?(?:version|release|edition|revision|issue|meeting|session|report|draft|update)s?\b"
    r"|\bwhen (?:did|was|were|has|have|had) .{1,80}? first\b"
    r"|\b(?:alteste[nrs]?|plus ancien\w*|mas antigu[ao]s?|mais antig[ao]s?|piu vecchi[ao]|oudste|aldst[ae]"
    r"|najstarsz\w+|сам\w\w ранн\w\w)\b"
    r"|最古|最早|가장 오래된"
)
"""Words that ask for the oldest edition, without accents."""
_PERIOD = re.compile(
    r"(?<!\w)(?:(?P<part>fy|kw|q|h|t|w)[ ]?(?P<number>\d{1,2})[ ,/-]{1,2}(?P<year>(?:19|20)\d\d)"
    r"|(?P<year_first>(?:19|20)\d\d)[ ,/-]{0,2}(?P<part_last>kw|q|h|t|w)[ ]?(?P<number_last>\d{1,2})"
    r"|(?P<season>spring|summer|autumn|fall|winter|fr[uü]hjahr|fr[uü]hling|sommer|herbst|printemps|[eé]t[eé]|automne"
    r"|hiver|primavera|verano|oto[nñ]o|invierno)[ ,]{1,2}(?P<season_year>(?:19|20)\d\d))(?!\w)",
    re.IGNORECASE,
)
"""A part of a year, such as `Q4 2024`, `2024Q4`, `H1 2024`, `2024-W12`, `KW 12/2024` or `autumn 2024`."""
_MONTHS = {"q": 3, "t": 3, "h": 6}
"""The number of months of a quarter and of a half. Other parts are weeks."""
_SEASONS = {"sp": 3, "fr": 3, "pr": 3, "su": 6, "so": 6, "et": 6, "ve": 6, "au": 9, "fa": 9, "he": 9, "ot": 9}
"""The month in which a season begins, by the first two letters of its name. Winter begins in December."""
_YEAR = re.compile(r"(?<![\w.:/-])(?:fy[ ]?)?((?:19|20)\d\d)(?![\w:]|[.-]\d)", re.IGNORECASE)
_VERSION_WORD = r"(?:version|release|edition|revision|rev|issue|volume|vol|build|number|no|nr|ausgabe|auflage|v|r)"
_VERSION = re.compile(
    rf"(?<![\w.:/-])(?:{_VERSION_WORD}[.]?[ #]?|\d:)?(?P<number>\d{{1,9}}(?:\.\d{{1,9}}){{1,5}})"
    r"(?P<rest>[^\s,;:()\[\]]{0,40})"
    rf"|(?<![\w.:/-]){_VERSION_WORD}[.]?[ #]?(?P<alone>\d{{1,6}})(?![\w.]\w)"
    r"|(?<![\w.:/-])(?P<ordinal>\d{1,3})(?:st|nd|rd|th|\.)[ ](?:edition|revision|issue|ausgabe|auflage)\b",
    re.IGNORECASE,
)
_EARLY = re.compile(
    r"[.~_-]?(?:(?P<dev>dev|snapshot|pre|m)|(?P<alpha>a|alpha)|(?P<beta>b|beta)|(?P<rc>rc))(?![a-z])", re.I
)
"""The beginning of what follows the number of a version that precedes the final one, such as `rc1`."""
_STAGES = ("dev", "alpha", "beta", "rc", "final")
_NUMBER = re.compile(r"\d{1,9}")
_DATE_NUMBERS, _VERSION_NUMBERS = 3, 6
_SEGMENT = re.compile(r" > |: |; ")
"""What separates the title of a document from its captions."""
_DATED_LINE = re.compile(
    r"^\W{0,4}(?:date|datum|fecha|published|updated|last[ _-]updated|last[ _-]modified|effective(?:[ _-]date)?"
    r"|valid[ _-]from|released?|version)\W{0,3}[:=][ \t*_\"']{0,4}([^\n]{1,40})",
    re.IGNORECASE | re.MULTILINE,
)
_DATED_FIELD = re.compile(
    r"(?:last[_ -])?(?:date|published|updated|modified|created|sent|released?|effective|timestamp|year|version)"
    r"(?:[_ -](?:at|on|date|time))?|pub(?:lication)?[_ -]?date|valid[_ -]from",
    re.IGNORECASE,
)
_HEAD_CHARACTERS, _TITLE_CHARACTERS, _QUESTION_CHARACTERS = 400, 500, 2_000
"""The first characters of a text and of a title that are searched, and the last ones of a question."""


class Edition(NamedTuple):
    """The place of a text in its series. Texts with the same `series` and `kind` compare by `age`.

    Attributes:
        series: The words that all titles of the series have. Texts without a date in their titles share "".
        kind: What the age begins with.
        age: Year, month and day, or the numbers of a version. An unknown month or day is 0.
    """

    series: str
    kind: Literal["date", "version"]
    age: tuple[int, ...]

    def includes(self, other: Edition) -> bool:
        """Return True if another edition is one of these, as 2.4.1 is one of 2.4, and 3 May 2021 one of May 2021."""
        numbers = self.age[: _DATE_NUMBERS if self.kind == "date" else _VERSION_NUMBERS]
        given = len(numbers)
        while given and not numbers[given - 1]:
            given -= 1
        return self.kind == other.kind and other.age[:given] == numbers[:given]


class AskedEdition(NamedTuple):
    """The edition that a question asks for, and the words of the question that say so."""

    which: Literal["newest", "oldest"]
    words: frozenset[str]


def asked_edition(question: str) -> AskedEdition | None:
    """Return the edition that a question asks for, if it asks for the newest or the oldest one.

    Of a question in several lines, such as a conversation, only the last line counts.
    """
    last_line = question.rstrip()[-_QUESTION_CHARACTERS:].rpartition("\n")[2]
    text = without_marks(last_line.lower())
    if newest := _NEWEST.search(text):
        return AskedEdition("newest", frozenset(words(newest[0])))
    if oldest := _OLDEST.search(text):
        return AskedEdition("oldest", frozenset(words(oldest[0].split()[-1])))
    return None


def edition(title: str, text: str, metadata: Mapping[str, object], name: str = "") -> Edition | None:
    """Return the edition of a text, or None if nothing says its age.

    The first part of the title with a date or a version decides. Without one, the name decides, then the fields of the
    metadata, and then a line such as `Date: 2024-03-14` at the beginning of the text.

    Args:
        title: The title of the text, with its captions.
        text: The text.
        metadata: The fields of its document.
        name: The name of its document, such as that of a file.
    """
    before: list[str] = []
    for part in _SEGMENT.split(title[:_TITLE_CHARACTERS]):
        if found := _age(part):
            kind, age, rest = found
            return Edition(" ".join(words(" ".join((*before, rest)))), kind, age)
        before.append(part)
    if found := _age(spelled_title(name[-_TITLE_CHARACTERS:])):
        kind, age, rest = found
        return Edition(" ".join(words(f"{before[0]} {rest}")), kind, age)
    fields = (str(value)[:_TITLE_CHARACTERS] for key, value in metadata.items() if _DATED_FIELD.fullmatch(key))
    lines = (line[1] for line in _DATED_LINE.finditer(text[:_HEAD_CHARACTERS]))
    ages = [found[:2] for value in (*fields, *lines) if (found := _age(value))]
    return Edition("", *min(ages, key=lambda it: (it[0], [-number for number in it[1]]))) if ages else None


def _age(title: str) -> tuple[Literal["date", "version"], tuple[int, ...], str] | None:
    """Return the kind of the age in a title, the age, and the title without it. Dates decide before versions."""
    found = list(_dates_in(title))
    versions = list(_versions_in(title, [(start, end) for start, end, _ in found]))
    rest = title
    for start, end, _ in sorted([*found, *versions], reverse=True):
        rest = f"{rest[:start]} {rest[end:]}"
    version = versions[0][2] if versions else ()
    if found:
        return "date", (*max(age for _, _, age in found), *version), rest
    return ("version", version, rest) if versions else None


def _dates_in(title: str) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the dates, the parts of years and the years in a title, with where they are."""
    numbers = [found.span() for found in _VERSION.finditer(title)]
    taken: list[tuple[int, int]] = []
    for date in dates(title):
        if not any(start < date.start < end for start, end in numbers):
            reading = date.readings[0]
            taken.append((date.start, date.end))
            yield date.start, date.end, (int(reading[:4]), int(reading[4:6]), int(reading[6:] or 0))
    for period in _PERIOD.finditer(title):
        if not _overlaps(period.span(), taken):
            taken.append(period.span())
            yield *period.span(), _in_period(period)
    for year in _YEAR.finditer(title):
        if not _overlaps(year.span(), taken):
            yield *year.span(), (int(year[1]), 0, 0)


def _in_period(period: re.Match[str]) -> tuple[int, int, int]:
    """Return the year, the last month and the number of a part of a year. The month of a week is about right.

    The month of a season is that in which it begins in the north.
    """
    if period["season"]:
        return int(period["season_year"]), _SEASONS.get(without_marks(period["season"].lower())[:2], 12), 0
    year, part = period["year"] or period["year_first"], period["part"] or period["part_last"]
    number = int(period["number"] or period["number_last"])
    months = _MONTHS.get(part.lower())
    return int(year), number * months if months else number * 12 // 54 + 1, number


def _versions_in(title: str, taken: list[tuple[int, int]]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the versions in a title, with where they are, outside the `taken` places.

    A number that begins a heading, as in `3.2 Setup`, is not a version.
    """
    for found in _VERSION.finditer(title):
        is_section = found.start() == 0 and found["number"] and title[found.end() :].lstrip()[:1].isalpha()
        if is_section or _overlaps(found.span(), taken):
            continue
        numbers = [int(it) for it in _NUMBER.findall(found["number"] or found["alone"] or found["ordinal"])]
        rest = found["rest"] or ""
        early = _EARLY.match(rest)
        stage = _STAGES.index((early and early.lastgroup) or "final")
        padded = (*numbers, *[0] * (_VERSION_NUMBERS - len(numbers)))
        yield *found.span(), (*padded, stage, *map(int, _NUMBER.findall(rest)))


def _overlaps(span: tuple[int, int], taken: list[tuple[int, int]]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in taken)
