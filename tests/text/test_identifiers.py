"""Identifiers in a text."""

from __future__ import annotations

import pytest

from context_agent.text.identifiers import MAX_CHARACTERS, MOST_JOINED, asked_identifiers, identifier_spans, identifiers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call _make_self_pipe() twice", ["_make_self_pipe", "make_self_pipe"]),
        ("Loop._make_pipe(", ["loop._make_pipe", "_make_pipe", "make_pipe"]),
        ("pkg.mod.run_all", ["pkg.mod.run_all", "pkg.mod", "mod.run_all", "run_all"]),
        ("std::vector<int>::push_back(x)", ["push_back"]),
        ("since v2.1.3, not 2.1", ["2.1.3", "2.1"]),
        ("see CVE-2024-1234 and UTF-8", ["cve20241234", "utf8"]),
        ("E-1074, E1074 and E 1074", ["e1074"] * 3),
        ("covid-19, COVID19, INV-2024-001 and INV2024001", ["covid19", "inv2024001", "covid19", "inv2024001"]),
        ("9,410 or 9410 of 978-3-16-148410-0", ["9783161484100", "9410", "9410"]),
        ("1.2.0, v1.2 and 2.0.0", ["1.2", "1.2", "2.0"]),
        ("x86_64 at 1,080.5 or 2021.3", ["x86_64", "1080.5", "2021.3"]),
        ("on 2021-05-03T10:15", ["20210503t10", "20210503", "202105"]),
        ("in May 2021", ["202105"]),
        ("pass --dry-run", ["dry-run"]),
        ("max_tokens=my_limit", ["max_tokens", "my_limit"]),
        ("src/app/main.py:12", ["main.py"]),
        ("関数foo_barを見る", ["foo_bar"]),
    ],
)
def test_an_identifier_is_one_term_and_so_are_the_names_inside_it(text, expected):
    assert identifiers(text) == expected


def test_a_question_asks_for_a_date_in_each_reading_and_not_for_its_month():
    asked = asked_identifiers("Was E-12 replaced on 05/03/2021, or E12 on 3 June 2021?")
    assert [(one.surface, one.spellings) for one in asked] == [
        ("05/03/2021", ("20210305", "20210503")),
        ("3 June 2021", ("20210603",)),
        ("E12", ("e12",)),
    ]


@pytest.mark.parametrize(
    "text",
    ["in 1984 and Q3, 404 on mp3", "a well-known and/or time-honored U.S. case, i.e. this.", "__init__", "x = y", ""],
)
def test_words_are_no_identifiers(text):
    assert identifiers(text) == []


def test_encoded_data_is_no_identifier():
    assert identifiers("a_" * MAX_CHARACTERS + "b") == []
    assert identifiers("/".join(["a_b"] * MOST_JOINED)) == []


def test_each_occurrence_counts_for_the_frequency():
    assert identifiers("a_b, then a_b") == ["a_b", "a_b"]


def test_a_span_is_an_identifier_as_written():
    text = "Why does Loop._make_pipe fail in a well-known way?"
    assert [(start, text[start : start + len(name)]) for start, name in identifier_spans(text)] == [
        (9, "Loop._make_pipe")
    ]
