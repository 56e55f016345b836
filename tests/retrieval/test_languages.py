"""Terms of scripts without spaces, and embedders that know one language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.retrieval.languages import misfit, segmented, unspaced
from tests.retrieval.human_rights import TEXTS


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
    for text in ("The café’s “menu”, 1968™ x²", "Überraschung", "Привет, мир", "नमस्ते"):
        assert segmented(text) == text
        assert not unspaced(text)
    assert segmented("cafe\u0301") == "café"


def test_thai_tone_marks_make_no_difference() -> None:
    assert segmented("น้ำ") == segmented("นำ")


@given(st.text(st.characters() | st.sampled_from("東京のタワーｶﾞ서울น้ำเปะa1 。"), max_size=100))
def test_a_term_is_cut_into_itself_again(text: str) -> None:
    for term in segmented(text).split() if unspaced(text) else ():
        assert term in segmented(term).split()


@pytest.mark.parametrize("language", TEXTS)
def test_an_english_embedder_fits_english_alone(language: str) -> None:
    warning = misfit("static-minilm-256@1a2b3c4d", [TEXTS[language]])
    assert bool(warning) == (language != "en")
    assert not warning or "--embedder sentence-transformers:paraphrase-multilingual-MiniLM-L12-v2" in warning


def test_only_known_models_and_texts_with_letters_are_judged() -> None:
    assert misfit("openai:bge-m3@http://localhost", [TEXTS["ja"]]) == ""
    assert misfit("minilm-384@1a2b3c4d", ["", "4711 2.5 ..."]) == ""
    assert misfit("minilm-384@1a2b3c4d", ["a" * 5_000]) == ""
    assert "pieces of 0.0 letters" in misfit("minilm-384@1a2b3c4d", ["ขาย" * 400])
    assert misfit("minilm-384@1a2b3c4d", ["Alda Brunner was born in Brasko.", "The weir at Corran, Tessel."]) == ""
    assert misfit("minilm-384@1a2b3c4d", ["def load(path): return json.loads(path.read_text())"]) == ""
