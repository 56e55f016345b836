"""Numbers with a unit, such as 16 GB or 49.90 euros, in the fields of a record and in the limits of a question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from context_agent.text.normalization import plain
from context_agent.text.periods import JOINT
from context_agent.text.words import key, words

_UNITS = {
    name: (dimension, factor)
    for dimension, factor, names in (
        ("money", 1, "€ $ £ eur euro euros usd dollar dollars gbp pounds chf franken"),
        ("data", 1e-6, "kb"),
        ("data", 1e-3, "mb megabytes"),
        ("data", 1, "gb gigabyte gigabytes"),
        ("data", 1e3, "tb terabyte terabytes"),
        ("mass", 1e-6, "mg"),
        ("mass", 1e-3, "g grams gramm"),
        ("mass", 1, "kg kilo kilos kilograms kilogramm"),
        ("length", 1e-3, "mm"),
        ("length", 1e-2, "cm"),
        ("length", 0.0254, "inch inches zoll"),
        ("length", 1, "m meter meters metres metern metros metres"),
        ("length", 1e3, "km kilometers kilometres kilometern"),
        ("area", 1, "m2 m² qm sqm"),
        ("volume", 1e-3, "ml"),
        ("volume", 1, "l liter liters litre litres litern litros"),
        ("power", 1, "w watt watts"),
        ("power", 1e3, "kw"),
        ("voltage", 1, "v volt volts"),
        ("charge", 1, "mah"),
        ("temperature", 1, "°c ° degree degrees grad"),
        ("light", 1, "lm lumen lumens"),
        ("frequency", 1, "hz"),
        ("share", 1, "% percent prozent"),
        ("time", 1, "s sec seconds sekunden"),
        ("time", 60, "min minutes minuten"),
        ("time", 3600, "h hour hours stunden"),
        ("time", 86400, "days tage tagen"),
    )
    for name in names.split()
}
"""The dimension of each unit and its factor. All currencies count as one, because a table rarely mixes them."""
_MONEY_FIELDS = frozenset("price cost costs rent fee preis kosten miete gebuhr prix loyer precio prezzo".split())
"""Names of fields whose numbers are sums of money."""
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_NUMBER = r"-?\d{1,9}(?:[.,]\d{1,3}){0,3}"
_QUANTITY = re.compile(
    rf"(?<![\w.,])(?:(?P<low>{_NUMBER})(?:[ -]?(?:{_UNIT}))?{JOINT})?"
    rf"(?:(?P<sign>[€$£]) ?(?P<signed>{_NUMBER})|(?P<number>{_NUMBER})[ -]?(?P<unit>{_UNIT})(?![\w/]))"
)
_BARE_NUMBER = re.compile(rf" *[€$£]? ?({_NUMBER}) *")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_MOST = re.compile(
    r"(?:<=?|(?<!\w)(?:under|below|(?<!no )(?<!not )(?:less|fewer) than|(?:cheaper|lighter|shorter|smaller|lower) than"
    r"|at most|up to|(?:no|not) more than|max(?:imum|imal)?(?: of|\.)?|unter|hochstens|weniger als|bis(?: zu)?"
    r"|(?:billiger|gunstiger|leichter|kurzer|kleiner) als|moins de|au plus|jusqu'a|menos de|como maximo|hasta)) ?\Z"
)
_LEAST = re.compile(
    r"(?:>=?|(?<!\w)(?:over|above|more than|at least|(?:no|not) less than|min(?:imum|imal)?(?: of|\.)?"
    r"|(?:longer|heavier|larger|bigger|higher|greater|brighter) than|uber|mindestens|mehr als|ab"
    r"|(?:langer|schwerer|grosser|heller|hoher) als|plus de|au moins|mas de|al menos|como minimo)) ?\Z"
)
_BETWEEN = re.compile(r"(?<!\w)(?:between|zwischen|entre) ?\Z")
_OR = r" ?(?:or|oder|ou|o) "
_OR_LESS = re.compile(rf"{_OR}(?:less|below|lower|shorter|cheaper|weniger|moins|menos)\b")
_OR_MORE = re.compile(rf" ?\+|{_OR}(?:more|above|higher|longer|mehr|plus|mas)\b")
_QUESTION_CHARACTERS = 2_000
_LONGEST_SIDE = 30
"""How many characters before and after a quantity are searched for words."""
_LONGEST_FIELD, _LONGEST_RECORD = 80, 4_000
"""A longer value is prose, which may name quantities that its record does not have."""
_FEWEST_FIELDS = 2
_FIELD = re.compile(r"([^:\n]{1,40}): (.*)")


class Quantity(NamedTuple):
    """An amount of a dimension in a base unit, and the keys of the words beside it."""

    dimension: str
    amount: float
    beside: frozenset[str]


class Limit(NamedTuple):
    """The amounts of a dimension that a question asks for, with the words that say so.

    The ends count, because people often mean them when they write `under 50 euros`.
    """

    dimension: str
    least: float
    most: float
    words: frozenset[str]

    def includes(self, amount: float) -> bool:
        """Return True if an amount is in the limit."""
        return self.least <= amount <= self.most


def asked_limits(question: str) -> tuple[Limit, ...]:
    """Return the limits that a question sets, such as `under 50 euros`."""
    text = plain(question[-_QUESTION_CHARACTERS:])
    return tuple(limit for found in _QUANTITY.finditer(text) if (limit := _limit(text, found)))


def record_quantities(text: str, metadata: Mapping[str, object]) -> list[Quantity]:
    """Return the quantities in the fields of a record, such as `price_eur: 49.90`.

    The unit may be in the name of the field. Values that are prose do not count.

    Args:
        text: The text of the record. If each line is a field, these fields count.
        metadata: Further fields.
    """
    lines = text[:_LONGEST_RECORD].strip().split("\n")
    fields = [(field[1], field[2]) for line in lines if (field := _FIELD.fullmatch(line))]
    if len(fields) < max(_FEWEST_FIELDS, len(lines)):
        fields = []
    fields += [(name, str(value)) for name, value in metadata.items()]
    return [one for name, value in dict(fields).items() for one in _field_quantities(name, value)]


def _field_quantities(name: str, value: str) -> Iterator[Quantity]:
    if len(value) > _LONGEST_FIELD:
        return
    value, name_words = plain(value), words(_HUMP.sub(" ", name))
    if bare := _BARE_NUMBER.fullmatch(value):
        units = [_UNITS[word] for word in name_words if word in _UNITS]
        units += [("money", 1) for word in name_words if word in _MONEY_FIELDS]
        for dimension, factor in units[:1]:
            yield Quantity(dimension, _amount(bare[1], dimension) * factor, frozenset(map(key, name_words)))
        return
    for found in _QUANTITY.finditer(value):
        dimension, factor = _UNITS[found["unit"] or found["sign"]]
        around = words(value[: found.start()])[-2:] + words(value[found.end() :])[:3]
        beside = frozenset(map(key, [*name_words, *around]))
        for number in filter(None, (found["low"], found["number"] or found["signed"])):
            yield Quantity(dimension, _amount(number, dimension) * factor, beside)


def _limit(text: str, found: re.Match[str]) -> Limit | None:
    """Return the limit that a question sets by a quantity, or None if it just names the quantity."""
    dimension, factor = _UNITS[found["unit"] or found["sign"]]
    amount = _amount(found["number"] or found["signed"], dimension) * factor
    low = _amount(found["low"], dimension) * factor if found["low"] else amount
    before, after = text[max(0, found.start() - _LONGEST_SIDE) : found.start()], text[found.end() :][:_LONGEST_SIDE]
    if found["low"] and (_BETWEEN.search(before) or low < amount):
        least, most, said = low, amount, _BETWEEN.search(before)
    elif (said := _MOST.search(before)) or (said := _OR_LESS.match(after)):
        least, most = float("-inf"), amount
    elif (said := _LEAST.search(before)) or (said := _OR_MORE.match(after)):
        least, most = amount, float("inf")
    else:
        return None
    return Limit(dimension, least, most, frozenset(words(f"{found[0]} {said[0] if said else ''}")))


def _amount(number: str, dimension: str) -> float:
    """Return the value of a number such as 1,299.00 or 1.299,00. A lone comma or point is the one of decimals.

    Before three digits, it divides thousands: a comma always does, and a point does in sums of money.
    """
    mark = max(number.rfind(","), number.rfind("."))
    if mark < 0:
        return float(number)
    is_thousands = len(number) - mark == len(",000") and (number[mark] == "," or dimension == "money")
    if is_thousands or number.count(number[mark]) > 1:
        mark = len(number)
    whole = number[:mark].replace(",", "").replace(".", "")
    return float(f"{whole}.{number[mark + 1 :] or 0}")
