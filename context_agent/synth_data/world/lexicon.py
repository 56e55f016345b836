"""The invented names of a world, and its words for trades, crafts and sorts of works.

No name contains another whole name of its kind. Persons share given and family names, towns and works share a word, and
institutions and prizes share a family name. So a search by name returns several documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

_ONSETS = "b br d dr f fl g gr h j k kl kr l m n p pl r s sk st t tr v w z".split()


_VOWELS = "a e i o u ai ei ou".split()


_CODAS = ["", "", "", "l", "n", "r", "s", "m", "k", "th", "nd", "rt"]


_TRADES = """baker bookbinder botanist brewer carpenter cartographer clockmaker cooper dyer farrier
 gardener glazier jeweller locksmith mason miller painter physician poet potter printer sailor sculptor surveyor tailor
 weaver""".split()


_CRAFTS = """amber baskets bells bricks candles carpets cheese cider combs cutlery dried-fish felt flutes gloves honey
 kites lace lamps linen mustard paper pewter ropes saffron salt soap tiles vinegar""".split()


_SORTS = """ballad ballet chronicle comedy elegy fable fresco mosaic novel opera oratorio romance satire sonata
 symphony tapestry tragedy travelogue""".split()


_PLACES = "Upper Lower Old New East West North South Great Little".split()


_HOUSES = "Guild College Foundry Society Museum Observatory Bank Library Academy Theatre".split()


_PRIZES = "Medal Prize Cup Ribbon Garland".split()


_ADJECTIVES = """Amber Ashen Bitter Blind Bright Broken Copper Crooked Distant Dusty Empty Fading Fallen Frozen Gentle
 Gilded Golden Hidden Hollow Iron Ivory Laughing Lonely Lost Midnight Narrow Painted Pale Patient Quiet Restless Scarlet
 Secret Silent Silver Sleeping Slender Stolen Sunken Velvet Wandering Weary Winter Wooden""".split()


_NOUNS = """Anchor Barge Bell Bridge Cloister Compass Crown Door Ferry Fountain Garden Gate Harbour Heron Hour Island
 Key Ladder Lantern Letter Map Mirror Moth Nail Needle Oak Orchard Owl Parade Pilgrim Quarry Ring River Road Sail
 Sparrow Stair Stone Thread Tower Valley Veil Voyage Well Whistle Window""".split()


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words of a world.

    Attributes:
        names: The possible names by kind, in random order.
        trades: Words for trades.
        crafts: Words for crafts.
        sorts: Words for sorts of works.
        years: The period in which the world's events take place.
    """

    names: Mapping[str, Sequence[str]]
    trades: Sequence[str]
    crafts: Sequence[str]
    sorts: Sequence[str]
    years: range

    def words(self, relation: str) -> Sequence[str]:
        """Return the words that can be the object of a relation."""
        return {"trade": self.trades, "craft": self.crafts, "sort": self.sorts}[relation]


def full_lexicon(counts: Mapping[str, int], rng: Random, excluded: set[str]) -> Lexicon:
    """Invent names for `counts` entities of each kind, avoiding the words in `excluded`."""
    invented = _invent_words(rng, {word.lower() for word in (*excluded, *_TRADES, *_CRAFTS, *_SORTS)})
    families = [next(invented) for _ in range(_name_part_count(counts["person"]))]
    givens = [next(invented) for _ in range(_name_part_count(counts["person"]))]
    bases = [next(invented) for _ in range(max(4, counts["town"] // 3))]
    nouns = [*_NOUNS, *(next(invented) for _ in range(max(0, counts["work"] // 10)))]
    prize_names = [*families, *(next(invented) for _ in range(counts["prize"] // len(_PRIZES)))]
    house_names = [*families, *(next(invented) for _ in range(counts["institution"] // len(_HOUSES)))]
    return Lexicon(
        names={
            "person": _pairs(givens, families, counts["person"], rng),
            "town": _pairs(_PLACES, bases, counts["town"], rng),
            "work": [f"The {name}" for name in _pairs(_ADJECTIVES, nouns, counts["work"], rng)],
            "institution": _pairs(house_names, _HOUSES, counts["institution"], rng),
            "region": [next(invented) for _ in range(counts["region"])],
            "prize": _pairs(prize_names, _PRIZES, counts["prize"], rng),
        },
        trades=_TRADES,
        crafts=_CRAFTS,
        sorts=_SORTS,
        years=range(1400, 2000),
    )


SMALL_WORDS = {
    "given": "Ada Bo Cid Dor Eli Fay Gus Hal Ida Jon Kit Lou Mia Ned Oda Pia Ray Sol Tom Una Vic Wim Xan Yma".split(),
    "family": "Abel Burr Cole Dunn Ekker Frost Gale Holt Innes Judd Kerr Lamb Moss Nash Ott Pike Quist Reed Stone "
    "Tate Urban Voss Webb Yorke".split(),
    "side": "Upper Lower Old New East West".split(),
    "base": "Arden Birch Crail Dove Elm Fenn Glen Heath Isle Kemp Loch Marsh "
    "Nook Orme Pell Rook Stow Thorn Usk Vale Wick Yew Zeal Brook".split(),
    "realm": "Avon Brae Cray Dene Esk Forth Garth Holm Ives Kent Lorne Mourne".split(),
    "land": "Coast Hills Plain Shore".split(),
    "adjective": "Amber Blue Cold Dark Empty First Gold High Iron Last Pale Quiet".split(),
    "noun": "Bell Boat Crown Door Field Gate House Key Lamp Moon Nail Path Rose Sail Ship Star Tower Well".split(),
    "house": "Guild School Bank".split(),
    "prize": "Medal Cup".split(),
}
"""The parts of names in the small vocabulary."""


def small_lexicon(rng: Random) -> Lexicon:
    """Return a lexicon with every name that the short lists permit. Their number limits the size of the world."""
    part = SMALL_WORDS
    every = {
        "person": _all_pairs(part["given"], part["family"]),
        "town": _all_pairs(part["side"], part["base"]),
        "work": _all_pairs(part["adjective"], part["noun"]),
        "institution": _all_pairs(part["family"], part["house"]),
        "region": _all_pairs(part["realm"], part["land"]),
        "prize": _all_pairs(part["family"], part["prize"]),
    }
    for names in every.values():
        rng.shuffle(names)
    return Lexicon(
        names=every,
        trades="baker cooper miller painter poet smith".split(),
        crafts="bricks cheese honey lace paper salt".split(),
        sorts="novel opera play poem song tale".split(),
        years=range(1900, 1924),
    )


def _name_part_count(count: int) -> int:
    """Return how many given names, and as many family names, to invent.

    With this number, persons use a third of all possible pairs, so several persons share each name.
    """
    return max(8, math.ceil(math.sqrt(3 * count)))


def _all_pairs(firsts: Sequence[str], seconds: Sequence[str]) -> list[str]:
    return [f"{first} {second}" for first, second in product(firsts, seconds)]


def _pairs(firsts: Sequence[str], seconds: Sequence[str], count: int, rng: Random) -> list[str]:
    """Return distinct random pairs."""
    pair_numbers = rng.sample(range(len(firsts) * len(seconds)), count)
    return [f"{firsts[pair // len(seconds)]} {seconds[pair % len(seconds)]}" for pair in pair_numbers]


def _invent_words(rng: Random, excluded: set[str]) -> Iterator[str]:
    """Yield distinct words of two or three syllables."""
    seen = set(excluded)
    while True:
        syllables = [rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(rng.choice((2, 2, 3)))]
        word = "".join(syllables) + rng.choice(_CODAS)
        if len(word) > 4 and word not in seen:
            seen.add(word)
            yield word.capitalize()
