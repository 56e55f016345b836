"""The newest and the oldest edition of a series."""

from __future__ import annotations

import random

import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.pruning.view import ActionTaken

MONTHS = "January February March April May June July September October November December".split()
TOPICS = {
    "parking": "Permits for parking in Mill Lane were discussed.",
    "trees": "The trees beside the pond will be pruned.",
    "budget": "The budget was agreed without a vote.",
}


def minutes(body, years=(2021, 2022, 2023, 2024)):
    """Minutes of each month. Parking is a topic in the first half of each year alone."""
    for year in years:
        for number, month in enumerate(MONTHS, start=1):
            topics = ["trees", "budget", *["parking"][: number <= 6]]
            text = f"Present: the chair and {number % 5 + 3} members. {' '.join(TOPICS[topic] for topic in topics)}"
            yield Document(f"{body} {year}-{number:02}", text, f"Minutes of the {body}, {number + 3} {month} {year}")


@pytest.fixture(scope="module")
def corpus():
    documents = [*minutes("parish council"), *minutes("harbor board", years=(2020, 2021))]
    for version in ("1.9", "1.10", "2.0", "2.4", "3.0", "3.1"):
        text = f"The daily allowance is {len(version)}{version[0]} euros. A hotel may cost {version[0]}90 euros."
        documents.append(Document(f"travel {version}", text, f"Travel policy v{version}"))
    random.Random(3).shuffle(documents)
    return MemoryCorpus(documents)


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("What was discussed at the latest meeting of the parish council?", "parish council 2024-11"),
        ("What did the harbor board decide at its last meeting?", "harbor board 2021-11"),
        ("When did the parish council most recently discuss parking?", "parish council 2024-06"),
        ("When did the parish council first discuss parking?", "parish council 2021-01"),
        ("Last meeting of the parish council in 2022", "parish council 2022-11"),
        ("What is the current daily allowance?", "travel 3.1"),
        ("What was the daily allowance in the first version of the travel policy?", "travel 1.9"),
        ("What is the latest version 2 of the travel policy?", "travel 2.4"),
    ],
)
def test_the_asked_edition_comes_first(corpus, question, best):
    result = SearchAgent(corpus, effort="fast").search(question)
    assert result.documents[0].id == best


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("When did the parish council discuss parking between March and May 2023?", "03 04 05"),
        ("When did the parish council discuss parking since May 2024?", "05 06"),
        ("In which of the last seven meetings did the parish council discuss parking?", "05 06"),
        ("When did the harbor board discuss parking before February 2020?", "01"),
    ],
)
def test_the_texts_of_a_time_come_first(corpus, question, first):
    result = SearchAgent(corpus, effort="fast").search(question)
    body, year = ("harbor board", 2020) if "harbor" in question else ("parish council", 2023 + ("2023" not in question))
    months = first.split()
    assert {one.id for one in result.documents[: len(months)]} == {f"{body} {year}-{month}" for month in months}


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("When did the council discuss parking between March and May 2023?", {"2023-03", "2023-04", "2023-05"}),
        ("In which of the last seven meetings did the council discuss parking?", {"2024-06"}),
        ("What was discussed at the latest meeting of the council?", {"2024-11"}),
    ],
)
def test_texts_of_one_title_are_a_series_by_the_dates_in_their_fields(question, asked):
    months = [one.id.split()[-1] for one in minutes("council")]
    documents = [
        Document(f"no {number}", one.text, "Minutes", metadata={"date": f"{month}-05"})
        for number, (month, one) in enumerate(zip(months, minutes("council"), strict=True))
    ]
    result = SearchAgent(MemoryCorpus(documents), effort="fast").search(question)
    assert asked <= {months[int(one.id.split()[1])] for one in result.documents[: len(asked) + 1]}


def test_texts_that_say_the_same_keep_the_order_of_their_ages():
    """Their scores are equal, since a repeated text scores 0."""
    documents = [Document(one.id.split()[-1], one.text, "Minutes") for one in minutes("council")]
    result = SearchAgent(MemoryCorpus(documents), effort="fast").search(
        "When did the council discuss parking between March and May 2023?"
    )
    assert {"2023-03", "2023-04", "2023-05"} <= {one.id for one in result.documents[:4]}


def test_texts_of_a_time_that_repeat_a_better_one_come_before_other_files():
    """A repeated text scores 0, so the other texts of the time would come last."""
    documents = [
        Document(f"prices {year}", "Offer of the city. Electricity costs 31 cents.", f"Electricity supply {year}")
        for year in range(2019, 2026)
    ]
    documents += [
        Document(f"{name} prices", f"The price of {name} rose, and the supply of {name} fell.", f"{name} supply")
        for name in "gas water heat paper coffee bread milk rope wood steel glass salt".split()
    ]
    result = SearchAgent(MemoryCorpus(documents), effort="fast").search("electricity supply price since 2023")
    assert {"prices 2023", "prices 2024", "prices 2025"} <= {one.id for one in result.documents[:4]}


def test_the_notes_of_a_version_may_say_what_was_before_it():
    documents = [
        Document(f"importer {n}", f"Fix a fault of the {color} cable, which lost its name.", f"Importer {n}.0")
        for n, color in enumerate("red green blue white black brown gray pink".split(), start=1)
    ]
    result = SearchAgent(MemoryCorpus(documents), effort="fast").search(
        "What was wrong with the black cable before 5.0?"
    )
    assert "importer 5" in [one.id for one in result.documents[:2]]


def test_a_time_that_all_texts_share_changes_nothing():
    reports = [
        Document(f"r{n}", f"The {color} house was sold in the {color} street.", f"Report Q{n % 4 + 1} 2024: {color}")
        for n, color in enumerate("red green blue white black brown gray pink".split(), start=1)
    ]
    result = SearchAgent(MemoryCorpus(reports), effort="fast").search(
        "Which house was sold in 2024 in the white street?"
    )
    assert result.documents[0].id == "r4"


def test_titles_with_a_version_and_a_date_are_a_series():
    documents = [
        Document(f"n{n}", f"Fixed the importer {n}.", f"Changelog: 2.{n}.0 (2024-0{n}-01)") for n in range(1, 9)
    ]
    documents += [
        Document(f"x{n}", f"Page {n} is about trees.", f"Page {'abcdefghijklmnopqrst'[n]}") for n in range(20)
    ]
    result = SearchAgent(MemoryCorpus(documents), effort="fast").search("What is fixed in the latest changelog?")
    assert result.documents[0].id == "n8"


def test_titles_with_the_same_words_in_another_order_are_one_series():
    documents = [
        Document(str(year), f"The pond was discussed, and parking in {year}.", title)
        for year in range(2015, 2025)
        for title in [f"Minutes of the council, 3 May {year}" if year < 2022 else f"Council minutes {year}-05-04"]
    ]
    documents += [
        Document(name, f"The {name} was painted and the {name} is closed.", f"Report on the {name}")
        for name in "gate weir barn hall pier shed mill lock dock quay".split()
    ]
    agent = SearchAgent(MemoryCorpus(documents), effort="fast")
    latest = agent.search("What was discussed in the latest minutes of the council?")
    last = agent.search("pond in the last three minutes of the council")
    assert latest.documents[0].id == "2024"
    assert {one.id for one in last.documents[:3]} == {"2022", "2023", "2024"}


def test_titles_that_differ_in_a_word_with_a_meaning_are_several_series():
    """The newest trains from Bonn are no later edition of those to Bonn."""
    documents = [
        Document(f"{way} {month}", f"The first train goes at {hour}.10.", f"Trains {way} Bonn, {month} 2023")
        for way, months in (("to", "January February March April"), ("from", "January February March April May June"))
        for hour, month in enumerate(months.split(), start=5)
    ]
    documents += [
        Document(name, f"The {name} is closed.", f"Report on the {name}") for name in "gate weir barn".split()
    ]
    agent = SearchAgent(MemoryCorpus(documents), effort="fast")
    result = agent.search("When does the first train go in the latest edition of trains to Bonn?")
    assert result.documents[0].id == "to April"


def test_one_named_date_asks_for_no_further_searches(corpus):
    agent = SearchAgent(corpus, effort="fast")
    named = agent.search("What did the parish council discuss in May 2022?")
    ranged = agent.search("What did the parish council discuss since May 2022?")
    assert named.documents[0].id == "parish council 2022-05"
    assert not any("2025" in search for search in searches_of(named))
    assert any("2025" in search for search in searches_of(ranged))


def searches_of(result):
    """Return the arguments of the calls of an episode, as texts."""
    actions = [event.action for event in result.trajectories[0].events if isinstance(event, ActionTaken)]
    return [str(call.arguments) for action in actions for call in action.calls]


def test_all_texts_of_a_document_have_its_age(corpus):
    documents = [
        Document(
            f"letter {year}", f"Date: 3 May {year}\n" + "The weather was fine. " * 400 + "The goat is well.", "Letter"
        )
        for year in range(2015, 2023)
    ]
    result = SearchAgent(MemoryCorpus(documents), effort="fast").search("Which letters before 2017 are about the goat?")
    assert {"letter 2015", "letter 2016"} <= {one.id for one in result.documents[:3]}


def test_a_question_that_names_a_day_is_not_reordered(corpus):
    result = SearchAgent(corpus, effort="fast").search("What did the parish council discuss last on 4 January 2022?")
    assert result.documents[0].id == "parish council 2022-01"
