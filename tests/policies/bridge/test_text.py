"""What the embedded policy reads out of questions and passages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.policies.bridge.candidates import AnalyzedPassage, WordWeights, analyze_question
from context_agent.policies.bridge.links import NO_LINK, link
from context_agent.policies.bridge.text import (
    fold,
    key,
    kin,
    mentions,
    months_in_digits,
    question_entities,
    spelled_title,
    without_brackets,
    words,
)
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Document
from tests.retrieval.fakes import HashEmbedder


def flat(terms):
    return np.ones(len(terms), dtype=np.float32)


def test_words_lose_case_accents_and_possessives():
    assert words("Pál Gábor's FILM, 1968") == ["pal", "gabor", "film", "1968"]
    assert fold("plain ascii’s") == "plain ascii"


def test_words_of_scripts_without_spaces_are_their_terms_and_keep_their_marks():
    assert words("東京とGábor’s ｶﾞﾗｽ") == ["東", "東京", "京", "と", "gabor", "ガラ", "ラス"]
    assert words("ครูโรงเรียน") == ["ครู", "รูโร", "โรง", "งเรี", "เรีย", "ยน"]
    assert words("서울에서") == ["서울", "울에", "에서"]


def test_names_without_capitals_are_quotations_katakana_and_latin_words():
    text = "会社はGoogle Cloudで「ユリカゴ」を作り、ヘンリー・ブラントンが『夜の海』と呼ぶ。"
    surfaces = {mention.surface: mention.start for mention in mentions(text)}
    assert surfaces.keys() == {"Google Cloud", "ユリカゴ", "ヘンリー・ブラントン", "夜の海"}
    assert all(text[start:].startswith(surface) for surface, start in surfaces.items())
    assert question_entities("《桥与河》的作者是谁？") == ["桥与河"]


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


def test_inflections_share_a_key_and_kin_answer_each_other():
    assert key("director") == key("directed")
    assert key("born") in kin("birth")
    assert not kin("xylophone")


def test_brackets_are_no_part_of_a_name():
    assert without_brackets("Get Low (song)") == "Get Low"
    assert without_brackets("(untitled)") == "(untitled)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("directed by Jo Vance, a story by Al Bray", {"jo vance", "al bray"}),
        ("He taught at the University of Upper Marl in 1950.", {"university of upper marl", "upper marl"}),
        ('their album "night over harbours" sold', {"night over harbours"}),
        ("It was written by J. K. Marlow in St. Orme.", {"j k marlow", "st orme"}),
    ],
)
def test_names_are_found_whole_and_in_parts(text, expected):
    assert expected <= {mention.name for mention in mentions(text)}


def test_sentence_openers_months_and_years_are_no_names():
    names = {mention.name for mention in mentions("The house fell. In March it stood. 1950 was dry. However she left.")}
    assert not names & {"the", "in", "march", "1950"}


def test_a_comparison_names_its_options_even_in_small_letters():
    assert "the quiet field" in [e.lower() for e in question_entities("Which is older, the quiet field or Loud Sea?")]
    assert "Loud Sea" in question_entities("Which is older, the quiet field or Loud Sea?")


def test_what_a_passage_leaves_open_is_asked_next():
    question = analyze_question("Who is the mother of the director of Forbidden Marsh?", flat)
    passage = AnalyzedPassage("Forbidden Marsh", "Forbidden Marsh is a film directed by Jo Vance.")
    assert question.rest(passage) == "mother"
    assert question.coverage(passage).tolist() == [0.0, 1.0, 1.0, 1.0]


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


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("2023-05-IncidentReport_final.md", "2023-05-Incident Report final"),
        ("docs/runbooks/db_failover.rst", "db failover"),
        ("Fort Marl", "Fort Marl"),
        ("YouTube", "YouTube"),
        ("Node.js", "Node.js"),
        ("_.md", "_.md"),
        ("", ""),
    ],
)
def test_a_file_name_is_spelled_in_words(title, expected):
    assert spelled_title(title) == expected


def test_a_date_in_digits_names_its_month():
    assert {"2023", "march"} <= set(words("due 2023-03"))
    assert {"march", "5"} <= set(words("incident_2023-03-05.md"))
    assert "march" not in words("2023-13 and 12023-03")


def test_a_month_beside_a_number_is_searched_in_digits():
    assert months_in_digits("From March 2023 to 5 June, or in march 2023?") == ["03", "06"]
    assert months_in_digits("What may happen in May?") == []


def test_a_version_is_one_word_with_or_without_its_v():
    assert words("v2.1 fixes 2.0.") == ["2.1", "fixes", "2.0"]


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
