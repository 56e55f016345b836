"""Words of a text in the form that comparisons use."""

from __future__ import annotations

import pytest

from context_agent.text.words import (
    fold,
    key,
    months_in_digits,
    related_keys,
    spelled_title,
    without_brackets,
    without_inflection,
    words,
)


def test_words_lose_case_accents_and_possessives():
    assert words("Pál Gábor's FILM, 1968") == ["pal", "gabor", "film", "1968"]
    assert fold("plain ascii’s") == "plain ascii"


def test_words_of_scripts_without_spaces_are_their_terms_and_keep_their_marks():
    assert words("東京とGábor’s ｶﾞﾗｽ") == ["東", "東京", "京", "と", "gabor", "ガラ", "ラス"]
    assert words("ครูโรงเรียน") == ["ครู", "รูโร", "โรง", "งเรี", "เรีย", "ยน"]
    assert words("서울에서") == ["서울", "울에", "에서"]


def test_inflections_share_a_key_and_kin_answer_each_other():
    assert key("director") == key("directed")
    assert key("born") in related_keys("birth")
    assert not related_keys("xylophone")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,200, then 9,410,000", ["1200", "then", "9410000"]),
        ("1.234.567.", ["1234567"]),
        ("500,502,503", ["500", "502", "503"]),
        ("16GB of 250g", ["16", "gb", "of", "250", "g"]),
        ("5G, B2G and AB12KG", ["5g", "b2g", "and", "ab12kg"]),
    ],
)
def test_numbers_lose_separators_and_units_but_lists_and_names_stay(text, expected):
    assert words(text) == expected


def test_brackets_are_no_part_of_a_name():
    assert without_brackets("Get Low (song)") == "Get Low"
    assert without_brackets("(untitled)") == "(untitled)"


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


@pytest.mark.parametrize("word", ["लिखा", "தமிழ்நாடு", "বাংলাদেশের", "ខ្មែរ", "မြန်မာ"])
def test_a_word_keeps_its_vowel_signs(word):
    (found,) = words(word)
    assert words(f"x {word}") == ["x", found]
    assert len(found) > 2


@pytest.mark.parametrize(
    "forms",
    ["melt melts melted melting", "serve serves served", "stop stopped", "try tries tried", "need needs",
     "speed speeds", "bus buses", "spring springs", "lie lies", "bee bees"],
)  # fmt: skip
def test_inflected_forms_are_equal(forms: str) -> None:
    assert len(set(map(without_inflection, forms.split()))) == 1


def test_short_words_and_numbers_keep_their_endings() -> None:
    assert [without_inflection(word) for word in ("gas", "glass", "bring", "red", "7s", "s", "")] == [
        "gas", "glass", "bring", "red", "7s", "s", "",
    ]  # fmt: skip
