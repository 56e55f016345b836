"""Where sentences end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.text.sentences import (
    capitalized_sentences,
    loose_ends,
    loose_sentences,
    sentence_spans,
    sentences,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He came. He left!", ["He came.", "He left!"]),
        (
            "Dr. Orm met J. K. Marlow, e.g. in St. Orme. They left.",
            ["Dr. Orm met J. K. Marlow, e.g. in St. Orme.", "They left."],
        ),
        ("“Stone keeps its word.” Then he left.", ["“Stone keeps its word.”", "Then he left."]),
        ("It measures 3.5 m. and no more.", ["It measures 3.5 m. and no more."]),
        ("東京は首都です。川は隅田川です。", ["東京は首都です。", "川は隅田川です。"]),
        ("यह नदी है। वह पहाड़ है।", ["यह नदी है।", "वह पहाड़ है।"]),
        ("ما هذا؟ هذا نهر.", ["ما هذا؟", "هذا نهر."]),
        ("# A heading\n\nA line\n  and another.", ["# A heading", "A line", "and another."]),
        ("no full stop", ["no full stop"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_a_text_is_cut_into_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_wrapped_lines_stay_together() -> None:
    text = "It was built\nby Ketil Varga. He\nlived there."
    assert [text[start:end] for start, end in sentence_spans(text, wrapped=True)] == [
        "It was built\nby Ketil Varga.",
        "He\nlived there.",
    ]


@given(st.text(st.characters() | st.sampled_from("aA.。!? \n\"”»'"), max_size=60))
def test_spans_are_in_order_and_lose_only_white_space(text: str) -> None:
    last = 0
    for start, end in sentence_spans(text):
        assert text[start:end] == text[start:end].strip() != ""
        assert not text[last:start].strip()
        last = end
    assert not text[last:].strip()


def test_loose_sentences_end_at_abbreviations_and_lines() -> None:
    text = "Dr. Orm  came.\n\nHe 。left"
    assert loose_sentences(text) == ["Dr.", "Orm came.", "He 。", "left"]
    assert loose_ends(text, 4, len(text)) == [16, 20]


def test_capitalized_sentences_begin_with_a_capital() -> None:
    assert capitalized_sentences("v. 2 is out; It works. ok\nThen. “No.") == [
        "v. 2 is out;",
        "It works. ok\nThen. “No.",
    ]
    assert capitalized_sentences("") == [""]
