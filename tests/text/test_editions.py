"""Editions: which of the texts of a series is newer."""

from __future__ import annotations

import pytest

from context_agent.text.editions import edition


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Minutes of the council, 14 March 2023", "Minutes of the council, 2 April 2023"),
        ("Minutes of the council, 30 December 2023", "Minutes of the council, 1 January 2024"),
        ("Protokoll vom 14. März 2023", "Protokoll vom 2. Oktober 2023"),
        ("2023-05-Incident_Report.md", "2023-11-Incident_Report.md"),
        ("2024-03-14 standup", "2024-03-15 standup"),
        ("Report Q4 2023", "Report Q1 2024"),
        ("Report 2024Q1", "Report 2024 Q3"),
        ("Report H1 2024", "Report H2 2024"),
        ("Report 2024-W09", "Report 2024-W10"),
        ("KW 9/2024 Bericht", "KW 41/2024 Bericht"),
        ("Retro, week 9 2024", "Retro, week 41 of 2024"),
        ("Garden group 9/2023", "Garden group 10/2023"),
        ("Rundbrief 12.2023", "Rundbrief 01.2024"),
        ("Prices, spring 2024", "Prices, autumn 2024"),
        ("Rundbrief Herbst 2023", "Rundbrief Frühjahr 2024"),
        ("Annual report FY 2022", "Annual report 2023"),
        ("Travel policy v1.9", "Travel policy v1.10"),
        ("What's new in Python 3.9", "What's new in Python 3.12"),
        ("Notes 3.0.0rc1", "Notes 3.0.0"),
        ("Notes 3.0.0-beta.2", "Notes 3.0.0-rc.1"),
        ("Notes 2.9", "Notes 3.0.0rc1"),
        ("vim 2:8.2.2434-3", "vim 2:9.0.1378-2"),
        ("Bulletin No. 9", "Bulletin No. 17"),
        ("Dictionary, 2nd edition", "Dictionary, 3rd edition"),
        ("Changelog: 2.5.3 (2024-05-01)", "Changelog: 2.6.0 (2024-06-01)"),
        ("Windows Server 2019 notes v2", "Windows Server 2019 notes v10"),
        ("Minutes 2024-01-05 > Parking", "Minutes 2024-02-02 > The budget"),
    ],
)
def test_titles_that_differ_in_their_ages_are_editions_of_one_series(older, newer):
    first, second = edition(older, "", {}), edition(newer, "", {})
    assert (first.series, first.kind) == (second.series, second.kind)
    assert first.age < second.age


@pytest.mark.parametrize("number", ["No. {}", "nr {}", "Nr. {}", "č. {}", "№ {}", "n.º {}", "núm. {}"])
def test_a_number_within_a_year_is_no_month(number):
    """Circular No. 2/2022 may be of June, which its first line may say."""
    text = "Depot East, {} 2022\nBicycles are welcome."
    first, second = (
        edition(f"Circular {number.format(n)}/2022", text.format(month), {})
        for n, month in ((2, "June"), (3, "October"))
    )
    assert first.series == second.series == "circular"
    assert (first.dates, second.dates) == (((2022, 6), (2022, 6)), ((2022, 10), (2022, 10)))
    assert first.age[:4] == (2022, 6, 0, 2)
    assert first.age < second.age
    undated = edition(f"Circular {number.format(2)}/2022", "Bicycles are welcome.\nAlways.", {})
    assert undated.dates == ((2022,), (2022,))
    other = edition(f"Circular {number.format(2)}/2022", "Depot East, June 2021\nBicycles are welcome.", {})
    assert other.age == undated.age < edition(f"Circular {number.format(11)}/2022", "", {}).age


def test_the_replies_of_a_thread_are_of_its_series():
    first = edition("Paper prices", "", {"date": "2024-03-14"})
    for reply in ("Re: Paper prices", "RE: AW: Paper prices", "Fwd: Re[2]: Paper prices"):
        assert edition(reply, "", {"date": "2024-03-15"}).series == first.series
    assert edition("Re: Heating", "", {"date": "2024-03-15"}).series != first.series


def test_the_first_line_of_a_file_without_a_title_names_its_series():
    first = edition("board a", "Erlenhof, board, 9 March 2023\nThe rope is new.", {}, "notes/board%20a.txt")
    second = edition("board b", "Erlenhof, board, 11 May 2023\nThe roof leaks.", {}, "notes/board%20b.txt")
    other = edition("choir", "Erlenhof, choir, 9 March 2023\nWe sing.", {}, "notes/choir.txt")
    assert first.series == second.series != other.series


@pytest.mark.parametrize(
    "text", ["The roof leaked on 3 May 2021.\n\nOh.", "The roof leaked on 3 May 2021 and\nwas repaired."]
)
def test_a_sentence_below_a_heading_says_nothing_about_the_age(text):
    assert edition("Roof", f"# Roof\n\n{text}", {}) is None


@pytest.mark.parametrize("title", ["Printer 10.20.3.15", "Host 192.168.4.1"])
def test_an_address_of_a_private_network_is_no_version(title):
    assert edition(title, "", {}) is None
    assert edition("Notes 0.9.1.2", "", {}).age < edition("Firmware v10.20.3.15", "", {}).age


@pytest.mark.parametrize(
    "title", ["", "Handbook", "3.2 Setup", "3.2 A guide", "ISO 9001:2015", "Form 1040", "iPhone 15", "Chapter 3"]
)
def test_a_title_without_an_age_has_no_edition(title):
    assert edition(title, "", {}) is None


def test_titles_with_other_words_are_other_series():
    assert (
        edition("Minutes of the board, 2024-01-02", "", {}).series
        != edition("Minutes of the club, 2024-01-02", "", {}).series
    )


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        ("Date: 14 March 2024\nThe board met.", {}),
        ("From: Ann\nDate: Thu, 14 Mar 2024 10:00:00 +0100\n\nHello", {}),
        ("# Travel\n\n**Effective date:** 14 March 2024\n", {}),
        ("---\nupdated: 2024-03-14\n---\nText", {}),
        ("Text", {"date": "2024-03-14"}),
        ("Text", {"effective_date": "2024-03-14T10:00:00Z", "version": "2.1"}),
        ("Text", {"created_at": "2023-01-02", "last_modified": "2024-03-14", "pages": 2025}),
    ],
)
def test_without_an_age_in_the_title_a_field_or_a_line_at_the_beginning_decides(text, metadata):
    assert edition("Travel", text, metadata).age == (2024, 3, 14)


def test_the_name_of_a_file_tells_the_age_of_a_title_without_one():
    first = edition("Team meeting", "", {}, "notes/2024-05-16_team-meeting.md")
    second = edition("Team meeting", "", {}, "notes/2024-09-19_team-meeting.md")
    assert first.series == second.series
    assert first.age < second.age
    assert edition("Team meeting", "", {}, "notes/handbook.md") is None


def test_a_date_later_in_the_text_says_nothing_about_its_age():
    assert edition("Travel", "We met. " * 60 + "\nDate: 14 March 2024\n", {}) is None


@pytest.mark.parametrize(
    ("title", "text", "dates"),
    [
        ("Bulletin No. 12", "Valley library, November 2022\nA course in bookbinding.", ((2022, 11), (2022, 11))),
        ("Notes 2.4", "Date: 3 May 2021\nFixed.", ((2021, 5, 3), (2021, 5, 3))),
        ("Report II. Quartal 2021", "", ((2021, 4), (2021, 6))),
        ("loans_2015-16.odt", "", ((2015,), (2016,))),
        ("Plan 2019-2021", "", ((2019,), (2021,))),
        ("2019年 会議録", "", ((2019,), (2019,))),
        ("会議録 令和5年3月14日", "", ((2023, 3, 14), (2023, 3, 14))),
        ("会議録 令和元年", "", ((2019,), (2019,))),
        ("公報 民國112年", "", ((2023,), (2023,))),
        ("Notes 2.4", "In March 2021 it rained.", None),
        ("Lease", "# Lease\n\nBrandt & Co., 3 May 2021\n\nThe rent is due.", ((2021, 5, 3), (2021, 5, 3))),
        ("Lease", "# Lease of 3 May 2021\n\nBrandt & Co.\n\nThe rent is due.", ((2021, 5, 3), (2021, 5, 3))),
        ("Bulletin No. 12", "\n\nValley, November 2022\nA course.\nA talk.", ((2022, 11), (2022, 11))),
        ("Notes 2.4", f"{'x' * 86} November 2022\nA course.", ((2022, 11), (2022, 11))),
        ("Notes 2.4", f"{'x' * 87} November 2022\nA course.", None),
        ("Notes 2.4", "Valley, November 2022\n(a course)", ((2022, 11), (2022, 11))),
        ("Notes 2.4", "# Notes\n\nValley, November 2022\n(a course)", ((2022, 11), (2022, 11))),
        ("Notes 2.4", "The year 2022\nA course.", None),
        ("Notes 2.4", "A course.\nIn May 2021 it rained.\nA talk.", None),
        ("Plan 2024, written in 2023", "", ((2024,), (2024,))),
        ("Report 2024-W01", "", ((2024, 1, 1), (2024, 1, 7))),
        ("Report week 99 2024", "", ((2024,), (2024,))),
        ("Report 2024-W50", "", ((2024, 12, 9), (2024, 12, 15))),
        ("Protokoll 14.3.2024", "", ((2024, 3, 14), (2024, 3, 14))),
        ("第2版2024年3月14日", "", ((2024, 3, 14), (2024, 3, 14))),
    ],
)
def test_an_edition_has_the_time_of_its_title_or_of_its_first_line(title, text, dates):
    assert edition(title, text, {}).dates == dates


@pytest.mark.parametrize(
    ("title", "age"),
    [
        ("Report 2023", (2023, 0, 0)),
        ("Notes 3.1", (3, 1, 0, 0, 0, 0, 4)),
        ("Notes 3.1.0", (3, 1, 0, 0, 0, 0, 4)),
        ("Notes 3.1rc2", (3, 1, 0, 0, 0, 0, 3, 2)),
        ("3.2 Setup of version 2.4", (2, 4, 0, 0, 0, 0, 4)),
        ("令和5年第2版", (2023, 0, 0, 2, 0, 0, 0, 0, 0, 4)),
        ("第2版2024年3月14日", (2024, 3, 14, 2, 0, 0, 0, 0, 0, 4)),
    ],
)
def test_an_age_has_a_place_for_each_number(title, age):
    found = edition(title, "", {})
    assert found.age == age
    assert found.is_titled


def test_a_title_without_an_age_is_the_series_of_a_dated_text():
    found = edition("Travel policy", "Date: 14 March 2024\nTake the train.", {})
    assert (found.series, found.is_titled) == ("travel policy", False)


@pytest.mark.parametrize("title", ["app-release-2.0.md", "requests-2.0", "バージョン2.0", "第2版"])
def test_a_version_may_be_joined_to_a_word(title):
    assert edition(title, "", {}).age[0] == 2
