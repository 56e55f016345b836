"""The words of passages in the form in which the pruner compares them."""

from __future__ import annotations

import pytest

from context_agent.pruning.words import terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fooBar_baz HTTPServer 42", ["foo", "bar", "baz", "http", "server", "42"]),
        ("Müllers Größe", ["muller", "grosse"]),
        ("été École", ["ete", "ecole"]),
        ("Ёлка", ["елка"]),
        ("हिन्दी में लिखा", ["हिंदी", "में", "लिखा"]),
        ("ガラス", ["ガ", "ラ", "ス"]),
        ("Donau\u00addampf", ["donaud"]),
    ],
)
def test_a_word_is_whole_in_any_script(text, expected):
    assert terms(text) == expected
