"""Words of a question in the spelling of the texts."""

from __future__ import annotations

import pytest

from context_agent.text.respelling import MOST_LOOKUPS, MOST_RESPELLED, joined_words, respelled


@pytest.mark.parametrize(
    ("question", "known", "expected"),
    [
        ("Where is Juergen Mueller?", {"Jürgen", "Müller"}, "Where is Jürgen Müller?"),
        ("Where is Jürgen Mu\u0308ller?", {"Juergen", "Mueller"}, "Where is Juergen Mueller?"),
        ("the Groesse of a Strasse", {"Größe"}, "the Groesse of a Strasse"),
        ("MUELLER in AARAU", {"MÜLLER"}, "MÜLLER in AARAU"),
        ("MÜLLER", {"MUeLLER"}, "MUeLLER"),
        ("Aarhus and Århus", {"Aarhus"}, "Aarhus and Aarhus"),
        ("Is Müller there?", {"Müller", "Mueller"}, "Is Müller there?"),
        ("Is Müller there?", set(), "Is Müller there?"),
        ("a blue poem", {"blue", "blü", "pöm"}, "a blue pöm"),
    ],
)
def test_only_a_word_that_no_text_has_is_spelled_as_in_a_text(question, known, expected):
    assert respelled(question, known.__contains__) == expected


def test_only_words_that_have_another_spelling_are_looked_up():
    asked: list[str] = []
    respelled("When does the train to Köln leave?", lambda word: bool(asked.append(word)))
    assert asked == ["does", "dös", "Köln", "Koeln"]


def test_each_word_is_looked_up_once_and_few_of_a_long_text_are():
    asked: list[str] = []
    words = [f"K{chr(97 + number % 26)}{chr(97 + number // 26)}ln" for number in range(200)]
    respelled(" ".join(word.replace("K", "Kö") for word in words) * 2, lambda word: bool(asked.append(word)))
    assert len(asked) == len(set(asked)) == 2 * MOST_RESPELLED


@pytest.mark.parametrize(
    ("question", "known", "expected"),
    [
        ("the pod disruption budget", {"poddisruptionbudget"}, [("poddisruptionbudget", "pod disruption budget")]),
        ("a file name, or a file-name", {"filename"}, [("filename", "file name")]),
        ("a file-name", {"filename"}, [("filename", "file-name")]),
        ("a file, name it", {"filename"}, []),
        ("in come what may", {"income", "maybe"}, []),
        ("vitamin C level", {"vitaminC", "vitaminClevel"}, []),
        ("one two three four five", {"onetwothreefourfive"}, []),
    ],
)
def test_neighboring_content_words_that_a_text_has_as_one_are_joined(question, known, expected):
    assert joined_words(question, known.__contains__) == expected


def test_few_neighbors_of_a_long_question_are_looked_up():
    asked: list[str] = []
    joined_words("alpha beta gamma delta " * 100, lambda word: bool(asked.append(word)))
    assert len(asked) == MOST_LOOKUPS
