"""Spans of time in a text: decades, school years, halves and quarters of a year, seasons, early and late in a year.

Texts are plain: in lower case, without accents, in Unicode's form NFC. The words are known in English, German, French,
Spanish, Portuguese, Italian, Dutch, Polish, Czech, Russian, Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SEASONS = {
    name: month
    for month, names in (
        (3, "spring fruhjahr fruhling printemps primavera voorjaar lente wiosna wiosny wiosne jaro jara jare 春"),
        (3, "весна весны весну весне веснои"),
        (6, "summer sommer ete verano verao estate zomer lato latem leto lete лето лета лете летом 夏"),
        (9, "autumn fall herbst automne otono outono autunno herfst jesien jesieni jesienia podzim podzimu 秋"),
        (9, "осень осени осенью"),
        (12, "winter hiver invierno inverno zima zimy zime zimie зима зимы зиму зиме зимои 冬"),
    )
    for name in names.split()
}
_ORDINALS = {
    name: number
    for number, names in enumerate(
        (
            (
                "first 1st 1 i erste ersten erstes premier 1er primer primeiro primo eerste"
                " pierwsze pierwszym pierwszej prvni prvnim первое первом первои"
            ),
            (
                "second 2nd 2 ii 2e zweite zweiten zweites deuxieme segundo secondo tweede"
                " drugie drugi drugim drugiej druhe druhem второе втором второи"
            ),
            (
                "third 3rd 3 iii 3e dritte dritten drittes troisieme tercer terceiro terzo derde"
                " trzeci trzecim treti tretim третьем"
            ),
            (
                "fourth 4th 4 iv 4e last vierte vierten viertes quatrieme cuarto quarto vierde"
                " czwarty czwartym ctvrte ctvrtem четвертом"
            ),
        ),
        start=1,
    )
    for name in names.split()
}
_PARTS = {
    name: months
    for months, names in (
        (6, "half halves halbjahr halfte semestre halfjaar"),
        (6, "polrocze polroczu polowa polowie polowy pololeti polovina polovine"),
        (6, "полугодие полугодии половина половине половины"),
        (3, "quarter quarters quartal quartals trimestre kwartaal"),
        (3, "kwartal kwartale kwartalu ctvrtleti квартал квартале квартала"),
    )
    for name in names.split()
}
"""The months of a part of a year."""
_THIRDS = {
    name: month
    for month, names in (
        (1, "early beginning start anfang debut principios inicios inizio inicio begin"),
        (1, "poczatek poczatku zacatek zacatku начале начала"),
        (5, "mid middle mitte mediados meados polowie polovine середине"),
        (9, "late end ende fin finales fine fins eind"),
        (9, "koncu konec konci конце конца"),
    )
    for name in names.split()
}
"""The first month of the beginning, the middle and the end of a year."""
_FILLERS = frozenset(
    "of in the year des jahres von vom de del du la le el ano della dell do da van het jaar roku roka года".split()
)
_OTHER_MEANINGS = {
    "in": frozenset("start end begin beginning fall spring debut fine fines fins estate".split()),
    "of": frozenset("fine fines fins estate".split()),
}
"""Words that name no part of a year before these fillers, as in `When did it start in 2020?` or `the fine of 2020`."""
JOINTS = frozenset(
    "and to until till through thru or und bis oder et a au ou y al hasta o e ed ao ate en tot i do"
    " и по до или і та".split()
)
LISTING = frozenset("and or und oder et ou y e ed o en i и или і та &".split())
"""The joints that may also list two times. Only words before them, such as `between`, then make a range."""
JOINT = rf"(?: (?:{'|'.join(sorted(JOINTS))}) | ?[-–—&] ?)"
"""What stands between the two ends of a range."""
_BEFORE_PART = frozenset("the der die das dem den zum zur im in le la les el los il lo os de het w v в".split())
"""The words between a joint and a part of a year, as in `from spring to the third quarter`."""
_LONGEST_NAME = 100
"""How many characters before a year may name a part of it."""
_WORD = re.compile(r"[^\W_]+|[-–—/&,;:?!(]")
_STROKES = frozenset("-–—/&")
_YEAR = re.compile(
    r"(?:(?<![a-z\d.:/-])|(?<=[a-z])(?P<stroke>-))(?P<year>(?:1[5-9]|20)\d\d)(?:"
    r"(?P<decade>'?s|er(?:[- ]jahren?)?|-?х|年代)(?!\w)"
    r"|(?:/|-(?=\d{4}|1[3-9]|[02-9]))(?P<next>\d{4}|\d\d)(?![\d/-])"
    r"|[ /-]?(?P<part>[qht])(?P<number>[1-4])(?!\w)(?:" + JOINT + r"(?P=part)(?P<last_number>[1-4])(?!\w))?"
    r"|[年년] ?の?(?:(?P<first_half>上半期|上半年|前半|상반기)|(?P<second_half>下半期|下半年|後半|하반기)"
    r"|第?(?P<quarter>[1-4])(?:四半期|季度|분기)|(?P<season>[春夏秋冬]))"
    r"|(?!\d))"
)
"""A year, and what may follow it in the name of a longer or shorter time."""
_PART = re.compile(r"(?P<part>[qht])(?P<number>[1-4])")
_MONTHS_OF = {"q": 3, "t": 3, "h": 6}
_LAST_MONTH, _MOST_YEARS = 12, 20


class Period(NamedTuple):
    """A span of time at `text[start:end]`, from the year or month `first` to `last`."""

    start: int
    end: int
    first: tuple[int, ...]
    last: tuple[int, ...]


def periods(text: str) -> Iterator[Period]:
    """Yield the decades, the spans of years and the parts of years in a plain text.

    The winter of a year is from its December to the next February. A number up to 12 after a stroke is a month, as in
    2010-11.
    """
    for found in _YEAR.finditer(text):
        year = int(found["year"])
        start, end = found.start("year"), found.end()
        if found["decade"]:
            if not year % 10:
                yield Period(start, end, (year,), (year + 9,))
            continue
        if months := _months_after(found):
            yield _period(start, end, year, *months)
        elif parts := _parts_before(text[max(0, start - _LONGEST_NAME) : start]):
            for number, (first, last, length) in enumerate(parts, start=1):
                ends = end if number == len(parts) else start - parts[number][2]
                yield _period(start - length, ends, year, first, last)
        elif found["next"] and not found["stroke"]:
            last_year = year + 1 if found["next"] == str(year + 1)[2:] else int(found["next"])
            if year < last_year <= year + _MOST_YEARS:
                yield Period(start, end, (year,), (last_year,))


def _months_after(year: re.Match[str]) -> tuple[int, int] | None:
    """Return the first and the last month of the part of a year that is written after the year."""
    if year["part"]:
        months = [_months(_MONTHS_OF[year["part"]], int(year[it] or 1)) for it in ("number", "last_number")]
        return months[0][0], max(months)[1]
    if year["first_half"] or year["second_half"]:
        return (1, 6) if year["first_half"] else (7, _LAST_MONTH)
    if year["quarter"]:
        return _months(3, int(year["quarter"]))
    return _season(_SEASONS[year["season"]]) if year["season"] else None


def _period(start: int, end: int, year: int, first: int, last: int) -> Period:
    return Period(start, end, (year, first), (year + (last > _LAST_MONTH), (last - 1) % _LAST_MONTH + 1))


def _parts_before(text: str) -> list[tuple[int, int, int]]:
    """Return the parts of a year that end a text: their first and last months, and the lengths of the text from them.

    Two parts are returned if they are listed and do not follow each other.
    """
    found = list(_WORD.finditer(text))
    before = [word[0] for word in found]
    filler = ""
    while before and before[-1] in _FILLERS | _STROKES:
        filler = before.pop()
    if before and before[-1] in _OTHER_MEANINGS.get(filler, ()):
        return []
    if not (months := _last_part(before)):
        return []
    first, last, count = months
    length = len(text) - found[len(before) - count].start()
    rest, noun = before[:-count], before[len(before) - count + 1 :]
    while rest and rest[-1] in _BEFORE_PART:
        rest.pop()
    if rest and (joint := rest.pop()) in JOINTS | _STROKES:
        # Of `second and third quarter`, the first part has no noun.
        for shared in ([], noun):
            if other := _last_part([*rest, *shared]):
                longer = len(text) - found[len(rest) + len(shared) - other[2]].start()
                if joint in LISTING and other[1] + 1 < first:
                    return [(*other[:2], longer), (first, last, length)]
                return [(min(first, other[0]), last, longer)]
    return [(first, last, length)]


def _last_part(before: list[str]) -> tuple[int, int, int] | None:
    """Return the first and the last month of the part of a year that ends the words, and the number of its words."""
    match before:
        case [*_, name] if part := _PART.fullmatch(name):
            return *_months(_MONTHS_OF[part["part"]], int(part["number"])), 1
        case [*_, "real", "estate"]:
            return None
        case [*_, name] if name in _SEASONS:
            return *_season(_SEASONS[name]), 1
        case [*_, number, name] if name in _PARTS and number in _ORDINALS:
            return *_months(_PARTS[name], _ORDINALS[number]), 2
        case [*_, name] if name in _THIRDS:
            return _THIRDS[name], _THIRDS[name] + 3, 1
    return None


def _months(length: int, number: int) -> tuple[int, int]:
    """Return the first and the last month of a half or of a quarter. Every half but number 1 is the second."""
    last = min(length * number, _LAST_MONTH)
    return last - length + 1, last


def _season(month: int) -> tuple[int, int]:
    """Return the first and the last month of a season. The months of the next year follow 12."""
    return month, month + 2
