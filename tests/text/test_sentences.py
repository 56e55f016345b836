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
    unwrapped_spans,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He came. He left!", ["He came.", "He left!"]),
        (
            "Dr. Orm met J. K. Marlow, e.g. in St. Orme. They left.",
            ["Dr. Orm met J. K. Marlow, e.g. in St. Orme.", "They left."],
        ),
        ("He left. Mr. Orm came. Dr. Ash is in.", ["He left.", "Mr. Orm came.", "Dr. Ash is in."]),
        ("“Stone keeps its word.” Then he left.", ["“Stone keeps its word.”", "Then he left."]),
        ("It measures 3.5 m. and no more.", ["It measures 3.5 m. and no more."]),
        ("東京は首都です。川は隅田川です。", ["東京は首都です。", "川は隅田川です。"]),
        ("यह नदी है। वह पहाड़ है।", ["यह नदी है।", "वह पहाड़ है।"]),
        ("ما هذا؟ هذا نهر.", ["ما هذا؟", "هذا نهر."]),
        ("# A heading\n\nA line\n  and another.", ["# A heading", "A line", "and another."]),
        ("Es ist am 17. Mai. Vom 3. bis 9. August nicht.", ["Es ist am 17. Mai.", "Vom 3. bis 9. August nicht."]),
        ("Er wohnt im 2. Stock. Tel. 555, z. B. abends.", ["Er wohnt im 2. Stock.", "Tel. 555, z. B. abends."]),
        ("Im 4. Jahrhundert v. Chr. war es so. Da kam er.", ["Im 4. Jahrhundert v. Chr. war es so.", "Da kam er."]),
        ("Solve for z. Then plot x and y. Use red.", ["Solve for z.", "Then plot x and y.", "Use red."]),
        (
            "I am 17. May I go? It rose to 12. Then it fell.",
            ["I am 17.", "May I go?", "It rose to 12.", "Then it fell."],
        ),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The weir was built of stone after the flood, and it was\nraised twice. Boats pass by.\n\nA mill\nstood.",
            [
                "The weir was built of stone after the flood, and it was\nraised twice.",
                "Boats pass by.",
                "A mill",
                "stood.",
            ],
        ),
        ("- The name that clients use for the server. It protects against\n  pages of others.", None),
        (
            (
                "There is an optional weight that other programs may read. The default weight is\n"
                "50, and the maximum is 100."
            ),
            [
                "There is an optional weight that other programs may read.",
                "The default weight is\n50, and the maximum is 100.",
            ],
        ),
        (
            (
                "A heading whose last words are words of\na paragraph that is much wider than its first line, so that "
                "nothing was wrapped here at all, is a heading"
            ),
            None,
        ),
        ("roses are red\nviolets are blue as the sky", ["roses are red", "violets are blue as the sky"]),
        ("pruner = ContextPruner(budget=8_000)\nmessages = pruner.prune(x)", None),
        ("apples\npears\noranges", None),
        ("2026-01-01 ERROR the disk is full\n2026-01-01 INFO started", None),
        ("", []),
        (" \n ", []),
    ],
)
def test_the_lines_of_a_wrapped_sentence_are_joined(text: str, expected: list[str] | None) -> None:
    found = [text[start:end] for start, end in unwrapped_spans(text)]
    if expected is not None:
        assert found == expected
    elif text.startswith("-"):
        assert found[-1] == "It protects against\n  pages of others."
    else:
        assert found == text.split("\n")


@given(st.text(alphabet="ab A.\n", max_size=80))
def test_joined_sentences_are_made_of_whole_sentences(text: str) -> None:
    joined = [*unwrapped_spans(text)]
    starts, ends = ({span[side] for span in sentence_spans(text)} for side in (0, 1))
    assert all(start in starts and end in ends for start, end in joined)
    assert joined == sorted(joined)
    assert sum(end - start for start, end in joined) >= sum(end - start for start, end in sentence_spans(text))
