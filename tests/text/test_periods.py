"""Spans of time in a text."""

from __future__ import annotations

import pytest

from context_agent.text.periods import periods


@pytest.mark.parametrize(
    ("text", "found", "first", "last"),
    [
        ("1990s", "1990s", (1990,), (1999,)),
        ("the 1995s and the 2010s", "2010s", (2010,), (2019,)),
        ("season 2019/20", "2019/20", (2019,), (2020,)),
        ("season 1999/00", "1999/00", (1999,), (2000,)),
        ("season 1999/2000", "1999/2000", (1999,), (2000,)),
        ("plan 2019-2039", "2019-2039", (2019,), (2039,)),
        ("q1 2021", "q1 2021", (2021, 1), (2021, 3)),
        ("w drugim kwartale 2021", "drugim kwartale 2021", (2021, 4), (2021, 6)),
        ("w pierwszej polowie 2021 roku", "pierwszej polowie 2021", (2021, 1), (2021, 6)),
        ("w polowie 2021", "polowie 2021", (2021, 5), (2021, 8)),
        ("v prvni polovine roku 2021", "prvni polovine roku 2021", (2021, 1), (2021, 6)),
        ("na podzim 2021", "podzim 2021", (2021, 9), (2021, 11)),
        ("веснои 2021", "веснои 2021", (2021, 3), (2021, 5)),
        ("осенью 2021", "осенью 2021", (2021, 9), (2021, 11)),
        ("в первом полугодии 2021", "первом полугодии 2021", (2021, 1), (2021, 6)),
        ("в начале 2021", "начале 2021", (2021, 1), (2021, 4)),
        ("в конце 2021", "конце 2021", (2021, 9), (2021, 12)),
        ("of t2 2021", "t2 2021", (2021, 4), (2021, 6)),
        ("of h2 2021", "h2 2021", (2021, 7), (2021, 12)),
        ("2021 q1", "2021 q1", (2021, 1), (2021, 3)),
        ("2021 q2 to q3", "2021 q2 to q3", (2021, 4), (2021, 9)),
        ("2021年上半年", "2021年上半年", (2021, 1), (2021, 6)),
        ("2021年下半年", "2021年下半年", (2021, 7), (2021, 12)),
        ("2021年第2季度", "2021年第2季度", (2021, 4), (2021, 6)),
        ("2021年の冬", "2021年の冬", (2021, 12), (2022, 2)),
        ("the autumn 2021", "autumn 2021", (2021, 9), (2021, 11)),
        ("the first half of 2021", "first half of 2021", (2021, 1), (2021, 6)),
        ("mid-2021", "mid-2021", (2021, 5), (2021, 8)),
        ("the start of 2021", "start of 2021", (2021, 1), (2021, 4)),
        ("estate 2021", "estate 2021", (2021, 6), (2021, 8)),
        ("and summer 2021", "summer 2021", (2021, 6), (2021, 8)),
        ("the spring and summer 2021", "spring and summer 2021", (2021, 3), (2021, 8)),
        ("the second quarter to autumn 2021", "second quarter to autumn 2021", (2021, 4), (2021, 11)),
        ("the i and ii quarter 2021", "i and ii quarter 2021", (2021, 1), (2021, 6)),
        ("fall prices of fall 2021", "fall 2021", (2021, 9), (2021, 11)),
        ("may and q2 2021", "q2 2021", (2021, 4), (2021, 6)),
    ],
)
def test_a_period_has_a_place_and_two_ends(text, found, first, last):
    assert [(text[one.start : one.end], one.first, one.last) for one in periods(text)] == [(found, first, last)]


@pytest.mark.parametrize(
    "text",
    "2021,of 2021,1998/00,2020/22,2020/2020,2020/2019,2019/2040,2010-11-,start in 2021,fine of 2021,"
    "the real estate 2021,half 2021,tenth quarter 2021".split(","),
)
def test_other_numbers_and_words_are_no_periods(text):
    assert not list(periods(text))


def test_a_text_may_name_several_periods():
    found = list(periods("in the 2010s, in late 2020 and late 2021"))
    assert [(one.start, one.first) for one in found] == [(7, (2010,)), (17, (2020, 9)), (31, (2021, 9))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the spring and the third quarter of 2021", [((2021, 3), (2021, 5)), ((2021, 7), (2021, 9))]),
        ("the spring and third quarter of 2021", [((2021, 3), (2021, 5)), ((2021, 7), (2021, 9))]),
        ("the beginning and summer of 2021", [((2021, 1), (2021, 4)), ((2021, 6), (2021, 8))]),
        ("the spring to third quarter of 2021", [((2021, 3), (2021, 9))]),
        ("from the first to the third quarter of 2021", [((2021, 1), (2021, 9))]),
        ("vom ersten quartal bis zum dritten quartal 2021", [((2021, 1), (2021, 9))]),
        ("the first quarter and the second quarter of 2021", [((2021, 1), (2021, 6))]),
        ("march and the second quarter of 2021", [((2021, 4), (2021, 6))]),
        ("the second quarter of 2021", [((2021, 4), (2021, 6))]),
        ("in the first quarter and in the third quarter of 2021", [((2021, 1), (2021, 3)), ((2021, 7), (2021, 9))]),
        ("the second and third quarter of 2021", [((2021, 4), (2021, 9))]),
    ],
)
def test_listed_parts_of_a_year_are_one_period_if_they_follow_each_other(text, found):
    assert [(one.first, one.last) for one in periods(text)] == found
