"""The limits that a question sets for numbers with a unit."""

from __future__ import annotations

import pytest

from context_agent.text.asked_limits import asked_limits
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
    ],
)
def test_other_questions_set_no_limit(question):
    assert asked_limits(question) == ()


def test_a_limit_has_the_other_words_of_its_part_of_the_question():
    price, shipping = asked_limits("a tent, price under 50 euros, shipping under 5 euros, in red")
    assert (price.beside, shipping.beside) == ({key("price")}, {key("shipping")})


def test_a_question_may_set_several_limits():
    assert [one.dimension for one in asked_limits("is it under 5 kg and 40 cm")] == ["mass"]
    assert [one.dimension for one in asked_limits("laptop under 900 € with at least 16 GB")] == ["money", "data"]


@pytest.mark.parametrize("unit", ["1.1 ", "1 and ", "20 - ", "under 5 kg ", "-", "1,", "$1 ", "1 000 "])
def test_a_long_question_is_read_in_linear_time(unit):
    assert growth(asked_limits, lambda size: unit * (size // len(unit)), 500) < MOST_GROWTH
