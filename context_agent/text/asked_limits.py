"""The limits that a question sets for numbers with a unit, such as `under 50 euros` or `no longer than 90 min`."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

from context_agent.text.normalization import plain
from context_agent.text.quantities import Quantity, WrittenQuantity, written_quantities
from context_agent.text.words import key, words

_QUESTION_CHARACTERS = 2_000
"""The last characters of a question that are searched."""
_THAN = r"than(?: or equal to)?"
_MOST = re.compile(
    rf"(?:(?<![-=])<=?|[≤⩽]|(?<!\w)(?:under|below|(?:less|fewer|cheaper|lighter|shorter|smaller|lower) {_THAN}|at most"
    r"|up to|(?<!\d )max(?:imum|imal)?(?: of|\.)?|unter|hochstens|bis(?: zu)?"
    r"|(?:weniger|billiger|gunstiger|leichter|kurzer|kleiner) als|moins de|au plus|jusqu'a|menos de|como maximo|hasta)"
    r") ?\Z"
)
_LEAST = re.compile(
    rf"(?:(?<![-=])>=?|[≥⩾]|(?<!\w)(?:over|above|exceed(?:s|ing)?|(?:more|longer|heavier|larger|bigger|higher|greater"
    rf"|brighter) {_THAN}|at least|(?<!\d )min(?:imum|imal)?(?: of|\.)?|uber|mindestens|ab"
    r"|(?:mehr|langer|schwerer|grosser|heller|hoher) als|plus de|au moins|mas de|al menos|como minimo)) ?\Z"
)
_NOT = re.compile(
    r"(?:(?<!\w)(?:no|not|never|cannot|nicht|nie|pas|non|nunca)|n['’]t)"
    r"(?: (?:to|be|cost|weigh|take|last|have|need|use|kosten|wiegen|dauern)){0,2} ?\Z"
)
"""Words before a limit that turn it around, as in `must not cost more than`."""
_BETWEEN = re.compile(r"(?<!\w)(?:between|zwischen|entre) ?\Z")
_OR = r" ?(?:or|oder|ou|o) "
_OR_LESS = re.compile(rf"{_OR}(?:less|below|lower|shorter|cheaper|weniger|moins|menos)\b")
_OR_MORE = re.compile(rf" ?\+|{_OR}(?:more|above|higher|longer|mehr|plus|mas)\b")
_CLAUSE_END = re.compile(r"[,;:?!\n]|\. |(?<!\w)(?:and|but|or|with|und|oder|mit|et|ou|avec|y|con)(?!\w)")
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


def asked_limits(question: str) -> tuple[Limit, ...]:
    """Return the limits that a question sets, such as `under 50 euros`."""
    text = plain(question[-_QUESTION_CHARACTERS:])
    return tuple(limit for found in written_quantities(text) if (limit := _limit(text, found)))


def _limit(text: str, found: WrittenQuantity) -> Limit | None:
    """Return the limit that a question sets by a quantity, or None if it just names the quantity."""
    before, after = text[max(0, found.start - _LONGEST_SIDE) : found.start], text[found.end :][:_LONGEST_SIDE]
    least, most = -inf, inf
    said = _BETWEEN.search(before) if found.low < found.high else None
    if said or (found.low < found.high and not found.is_list):
        least, most = found.low, found.high
    elif said := _MOST.search(before) or _OR_LESS.match(after):
        most = found.high
    elif said := _LEAST.search(before):
        least = found.low
    elif said := _OR_MORE.match(after):
        least = found.high
    else:
        return None
    if said and said.re in (_MOST, _LEAST) and _NOT.search(before, 0, said.start()):
        least, most = (most, inf) if said.re is _MOST else (-inf, found.high)
    clause = [*_CLAUSE_END.split(before)[-1:], *_CLAUSE_END.split(after)[:1]]
    limit_words = frozenset(words(f"{text[found.start : found.end]} {said[0] if said else ''}"))
    beside = frozenset(map(key, words(" ".join(clause)))) - set(map(key, limit_words))
    return Limit(found.dimension, least, most, limit_words, beside)
