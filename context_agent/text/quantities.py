"""Numbers with a unit, such as 16 GB or 49.90 euros, in a text and in the fields of a record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from context_agent.text.normalization import plain
from context_agent.text.periods import JOINT, LISTING
from context_agent.text.record_fields import inner_fields
from context_agent.text.words import key, without_inflection, words

_UNITS = {
    name.replace("_", " "): (dimension, factor)
    for dimension, factor, names in (
        ("money", 1, "€ $ £ us$ eur euro euros usd dollar dollars gbp pounds chf franken"),
        ("money", 1, "₽ руб рубля рублеи pln zl zloty zlote zlotych czk kc korun koruny"),
        ("data", 1e-6, "kb"),
        ("data", 1e-3, "mb megabytes"),
        ("data", 1, "gb gigabyte gigabytes гб"),
        ("data", 1e3, "tb terabyte terabytes"),
        ("mass", 1e-6, "mg"),
        ("mass", 1e-3, "g grams gramm grammi gramas г"),
        ("mass", 1, "kg kilo kilos kilograms kilogramm кг"),
        ("mass", 0.45359237, "lb lbs"),
        ("mass", 0.028349523, "oz ounces"),
        ("length", 1e-3, "mm мм"),
        ("length", 1e-2, "cm см"),
        ("length", 0.0254, "inch inches zoll pollici polegadas"),
        ("length", 0.3048, "ft feet foot"),
        ("length", 1, "m meter meters metres metern metros metri м"),
        ("length", 1e3, "km kilometers kilometres kilometern kilometer chilometri quilometros км"),
        ("length", 1609.344, "mi mile miles"),
        ("area", 0.09290304, "sqft sq_ft sq._ft. square_feet ft2"),
        ("area", 1, "m2 qm mq sqm sq_m square_meters square_metres quadratmeter м2"),
        ("volume", 1e-3, "ml мл"),
        ("volume", 1, "l liter liters litre litres litern litros litri л"),
        ("volume", 3.785411784, "gal gallon gallons"),
        ("energy", 1e-3, "wh"),
        ("energy", 1, "kwh квт·ч"),
        ("power", 1, "w watt watts вт"),
        ("power", 1e3, "kw квт"),
        ("power", 745.7, "hp"),
        ("voltage", 1, "v volt volts"),
        ("charge", 1, "mah"),
        ("temperature", 1, "°c ° degree degrees grad gradi graus градусов"),
        ("light", 1, "lm lumen lumens"),
        ("loudness", 1, "db"),
        ("frequency", 1, "hz"),
        ("share", 1, "% percent prozent"),
        ("time", 1, "s sec seconds sekunden secondi segundos seconden sekund секунд"),
        ("time", 60, "min minutes minuten minuti minutos minut minuty минут минуты"),
        ("time", 3600, "h hour hours stunden heures horas ore uur godzin godziny hodin hodiny часов часа"),
        ("time", 86400, "days tage tagen jours dias giorni dagen dni dny dnu днеи дня"),
        ("time", 604800, "weeks wochen semaines semanas settimane weken tygodni tygodnie tydny tydnu недель недели"),
        (
            "time",
            2629800,
            "months monate monaten mois meses mesi maanden miesiecy miesiace mesicu mesice месяцев месяца",
        ),
        ("time", 31557600, "years jahre jahren ans anos anni jaar lat lata лет года"),
    )
    for name in names.split()
}
"""The dimension of each unit and its factor. All currencies count as one, because a table rarely mixes them."""
_NAMELESS_UNITS = frozenset("lat mi ore ans months weeks days years".split())
"""Units that mean something else in the name of a field, such as the latitude."""
MONEY_FIELDS = frozenset(
    "price cost costs rent fee preis kosten miete gebuhr prix loyer precio prezzo preco custo costo prijs cena цена"
    " стоимость".split()
)
"""Names of fields whose numbers are sums of money."""
_TIME_FIELDS = frozenset("time duration runtime cook prep walk dauer zeit duree duracion durata".split())
"""Names of fields in which `min` stands for minutes. In `price_min`, it stands for the minimum."""
_IDENTIFIER_FIELDS = frozenset("id code no nr number nummer numero zip".split())
"""Last words of names whose numbers count nothing, such as `order_id` and `house_number`."""
_OTHER_FIELDS = _IDENTIFIER_FIELDS.union("center centre class count group index level list rank type".split())
"""Last words of names whose numbers have no unit, such as `cost_center`."""
_PER = frozenset("per pro je par por".split())
_SCALES = {
    name: factor
    for factor, names in (
        (1e3, "k thousand tsd tausend mil mila tys тыс tis"),
        (1e6, "m mn mio million millions millionen millones milioni milhoes miljoen mln млн"),
        (1e9, "bn billion billions mrd milliarden"),
    )
    for name in names.split()
}


_NUMBER = (
    r"(?:(?<!\d )[-−–])?(?:\d{1,3}(?:[ '’]\d{3}){1,3}(?!\d)(?:[.,]\d{1,2}(?!\d))?|\d{1,9}\.\d{4,18}"
    r"|\d{1,9}(?:[.,]\d{1,3}){0,3})(?!\d)"
)
_SCALE, _UNIT = "|".join(_SCALES), "|".join(map(re.escape, _UNITS))
_WRITTEN = re.compile(
    rf"(?<![\w.,/])(?:(?P<sign>us\$|[€$£]|eur|usd|gbp|chf) ?)?(?P<number>{_NUMBER})"
    rf"(?: ?(?P<scale>{_SCALE})(?!\w))?(?:,-{{1,2}})?[+]?(?:(?P<gap>[ -]?)(?P<unit>{_UNIT}))?(?!\w)"
)
"""A number that may have a unit. Without one, it may be the first end of a range, such as `5 to 7 kg`."""
_JOINT = re.compile(JOINT)
_BARE = re.compile(rf" *({_NUMBER})(?:(?P<joint>{JOINT})({_NUMBER}))?(?:,-{{1,2}})? *")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_LONGEST_FIELD, _LONGEST_RECORD = 80, 4_000
"""A longer value is prose, which may name quantities that its record does not have."""
_FEWEST_FIELDS = 2
_FIELD = re.compile(r'(?:[-*•] )?\*{0,2}([^:*"{}\n]{1,40})(?::\*{0,2}|\*{1,2}:)(?: (.*))?')
"""A field of a record, such as `price: 49.90` or `- **Price:** 49.90`."""
_COUNTED = re.compile(rf" *({_NUMBER}) ([^\W\d_]{{3,20}}) *")
_FEWEST_SENTENCE_WORDS = 5


class WrittenQuantity(NamedTuple):
    """A quantity in a text, in a base unit. For a single number, the two amounts are equal.

    Attributes:
        start: The index of its first character.
        end: The index after its last character.
        dimension: What its unit measures.
        low: The amount, or the lower one of two.
        high: The amount, or the higher one of two.
        is_list: True if two numbers are not the ends of a range, as in `16 or 32 GB`.
    """

    start: int
    end: int
    dimension: str
    low: float
    high: float
    is_list: bool


class Quantity(NamedTuple):
    """The amounts of a dimension from `low` to `high` in a base unit.

    Attributes:
        dimension: What the unit measures. The dimension of a bare number is what it counts (see `count_dimension`).
        low: The lowest amount.
        high: The highest amount.
        beside: The keys of the words beside them, and of those in the name of their field.
        field: The name of their field.
    """

    dimension: str
    low: float
    high: float
    beside: frozenset[str]
    field: str = ""


def count_dimension(noun: str) -> str:
    """Return the dimension of a number of things, such as `credits`."""
    return f"number of {key(without_inflection(noun))}"


def written_quantities(text: str) -> list[WrittenQuantity]:
    """Return the numbers with a unit in a plain text, and the ranges such as `5 to 7 kg`."""
    written: list[WrittenQuantity] = []
    last: re.Match[str] | None = None
    for found in _WRITTEN.finditer(text):
        before, last = last, found
        if not (unit := _unit(found)):
            continue
        amount = _value(found, unit)
        quantity = WrittenQuantity(found.start(), found.end(), unit[0], amount, amount, False)
        if before and _JOINT.fullmatch(between := text[before.end() : found.start()]):
            has_unit = bool(written) and written[-1].end == before.end()
            other = _value(before, unit)
            if has_unit and written[-1].dimension == unit[0]:
                quantity = _joined(written.pop(), quantity, between)
            elif not has_unit and (other < amount or between.strip() in LISTING):
                quantity = _joined(quantity._replace(start=before.start(), low=other, high=other), quantity, between)
        written.append(quantity)
    return written


def _joined(first: WrittenQuantity, last: WrittenQuantity, between: str) -> WrittenQuantity:
    """Return the range of two quantities, or the list of them."""
    low, high = min(first.low, last.low), max(first.high, last.high)
    return WrittenQuantity(first.start, last.end, last.dimension, low, high, between.strip() in LISTING)


def record_quantities(text: str, metadata: Mapping[str, object]) -> list[Quantity]:
    """Return the quantities in the fields of a record, such as `price_eur: 49.90`.

    The unit may be in the name of the field. Values that are prose do not count. The fields of an object inside a
    record have the names of both, such as `price amount`.

    Args:
        text: The text of the record, which may be JSON. Lines below each other that are fields count.
        metadata: Further fields.
    """
    written = inner_fields("", text.strip()) if text.lstrip()[:1] == "{" else _lines(text[:_LONGEST_RECORD])
    further = (field for item in metadata.items() for field in inner_fields(*item))
    found = (one for field in chain(written, further) for one in _field_quantities(*field))
    return list(dict.fromkeys(found))


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the values of the fields that are lines below each other. Blank lines do not part them."""
    block: list[tuple[str, str]] = []
    for line in (*filter(None, map(str.strip, text.splitlines())), "#"):
        if field := _FIELD.fullmatch(line):
            block.append((field[1], field[2] or ""))
            continue
        yield from block if len(block) >= _FEWEST_FIELDS else ()
        block = []


def _field_quantities(name: str, written: object) -> Iterator[Quantity]:
    value, names = plain(str(written)).strip(), words(_HUMP.sub(" ", name))
    value_words = words(value) if len(value) <= _LONGEST_FIELD else []
    if not value_words or (value[-1] in ".!?" and len(value_words) >= _FEWEST_SENTENCE_WORDS):
        return
    if bare := _BARE.fullmatch(value):
        unit = _unit_of_field(names)
        dimension, factor = unit or ("", 1)
        amounts = [_amount(number, dimension) * factor for number in (bare[1], bare[3] or bare[1])]
        if isinstance(written, float):
            amounts = [written * factor]
        if names and names[-1] in _IDENTIFIER_FIELDS:
            names = names[-1:]
        for meaning in [dimension] if unit else sorted({count_dimension(word) for word in names}):
            yield Quantity(meaning, min(amounts), max(amounts), frozenset(map(key, names)), name)
        return
    quantities = written_quantities(value)
    if not quantities and (number := _COUNTED.fullmatch(value)):
        amount = _amount(number[1], "")
        yield Quantity(count_dimension(number[2]), amount, amount, frozenset(map(key, [*names, number[2]])), name)
    for one in quantities:
        around = words(value[: one.start])[-2:] + words(value[one.end :])[:3]
        beside = frozenset(map(key, [*names, *around]))
        ends = [(one.low, one.low), (one.high, one.high)] if one.is_list else [(one.low, one.high)]
        yield from (Quantity(one.dimension, *both, beside, name) for both in ends)


def _unit_of_field(names: list[str]) -> tuple[str, float] | None:
    """Return the dimension and the factor of the bare numbers in a field, given the words of its name."""
    if not names or names[-1] in _OTHER_FIELDS:
        return None
    if not MONEY_FIELDS.isdisjoint(names):
        return "money", 1
    if not _PER.isdisjoint(names):
        return None
    units = [one for one in names if one in _UNITS and one not in _NAMELESS_UNITS]
    units = [one for one in units if one != "min" or not _TIME_FIELDS.isdisjoint(names)]
    if names[1:] and names[-1] == "in":
        units.append("inch")
    # A name of one letter, such as `h`, says too little.
    return _UNITS[units[-1]] if units and len("".join(names)) > 1 else None


def _unit(found: re.Match[str]) -> tuple[str, float] | None:
    """Return the dimension of a written number and its factor, or None if it has no unit."""
    unit, scale = found["sign"] or found["unit"], found["scale"]
    if not unit and scale in _UNITS:
        unit, scale = scale, None
    if not unit or (unit == "g" and not found["gap"] and len(found["number"]) == 1):
        # `5G` is the name of a network.
        return None
    dimension, factor = _UNITS[unit]
    if dimension != "money" and found.string.startswith("/", found.end()):
        return None
    return dimension, factor * _SCALES.get(scale or "", 1)


def _value(found: re.Match[str], unit: tuple[str, float]) -> float:
    dimension, factor = unit
    return _amount(found["number"], dimension) * factor


def _amount(number: str, dimension: str) -> float:
    """Return the value of a number such as 1,299.00, 1.299,00 or 1 299. A lone comma or point is the one of decimals.

    Before three digits, it divides thousands: a comma always does, and a point does in sums of money. After 0, neither
    does.
    """
    number = re.sub(r"[ '’]", "", re.sub("^[−–]", "-", number))
    mark = max(number.rfind(","), number.rfind("."))
    if mark < 0:
        return float(number)
    is_thousands = len(number) - mark == len(",000") and (number[mark] == "," or dimension == "money")
    if (is_thousands and number[:mark].strip("-0")) or number.count(number[mark]) > 1:
        mark = len(number)
    whole = number[:mark].replace(",", "").replace(".", "")
    return float(f"{whole}.{number[mark + 1 :] or 0}")
