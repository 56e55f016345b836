"""Records that are within the limits of a question, such as `under 50 euros`."""

from __future__ import annotations

import pytest

from context_agent import Document, MemoryCorpus, SearchAgent

NAMES = "Tarn Fell Moss Drift Ridge Brook Heath Crag".split()


def records(field):
    """Tents of 1 to 8 kilograms, whose price in euros is a hundred times as much."""
    for number, name in enumerate(NAMES, start=1):
        yield Document(name, f"kind: tent\nweight: {number} kg\n{field}: {100 * number}", name)


def best(documents, question, count):
    result = SearchAgent(MemoryCorpus(list(documents)), effort="fast").search(question)
    return {one.id for one in result.documents[:count]}


@pytest.mark.parametrize("field", ["price_eur", "price"])
@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("tent under 300 euros", "Tarn Fell Moss"),
        ("tent for at least 700 €", "Heath Crag"),
        ("tent, no heavier than 2 kg", "Tarn Fell"),
        ("tent between 400 and 500 euros", "Drift Ridge"),
        ("tent of at least 3 kg under 400 euros", "Moss Drift"),
    ],
)
def test_records_within_a_limit_come_first(field, question, names):
    assert best(records(field), question, len(names.split())) == set(names.split())


def test_a_limit_may_be_for_a_field_of_the_metadata():
    documents = [
        Document(name, "A tent for two hikers.", name, metadata={"price": 100 * number})
        for number, name in enumerate(NAMES, start=1)
    ]
    assert best(documents, "tent over 650 euros", 2) == {"Heath", "Crag"}


def test_the_number_beside_words_of_the_question_counts():
    """Otherwise a tent whose price and deposit are within the limit comes before one whose deposit alone is."""
    documents = [
        Document(name, f"kind: tent\nprice_eur: {100 * number}\ndeposit: {50 - number} €", name)
        for number, name in enumerate(NAMES, start=1)
    ]
    assert best(documents, "tent under 300 euros", 3) == {"Tarn", "Fell", "Moss"}
    assert best(documents, "tent with a deposit under 44 euros, price at least 600 euros", 3) == {
        "Brook",
        "Heath",
        "Crag",
    }


def test_a_rule_keeps_its_place():
    """Rules about less than the question says may hold for it."""
    documents = [
        Document("gifts", "Gifts of more than 35 euros must be refused.", "Gifts"),
        Document("meals", "A gift of a meal of up to 60 euros is fine.", "Meals"),
        *records("price_eur"),
    ]
    assert best(documents, "May I keep a gift of more than 50 euros?", 2) == {"gifts", "meals"}
