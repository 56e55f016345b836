"""Terms of scripts without spaces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.text.scripts import segmented, unspaced


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("青石水库", "青 青石 石 石水 水 水库 库"),
        ("東京タワーがある", "東 東京 京 タワ ワー があ ある"),
        ("서울에서 왔다", "서울 울에 에서 왔다"),
        ("น้ำประปา", "นำป ประ ระปา"),
        ("Python3で2019年に", "Python3 で 2019 年 に"),
        ("ｶﾞﾗｽとＡＢＣ１", "ガラ ラス と ABC1"),
        ("か\u3099い", "がい"),
        ("𠮷野家", "𠮷 𠮷野 野 野家 家"),
        ("ジョン・スミス", "ジョ ョン ・ スミ ミス"),
    ],
)
def test_a_script_without_spaces_is_cut_into_overlapping_terms(text: str, terms: str) -> None:
    assert segmented(text).split() == terms.split()


def test_other_scripts_stay_as_they_are() -> None:
    for text in ("The café’s “menu”, 1968", "Überraschung", "Привет, мир", "नमकीन"):
        assert segmented(text) == text
        assert not unspaced(text)
    assert segmented("cafe\u0301") == "café"


def test_thai_tone_marks_make_no_difference() -> None:
    assert segmented("น้ำ") == segmented("นำ")


def test_a_letter_in_a_compatible_form_is_normalized() -> None:
    assert segmented("\ufee3\ufeee\ufeb3\ufef0") == segmented("\u0645\u0648\u0633\u0649")
    assert segmented("\u00af").split() == []


@given(st.text(st.characters() | st.sampled_from("東京のタワーｶﾞ서울น้ำเปะa1 。"), max_size=100))
def test_a_term_is_cut_into_itself_again(text: str) -> None:
    for term in segmented(text).split() if unspaced(text) else ():
        assert term in segmented(term).split()
