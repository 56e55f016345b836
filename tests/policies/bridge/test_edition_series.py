"""The searches for the asked editions of the series among the candidates, and the order of the candidates."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from context_agent.policies.bridge.candidates import AnalyzedPassage, analyze_question
from context_agent.policies.bridge.editions import MONTHS as EVERY
from context_agent.policies.bridge.editions import Editions
from context_agent.text.editions import edition


def candidate(row, title, text="", document=""):
    """A candidate, whose document has no other text unless it is named."""
    passage = AnalyzedPassage(title, text)
    return SimpleNamespace(document_id=document or str(row), passage=passage, edition=edition(title, text, {}))


def growing(question, *candidates):
    """The series of the candidates, which are titles or pairs of a title and a text, and the list of the candidates."""
    pairs = [(one, "") if isinstance(one, str) else one for one in candidates]
    notes = SimpleNamespace(
        question=analyze_question(question, lambda terms: np.ones(len(terms), dtype=np.float32)),
        candidates=[candidate(row, *pair) for row, pair in enumerate(pairs)],
    )
    return Editions.of(notes), notes.candidates


def editions(question, *candidates):
    return growing(question, *candidates)[0]


def queries(question, *candidates):
    return editions(question, *candidates).queries(np.linspace(1, 0.5, len(candidates)))


def order(question, *candidates, scores=None):
    """The rows of the candidates in the new order. Without scores, the first ones are the best."""
    scores = np.linspace(1, 0.5, len(candidates)) if scores is None else np.array(scores)
    return np.argsort(-editions(question, *candidates).reordered(scores), kind="stable").tolist()


MONTHS = ("Minutes 2021-03-05", "Minutes 2021-10-05")
DATED = [(title, f"Date: 2021-0{month}-05\nRain.") for month, title in enumerate(("Owls", "Geese", "Rooks"), start=3)]
"""Texts whose titles name no series."""
YEAR_FROM_MARCH = [f"{name} {2020 + (place > 9)}" for place, name in enumerate((*EVERY[2:], *EVERY[:2]))]
NOTES = ("Notes 2.4.2", "Notes 2.3.1")


@pytest.mark.parametrize(
    ("question", "titles", "names"),
    [
        ("the latest minutes", MONTHS, "October 2021 November 2021 December 2021 2021 2022 2023 2024"),
        ("the oldest minutes", MONTHS, "January 2021 February 2021 March 2021 2021 2020 2019 2018"),
        ("the latest minutes", ("Minutes 2021", "Minutes 2022"), "2022 2023 2024 2025"),
        (
            "the latest notes",
            NOTES,
            "2.4.3 2.5 3.0 3 2.4.4 2.6 4.0 4 2.4.5 2.7 5.0 5 2.4.7 2.9 7.0 7 2.4.10 2.12 10.0 10 2.4.15 2.17 15.0 15",
        ),
        ("the oldest notes", NOTES, "2.2 1.0 1 2.1 0.0 0 2.0"),
        ("the oldest notes", ("Notes 2.4.2", "Notes 3.0.0"), "2.4.1 2.3 1.0 1 2.2 0.0 0 2.1"),
        ("minutes between 2019 and 2021", MONTHS, "2019 2020 2021"),
        ("minutes since 2021", MONTHS, "2021 2022 2023 2024"),
        ("minutes until 2021", MONTHS, "2018 2019 2020 2021"),
        ("minutes from 2000 to 2021", MONTHS, " ".join(map(str, range(2000, 2012)))),
        (
            "minutes between November 2020 and February 2021",
            MONTHS,
            "November 2020 December 2020 January 2021 February 2021 2020 2021",
        ),
        ("minutes from 2020 to March 2020", MONTHS, "January 2020 February 2020 March 2020 2020"),
        ("minutes from March 2020 to 2021", MONTHS, f"{' '.join(YEAR_FROM_MARCH)} 2020 2021"),
        ("notes from 2.1 to 2.4", NOTES, "2.1 2.4 2.1 2.2 2.3 2.4"),
        ("notes since 2.4", NOTES, "2.4 2.4 2.5 2.6"),
        ("notes up to 2.4", NOTES, "2.4 2.2 2.3 2.4"),
        ("notes before 2.1", NOTES, "2.1 2.0 2.1"),
        ("notes from 2.1.1 to 2.1.2", NOTES, "2.1.1 2.1.2 2.1.1 2.1.2"),
        ("notes from 2.1 to 3.4", NOTES, "2.1 3.4 2.1 2.2 2.3"),
        ("notes from 2.1 to 2.40", NOTES, f"2.1 2.40 {' '.join(f'2.{it}' for it in range(1, 13))}"),
        ("the latest minutes in 2.4", MONTHS, "October 2021 November 2021 December 2021 2021 2022 2023 2024"),
        ("notes and minutes since 2021", NOTES, ""),
    ],
)
def test_a_search_names_editions_that_may_be_asked_for(question, titles, names):
    series = titles[0].split()[0].lower()
    assert queries(question, *titles)[0].split() == [series, *names.split()]


def test_the_question_is_searched_in_the_last_edition():
    assert queries("who spoke in the latest minutes", *MONTHS)[1] == "spoke latest minutes Minutes 2021-10-05"
    assert queries("who spoke since April 2021", *MONTHS)[1] == "spoke since april 2021 Minutes 2021-10-05"


@pytest.mark.parametrize("question", ["the minutes of 2021", "the minutes of 5 March 2021"])
def test_a_date_alone_is_not_searched_for(question):
    assert queries(question, *MONTHS) == []


def test_the_best_series_are_searched_first_and_others_are_not():
    found = queries(
        "the latest report", "Rain 1.1", "Wind 1.1", "Snow 1.1", "Hail 1.1", "Rain 1.2", "Wind 1.2", "Snow 1.2"
    )
    assert [one.split()[0] for one in found[::2]] == ["rain", "wind"]
    # The sixth document tells nothing.
    others = ("a", "b", "c", "d", "e", "Rain 1.1", "Rain 1.2")
    assert queries("the latest report", *others) == []
    assert queries("the latest report", *others[1:]) != []


def test_one_edition_is_no_series():
    assert queries("the latest minutes", MONTHS[0], MONTHS[0]) == []


def test_a_series_is_searched_in_three_turns_if_each_finds_a_later_edition():
    found, candidates = growing("the latest minutes", *MONTHS)
    turns = [bool(found.queries(np.ones(2)))]
    for day in ("2021-11-05", "2021-12-05", "2022-01-05"):
        candidates.append(candidate(day, f"Minutes {day}"))
        turns.append(bool(found.queries(np.ones(len(candidates)))))
    assert turns == [True, True, True, False]


def test_a_series_of_which_a_search_found_no_later_edition_is_not_searched_again():
    found, candidates = growing("the latest report", *MONTHS, *NOTES)
    assert [one.split()[0] for one in found.queries(np.linspace(1, 0.5, 4))[::2]] == ["minutes", "notes"]
    candidates.append(candidate("new", "Notes 2.5"))
    assert [one.split()[0] for one in found.queries(np.linspace(1, 0.5, 5))[::2]] == ["notes"]
    assert found.queries(np.linspace(1, 0.5, 5)) == []


def test_a_question_that_asks_for_no_edition_has_no_series():
    assert editions("who spoke about rain", *MONTHS) is None


def test_titles_without_an_age_are_a_series_if_a_longer_time_is_asked_for():
    assert queries("rain since 2021", *DATED)[0].split()[:3] == ["rain", "since", "2021"]
    assert order("rain since April 2021", *DATED) == [1, 0, 2]
    # If the titles do not tell, a date alone changes nothing.
    assert order("rain in April 2021", *DATED) == [0, 1, 2]
    assert order("rain in April 2021", *(("Minutes", text) for _, text in DATED)) == [1, 0, 2]
    assert order("rain in April 2021", *(f"Minutes 2021-0{month}-05" for month in (3, 4, 5))) == [1, 0, 2]


def test_titles_that_are_only_dates_are_a_series():
    days = [(f"2024-0{month}-12", "The goat ate the beans.") for month in (2, 5, 3)]
    assert order("the latest entry about the goat", *days) == [1, 0, 2]
    assert order("the oldest entry about the goat", *days) == [0, 2, 1]


def test_a_text_with_a_low_score_is_not_moved_if_its_title_names_no_series():
    assert order("rain since May 2021", *DATED, scores=[2, 1, 0.1]) == [2, 0, 1]
    assert order("rain since May 2021", *DATED, scores=[2, 1, 0.09]) == [0, 1, 2]
    titled = [f"Minutes 2021-0{month}-05" for month in (3, 4, 5)]
    assert order("rain since May 2021", *titled, scores=[1, 0.5, 0.04]) == [2, 0, 1]


def test_one_asked_edition_comes_first_then_the_best_then_the_last():
    texts = [("Minutes 2021-04-05", "Rain."), ("Minutes 2021-03-05", "Rain."), ("Minutes 2021-06-05", "Snow.")]
    texts += [("Minutes 2021-05-05", "Rain."), ("Minutes 2021-01-05", "Rain.")]
    assert order("rain in the latest minutes", *texts) == [3, 0, 2, 1, 4]
    assert order("rain in the earliest minutes", *texts) == [4, 0, 1, 3, 2]


def test_the_last_two_come_first_and_relevant_ones_before_others():
    texts = [("Minutes 2021-04-05", "Rain."), ("Minutes 2021-06-05", "Snow."), ("Minutes 2021-05-05", "Rain.")]
    assert order("rain in the last two minutes", *texts) == [2, 1, 0]
    # Those that are relevant keep the order of their scores.
    texts = [("Minutes 2021-05-05", "Rain."), ("Minutes 2021-06-05", "Rain."), ("Minutes 2021-04-05", "Rain.")]
    assert order("rain in the last two minutes", *texts) == [0, 1, 2]


def test_a_text_is_relevant_if_it_covers_about_as_much_as_the_best_ones_do():
    texts = [(f"Minutes 2021-0{month}-05", "Rain.") for month in range(3, 8)]
    texts.append(("Minutes 2021-01-05", "Rain. Snow."))
    # Only the first five are compared with if one edition is asked for.
    assert order("rain and snow in the latest minutes", *texts)[0] == 4
    assert order("rain and snow in the last six minutes", *texts)[0] == 5
    texts = [("Minutes 2021-03-05", "Rain, snow, hail, wind."), ("Minutes 2021-04-05", "Rain, snow, hail.")]
    assert order("rain snow hail wind fog ice in the latest minutes", *texts) == [1, 0]
    texts[1] = ("Minutes 2021-04-05", "Rain, snow.")
    assert order("rain snow hail wind fog ice in the latest minutes", *texts) == [0, 1]


def test_a_series_without_asked_editions_does_not_keep_another_from_its_order():
    titles = ("Notes 2019-01-05", "Notes 2019-02-05", "Minutes 2021-03-05", "Minutes 2021-04-05")
    assert order("the reports since April 2021", *titles) == [0, 1, 3, 2]


def test_a_time_changes_the_order_if_half_of_the_texts_say_theirs():
    texts = ["Notes 2.1", ("Notes 2.2", "Date: 2021-04-05\nRain.")]
    assert order("rain since 2021", *texts) == [1, 0]
    assert order("rain since 2021", "Notes 2.0", *texts) == [0, 1, 2]


def test_a_text_without_an_age_has_that_of_its_document():
    first = ("Minutes", "Date: 2021-03-05\nRain.", "march")
    texts = [first, ("Minutes", "Snow.", "march"), ("Minutes", "Date: 2021-04-05\nHail.", "april")]
    assert order("snow since April 2021", *texts, scores=[0.9, 1, 0.8]) == [2, 1, 0]
    assert order("snow until March 2021", *texts, scores=[0.7, 0.8, 0.9]) == [1, 0, 2]


def test_equal_scores_become_different():
    titles = [f"Minutes 2021-0{month}-05" for month in (3, 4, 5)]
    scores = editions("since May 2021", *titles).reordered(np.ones(3))
    assert scores[2] > scores[0] > scores[1] >= 1


def test_the_texts_of_a_time_get_nearly_the_best_score_if_they_are_relevant_and_few():
    texts = [(f"Minutes 2021-0{month}-05", "Rain.") for month in range(1, 8)]
    scores = editions("rain since February 2021", *texts).reordered(np.linspace(1, 0.4, 7))
    assert np.flatnonzero(scores > 0.99).tolist() == [0, 1, 2, 3, 4]
    texts[0] = ("Minutes 2021-01-05", "Rain and snow.")
    scores = editions("rain and snow since February 2021", *texts).reordered(np.linspace(1, 0.4, 7))
    assert np.flatnonzero(scores > 0.99).tolist() == [1]


def test_a_series_that_covers_less_than_another_text_does_not_rise():
    texts = [
        *((f"Notices of the house 2021-0{month}-05", "Bicycles.") for month in (1, 2, 3)),
        ("Board", "It was elected."),
    ]
    given = [0.9, 0.2, 0.1, 0.8]
    scores = editions("board of the house elected since February 2021", *texts).reordered(np.array(given))
    assert sorted(scores) == sorted(given)
    scores = editions("bicycles of the house since February 2021", *texts).reordered(np.array(given))
    assert sorted(scores)[:2] == [0.8, 0.9]


@pytest.mark.parametrize(("asked", "written"), [("siano", "Siana"), ("klaczy", "Klacz"), ("hamulec", "Hamulca")])
def test_a_text_is_relevant_if_it_has_another_form_of_a_short_word(asked, written):
    texts = [
        (f"Notes 2021-0{month}-05", text) for month, text in ((1, "Fresh."), (2, "Snow."), (3, f"{written} Dębna."))
    ]
    scores = editions(f"fresh {asked} since February 2021", *texts).reordered(np.array([3.0, 2.0, 0.0]))
    assert scores.argsort().tolist()[::-1] == [1, 0, 2]
    assert scores[2] > 2.9


def test_texts_exchange_their_scores_if_one_edition_is_asked_for():
    texts = [(f"Minutes 2021-0{month}-05", "Rain.") for month in (3, 4, 5)]
    scores = editions("rain in the latest minutes", *texts).reordered(np.array([3.0, 2.0, 1.0]))
    assert scores.tolist() == [2, 1, 3]


def test_texts_of_the_last_two_are_relevant_if_they_cover_as_much_as_the_best_of_all():
    texts = [(f"Minutes 2021-0{4 + row % 2}-05", "Rain.", str(row)) for row in range(5)]
    texts.append(("Minutes 2021-04-05", "Rain and snow."))
    assert order("rain and snow in the last two minutes", *texts)[0] == 5


def test_texts_of_a_time_rise_if_they_cover_as_much_as_the_best_text_of_the_series():
    texts = [
        ("Minutes 2021-01-05", "Rain, snow, hail, wind, fog, ice, dew, sun."),
        ("Minutes 2021-05-05", "Rain, snow, hail, wind, fog, ice."),
        ("Minutes 2021-06-05", "Rain, snow, hail, wind, fog."),
    ]
    question = "rain snow hail wind fog ice dew sun since April 2021"
    scores = editions(question, *texts).reordered(np.array([1.0, 0.7, 0.4]))
    assert scores == pytest.approx([0.7, 1, 0.4])


def test_titles_with_the_same_words_are_one_series_unless_they_name_a_direction():
    assert order("rain in the latest minutes", "Minutes of the council 2021-03-05", "Council minutes 2021-04-05") == [
        1,
        0,
    ]
    assert order("the latest trains", "Trains from Bonn to Rome 2021-03-05", "Trains from Rome to Bonn 2021-04-05") == [
        0,
        1,
    ]
    assert order("the latest one", "On the 2021-03-05", "In a 2021-04-05") == [0, 1]


def test_the_series_of_a_title_is_searched_before_that_of_all_texts_without_one():
    texts = ("2021-03-05", ("Minutes", "Date: 2021-04-05\nRain."), ("Minutes", "Date: 2021-05-05\nRain."))
    found = editions("rain since 2021", *texts).queries(np.array([0.1, 1.0, 0.9]))
    assert [one.split()[0] for one in found[::2]] == ["minutes", "rain"]
