"""Which quotes are found in a text, by which comparison, and where."""

import pytest

from context_agent import Document, MemoryCorpus
from context_agent.synth_data.answers import reveals_answer, states_answer
from context_agent.synth_data.facts import chunks_stating, numbers_in, states_fact
from context_agent.synth_data.quotes import MatchStep, count_quotes, find_quote
from context_agent.testing.embedders import HashEmbedder
from context_agent.testing.planted_quotes import COUNTS, planted

BOUND = 0.99
TEXT = (
    "The “old” bridge at Port Ansel was opened by the mayor in the summer of 1932, after seven years of construction; "
    "its [north tower](https://example.org/tower) holds a bell – cast in Brasko – that weighs 1.5 tonnes."
)


def test_precision_and_recall_on_planted_quotes_reach_the_bound():
    cases = [case for seed in range(3) for case in planted(seed)]
    assert len(cases) == 3 * sum(COUNTS.values()) == 1500
    matches = [case for case in cases if find_quote(case.quote, case.text)]
    true_positives = sum(case.stands for case in matches)
    assert true_positives / len(matches) >= BOUND
    assert true_positives / sum(case.stands for case in cases) >= BOUND


@pytest.mark.parametrize(
    ("quote", "step", "original"),
    [
        ("opened by the mayor", MatchStep.EXACT, "opened by the mayor"),
        ("opened\n  by the\u00a0mayor", MatchStep.WHITESPACE, "opened by the mayor"),
        ("its north tower holds", MatchStep.LINKS, "its [north tower](https://example.org/tower) holds"),
        ("north tower", MatchStep.EXACT, "north tower"),
        ('The "old" bridge', MatchStep.PUNCTUATION, "The “old” bridge"),
        ("the old BRIDGE at port ansel", MatchStep.PUNCTUATION, "The “old” bridge at Port Ansel"),
        ("a bell - cast in Brasko - that", MatchStep.PUNCTUATION, "a bell – cast in Brasko – that"),
        ("...after seven years of construction...", MatchStep.PUNCTUATION, "after seven years of construction"),
        (
            "bridge of Port Ansel, opened by a mayor in the summer of 1932",
            MatchStep.WORDS,
            "bridge at Port Ansel was opened by the mayor in the summer of 1932",
        ),
        (
            "bridge at Port Ansel was opened by the mayor, after seven years of construction",
            MatchStep.WORDS,
            "bridge at Port Ansel was opened by the mayor in the summer of 1932, after seven years of construction",
        ),
    ],
)
def test_each_step_says_where_the_quote_stands(quote, step, original):
    match = find_quote(quote, TEXT)
    assert match is not None
    assert (match.step, TEXT[match.start : match.end]) == (step, original)


@pytest.mark.parametrize(
    "quote",
    [
        "",
        " … ",
        "the new bridge",
        "idge at Port",
        "in the summer of 193",
        "in the summer of 1933",
        "15 tonnes",
        "bridge at Port Ansel was not opened by the mayor in the summer",
        "bridge at Port Ansel was opened by the mayor in the winter of 1932",
        "bridge at Port Ansel opened in the summer of 1932 by the mayor",
        "opened summer 1932 after seven years of construction by the mayor",
        "example.org/tower holds",
    ],
)
def test_what_does_not_stand_there_is_not_found(quote):
    assert find_quote(quote, TEXT) is None


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("東京で生まれ", "彼は1952年に東京で生まれた。"),
        ("Café Société", "the Cafe\u0301 Socie\u0301te\u0301 of 1938"),
        ("finance office", "the \ufb01nance o\ufb03ce"),
        ("a picture of it", "[![a picture of it](x.png)](https://example.org)"),
        ("[the mill](x) stands", "the mill stands"),
        ("straße", "Die STRASSE"),
    ],
)
def test_scripts_and_forms_are_no_obstacle(quote, text):
    assert find_quote(quote, text) is not None


def test_accents_tell_words_apart():
    assert find_quote("resume", "his résumé") is None


def test_quotes_are_counted():
    assert count_quotes(["old", "the mayor", "the mayoress", ""], TEXT) == 2


def test_hostile_texts_take_linear_time():
    for text in ("[" * 50_000, "<" * 50_000, "[[a|" * 20_000, "[a](" * 20_000, "word " * 20_000, "<a " * 20_000):
        assert find_quote("five telling words never stand here at all", text) is None


SAME = [
    ("Oder", "It flows into the Oder."),
    ("the Oder", "Oder water is cold."),
    ("The “Rope”", "the film 'Rope' (1948)"),
    ("1,500", "some 1500 people"),
    ("1500", "some 1,500 people"),
    ("1.5 million", "1,500,000 copies"),
    ("8.2 million", "8,200,000 copies"),
    ("1,001,000", "1.001 million copies"),
    ("twelve", "It has 12 bells."),
    ("12 bells", "It has twelve bells."),
    ("twenty-one years", "after 21 years"),
    ("12 March 1932", "opened on March 12, 1932."),
    ("March 12, 1932", "opened on the 12th of March, 1932"),
    ("12 March 1932", "on 1932-03-12"),
    ("1932-03-12", "on 12.03.1932"),
    ("12 Mar 1932", "12 MARCH 1932"),
    ("third", "the 3rd of them"),
    ("Straße", "the STRASSE"),
    ("東京", "彼は東京で生まれた"),
    ("[Brasko](x)", "born in Brasko"),
]
OTHER = [
    ("Oder", "order, Oderberg"),
    ("12", "1912 and 120"),
    ("12 March 1932", "12 March 1933"),
    ("1.5 million", "1.5 billion"),
    ("twelve", "twelfth"),
    ("art", "party"),
    ("", "anything"),
    ("…", "anything"),
    ("① bell", "anything"),
    ("9" * 5_000, "nine bells"),
]
LOOSE = [
    ("Ketil Varga", "plans by Varga"),
    ("José Martí", "Jose Marti wrote it"),
    ("International Olympic Committee", "the IOC"),
    ("12 March 1932", "in the spring of 1932"),
]


@pytest.mark.parametrize(("answer", "text"), SAME)
def test_an_answer_is_known_in_other_forms(answer, text):
    assert states_answer(text, answer)
    assert reveals_answer(text, answer)


@pytest.mark.parametrize(("answer", "text"), OTHER)
def test_what_only_looks_like_it_is_not_it(answer, text):
    assert not states_answer(text, answer)
    assert not reveals_answer(text, answer)


@pytest.mark.parametrize(("answer", "text"), LOOSE)
def test_a_part_betrays_an_answer_without_stating_it(answer, text):
    assert not states_answer(text, answer)
    assert reveals_answer(text, answer)


def test_aliases_count():
    assert states_answer("the river Odra", "Oder", ["Odra"])
    assert not states_answer("the river Odra", "Oder")


def test_a_number_of_hundreds_of_digits_is_no_number_of_millions():
    assert states_answer(f"It sold {'9' * 400} million copies in Brasko.", "Brasko")


REVENUE = "Revenue was $48.2 million in fiscal 2023."


@pytest.mark.parametrize(
    "text",
    [
        "We run ferries. Revenue was $48.2 million in fiscal 2023. We employ 312 people.",
        "Revenue rose to $48,200,000 in fiscal 2023, since crane work grew.",
        "In fiscal 2023 our revenue of 48.2 million was the highest ever.",
        "REVENUE  was\n$48.2 million in fiscal 2023",
        "Revenue\t48,200 thousand\tfiscal 2023",
    ],
)
def test_the_same_fact_in_other_words(text):
    assert states_fact(text, REVENUE)


@pytest.mark.parametrize(
    "text",
    [
        "Revenue was $48.2 million in fiscal 2022.",
        "Revenue was $48.3 million in fiscal 2023.",
        "Costs were $48.2 million in May 2023.",
        "Revenue grew in fiscal 2023. The pier cost $48.2 million.",
        "Revenue fell by 48.2% in fiscal 2023.",
        "Revenue was $148.2 million in fiscal 2023.",
        "",
    ],
)
def test_another_fact(text):
    assert not states_fact(text, REVENUE)


def test_without_figures_only_the_words_themselves_count():
    assert states_fact(
        "It says: the harbour of Prell is our largest customer!", "The harbour of Prell is our largest customer"
    )
    assert not states_fact(
        "Our largest customer is the harbour of Prell.", "The harbour of Prell is our largest customer"
    )
    assert not states_fact("anything", " . ")
    assert not states_fact("a harbourmaster", "harbour")


def test_figures_compare_by_value():
    assert numbers_in("$1.25 million") == numbers_in("1,250 thousand") == numbers_in("$1,250,000")
    assert numbers_in("6.1%") == numbers_in("6.1 percent") != numbers_in("6.1")
    assert numbers_in("in 10-K, v1.2.3 and B2") == numbers_in("10")


def test_a_fact_is_all_the_chunks_that_state_it():
    texts = {
        "a": "Item 1. Revenue was $48.2 million in fiscal 2023.",
        "b": "Revenue rose by 6.1% to $48,200,000 in fiscal 2023.",
        "c": "Revenue was $45.4 million in fiscal 2022.",
        "d": "The lock at Prell was closed in 2023.",
    }
    corpus = MemoryCorpus((Document(name, text) for name, text in texts.items()), embedder=HashEmbedder())
    assert chunks_stating(REVENUE, corpus) == ("a_0", "b_0")
    assert chunks_stating("Revenue was $99 million.", corpus) == ()
