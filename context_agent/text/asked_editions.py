"""Which editions of a series a question asks for: the newest, the last three, those since 2020, those of a winter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from context_agent.text.dates import month_number
from context_agent.text.editions import DATE_NUMBERS, Edition, WrittenAge, ages, trimmed
from context_agent.text.normalization import plain
from context_agent.text.periods import JOINT
from context_agent.text.words import words

QUESTION_CHARACTERS = 2_000
"""The last characters of a question that are searched."""
_ASKING = (
    r"wer|was|wo|wie|qui|quoi|quien|que|donde|cuanto|chi|cosa|dove|quem|quanto|wat|kto|co|gdzie|ile|jaki\w*"
    r"|kdo|kde|kolik|jak\w{0,3}|кто|что|где|сколько|как\w{0,3}"
)
"""Words before `now` in another language that make it part of the question."""
_NEWEST = re.compile(
    r"\b(?:latest|newest|most recent(?:ly)?|up[ -]to[ -]date|current(?:ly)?|as of (?:now|today)|nowadays|in force)\b"
    r"|(?<!\bto )(?<!\buntil )(?<!\btill )(?<!\bby )(?<!\bdo )"
    r"\b(?:today|now|jetzt|maintenant|ahora|adesso|agora|teraz|nyni|сеичас)(?= *[?.!]*$)"
    r"|\b(?:the|'s|its|their|your|our|my) last (?!(?:year|half|quarter|month|week|night|names?|few|two|three|resort"
    r"|minute|digits?|characters?|lines?|steps?|rows?|columns?|pages?)\b|\d)\w"
    r"|^ last (?:version|release|update|meeting|minutes|report)\b"
    r"|\bwhen (?:did|was|were|is|has|have|had) .{1,80}? last\b(?! (?:year|month|week|night|name))"
    rf"|\b(?:{_ASKING}) (?:jetzt|maintenant|ahora|adesso|agora|nu|teraz|nyni|ted|сеичас)\b"
    # German; French, Spanish, Portuguese and Italian; Dutch and Scandinavian; Polish, Czech and Slovak; Russian and
    # Ukrainian.
    r"|\b(?:neue?ste[nrs]?|jungste[nrs]?|letzte[nrs]?|zuletzt|aktuell\w*|derzeit\w*"
    r"|dernier\w*|plus recente?s?|actuel\w*|ultim[aoie]s?|mas recientes?|mais recentes?|atua(?:l|is)|piu recent[ei]"
    r"|attual[ei]|nieuwste|laatste|huidige|meest recente|senaste|nyeste|seneste|nuvarande"
    r"|najnowsz\w+|ostatni\w*|obecn\w+|aktualn\w+|nejnovejsi\w*|najnovs\w+|posledn\w+|soucasn(?:y|a|ou|eho|em)"
    r"|последн\w+|новейш\w+|сам\w{2,3} (?:нов|свеж)\w{2,3}|текущ\w+|останн\w+|поточн\w+)\b"
    r"|最新|直近|現在|目前|最近|当前|최신|최근|현재"
)
"""Words that ask for the newest edition, without accents."""
_OLDEST = re.compile(
    r"\b(?:earliest|oldest)\b"
    r"|\bfirst (?:\w+ ){0,2}?(?:version|release|edition|revision|issue|meeting|session|report|draft|update|inspection"
    r"|audit|incident|drill|visit|delivery)s?\b"
    r"|\berste[nrs]? (?:fassung|version|ausgabe|auflage|sitzung)\b|\bpremiere (?:version|edition|reunion|seance)\b"
    r"|\b(?:primera|primeira|prima|eerste) (?:vers\w{2,4}|edic\w{2,3}|ediz\w{2,3}|editie|reuni\w{1,4}|riunione)\b"
    r"|\bpierwsz\w+ (?:wersj\w+|wydani\w+|zebrani\w+|protok\w+)|\bprvni\w* (?:verz\w+|vydani\w*|jednani\w*|schuz\w+)"
    r"|\b(?:перв|перш)\w+ (?:верси|редакци|редакці|издани|видан|собрани|заседани|протокол)\w*"
    r"|\bwhen (?:did|was|were|has|have|had) .{1,80}? first\b"
    r"|\b(?:alteste[nrs]?|plus ancien\w*|mas antigu[ao]s?|mais antig[ao]s?|piu vecchi[ao]|oudste|aldst[ae]"
    r"|najstarsz\w+|сам\w\w ранн\w\w)\b"
    r"|最古|最早|가장 오래된"
)
"""Words that ask for the oldest edition, without accents."""
_NUMBERS = {
    word: number
    for number, names in enumerate(
        (
            "two zwei deux dos due dois duas twee tva dwa dwie dwoch два две двух 二 两",
            "three drei trois tres tre drie trzy trzech три трех 三",
            "four vier quatre cuatro quattro quatro fyra fire cztery czterech четыре четырех 四",
            "five funf cinq cinco cinque vijf fem piec pieciu пять пяти 五",
            "six sechs seis sei zes sex seks szesc шесть шести 六",
            "seven sieben sept siete sette sete zeven sju siedem семь семи 七",
            "eight acht huit ocho otto oito atta osiem восемь восьми 八",
            "nine neun neuf nueve nove negen nio dziewiec девять девяти 九",
            "ten zehn dix diez dieci dez tien tio dziesiec десять десяти 十",
        ),
        start=2,
    )
    for word in names.split()
}
_NUMBER = rf"(?:[2-9]|1[0-2]|{'|'.join(_NUMBERS)})"
_LAST = (
    r"(?:last|latest|newest|most recent|final|letzten|neuesten|jungsten|dernier\w*|ultim[aoie]s?|mas recientes"
    r"|mais recentes|piu recenti|laatste|nieuwste|senaste|sista|seneste|nyeste|sidste|ostatni\w*|najnowsz\w+"
    r"|последни\w+|останн\w+)"
)
_FIRST = (
    r"(?:first|earliest|oldest|ersten|altesten|premier\w*|primer[ao]s|primeir[ao]s|prim[ei]|eerste|oudste|forsta"
    r"|forste|pierwsz\w+|найперш\w+|перв\w+|перш\w+)"
)
_FIRST_WORD = re.compile(rf"(?<!\w){_FIRST}(?!\w)|最初")
"""A word that asks for the oldest edition if the question says since when."""
_EDITION_NOUN = (
    r" (?!(?:years?|months?|weeks?|days?|hours?|names?|digits?|characters?|letters|words?|lines?|steps?|rows?|columns?"
    r"|pages?|chapters?|items?|points?|people|jahren?|monaten?|wochen?|tagen?|ans|annees|mois|semaines|jours|anos"
    r"|meses|semanas|dias|anni|mesi|settimane|giorni|jaar|maanden|weken|dagen|ar|manader|veckor|dagar|lata?"
    r"|miesiec\w+|tygodni\w*|dni|года|лет|месяц\w*|недел\w+|дн\w+)\b)\w"
)
"""A word that may name an edition. A number of years or of lines is something else."""
_COUNTED = re.compile(
    rf"\b(?:(?P<last>{_LAST})|(?P<first>{_FIRST})) (?P<count>{_NUMBER}){_EDITION_NOUN}"
    rf"|\b(?P<count_before>{_NUMBER}) (?:(?P<last_after>{_LAST})|(?P<first_after>{_FIRST})){_EDITION_NOUN}"
    rf"|(?:(?P<last_east>最近|直近|最新)|(?P<first_east>最初|最早))の?(?P<count_east>{_NUMBER}) ?"
    r"(?:[回次件版号期つ份]|个(?!月|星期|小时|季度))"
    r"|(?P<last_korean>최근|지난) ?(?P<count_korean>[2-9]) ?(?:[회번차건]|개(?!월))"
)

_SIDES = re.compile(
    r"(?<!\w)(?:"
    r"(?P<both>before (?:and|or) after|vor und nach|avant et apres|antes y despues|prima e dopo|до и после)"
    r"|(?P<least>since|(?:start|beginn)ing (?:with|from|in)|(?:no|not) (?:before|earlier than|older than)|nicht vor"
    r"|seit|ab|depuis|a partir d\w+|desde|dal(?:la)?|sinds"
    r"|vanaf|od|с|со|от|начиная с|від)"
    r"|(?P<after>after|later than|newer than|(?<!the )following|nach|apres|despues d\w+|posterior\w* a|depois d\w+|dopo"
    r"|po|после|після|новее)"
    r"|(?P<most>until|till|up to(?: and including)?|not after|(?:no|not) (?:later|newer) than|bis(?: zu[mr]?)?"
    r"|jusqu\W?\w+|hasta(?: la| el)?|ate|fino a\w*|tot(?: en met)?|t/m|az do|do(?= rok)|до|по)"
    r"|(?P<before>(?:until )?before|prior to|earlier than|older than|preceding|vor|avant|antes d\w+|anterior\w* a"
    r"|prima d\w+|voor|przed|pred|перед|раньше|ранее)"
    r")(?! (?!spring|beginning)[a-z]{2,15}ing\b)"
    r"(?: (?!\d|(?:in|during|im|en|em|nel|w|в|to|auf|vers|you|we|they|he|she|it|my|your|our|before|after|until)\b)"
    r"[^\s,;.:?!]{1,20}){0,4}"
    r" ?\Z"
)
"""Words before an age that say on which side of it the asked editions are, without accents.

`After upgrading to 3.0` says no side, because a text about the update to 3.0 is asked for.
"""
_LONGEST_SIDE = 100
"""How many characters before an age are searched for such words."""
_OR = "(?:and|or|und|oder|et|ou|y|o|e|i|lub|и|или)"
_NO_THAN = r"(?! (?:than|als|que|di|dan)\b)"
"""What must not follow `or newer`. If it does, these words are part of another comparison."""
_SIDES_AFTER = re.compile(
    r"(?:版|号|版本|月|年|日|버전|년|월|일)? ?(?:"
    rf"(?P<least>\+(?!\w)|,? ?{_OR} (?:later|newer|above|higher|up|beyond|neuer|hoher|spater|plus recent\w*"
    r"|posterior\w*|superior\w*|successiv\w*|nowsz\w*|позже|новее|выше)\b"
    rf"{_NO_THAN}"
    r"|(?:on|up)wards?\b|(?:on|forward)(?= ?(?:[?.!,]|\Z))"
    r"|(?:to|until|till|through|bis|a|jusqu'a|hasta|tot|до|по|[-–—]) ?(?:the )?(?:now|today|present"
    r"|date|heute|jetzt|aujourd'hui|hoy|oggi|hoje|heden|nu|сегодня\w*)\b"
    r"|以降|以来|以上|以后|以後|起(?![草诉訴])|から|이후|이래|부터)"
    rf"|(?P<most>,? ?{_OR} (?:earlier|older|below|lower|fruher|alter"
    r"|plus ancien\w*|anterior\w*|inferior\w*|precedent\w*|starsz\w*|раньше|старше|ниже)\b"
    rf"{_NO_THAN}|まて|以下|为止|까지|이하)"
    r"|(?P<after>より後|の後(?![半期])|之后|之後|다음|후(?=(?:에|의)?(?!\w)))"
    r"|(?P<before>より前|以前|の前(?![半期])|之前|前(?![\d半期后後任一二三四五六七八九十两])|이전|전(?=(?:에|의)?(?!\w)))"
    r")"
)
"""Words after an age that say the same. Without its marks, the Japanese word for `until` is まて."""
_AMOUNT = r"[$€£¥]?\d{1,9}(?:[.,]\d{1,9}){0,3}"
_QUANTITY = re.compile(
    rf"(?<![\w.,])(?:{_AMOUNT}(?: ?am)?{JOINT})?{_AMOUNT}[ -]?(?:[%°€£]|(?:percent|per cent|pct|prozent|degrees?|grad"
    r"|ms|secs?|seconds?|sekunden|[cmk]m|kilomet\w{2,4}|met(?:er|re)s?|miles|inch(?:es)?|feet|ft|[km]g|grams?|tons?"
    r"|tonnes?|ml|lit(?:er|re)s?|[kmgt]i?b|[kmg]?hz|kwh|volts?|watts?|amps?|dollars?|euros?|eur|usd|gbp|chf|yen|pounds"
    r"|uhr|pm|o'clock|years|jahren?|ans|annees|anos|anni|jaar|лет|(?<!\d{4} )(?:minut\w{1,3}|hours?|stunden|days|tagen?"
    r"|weeks|wochen|months|monaten?|times))(?![\w'’]))"
    r"|(?:[$€£¥§]|(?<!\w)(?:(?:more|fewer) than|rfcs?|ports?|pages?|lines?|(?:sections?|sec|chapters?|ch|figures?|fig"
    r"|tables?|tab|paragraphs?|clauses?|articles?|art|steps?|equations?|eq|kapitel|abschnitt|absatz|artikel|tabelle"
    r"|abbildung|chapitre|capitulo|seccion|capitolo|sezione|articolo|rozdzial|раздел\w*)"
    r"(?!\.? ?(?:19|20)\d\d(?!\d)))\.?)"
    rf" ?{_AMOUNT}(?:{JOINT}{_AMOUNT})?"
)
"""A number that is not a year or a version, because it has a unit or is the number of a section."""
_PLURAL_VERSIONS = re.compile(
    r"(?<!\w)(?:version|release|edition|revision|issue|volume|build)\w{0,2} (?P<numbers>v?\d{1,6}(?: ?, v?\d{1,6}){0,8}"
    rf",?{JOINT}v?\d{{1,6}})(?![\w.]\w)"
)
_DIGITS = re.compile(r"\d+")
_LISTED = re.compile(rf"(?: ?,(?: {_OR})?| {_OR}| ?&)(?: [^\W\d]{{1,8}}){{0,3}} ?\Z")
"""What follows an age in a list, as in `in March or in June 2023`."""
_BETWEEN = re.compile(
    r"(?<!\w)(?:between|zwischen|entre|tra|fra|tussen|mellan|mellem|mellom|miedzy|pomiedzy|mezi|medzi|между|між)"
    r"(?: [^\W\d]{1,12}){0,3} ?\Z"
)
"""Words before two ages that are the ends of a range, although `and` stands between them."""
_NOT = r"(?:not|nicht|pas|no|non|nao|niet|nie|ne|не)"
_DENIED = re.compile(
    r"(?:(?P<instead>(?<!\w)(?:instead of|rather than|other than|except(?: for)?|statt|ausser|au lieu d\w|sauf"
    rf"|en lugar de|excepto|invece d\w{{1,3}}|zamiast|oprocz|вместо|кроме)|\d,(?: but| and)? {_NOT})|(?<!\w){_NOT})"
    r"(?: (?!only|just|nur|seulement|solo|so|alleen|tylko|jen|только)[^\W\d]{1,12}){0,3} ?\Z"
)
_CONTRAST = re.compile(r",? (?:but|sondern|mais|sino|ma|mas|maar|lecz|ale|а)\b")
"""Words around an age that is not asked for, as in `not in 2019 but in 2021`."""
_MONTH_BEFORE = (
    r"(?:(?<!\d)(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)? (?:(?:of|de) )?)?(?P<month>[^\W\d_]{3,12})\.?"
    r"(?: (?P<day_after>\d{1,2})(?:st|nd|rd|th)?)?"
)
_JOINED_MONTH = re.compile(rf"{_MONTH_BEFORE}{JOINT}(?:[^\W\d_]{{1,5}} ){{0,2}}\Z")
_LISTED_MONTH = re.compile(rf"{_MONTH_BEFORE} ?, (?:[^\W\d_]{{1,5}} ){{0,2}}\Z")
_JOINED_DAY = re.compile(rf"(?<!\d)(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.)?{JOINT}(?:[^\W\d_]{{1,3}} )?\Z")
_MONTH_AFTER = re.compile(
    r" ?(?:から|到|至|부터|에서|[-~〜–]) ?(?P<month>\d{1,2})[月월](?: ?(?P<day>\d{1,2})[日号일])?"
)
_UNSPACED = re.compile(r"(?<=\d\d\d\d)[-–—](?=(?:19|20)\d\d(?!\d))|(?<=\d\.\d)[-–—](?=v?\d{1,3}\.\d)")
"""The stroke of a range without spaces, such as 2019-2021."""
_MONTHS = range(1, 13)


class AgeRange(NamedTuple):
    """The ages from `least` to `most`, which are included unless `after` or `before` is set. An empty end is open."""

    kind: Literal["date", "version"]
    least: tuple[int, ...] = ()
    most: tuple[int, ...] = ()
    after: bool = False
    before: bool = False

    def includes(self, edition: Edition) -> bool:
        """Return True if an edition is in the range, as 2.4.1 and 2.5 are in 2.4 to 2.5.

        A text about a longer time, such as a quarter, is in the range if they overlap. If an end does not count, the
        whole time must be beyond that end.
        """
        first, last = self._span(edition)
        return bool(first) and not (
            last[: len(self.least)] < self.least[: len(last)]
            or first[: len(self.most)] > self.most[: len(first)]
            or (self.after and first[: len(self.least)] <= self.least)
            or (self.before and last[: len(self.most)] >= self.most[: len(last)])
        )

    def compares(self, edition: Edition) -> bool:
        """Return True if the time or the version of an edition is known."""
        return any(self._span(edition))

    def _span(self, edition: Edition) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the first and the last age of an edition, which are empty if they are unknown."""
        if self.kind == "date":
            return edition.dates or ((), ())
        numbers = edition.age if edition.kind == "version" else edition.age[DATE_NUMBERS:]
        return numbers, numbers


@dataclass(frozen=True, slots=True)
class AskedEditions:
    """The editions that a question asks for.

    Attributes:
        which: Which of the editions in the ranges are asked for, or None for all of them.
        count: How many of these are asked for.
        ranges: The ages that the question names. The editions are in one of the ranges of each kind.
        words: The words of the question that say so.
    """

    which: Literal["newest", "oldest"] | None
    count: int
    ranges: tuple[AgeRange, ...]
    words: frozenset[str]

    @property
    def is_named(self) -> bool:
        """True if the question only names a date or a version, as in `the minutes of 2022`."""
        kinds = {one.kind for one in self.ranges}
        return not self.which and len(kinds) == len(self.ranges) and all(one.least == one.most for one in self.ranges)

    def includes(self, edition: Edition) -> bool:
        """Return True if an edition is in one of the ranges of each kind."""
        kinds = {one.kind for one in self.ranges}
        return kinds == {one.kind for one in self.ranges if one.includes(edition)}


def asked_editions(question: str) -> AskedEditions | None:
    """Return which editions a question asks for. If it asks for none, return None.

    Of a question in several lines, such as a conversation, only the last line counts.
    """
    last_line = question.rstrip()[-QUESTION_CHARACTERS:].rpartition("\n")[2]
    # Without the blank, a version at the beginning would be the number of a section.
    text = f" {_UNSPACED.sub(' - ', ' '.join(plain(last_line).split()))}"
    which, count, said = _asked_place(text)
    named = [one for one in sorted(_named_ages(text)) if not _is_denied(text, one)]
    ranges = tuple(_ranges(text, named))
    if not which and any(one.after or not one.most for one in ranges) and (first := _first_word(text, named)):
        which, said = "oldest", set(words(first))
    if not which and not ranges:
        return None
    said.update(*(words(text[one.start : one.end]) for one in named))
    return AskedEditions(which, count, ranges, frozenset(said))


def _asked_place(text: str) -> tuple[Literal["newest", "oldest"] | None, int, set[str]]:
    """Return which editions are asked for, how many, and the words that say so."""
    if counted := _COUNTED.search(text):
        given = counted.groupdict()
        is_last = any(value for name, value in given.items() if name.startswith("last"))
        number = next(value for name, value in given.items() if name.startswith("count") and value)
        count = _NUMBERS.get(number) or int(number)
        return "newest" if is_last else "oldest", count, set(words(counted[0].rpartition(" ")[0] or counted[0]))
    if newest := _NEWEST.search(text):
        said = newest[0].split()[-1] if newest[0].startswith("when ") else newest[0]
        return "newest", 1, set(words(said))
    if oldest := _OLDEST.search(text):
        return "oldest", 1, set(words(oldest[0].split()[-1]))
    return None, 1, set()


def _first_word(text: str, named: list[WrittenAge]) -> str:
    """Return the first word that asks for the oldest edition. If there is none, return "".

    A word that is part of an age, as in `the first quarter of 2021`, does not count.
    """
    outside = (
        found[0]
        for found in _FIRST_WORD.finditer(text)
        if not any(one.start - len(" of ") <= found.end() <= one.end for one in named)
    )
    return next(outside, "")


def _ranges(text: str, named: list[WrittenAge]) -> Iterator[AgeRange]:
    """Yield the range of the dates and that of the versions in a question."""
    sides: list[str] = []
    end = 0
    for one in named:
        before = _SIDES.search(text, max(end, one.start - _LONGEST_SIDE), one.start)
        side = _SIDES_AFTER.match(text, one.end) or before
        name = (side and side.lastgroup) or ""
        sides.append(name if name != "both" else "")
        end = one.end
    for kind in ("date", "version"):
        found = [(one, side) for one, side in zip(named, sides, strict=True) if one.kind == kind]
        if _is_list(text, [one for one, _ in found]) and not any(side for _, side in found):
            yield from (AgeRange(kind, one.first, one.last) for one, _ in found)
        elif found:
            made = _range(kind, found)
            if made.least and made.most and made.least > made.most:
                yield made._replace(least=(), after=False)
                made = made._replace(most=(), before=False)
            yield made


def _is_list(text: str, named: list[WrittenAge]) -> bool:
    """Return True if the ages of a question are a list, as in `in 2019 and 2022`, and not the ends of a range."""
    return (
        len(named) > 1
        and all(_LISTED.search(text, one.start, after.start) for one, after in pairwise(named))
        and not _BETWEEN.search(text, max(0, named[0].start - _LONGEST_SIDE), named[0].start)
    )


def _range(kind: Literal["date", "version"], found: list[tuple[WrittenAge, str]]) -> AgeRange:
    """Return the range that ages of one kind make, given on which side of each the editions are.

    Several ages are the ends of a range, whatever stands between them, unless each has a side, as in `after 2019 and
    before 2022`. An age without a side is compared with the next one, as in `Is 2.8 older than 3.2?`.
    """
    sides = [side for _, side in found]
    if sides[0] != "before" and (not sides[0] or any(side in ("", "most") for side in sides[1:])):
        return AgeRange(kind, min(one.first for one, _ in found), max(one.last for one, _ in found))
    made = AgeRange(kind)
    for one, side in found:
        match side:
            case "least" | "after":
                made = made._replace(least=one.last if side == "after" else one.first, after=side == "after")
            case "most" | "before":
                made = made._replace(most=one.first if side == "before" else one.last, before=side == "before")
    return made


def _is_denied(text: str, named: WrittenAge) -> bool:
    """Return True if a question says that it does not ask for an age, as in `not in 2019 but in 2021`."""
    denied = _DENIED.search(text, max(0, named.start - _LONGEST_SIDE), named.start)
    return denied is not None and bool(denied["instead"] or _CONTRAST.match(text, named.end))


def _named_ages(text: str) -> Iterator[WrittenAge]:
    """Yield the ages in a plain question. Each of several versions after a plural is one."""
    taken = [found.span() for found in _QUANTITY.finditer(text)]
    for versions in _PLURAL_VERSIONS.finditer(text):
        taken.append(versions.span())
        for row, number in enumerate(_DIGITS.finditer(text, *versions.span("numbers"))):
            start = number.start() if row else versions.start()
            yield WrittenAge(start, number.end(), "version", *[(int(number[0]),)] * 2)
    for one in ages(text):
        if any(one.start < end and start < one.end for start, end in taken):
            continue
        if one.kind == "version":
            # What follows the number may end with the mark of `3.9+` or with that of the sentence.
            end = one.start + len(text[one.start : one.end].rstrip("+.?!"))
            yield WrittenAge(one.start, end, one.kind, one.first, one.first)
            continue
        yield one
        yield from _joined(text, one.start, one.first)
        if (after := _MONTH_AFTER.match(text, one.end)) and int(after["month"]) in _MONTHS:
            year, month = one.first[0], int(after["month"])
            other = trimmed((year + (one.first[1:2] > (month,)), month, int(after["day"] or 0)))
            yield WrittenAge(*after.span(), one.kind, other, other)


def _joined(text: str, start: int, age: tuple[int, ...]) -> Iterator[WrittenAge]:
    """Yield the months or the day before a date that share its year, as in `from March to May 2023`."""
    near = start - _LONGEST_SIDE
    year, month, day = (*age, *[0] * DATE_NUMBERS)[:DATE_NUMBERS]
    found = _JOINED_MONTH.search(text, near, start)
    first = month_number(found["month"]) if found and month else 0
    if not first and (found := _JOINED_DAY.search(text, near, start)) and int(found["day"]) in range(1, day):
        yield WrittenAge(*found.span(), "date", *[(year, month, int(found["day"]))] * 2)
    while found and first:
        year, month = year - (first > month), first
        other = trimmed((year, month, int(found["day"] or found["day_after"] or 0)))
        yield WrittenAge(*found.span(), "date", other, other)
        found = _LISTED_MONTH.search(text, near, found.start())
        first = month_number(found["month"]) if found else 0
