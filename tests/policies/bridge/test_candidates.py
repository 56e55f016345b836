"""What the embedded policy reads out of questions and passages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.policies.bridge.candidates import AnalyzedPassage, Notes, WordWeights, analyze_question
from context_agent.policies.bridge.links import NO_LINK, link
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.testing.embedders import HashEmbedder
from context_agent.types import Document


def flat(terms):
    return np.ones(len(terms), dtype=np.float32)


def test_a_title_without_spaces_links_where_the_text_holds_it():
    question = analyze_question("誰が設計しましたか", flat)
    bridge = AnalyzedPassage("柳溪铁路桥", "柳溪铁路桥由工程师罗文清主持设计。")
    assert link(question, bridge, AnalyzedPassage("罗文清", "罗文清早年留学比利时。"))[0] == 1.0
    assert link(question, bridge, AnalyzedPassage("邵文清", "邵文清是船长。")) == NO_LINK


def test_sentences_end_at_the_full_stops_of_chinese():
    assert len(AnalyzedPassage("", "第一句。第二句！第三句").sentences) == 3


def test_a_pair_of_characters_that_no_text_holds_has_no_weight():
    corpus = MemoryCorpus([Document("a", "青石水库很大"), Document("b", "白沙水库很小")], embedder=HashEmbedder())
    absent, everywhere, rare, unknown = WordWeights(corpus)(["库在", "水库", "青石", "reservoir"])
    assert absent == 0 < everywhere < rare < unknown


def test_what_a_passage_leaves_open_is_asked_next():
    question = analyze_question("Who is the mother of the director of Forbidden Marsh?", flat)
    passage = AnalyzedPassage("Forbidden Marsh", "Forbidden Marsh is a film directed by Jo Vance.")
    assert question.rest(passage) == "mother"
    assert question.coverage(passage).tolist() == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("What is E2047?", "Direct debit fails with E-2047."),
        ("What was decided on 2023-09-14?", "Decided: 14 Sept. 2023, to wait."),
        ("E 2047", "direct debit: e2047"),
        ("invoice of 14 September", "Date: 14/09/2023, invoice"),
    ],
)
def test_a_date_or_a_code_in_another_notation_is_covered(asked, text):
    question = analyze_question(asked, flat)
    assert question.coverage(AnalyzedPassage("", text)).min() == 1
    assert question.coverage(AnalyzedPassage("", "On 15 Sept. 2023, E-2048 was fixed.")).min() == 0


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("the wifi", "Our Wi-Fi is new."),
        ("an e-mail", "each email"),
        ("set-up", "The set-up: none"),
        ("MUELLER", "Frau Müller"),
        ("Müller", "Frau Mueller"),
    ],
)
def test_a_word_is_covered_with_and_without_hyphens_and_umlauts(asked, text):
    assert analyze_question(asked, flat).coverage(AnalyzedPassage("", text)).min() == 1


@pytest.mark.parametrize(
    ("asked", "terms"),
    [
        ("Wer ist Kassenwart?", ("ist", "kassenwart")),
        ("¿Quién es Ana?", ("es", "ana")),
        ("Qui", ("qui",)),
        ("Who is Tom?", ("tom",)),
    ],
)
def test_the_first_word_of_a_question_in_another_language_is_no_term_and_no_name(asked, terms):
    question = analyze_question(asked, flat)
    assert question.terms == terms
    assert question.names == ((terms[-1],) if len(asked) > 3 else ())


@pytest.mark.parametrize("asked", ["Comment syntax", "KDE release", "Como ferry", "Wen Jiabao", "Qui-Gon Jinn"])
def test_the_first_word_of_a_question_may_be_a_question_word_in_another_language(asked):
    assert " ".join(analyze_question(asked, flat).terms) == asked.lower().replace("-", " ")


def test_a_link_is_a_title_in_a_text_and_knows_the_words_beside_it():
    question = analyze_question("When was the director of Forbidden Marsh born?", flat)
    film = AnalyzedPassage("Forbidden Marsh", "Forbidden Marsh is a film directed by Jo Vance and starring Al Bray.")
    director, actor = (
        AnalyzedPassage("Jo Vance (director)", "He was born in 1931."),
        AnalyzedPassage("Al Bray", "An actor."),
    )
    assert link(question, film, director)[0] == 1.0
    assert link(question, film, director)[2] > 0
    assert link(question, film, AnalyzedPassage("Marsh Gas", "A gas.")) == NO_LINK
    assert link(question, film, actor)[1] > link(question, film, director)[1]


def test_a_long_name_is_also_known_by_its_first_and_last_word():
    question = analyze_question("Who directed it?", flat)
    person = AnalyzedPassage("Stan Silvester Marek", "A filmmaker.")
    assert link(question, AnalyzedPassage("It", "It was directed by Stan Marek."), person)[0] == 0.8
    assert link(question, AnalyzedPassage("It", "It was directed by Silvester Marek."), person)[0] == 0.5
    assert link(question, AnalyzedPassage("It", "It was directed by Marek."), person) == NO_LINK


def test_a_stop_word_or_a_number_as_title_links_nothing():
    question = analyze_question("Who directed it?", flat)
    for title in ("It", "The", "1984", ""):
        assert (
            link(question, AnalyzedPassage("A", "It was the year 1984 for it."), AnalyzedPassage(title, "x")) == NO_LINK
        )


@given(st.text(max_size=300))
def test_any_text_can_be_taken_apart(text):
    passage = AnalyzedPassage(text[:50], text)
    question = analyze_question(text, flat)
    assert len(question.coverage(passage)) == len(question.terms)
    assert all(mention.name for mention in passage.mentions)
    assert isinstance(passage.sentences, list)
    assert question.rest(passage) is not None


def test_fields_of_front_matter_are_words_but_no_names():
    passage = AnalyzedPassage("note", "---\ntags: [Harbour]\ndate: 2023-03-05\n---\nThe gate closed.")
    assert {"harbour", "march", "gate"} <= set(passage.words)
    assert "tags" not in passage.words
    assert not passage.mentions
    assert AnalyzedPassage("note", "---\nunclosed: yes").words == ["unclosed", "yes"]


def test_a_question_that_joins_facts_has_a_clause_for_each():
    question = analyze_question(
        "Which firm, reported to have bought the quiet harbour, also closed its oldest paper mill in spring?", flat
    )
    assert len(question.clauses) == 2
    assert question.in_clause.sum(axis=0).min() == 1
    for text in ("", "?", "Who?", ",,, and and"):
        assert len(analyze_question(text, flat).clauses) == 1


def test_words_that_a_passage_has_as_one_are_covered():
    corpus = MemoryCorpus([Document("a", "kind: PodDisruptionBudget"), Document("b", "kind: Pod")], embedder="static")
    question = Notes.of("the pod disruption budget", WordWeights(corpus)).question
    assert question.coverage(AnalyzedPassage("", "kind: PodDisruptionBudget")).tolist() == [1, 1, 1]
    assert question.coverage(AnalyzedPassage("", "kind: Pod")).tolist() == [1, 0, 0]
