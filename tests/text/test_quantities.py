"""Numbers with a unit, and the limits that a question sets for them."""

from __future__ import annotations

import pytest

from context_agent.text.quantities import asked_limits, record_quantities
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
    ],
)
def test_a_question_may_set_a_limit(question, dimension, inside, outside):
    (limit,) = asked_limits(question)
    assert limit.dimension == dimension
    assert limit.includes(inside)
    assert not limit.includes(outside)


@pytest.mark.parametrize(
    "question",
    [
        "What does the 16 GB model cost?",
        "A ticket for 50 euros",
        "Visitors under 12",
        'Drop everything above a ">8" line',
        "What is below the second floor?",
        "changes since 2.4",
    ],
)
def test_other_questions_set_no_limit(question):
    assert asked_limits(question) == ()


def test_a_question_may_set_several_limits():
    assert [one.dimension for one in asked_limits("laptop under 900 € with at least 16 GB")] == ["money", "data"]


@pytest.mark.parametrize(
    ("text", "metadata", "amounts"),
    [
        ("name: Tarn\nprice_eur: 249.00", {}, [("money", 249)]),
        ("name: Tarn\nroomPrice: 1,249", {}, [("money", 1249)]),
        ("name: Tarn\nsize: weight 1.1 kg; 67 to 135 cm", {}, [("mass", 1.1), ("length", 0.67), ("length", 1.35)]),
        ("A tent for two.", {"price": 249, "path": "tents.jsonl"}, [("money", 249)]),
        ("name: Tarn\nstars: 5", {}, []),
        ("Orders above 500 euros need a signature.", {}, []),
        ("name: Orders\nrule: " + "Ask the head of your department. " * 3 + "The limit is 500 euros.", {}, []),
    ],
)
def test_the_fields_of_a_record_have_quantities(text, metadata, amounts):
    assert [(one.dimension, round(one.amount, 6)) for one in record_quantities(text, metadata)] == amounts


@pytest.mark.parametrize("unit", ["1.1 ", "1 and ", "20 - ", "under 5 kg ", "-", "1,"])
def test_a_long_question_and_a_long_record_are_read_in_linear_time(unit):
    assert growth(asked_limits, lambda size: unit * (size // len(unit)), 500) < MOST_GROWTH
    assert growth(lambda text: record_quantities(text, {}), lambda size: f"{unit}: {unit}\n" * size, 50) < MOST_GROWTH
