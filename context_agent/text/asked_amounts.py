"""The amounts that a question asks for, such as `under 50 euros`, `no longer than 90 min` or `the cheapest`."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

from context_agent.text.conversation import without_answers
from context_agent.text.language_identification import languages_shown
from context_agent.text.languages import ENGLISH
from context_agent.text.normalization import plain
from context_agent.text.quantities import Quantity, WrittenQuantity, count_dimension, written_quantities
from context_agent.text.words import key, words

_QUESTION_CHARACTERS = 2_000
"""The last characters of a question that are searched."""
_THAN = r"than(?: or equal to)?"
_THE = r"(?: (?:the|i|gli|le|la|il|os|as|o|a|de|den|die|der))?"
_MOST = re.compile(
    rf"(?:(?<![-=])<=?|[≤⩽]|(?<!\w)(?:(?:under|below|(?:less|fewer|cheaper|lighter|shorter|smaller|lower) {_THAN}"
    r"|at most|up to|(?<!\d )max(?:imum|imal)?(?: of|\.)?|unter|hochstens|bis(?: zu)?"
    r"|(?:weniger|billiger|gunstiger|leichter|kurzer|kleiner) als|moins de|au plus|jusqu'a|menos d[eo]|como maximo"
    r"|hasta|sotto|meno di|al massimo|fino a[di]?|non oltre|abaixo d[eo]|no maximo|inferior(?:e|i)? a|onder"
    r"|hoogstens|maximaal|(?:minder|goedkoper|lichter|korter|kleiner) dan|ponizej|mniej niz|najwyzej|maksymalnie"
    r"|(?:(?:tansz|lzejsz|krotsz|mniejsz)\w{1,3}|taniej|lzej|krocej) niz|nejvyse|nanejvys"
    r"|maximalne|(?:mene|min|levnejsi|levneji|lehci|kratsi|mensi) nez|до"
    r"|(?:менее|меньше|дешевле|легче|короче)(?: чем)?"
    r"|максимум|(?<!what )(?<!who )(?<!how )(?<!he )(?<!\bi )(?<!you )(?<!we )(?<!they )(?<!\bto )(?:do|ate))"
    rf"{_THE})) ?\Z"
)
_LEAST = re.compile(
    rf"(?:(?<![-=])>=?|[≥⩾]|(?<!\w)(?:(?:over|above|exceed(?:s|ing)?|(?:more|longer|heavier|larger|bigger|higher|greater"
    rf"|brighter) {_THAN}|at least|(?<!\d )min(?:imum|imal)?(?: of|\.)?|uber|mindestens|ab"
    r"|(?:mehr|teurer|langer|schwerer|grosser|heller|hoher) als|plus de|au moins|mas de|al menos|como minimo"
    r"|oltre|almeno|piu di|sopra|superior(?:e|i)? a|pelo menos|mais d[eo]|acima d[eo]|no minimo|minstens|ten minste"
    r"|minimaal|vanaf|boven|(?:meer|duurder|zwaarder|langer|groter) dan|od|ponad|powyzej|co najmniej|przynajmniej"
    r"|(?:(?:drozsz|ciezsz|dluzsz|wieksz)\w{1,3}|wiecej|drozej|dluzej) niz"
    r"|(?:vice|vic|drazsi|tezsi|delsi|dele|vetsi) nez|alespon|aspon|nejmene|minimalne|от|свыше|минимум|хотя бы"
    rf"|(?:более|больше|дороже|тяжелее|длиннее|дольше)(?: чем)?){_THE})) ?\Z"
)
_NOT = re.compile(
    r"(?:(?<!\w)(?:no|not|never|cannot|nicht|nie|pas|non|nunca|nao|niet|ne|не)|n['’]t)"
    r"(?: (?:to|be|cost|weigh|take|last|have|need|use|kosten|wiegen|dauern)){0,2} ?\Z"
)
"""Words before a limit that turn it around, as in `must not cost more than`."""
_BETWEEN = re.compile(r"(?<!\w)(?:between|zwischen|entre|tra|fra|tussen|miedzy|pomiedzy|mezi|между) ?\Z")
_OR = r" ?(?:or|and|oder|und|ou|et|o|y|e|of|en|lub|nebo|или|и) "
_OR_LESS = re.compile(
    rf"{_OR}(?:less|fewer|below|under|lower|shorter|cheaper|weniger|moins|menos|meno|minder|mniej|mene|меньше|менее)\b"
)
_OR_MORE = re.compile(
    rf" ?\+|{_OR}(?:more|above|over|higher|longer|mehr|plus|mas|piu|mais|meer|wiecej|vice|больше|более|выше)\b"
)
_CLAUSE_END = re.compile(
    r"[,;:?!\n]|\. |(?<!\w)(?:and|but|or|with|und|oder|mit|et|ou|avec|y|con|e|com|en|met|i|z|и|с)(?!\w)"
)
_NUMBERED = re.compile(
    r"(?<![\w.,/:$€£-])(?P<number>\d{1,3}(?:,\d{3}){1,3}|\d{1,9})"
    r"(?:\+| (?:or|oder|ou|o|of) (?:more|fewer|less|mehr|weniger|plus|moins|mas|menos|piu|mais|meer))?"
    r" (?!(?:or|and|of|in|on|at|to|the|for|from|per|oder|und|et|ou|de|y|e|i|или|и)\b)(?P<noun>[^\W\d_]{3,20})"
)
"""A number of things, such as `5 credits`."""
_PRICE, _MASS, _LENGTH = ("money",), ("mass",), ("length", "time")
_SIZE = ("area", "volume", "data")
_EXTREMES = (
    (False, _PRICE, r"cheapest|least expensive|most affordable|(?:(?:preis)?gunstig|billig)ste[nrsm]?|goedkoopste"),
    (False, _PRICE, r"moins chere?s?|mai?s barat[oa]s?|menos car[oa]s?|piu economic\w{1,2}|meno car[oaie]"),
    (False, _PRICE, r"najtansz\w{1,3}|nejlevnejsi\w{0,2}|сам\w{2} дешев\w{2}"),
    (True, _PRICE, r"most expensive|priciest|teuerste[nrsm]?|plus chere?s?|mai?s car[oa]s?|piu car[oaie]|duurste"),
    (True, _PRICE, r"najdrozsz\w{1,3}|nejdrazsi\w{0,2}|сам\w{2} дорог\w{2,3}"),
    (False, _MASS, r"lightest|leichteste[nrsm]?|plus leger\w{0,2}|mas liger[oa]s?|piu legger\w|mais leves?|lichtste"),
    (False, _MASS, r"najlzejsz\w{1,3}|nejlehci\w{0,2}|сам\w{2} легк\w{2,3}"),
    (True, _MASS, r"heaviest|schwerste[nrsm]?|plus lourde?s?|mai?s pesad[oa]s?|piu pesant[ei]|zwaarste"),
    (True, _MASS, r"najciezsz\w{1,3}|nejtezsi\w{0,2}|сам\w{2} тяжел\w{2}"),
    (False, _LENGTH, r"shortest|kurzeste[nrsm]?|plus courte?s?|mas cort[oa]s?|piu (?:cort|brev)\w|mais curt\w|kortste"),
    (False, _LENGTH, r"najkrotsz\w{1,3}|nejkratsi\w{0,2}|сам\w{2} коротк\w{2,3}"),
    (True, ("length",), r"tallest"),
    (
        True,
        _LENGTH,
        r"longest|langste[nrsm]?|plus long(?:ue)?s?|mas larg[oa]s?|piu lung\w{1,2}|mais long[oa]s?",
    ),
    (True, _LENGTH, r"najdluzsz\w{1,3}|nejdelsi\w{0,2}|сам\w{2} длинн\w{2}"),
    (False, _SIZE, r"smallest|kleinste[nrsm]?|plus petite?s?|mai?s pequen[oa]s?|piu piccol[oaie]"),
    (False, _SIZE, r"najmniejsz\w{1,3}|nejmensi\w{0,2}|сам\w{2} маленьк\w{2,3}"),
    (True, _SIZE, r"largest|biggest|grosste[nrsm]?|plus grande?s?|mas grandes?|piu grand[ei]|grootste"),
    (True, _SIZE, r"najwieksz\w{1,3}|nejvetsi\w{0,2}|сам\w{2} больш\w{2,3}"),
    (False, (), r"lowest|niedrigste[nrsm]?|laagste|najnizsz\w{1,3}|nejnizsi\w{0,2}"),
    (True, (), r"highest|hochste[nrsm]?|hoogste|najwyzsz\w{1,3}|nejvyssi\w{0,2}"),
)
"""Words that ask for the lowest or the highest amount of some dimensions. Without dimensions, the next words decide."""
_EXTREME = re.compile("|".join(rf"(?<!\w)(?P<row{row}>{one[2]})(?!\w)" for row, one in enumerate(_EXTREMES)))
_COMPARED = re.compile(r" (?:than|als|que|qu|che|dan|niz|nez|чем)\b")
"""What follows a comparative of two things, as in `mas grande que`."""
_LASTING = re.compile(r"[ -](?:serving|running|standing|living|lived|lasting|reigning|ruling|held)\b")
"""What follows a word such as `longest` if a time is meant."""
_RANKED = re.compile(r" (?:priorit|rank|severit)")
"""What follows a word such as `highest` if 1 may be higher than 2."""
_COUNT_OF = re.compile(r" (?:number|amount|anzahl|nombre|numero) (?:of|der|de|di)\b")
_LONGEST_SIDE = 60
"""How many characters before and after a quantity are searched for words."""


class Limit(NamedTuple):
    """The amounts of a dimension that a question asks for.

    The ends count, because people often mean them when they write `under 50 euros`.

    Attributes:
        dimension: What the unit measures.
        least: The lowest amount.
        most: The highest amount.
        words: The words that say so.
        beside: The keys of the other words in the same part of the question, as in `shipping under 5 euros`.
    """

    dimension: str
    least: float
    most: float
    words: frozenset[str]
    beside: frozenset[str]

    def includes(self, quantity: Quantity) -> bool:
        """Return True if a quantity, or a part of its range, is in the limit."""
        return self.least <= quantity.high and quantity.low <= self.most


class Extreme(NamedTuple):
    """The lowest or the highest amount, which a question asks for.

    Attributes:
        highest: True if the highest amount is asked for.
        dimensions: The dimensions of the amount. If there are none, `of` must name the field.
        words: The words that say so.
        of: The keys of the words that follow and may name the field of any amount, as in `the largest screen`.
    """

    highest: bool
    dimensions: tuple[str, ...]
    words: frozenset[str]
    of: frozenset[str]


def asked_extreme(question: str) -> Extreme | None:
    """Return which amount a question asks for, such as the lowest price for `the cheapest tent`, or None."""
    text = _asked(question)
    found = _EXTREME.search(text)
    if found is None or _COMPARED.match(text, found.end()) or _RANKED.match(text, found.end()):
        return None
    highest, dimensions, _ = _EXTREMES[int((found.lastgroup or "").removeprefix("row"))]
    if dimensions == _LENGTH and _LASTING.match(text, found.end()):
        dimensions = ("time",)
    is_open = dimensions in ((), _SIZE)
    of = map(key, words(_COUNT_OF.sub("", text[found.end() :][:_LONGEST_SIDE]))[:2])
    return Extreme(highest, dimensions, frozenset(words(found[0])), frozenset(of) if is_open else frozenset())


def asked_limits(question: str) -> tuple[Limit, ...]:
    """Return the limits that a question sets, such as `under 50 euros`.

    If the question is a conversation, its answers do not count.
    """
    text = _asked(question)
    written = written_quantities(text)
    taken = {index for one in written for index in range(one.start, one.end)}
    for one in _NUMBERED.finditer(text):
        if one.start() not in taken:
            number = float(one["number"].replace(",", ""))
            written.append(WrittenQuantity(*one.span("number"), count_dimension(one["noun"]), number, number, False))
    return tuple(limit for found in sorted(written) if (limit := _limit(text, found)))


def _asked(question: str) -> str:
    """Return the plain end of a question without the answers in it."""
    return plain(without_answers(question)[-_QUESTION_CHARACTERS:])


def _most_before(text: str, before: str) -> re.Match[str] | None:
    """Return the words before a quantity that make it the most. In an English question, `do` is a verb."""
    said = _MOST.search(before)
    return None if said and words(said[0]) == ["do"] and ENGLISH in languages_shown(text) else said


def _limit(text: str, found: WrittenQuantity) -> Limit | None:
    """Return the limit that a question sets by a quantity, or None if it just names the quantity."""
    before, after = text[max(0, found.start - _LONGEST_SIDE) : found.start], text[found.end :][:_LONGEST_SIDE]
    least, most = -inf, inf
    said = _BETWEEN.search(before) if found.low < found.high else None
    if said or (found.low < found.high and not found.is_list):
        least, most = found.low, found.high
    elif said := _most_before(text, before) or _OR_LESS.match(after):
        most = found.high
    elif said := _LEAST.search(before):
        least = found.low
    elif (said := _OR_MORE.match(after)) or "+" in text[found.start : found.end]:
        least = found.high
    else:
        return None
    if said and said.re in (_MOST, _LEAST) and _NOT.search(before, 0, said.start()):
        least, most = (most, inf) if said.re is _MOST else (-inf, found.high)
    clause = [*_CLAUSE_END.split(before)[-1:], *_CLAUSE_END.split(after)[:1]]
    limit_words = frozenset(words(f"{text[found.start : found.end]} {said[0] if said else ''}"))
    beside = frozenset(map(key, words(" ".join(clause)))) - set(map(key, limit_words))
    return Limit(found.dimension, least, most, limit_words, beside)
