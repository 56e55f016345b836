"""Names in a text."""

from __future__ import annotations

import pytest

from context_agent.text.names import mentions, question_entities, sentence_openers


def test_names_without_capitals_are_quotations_katakana_and_latin_words():
    text = "会社はGoogle Cloudで「ユリカゴ」を作り、ヘンリー・ブラントンが『夜の海』と呼ぶ。"
    surfaces = {mention.surface: mention.start for mention in mentions(text)}
    assert surfaces.keys() == {"Google Cloud", "ユリカゴ", "ヘンリー・ブラントン", "夜の海"}
    assert all(text[start:].startswith(surface) for surface, start in surfaces.items())
    assert question_entities("《桥与河》的作者是谁？") == ["桥与河"]


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


def test_names_of_one_word_that_begin_a_sentence_may_be_ordinary_words():
    text = 'Listing files (Slow) takes "Ages". Why? Ann Lee: In Rome? Ask Bo; Never'
    assert sentence_openers(text) == ["listing", "slow", "never"]
