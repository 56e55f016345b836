"""Records that are within the limits of a question, such as `under 50 euros`."""

from __future__ import annotations

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.policies.bridge.amounts import Amounts
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate, Notes, WordWeights
from context_agent.testing import HashEmbedder

NAMES = "Tarn Fell Moss Drift Ridge Brook Heath Crag".split()


def records(field):
    """Tents of 1 to 8 kilograms, whose price in euros is a hundred times as much."""
    for number, name in enumerate(NAMES, start=1):
        yield Document(name, f"kind: tent\nweight: {number} kg\n{field}: {100 * number}", name)


def ranked(documents, question):
    result = SearchAgent(MemoryCorpus(list(documents)), effort="fast").search(question)
    return [one.id for one in result.documents]


def best(documents, question, count):
    return set(ranked(documents, question)[:count])


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


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("cheapest tent", "Tarn"),
        ("most expensive tent", "Crag"),
        ("heaviest tent", "Crag"),
        ("lightest tent over 350 euros", "Drift"),
        ("lowest weight of a tent", "Tarn"),
        ("highest price of a tent under 700 euros", "Heath"),
    ],
)
def test_the_record_with_the_extreme_amount_comes_first(question, names):
    assert best(records("price_eur"), question, 1) == {names}


def test_a_price_decides_what_is_cheapest_and_a_named_field_what_is_largest():
    """The tents with a low price have a high deposit, and a small hall."""
    documents = [
        Document(
            name,
            f"kind: tent\nprice_eur: {100 * number}\ndeposit: {90 - number} €\n"
            f"hall_m2: {number}\nfloor_m2: {20 - number}",
            name,
        )
        for number, name in enumerate(NAMES, start=1)
    ]
    assert best(documents, "cheapest tent", 1) == {"Tarn"}
    assert best(documents, "tent with the largest hall", 1) == {"Crag"}
    assert best(documents, "tent with the largest floor", 1) == {"Tarn"}


def test_a_single_field_that_is_no_size_does_not_decide_what_is_largest():
    documents = [
        Document(name, f"kind: moon\ndistance_km: {100 * number}\ncraters: {9 - number}", name)
        for number, name in enumerate(NAMES, start=1)
    ]
    assert ranked(documents, "which moon is largest")[:4] != NAMES[:3:-1]
    assert best(documents, "which moon has the largest number of craters", 1) == {"Tarn"}
    assert best(documents, "which moon has the largest distance", 1) == {"Crag"}


def test_the_number_of_a_house_does_not_decide_which_house_is_largest():
    documents = [
        Document(name, f"kind: house\nhouse_number: {number}\nfloor_m2: {20 - number}", name)
        for number, name in enumerate(NAMES, start=1)
    ]
    assert best(documents, "largest house", 1) == {"Tarn"}


def test_a_limit_may_be_for_a_number_of_things_or_inside_an_object():
    documents = [
        Document(name, f"kind: tent\nsleeps: {number} persons", name, metadata={"specs": f'{{"poles": {9 - number}}}'})
        for number, name in enumerate(NAMES, start=1)
    ]
    assert best(documents, "tent for at least 7 persons", 2) == {"Heath", "Crag"}
    assert best(documents, "tent with 7+ poles", 2) == {"Tarn", "Fell"}


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


def found(question, *texts):
    """The amounts of a question whose search found these texts. If it asks for none, None."""
    notes = Notes.of(question, WordWeights(MemoryCorpus([Document("a", "text")], embedder=HashEmbedder())))
    for number, text in enumerate(texts):
        notes.add(ChunkCandidate(f"{number}_0", str(number), AnalyzedPassage("", text), 10, 0))
    if amounts := Amounts.of(notes):
        for number, text in enumerate(texts):
            amounts.read(f"{number}_0", text, {})
    return amounts


def test_a_question_without_a_limit_has_none():
    assert found("red hiking tent", "kind: red hiking tent\nprice_eur: 100") is None


def test_records_that_are_all_within_the_limit_keep_their_scores():
    limits = found("red hiking tent under 300 euros", *["kind: red hiking tent\nprice_eur: 100"] * 3)
    np.testing.assert_array_equal(limits.reordered(np.array([0.5, 0.5, 0.3])), [0.5, 0.5, 0.3])


def test_records_about_something_else_keep_their_scores():
    stoves = ["kind: stove\nprice_eur: 100"] * 6
    tents = [f"kind: red hiking tent\nprice_eur: {price}" for price in (900, 200)]
    scores = np.array([*np.linspace(0.1, 0.2, 6), 0.9, 0.7])
    new = found("red hiking tent under 300 euros", *stoves, *tents).reordered(scores)
    np.testing.assert_array_equal(new, [*scores[:6], 0.7, 0.9])


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        ("tent with a deposit under 44 euros", "price: 30 €\ndeposit: 60 €", "price: 60 €\ndeposit: 40 €"),
        ("tent with a deposit, under 44 euros", "price: 30 €\ndeposit: 60 €", "price: 60 €\ndeposit: 40 €"),
        (
            "tent, deposit under 44 euros, price under 600 euros",
            "price: 30 €\ndeposit: 60 €",
            "price: 500 €\ndeposit: 40 €",
        ),
        ("tent of at least 3 kg under 400 euros", "load: 5 kg\nrange: 200 € or 900 €", "price: 200 €\nkind: large"),
    ],
)
def test_the_quantities_beside_words_of_the_question_decide(question, first, second):
    limits = found(question, f"kind: tent\n{first}", f"kind: tent\n{second}")
    np.testing.assert_array_equal(limits.reordered(np.array([0.9, 0.7])), [0.7, 0.9])


@pytest.mark.parametrize(
    ("question", "fields", "new"),
    [
        ("cheapest tent", "price: 50-60 €|price: 10-90 €", [0.7, 0.9]),
        ("most expensive tent", "price: 50-60 €|price: 10-90 €", [0.7, 0.9]),
        ("smallest tent", "hall_m2: 9|hall_m2: 4", [0.7, 0.9]),
        ("smallest tent", "hall_m2: 9\nfloor_m2: 20|hall_m2: 4\nfloor_m2: 30", [0.9, 0.7]),
        ("tent with the smallest hall", "hall_m2: 9|hall_m2: 4|floor_m2: 20\nkind: hall", [0.7, 0.9, 0.5]),
    ],
)
def test_the_lowest_or_highest_amount_of_one_field_decides(question, fields, new):
    """If several fields may be meant, the order stays. A record without the field keeps its place."""
    limits = found(question, *(f"kind: tent\n{field}" for field in fields.split("|")))
    np.testing.assert_allclose(limits.reordered(np.array([0.9, 0.7, 0.5][: len(new)])), new)
