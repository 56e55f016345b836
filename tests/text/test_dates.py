"""Dates in any notation."""

from __future__ import annotations

import pytest

from context_agent.text.dates import dates, days, days_of


@pytest.mark.parametrize(
    "text",
    [
        "2021-05-03",
        "2021-05-03T10:15Z",
        "2021/5/3",
        "2021.05.03",
        "minutes_20210503.md",
        "3 May 2021",
        "3rd of May, 2021",
        "03-May-2021",
        "May 3, 2021",
        "MAY 3rd 2021",
        "3.5.2021",
        "3. 5. 2021",
        "3. Mai 2021",
        "3 de mayo de 2021",
        "le 3 mai 2021",
        "3 мая 2021 г.",
        "3 maja 2021",
        "3. května 2021",
        "3 Mayıs 2021",
        "3 травня 2021",
        "3. toukokuuta 2021",
        "2021年5月3日",
        "令和3年5月3日",
        "民國110年5月3日",
        "2021년 5월 3일",
    ],
)
def test_a_date_has_one_reading_whatever_its_notation(text):
    assert [date.readings for date in dates(text)] == [("20210503",)]


@pytest.mark.parametrize("text", ["May 2021", "in 2021-05,", "maio de 2021", "2021年5月"])
def test_a_month_of_a_year_is_a_date(text):
    assert [date.readings for date in dates(text)] == [("202105",)]


def test_a_date_whose_month_may_come_first_has_two_readings():
    assert [date.readings for date in dates("05/03/2021, 13/03/2021")] == [("20210305", "20210503"), ("20210313",)]


def test_a_date_has_its_place_in_the_text():
    text = "From 30. August 2019 to Sept. 4, 2020."
    assert [text[date.start : date.end] for date in dates(text)] == ["30. August 2019", "Sept. 4, 2020"]


@pytest.mark.parametrize(
    "text", ["in 1984", "3 marbles 2021", "2019-2020", "CVE-2021-4034", "202105034", "12 3 2021", "1080.5 kg", "2021.3"]
)
def test_other_numbers_are_no_dates(text):
    assert list(dates(text)) == []


def test_a_name_of_a_month_that_is_another_word_needs_a_day():
    assert list(dates("El registro de marca 2021")) == []
    assert [date.readings for date in dates("5 marca 2021, marzec 2021")] == [("20210305",), ("202103",)]


@pytest.mark.parametrize(
    "text", ["on date 3 May", "3rd of May", "May 3", "May 3rd?", "am 3. Mai", "le 3 mai", "el 3 de mayo", "3 мая"]
)
def test_a_day_without_a_year_is_found_in_dates_of_any_year(text):
    assert {day for _, day in days(text)} == {"--0503"} <= days_of(["20210503", "202105", "e2047", "20210530"])


@pytest.mark.parametrize("text", ["3 May 2021", "May 3, 2021", "2021-05-03", "3 bags", "unit 3", "May 45", "1.3 May"])
def test_a_date_with_a_year_and_other_numbers_are_no_days(text):
    assert list(days(text)) == []
