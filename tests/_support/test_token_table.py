from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_agent._support import token_table
from context_agent._support.token_table import load_weights

PRINTABLE = st.text(st.characters(min_codepoint=9, max_codepoint=126), max_size=200)
SAID = st.sampled_from(
    ["[CLS]", "[mask]", "[MASK] it", "Über", "na\u0301", "漢字", "a" * 100, "a" * 101, "\x00x", "", " "]
)


def by_tokenizer(text: str) -> list[int]:
    return list(load_weights().tokenizer.encode(text, add_special_tokens=False).ids)


@given(st.lists(PRINTABLE | SAID | st.text(max_size=50), max_size=8))
def test_remembered_words_have_the_tokens_of_the_tokenizer(texts: list[str]) -> None:
    texts = [text.encode(errors="replace").decode() for text in texts]
    assert load_weights().ids(texts) == [by_tokenizer(text) for text in texts]
    assert load_weights().ids(texts) == [by_tokenizer(text) for text in texts]


def test_few_words_are_remembered(monkeypatch) -> None:
    monkeypatch.setattr(token_table, "_MAX_WORDS", 4)
    weights = load_weights()
    weights._words.clear()
    assert weights.ids(["one two three", "four five", "b" * 500]) == [
        by_tokenizer(it) for it in ("one two three", "four five", "b" * 500)
    ]
    assert weights.ids(["six seven"]) == [by_tokenizer("six seven")]
    assert {*weights._words} == {"six", "seven"}
