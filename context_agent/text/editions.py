"""Editions of a text: its place in a series by its date or its version.

The minutes of a council, the releases of a program and the versions of a policy are series. The titles of a series
differ only in the date or the version. If the age is not in the titles, they are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Literal, NamedTuple
from urllib.parse import unquote

from context_agent.text.dates import dates, years_of_eras
from context_agent.text.normalization import plain
from context_agent.text.periods import periods
from context_agent.text.words import spelled_title, words

_WEEK_WORD = r"(?:kw|wk|w|week|kalenderwoche|woche|semaine|semana|settimana|uke|vecka|uge)"
_WEEK = re.compile(
    rf"(?<!\w){_WEEK_WORD}[ ]?(?P<number>\d{{1,2}})(?:[ ,/-]{{1,2}}|[ ](?:of|de|del)[ ])(?P<year>(?:19|20)\d\d)(?!\w)"
    rf"|(?<!\w)(?P<year_first>(?:19|20)\d\d)[ ,/-]{{0,2}}{_WEEK_WORD}[ ]?(?P<number_last>\d{{1,2}})(?!\w)"
)
"""A week, such as `2024-W12`, `KW 12/2024` or `week 12 of 2024`."""
_MONTH = re.compile(
    r"(?<![\w./:-])(?:(?P<month>0?[1-9]|1[0-2])/|(?P<padded>0[1-9]|1[0-2])\.)(?P<year>(?:19|20)\d\d)(?![\w/:-]|\.\d)"
)
"""A month, such as `5/2021` or `05.2021`."""
_OF_YEAR = re.compile(
    r"(?<!\w)(?:number|num|[nN]o|nro|nr|n|numero|numer|nummer|cislo|c|номер|n\.o)[.°]?[ ]?\d{1,3}/"
    r"(?P<year>(?:19|20)\d\d)(?![\w/:-]|\.\d)"
)
"""A number within a year, such as `No. 3/2022`, which is not March. In a plain text, the sign `№` is `No`."""
_REPLY = re.compile(
    r"(?:\s{0,3}(?:re|fw|fwd|aw|antw|wg|sv|vs|tr|rv|odp|vb)\s?(?:\[\d{1,3}\])?\s?[:：]){1,9}\s{0,3}", re.I
)
"""What mail programs put before the subject of a reply."""
_YEAR = re.compile(r"(?<![a-z\d_.:/-])(?:fy[ ]?)?((?:19|20)\d\d)(?![\w:](?<![年년])|[.-]\d)")
_VERSION_WORD = r"(?:version|release|edition|revision|rev|issue|volume|vol|build|number|no|nr|ausgabe|auflage|v|r)"
_VERSION = re.compile(
    rf"(?:(?<![a-z\d_.:/-])|(?<=[a-z]-))(?:{_VERSION_WORD}[.]?[ #-]?|\d:)?(?P<number>\d{{1,9}}(?:\.\d{{1,9}}){{1,5}})"
    r"(?P<rest>[^\s,;:()\[\]\x80-\U0010ffff]{0,40})"
    rf"|(?:(?<![a-z\d_.:/-])|(?<=[a-z]-)){_VERSION_WORD}[.]?[ #-]?(?P<alone>\d{{1,6}})(?![\w.]\w)"
    r"|(?<![\w.:/-])(?P<ordinal>\d{1,3})(?:st|nd|rd|th|\.)[ ](?:edition|revision|issue|ausgabe|auflage)\b"
    r"|(?<!\w)(?:c|n|num|No|nro|numero|numer|nummer|cislo|номер|n\.o)[.°]?[ ]?(?P<within>\d{1,3})"
    r"(?=/(?:19|20)\d\d(?!\d))"
    r"|第[ ]?(?P<ordinal_east>\d{1,3})[ ]?[版回号期]|제[ ]?(?P<ordinal_korean>\d{1,3})[ ]?[판회호]"
)
_EARLY = re.compile(r"[.~_-]?(?:(?P<dev>dev|snapshot|pre|m)|(?P<alpha>a|alpha)|(?P<beta>b|beta)|(?P<rc>rc))(?![a-z])")
"""The beginning of what follows the number of a version that precedes the final one, such as `rc1`."""
_STAGES = ("dev", "alpha", "beta", "rc", "final")
_NUMBER = re.compile(r"\d{1,9}")
DATE_NUMBERS, _VERSION_NUMBERS = 3, 6
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
_SENTENCE_ENDS = ".!?。"
_HEAD_CHARACTERS, _LONGEST_FIRST_LINE, _TITLE_CHARACTERS = 400, 100, 500
"""The first characters of a text, of its first line and of a title that are searched for an age."""


class Edition(NamedTuple):
    """The place of a text in its series. Texts with the same `series` and `kind` compare by `age`.

    Attributes:
        series: The words that all titles of the series have.
        kind: What the age begins with.
        age: Year, month and day, or the numbers of a version. An unknown month or day is 0. Of a longer time, such as a
            quarter, it is the end.
        dates: The first and the last year, month or day of the text, if they are known.
        is_titled: True if the title or the name says the age. A title without an age names a series only if other
            documents have the same title.
    """

    series: str
    kind: Literal["date", "version"]
    age: tuple[int, ...]
    dates: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    is_titled: bool = True


class WrittenAge(NamedTuple):
    """A date, a span of time or a version at `text[start:end]`.

    Attributes:
        start: Where it begins.
        end: Where it ends.
        kind: What it is.
        first: The first year, month or day, or the numbers of a version. Unknown parts of a date are missing.
        last: The last year, month or day, or the numbers of a version.
    """

    start: int
    end: int
    kind: Literal["date", "version"]
    first: tuple[int, ...]
    last: tuple[int, ...]


def edition(title: str, text: str, metadata: Mapping[str, object], name: str = "") -> Edition | None:
    """Return the edition of a text, or None if nothing says its age.

    The first part of the title with a date or a version decides. Without one, the name decides, then the fields of the
    metadata, and then a line such as `Date: 2024-03-14` or a short first line with a date. If the title is only the
    name of a file, that first line is the title of the series.

    Args:
        title: The title of the text, with its captions.
        text: The text.
        metadata: The fields of its document.
        name: The name of its document, such as that of a file.
    """
    before: list[str] = []
    title = title[:_TITLE_CHARACTERS]
    reply = _REPLY.match(title)
    for part in _SEGMENT.split(title[reply.end() if reply else 0 :]):
        if found := _edition(part, " ".join(before)):
            break
        before.append(part)
    else:
        found = _edition(spelled_title(name[-_TITLE_CHARACTERS:]), before[0])
    if found and found.dates:
        return _with_month(found, text)
    ages_said = (one for value in _said_ages(text, metadata) if (one := _edition(value, "")))
    first_line = _of_first_lines(text)
    said = min(ages_said, key=lambda it: (it.kind, [-number for number in it.age]), default=first_line)
    if found:
        return found._replace(dates=said and said.dates)
    series = " ".join(words(before[0]))
    if first_line and before[0].partition(" (")[0] == PurePosixPath(unquote(name[-_TITLE_CHARACTERS:])).stem:
        series = first_line.series
    return said and said._replace(series=series, is_titled=False)


def _with_month(found: Edition, text: str) -> Edition:
    """Return the edition `No. 3/2022` with the month or day of 2022 in the first lines of its text, if they say one."""
    dates = found.dates or ((), ())
    if len(dates[1]) == 1 and found.age[DATE_NUMBERS:] and (line := _of_first_lines(text)) and line.dates:
        first, last = line.dates
        if dates == (first[:1], last[:1]):
            return found._replace(age=(*line.age[:DATE_NUMBERS], *found.age[DATE_NUMBERS:]), dates=line.dates)
    return found


def ages(text: str) -> list[WrittenAge]:
    """Return the dates, the spans of time, the years and the versions in a plain text. Dates come first."""
    found = list(_dates_in(text))
    return [*found, *_versions_in(text, [(date.start, date.end) for date in found])]


def _edition(part: str, before: str) -> Edition | None:
    """Return the edition of a part of a title, or None if it has no date and no version. Dates decide before versions.

    Args:
        part: The part.
        before: The parts before it, which are words of the series.
    """
    part = plain(part)
    found = ages(part)
    rest = part
    for start, end, *_ in sorted(found, reverse=True):
        rest = f"{rest[:start]} {rest[end:]}"
    series = " ".join(words(f"{before} {rest}"))
    version = next((one.last for one in found if one.kind == "version"), ())
    if days := [one for one in found if one.kind == "date"]:
        last = max(days, key=lambda one: one.last)
        padded = (*last.last, *[0] * (DATE_NUMBERS - len(last.last)))
        return Edition(series, "date", (*padded, *version), (last.first, last.last))
    return Edition(series, "version", version) if version else None


def _said_ages(text: str, metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield the fields of the metadata and the lines that may say the age of a text."""
    yield from (str(value)[:_TITLE_CHARACTERS] for key, value in metadata.items() if _DATED_FIELD.fullmatch(key))
    head = text[:_HEAD_CHARACTERS]
    yield from (line[1] for line in _DATED_LINE.finditer(head))


def _of_first_lines(text: str) -> Edition | None:
    """Return the edition by a short first line with a month or a day, as of a newsletter.

    Below a heading without a date, the next line counts, too. A line of a sentence does not.
    """
    line, mark, rest = text[:_HEAD_CHARACTERS].lstrip().partition("\n")
    lines = [line] if mark and not rest[:1].islower() else []
    if line.startswith("#"):
        below, mark, rest = rest.lstrip().partition("\n")
        lines += [below] if mark and below[-1:] not in _SENTENCE_ENDS and not rest[:1].islower() else []
    editions = (_edition(line, "") for line in lines if len(line) <= _LONGEST_FIRST_LINE)
    return next((one for one in editions if one and one.dates and len(one.dates[1]) > 1), None)


def _dates_in(text: str) -> Iterator[WrittenAge]:
    """Yield the dates, the spans of time and the years in a plain text."""
    numbers = [found.span() for found in _VERSION.finditer(text)]
    taken: list[tuple[int, int]] = []
    found = [WrittenAge(start, end, "date", first, last) for start, end, first, last in periods(text)]
    found += filter(None, map(_in_week, _WEEK.finditer(text)))
    for day in dates(text):
        if not any(start < day.start < end for start, end in numbers):
            reading = day.readings[0]
            age = trimmed((int(reading[:4]), int(reading[4:6]), int(reading[6:] or 0)))
            found.append(WrittenAge(day.start, day.end, "date", age, age))
    years = [(*year.span(), int(year[1])) for year in _YEAR.finditer(text)]
    found += [WrittenAge(*it.span("year"), "date", *[(int(it["year"]),)] * 2) for it in _OF_YEAR.finditer(text)]
    for month in _MONTH.finditer(text):
        age = (int(month["year"]), int(month["month"] or month["padded"]))
        found.append(WrittenAge(*month.span(), "date", age, age))
    found += [WrittenAge(start, end, "date", (year,), (year,)) for start, end, year in (*years, *years_of_eras(text))]
    for one in found:
        if not _overlaps((one.start, one.end), taken):
            taken.append((one.start, one.end))
            yield one


def _in_week(week: re.Match[str]) -> WrittenAge | None:
    """Return the days of a week as ISO 8601 counts it. If the year has no such week, return None."""
    year, number = int(week["year"] or week["year_first"]), int(week["number"] or week["number_last"])
    with suppress(ValueError):
        first, last = (date.fromisocalendar(year, number, day) for day in (1, 7))
        return WrittenAge(*week.span(), "date", first.timetuple()[:DATE_NUMBERS], last.timetuple()[:DATE_NUMBERS])
    return None


def _versions_in(text: str, taken: list[tuple[int, int]]) -> Iterator[WrittenAge]:
    """Yield the versions in a plain text outside the `taken` places.

    A number that begins a heading, as in `3.2 Setup`, is not a version, and neither is an address of a private network.
    """
    for found in _VERSION.finditer(text):
        is_section = found.start() == 0 and found["number"] and text[found.end() :].lstrip()[:1].isalpha()
        is_address = found.start() == found.start("number") and _is_private_address(found["number"])
        if is_section or is_address or _overlaps(found.span(), taken):
            continue
        numbers = tuple(int(it) for it in _NUMBER.findall(next(filter(None, found.groups()))))
        rest = found["rest"] or ""
        early = _EARLY.match(rest)
        stage = _STAGES.index((early and early.lastgroup) or "final")
        padded = (*numbers, *[0] * (_VERSION_NUMBERS - len(numbers)))
        yield WrittenAge(*found.span(), "version", numbers, (*padded, stage, *map(int, _NUMBER.findall(rest))))


def _is_private_address(numbers: str) -> bool:
    """Return True for an address such as 192.168.4.1. A program may have a version that begins with 0."""
    with suppress(ValueError):
        return IPv4Address(numbers).is_private and not numbers.startswith("0.")
    return False


def trimmed(age: tuple[int, ...]) -> tuple[int, ...]:
    """Return an age without the zeros at its end, which stand for an unknown month or day."""
    while age and not age[-1]:
        age = age[:-1]
    return age


def _overlaps(span: tuple[int, int], taken: list[tuple[int, int]]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in taken)
