"""The limits that a question sets for numbers with a unit."""

from __future__ import annotations

import pytest

from context_agent.text.asked_amounts import asked_extreme, asked_limits
from context_agent.text.quantities import Quantity
from context_agent.text.words import key
from tests.support.growth import MOST_GROWTH, growth


@pytest.mark.parametrize(
    ("question", "dimension", "inside", "outside"),
    [
        ("tent under 300 euros", "money", 300, 301),
        ("laptops cheaper than $1,299.00", "money", 1299, 1300),
        ("Zelte unter 1.299,50 €", "money", 1299.5, 1300),
        ("between 20 and 30 euros", "money", 25, 31),
        ("20-30 € gifts", "money", 20, 19),
        ("phones with at least 16GB", "data", 16, 8),
        ("disks of 2 TB or more", "data", 2000, 1999),
        ("no more than 500 g", "mass", 0.4, 0.6),
        ("not less than 1.5 kg", "mass", 1.5, 1.4),
        ("sleeping bag for below -10 degrees", "temperature", -18, -4),
        ("Rucksack mit mehr als 60 Litern", "volume", 65, 35),
        ("mochila de menos de 30 l", "volume", 22, 35),
        ("sac à dos d'au moins 30 l", "volume", 35, 22),
        ("max. 90 min", "time", 5400, 5401),
        ("no longer than 90 min", "time", 5400, 5401),
        ("It must not cost more than 50 euros", "money", 50, 51),
        ("which doesn't weigh less than 2 kg", "mass", 2, 1.9),
        ("nicht schwerer als 2 kg", "mass", 2, 2.1),
        ("pas plus de 50 euros", "money", 50, 51),
        ("max 16GB or 32GB", "data", 32, 33),
        ("at least 5 or 6 kg", "mass", 5, 4),
        ("5 or 6 kg or more", "mass", 6, 5),
        ("between $20 and $30", "money", 20, 31),
        ("between 30 and 20 euros", "money", 25, 31),
        ("between 500 MB and 2 GB", "data", 0.5, 3),
        ("USB stick with Windows 11 and at least 16 GB", "data", 16, 15),
        ("houses under $1.5 million", "money", 1.5e6, 1.6e6),
        ("under 50k €", "money", 50_000, 50_001),
        ("unter 1 299,- €", "money", 1299, 1300),
        ("under CHF 1'299.00", "money", 1299, 1300),
        ("rooms under 50 €/night", "money", 50, 51),
        ("below \u221210 °C", "temperature", -11, -9),
        ("\u2265 16 GB", "data", 16, 15),
        ("less than or equal to 0,125 l", "volume", 0.125, 0.13),
        ("16+ GB laptops", "data", 16, 15),
        ("kayaks of more than 10 ft", "length", 3.1, 3),
        ("less than 500 kWh a year", "energy", 500, 501),
        ("appartamento sotto i 70 euro", "money", 70, 71),
        ("casa di almeno 100 mq", "area", 100, 99),
        ("não mais de 30 euros", "money", 30, 31),
        ("tendas até 30 euros", "money", 30, 31),
        ("onder de 50 euro", "money", 50, 51),
        ("niet meer dan 2 kg", "mass", 2, 2.1),
        ("laptop do 3000 zł", "money", 3000, 3001),
        ("nejvýše 20 kg", "mass", 20, 21),
        ("który telefon do 500 zł", "money", 500, 501),
        ("nie dłużej niż 2 tygodnie", "time", 14 * 86400, 15 * 86400),
        ("víc než 25 dnů", "time", 25 * 86400, 24 * 86400),
        ("kratší než 3 hodiny", "time", 10_800, 10_801),
        ("дольше чем 3 часа", "time", 10_800, 10_799),
        ("не дороже 50 тыс рублей", "money", 50_000, 50_001),
        ("между 2 и 5 кг", "mass", 3, 6),
        ("courses with at least 5 credits", "number of credit", 5, 4),
        ("5+ credits", "number of credit", 5, 4),
        ("plans for more than 1,200 seats", "number of seat", 1300, 1100),
        ("3 or fewer bedrooms", "number of bedroo", 3, 4),
        ("User: Which tents?\nAssistant: Those under 50 euros.\nUser: And of at least 2 kg?", "mass", 2, 1),
    ],
)
def test_a_question_may_set_a_limit(question, dimension, inside, outside):
    (limit,) = asked_limits(question)
    assert limit.dimension == dimension
    assert limit.includes(Quantity(dimension, inside, inside, frozenset()))
    assert not limit.includes(Quantity(dimension, outside, outside, frozenset()))


@pytest.mark.parametrize(
    "question",
    [
        "What does the 16 GB model cost?",
        "A ticket for 50 euros",
        "Visitors under 12",
        'Drop everything above a ">8" line',
        "What is below the second floor?",
        "changes since 2.4",
        "Windows 11 and 16 GB",
        "phones with more than 5G",
        "roads with more than 50 km/h",
        "Take 3 min. 5 kg are enough",
        "The map x => 5 s",
        "a shelf between 5 kg of flour and the wall",
        "what do 20 GB plans cost",
        "which dogs do 20 km",
        "walks on which you can do 10 km",
        "pages under section 5 of the act",
        "Who ate 50 grams of sugar?",
        "User: Which tents?\nAssistant: Those under 50 euros." + " They are light." * 150 + "\nUser: And the red ones?",
    ],
)
def test_other_questions_set_no_limit(question):
    assert asked_limits(question) == ()


@pytest.mark.parametrize(
    ("question", "highest", "dimension"),
    [
        ("the cheapest tent", False, "money"),
        ("most expensive drill", True, "money"),
        ("der günstigste Tarif", False, "money"),
        ("l'appartamento più economico", False, "money"),
        ("el piso más barato", False, "money"),
        ("najtańszy rower", False, "money"),
        ("самый дорогой билет", True, "money"),
        ("lightest laptop", False, "mass"),
        ("longest trail", True, "length"),
        ("kürzeste Laufzeit", False, "time"),
        ("longest serving president", True, "time"),
        ("tallest president", True, "length"),
        ("largest flat", True, "area"),
    ],
)
def test_a_question_may_ask_for_an_extreme(question, highest, dimension):
    extreme = asked_extreme(question)
    assert extreme.highest == highest
    assert dimension in extreme.dimensions


@pytest.mark.parametrize(("question", "dimension"), [("longest-running show", "length"), ("tallest president", "time")])
def test_an_extreme_of_another_dimension_is_not_asked_for(question, dimension):
    assert dimension not in asked_extreme(question).dimensions


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("the largest main hall of all", ["main", "hall"]),
        ("the highest number of front doors there", ["front", "doors"]),
        ("the cheapest main hall of all", []),
    ],
)
def test_the_next_two_words_may_name_the_field_of_a_size(question, named):
    """The lowest price is in a field of money, whatever its name."""
    assert asked_extreme(question).of == set(map(key, named))


@pytest.mark.parametrize(
    "question",
    ["tents", "es más barato que el otro?", "Is it cheaper?", "The longestablished inn", "tickets of the highest rank"],
)
def test_other_questions_ask_for_no_extreme(question):
    assert asked_extreme(question) is None


def test_a_limit_has_the_other_words_of_its_part_of_the_question():
    price, shipping = asked_limits("a tent, price under 50 euros, shipping under 5 euros, in red")
    assert (price.beside, shipping.beside) == ({key("price")}, {key("shipping")})


def test_a_question_may_set_several_limits():
    assert [one.dimension for one in asked_limits("is it under 5 kg and 40 cm")] == ["mass"]
    assert [one.dimension for one in asked_limits("laptop under 900 € with at least 16 GB")] == ["money", "data"]


@pytest.mark.parametrize(
    ("highest", "words"),
    [
        (False, "cheapest najlzejszy nejlehci najkrotszy nejkratsi smallest kleinste najmniejszy nejmensi lowest"),
        (True, "priciest heaviest schwerste najciezszy nejtezsi najdluzszy nejdelsi najwiekszy nejvetsi highest"),
    ],
)
def test_each_superlative_asks_for_the_lowest_or_the_highest_amount(highest, words):
    assert {asked_extreme(f"the {word} tent").highest for word in words.split()} == {highest}


@pytest.mark.parametrize("unit", ["1.1 ", "1 and ", "20 - ", "under 5 kg ", "-", "1,", "$1 ", "1 000 "])
def test_a_long_question_is_read_in_linear_time(unit):
    assert growth(asked_limits, lambda size: unit * (size // len(unit)), 500) < MOST_GROWTH
