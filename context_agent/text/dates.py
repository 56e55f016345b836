"""The dates in a text in one notation, whatever notation the text has.

A question about 3 May 2021 has no word of a text that says 2021-05-03 or 05/03/2021, except the year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from context_agent.text.normalization import without_marks

_YEAR = re.compile(r"[12](?<!\d[12])(?:(?<=1)\d|(?<=2)0)\d\d(?!\d)")
"""A year. The pattern matches a digit before it looks behind it, so that `re` skips other characters quickly."""
_AFTER_YEAR = re.compile(
    r"(?!\.\d++(?!\.\d))([-/._])(\d{1,2})(?:\1(\d{1,2}))?(?!\d)"
    r"|[ ]?[年년][ ]?(\d{1,2})[ ]?[月월](?:[ ]?(\d{1,2})[ ]?[日일])?"
)
"""What follows the year in `2021-05-03`, in `2021-05` and in 2021年5月3日. `2021.05` is a number or a version."""
_DAY_AND_MONTH = re.compile(r"(?<![\d.])(\d{1,2})([-/.])[ ]?(\d{1,2})\2[ ]?\Z")
_NAMED_MONTH = re.compile(
    r"(?:(?<!\d)(\d{1,2})(?:st|nd|rd|th|er|\.)?[\s-]{1,2}(?:(?:of|de)\s)?)?"
    r"(?<![^\W\d_])([^\W\d_]{3,12})\.?(?:\s(\d{1,2})(?:st|nd|rd|th)?)?,?[\s-]{1,2}(?:(?:of|de|del)\s)?\Z"
)
"""What precedes the year in `3 May 2021`, in `May 3, 2021` and in `May 2021`."""
_LONGEST_BEGINNING = 32
_ERA = re.compile(
    r"(明治|大正|昭和|平成|令和|民[国國])[ ]?(元|\d{1,3})[ ]?年(?:[ ]?(\d{1,2})[ ]?月(?:[ ]?(\d{1,2})[ ]?日)?)?"
)
"""A date in the years of a Japanese emperor or of the Republic of China. The first year may be 元."""
_YEARS_BEFORE = {"明治": 1867, "大正": 1911, "昭和": 1925, "平成": 1988, "令和": 2018, "民国": 1911, "民國": 1911}
"""The year before the first year of each era of Japan, and of the Republic of China."""
_COMPACT = re.compile(r"[12](?<!\d[12])(?:(?<=1)9|(?<=2)0)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?!\d)")
"""A date such as `20210503`, as in names of files."""
_DAY_FIRST = re.compile(
    r"(?<![\d.,:/-])(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?[ ](?:(?:of|de)[ ])?(?P<month>[^\W\d_]{3,12})(?!\w)"
)
_MONTH_FIRST = re.compile(r"(?<!\w)(?P<month>[^\W\d_]{3,12})\.?[ ](?P<day>\d{1,2})(?:st|nd|rd|th)?(?![.,:]?\d)(?!\w)")
"""A number before and after a word. It is a day if the word is a month."""
_WHOLE_DATE = re.compile(r"[12]\d{3}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
_MONTH_NAMES = (
    (
        "january jan januar januari janner janvier enero gennaio janeiro ledna leden lednu lednem ocak tammikuuta"
        " stycznia styczen styczniu styczniem января январь январе январем січня січень січні січнем"
    ),
    (
        "february feb februar februari fevrier fevr febrero febbraio fevereiro unora unor unoru unorem subat helmikuuta"
        " lutego luty lutym февраля февраль феврале февралем лютого лютии лютому лютим"
    ),
    (
        "march mar marz mars marts marzo marco maart brezna brezen breznu breznem mart maaliskuuta"
        " marca marzec marcu marcem марта март марте мартом березня березень березні березнем"
    ),
    (
        "april apr avril avr abril aprile dubna duben dubnu dubnem nisan huhtikuuta"
        " kwietnia kwiecien kwietniu kwietniem апреля апрель апреле апрелем квітня квітень квітні квітнем"
    ),
    (
        "may mai mayo maggio maio mei maj kvetna kveten kvetnu kvetnem mayis toukokuuta"
        " maja maju majem мая маи мае маем травня травень травні травнем"
    ),
    (
        "june jun juni juin junio giugno junho cervna cerven cervnu cervnem haziran kesakuuta"
        " czerwca czerwiec czerwcu czerwcem июня июнь июне июнем червня червень червні червнем"
    ),
    (
        "july jul juli juillet juil julio luglio julho cervence cervenec cervenci cervencem temmuz heinakuuta"
        " lipca lipiec lipcu lipcem июля июль июле июлем липня липень липні липнем"
    ),
    (
        "august aug aout agosto augustus augusti srpna srpen srpnu srpnem agustos elokuuta"
        " sierpnia sierpien sierpniu sierpniem августа август августе августом серпня серпень серпні серпнем"
    ),
    (
        "september sep sept septembre septiembre settembre setembro zari zarim eylul syyskuuta"
        " wrzesnia wrzesien wrzesniu wrzesniem сентября сентябрь сентябре сентябрем вересня вересень вересні вереснем"
    ),
    (
        "october oct oktober okt octobre octubre ottobre outubro rijna rijen rijnu rijnem ekim lokakuuta"
        " pazdziernika pazdziernik pazdzierniku pazdziernikiem"
        " октября октябрь октябре октябрем жовтня жовтень жовтні жовтнем"
    ),
    (
        "november nov novembre noviembre novembro kasim marraskuuta"
        " listopada listopad listopadu listopadzie listopadem ноября ноябрь ноябре ноябрем"
        " листопада листопад листопаді листопадом"
    ),
    (
        "december dec dezember dez decembre diciembre dicembre dezembro prosince prosinec prosinci prosincem"
        " aralik joulukuuta"
        " grudnia grudzien grudniu grudniem декабря декабрь декабре декабрем грудня грудень грудні груднем"
    ),
)
"""The names of the months in 14 languages, without accents."""
_OTHER_WORDS = frozenset(["marca", "maja", "mart", "nisan"])
"""Names of months that are also other words, such as Spanish for a brand.

They are months only beside a day, or after a word such as Polish `od` (since).
"""
_MONTH_FOLLOWS = re.compile(r"(?<!\w)(?:od|do|z|przed) \Z", re.IGNORECASE)
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES, start=1) for name in names.split()}


class WrittenYear(NamedTuple):
    """A year of an era at `text[start:end]`, in the Gregorian calendar."""

    start: int
    end: int
    year: int


class WrittenDate(NamedTuple):
    """A date or a month at `text[start:end]`, and what it may mean: `20210503`, or `202105` for a month."""

    start: int
    end: int
    readings: tuple[str, ...]


def dates(text: str) -> Iterator[WrittenDate]:
    """Yield the dates and the months with a year in a text. Dates without marks, such as `20210503`, come last.

    A date such as 05/03/2021 has two readings, because some countries write the month first.
    """
    for year in _YEAR.finditer(text):
        if after := _AFTER_YEAR.match(text, year.end()):
            readings = _readings(year[0], [(after[2] or after[4], after[3] or after[5])])
            start, end = year.start(), after.end()
        else:
            start, pairs = _before(text, year.start())
            readings, end = _readings(year[0], pairs), year.end()
        if readings:
            yield WrittenDate(start, end, readings)
    for era in _ERA.finditer(text):
        if era[3] and (readings := _readings(str(_year_of(era)), [(era[3], era[4])])):
            yield WrittenDate(*era.span(), readings)
    for compact in _COMPACT.finditer(text):
        yield WrittenDate(*compact.span(), (compact[0],))


def years_of_eras(text: str) -> Iterator[WrittenYear]:
    """Yield the years of eras without a month, such as 令和5年."""
    for era in _ERA.finditer(text):
        if not era[3]:
            yield WrittenYear(*era.span(), _year_of(era))


def month_number(name: str) -> int:
    """Return the number of the month with this name. If the word is not the name of a month, return 0.

    Case and accents do not matter.
    """
    return _MONTHS.get(without_marks(name.lower()), 0)


def days(text: str) -> Iterator[tuple[str, str]]:
    """Yield the days of a month without a year, as written and as `--0503`, the notation of ISO 8601."""
    with_year = [(date.start, date.end) for date in dates(text)]
    for found in chain(_DAY_FIRST.finditer(text), _MONTH_FIRST.finditer(text)):
        day, month = int(found["day"]), month_number(found["month"])
        alone = all(found.end() <= start or end <= found.start() for start, end in with_year)
        if month and 1 <= day <= 31 and alone:
            yield found[0], f"--{month:02}{day:02}"


def days_of(terms: Iterable[str]) -> frozenset[str]:
    """Return the days of the dates among the identifiers of a text, as `days` writes them."""
    return frozenset(f"--{term[4:]}" for term in terms if _WHOLE_DATE.fullmatch(term))


def _year_of(era: re.Match[str]) -> int:
    """Return the Gregorian year of a year of an era."""
    return _YEARS_BEFORE[era[1]] + (1 if era[2] == "元" else int(era[2]))


def _before(text: str, end: int) -> tuple[int, list[tuple[str, str]]]:
    """Return the start of the date whose year begins at `end`, and the month and the day in each of its readings."""
    near = max(0, end - _LONGEST_BEGINNING)
    if numeric := _DAY_AND_MONTH.search(text, near, end):
        day, mark, month = numeric.groups()
        return numeric.start(), [(month, day)] if mark == "." else [(month, day), (day, month)]
    if named := _NAMED_MONTH.search(text, near, end):
        name, day = without_marks(named[2].lower()), named[1] or named[3] or ""
        if day or name not in _OTHER_WORDS or _MONTH_FOLLOWS.search(text, near, named.start(2)):
            return named.start(), [(str(_MONTHS.get(name, 0)), day)]
    return end, []


def _readings(year: str, pairs: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the dates in this year that exist, each once. A month without a day is one, too."""
    return tuple(
        dict.fromkeys(
            f"{year}{int(month):02}{int(day):02}" if day else f"{year}{int(month):02}"
            for month, day in pairs
            if 1 <= int(month) <= 12 and 1 <= int(day or 1) <= 31
        )
    )
