"""Words as the embedded policy compares them: lower case, no accents, common inflections and kin folded together.

English heuristics and nothing more: no list here names anything in particular.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s\b")
_BRACKETED = re.compile(r"\s*[(\[].*?[)\]]")

KEY_LENGTH = 6
"""Letters of a word that count when a question is compared with a text: director, directed and direction are one."""

STOP = frozenset(
    """a about after all also am an and any are as at be been before being between both but by called can could did do
    does during each for from had has have having he her here him his how i if in into is it its just known may might
    more most must my name named no not of on one only or our over s same shall she should so some such t than that the
    their them then there these they this those through to under us very was we were what when where which who whom
    whose why will with would you your""".split()
)
MONTHS = frozenset(
    """january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday""".split()
)

_KIN = {
    "birth": "born", "born": "birth", "birthplace": "born", "birthday": "born", "older": "born", "younger": "born",
    "death": "died dead killed", "die": "died death", "died": "death", "dies": "died",
    "father": "son daughter", "mother": "son daughter", "child": "son daughter father mother",
    "spouse": "wife husband married", "wife": "husband married", "husband": "wife married",
    "sibling": "brother sister", "brother": "sister siblings", "sister": "brother",
    "grandfather": "father son grandson", "grandmother": "mother daughter",
    "nationality": "american british indian french german italian",
    "film": "movie", "movie": "film", "performer": "singer sung recorded band", "singer": "performed recorded",
    "sings": "singer recorded song", "country": "nation", "located": "situated", "capital": "city",
    "founded": "established formed", "established": "founded", "formed": "founded",
}  # fmt: skip
"""Words that answer each other: a question asks for the birth, the text says born."""


def fold(text: str) -> str:
    """Lower case, without accents and possessive endings."""
    text = _POSSESSIVE.sub("", text.lower())
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def words(text: str) -> list[str]:
    """The runs of letters and digits of the folded text."""
    return _WORD.findall(fold(text))


def key(word: str) -> str:
    """The part of a word that counts in a comparison."""
    return word[:KEY_LENGTH]


@lru_cache(maxsize=4096)
def kin(word: str) -> frozenset[str]:
    """Keys of the words that answer this one in a text."""
    return frozenset(key(other) for other in _KIN.get(word, "").split())


def without_brackets(title: str) -> str:
    """The title without its bracketed parts: `Get Low (song)` names `Get Low`."""
    return _BRACKETED.sub("", title).strip() or title
