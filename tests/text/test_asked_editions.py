"""Which editions a question asks for."""

from __future__ import annotations

import pytest

from context_agent.text.asked_editions import QUESTION_CHARACTERS, asked_editions
from context_agent.text.editions import edition
from context_agent.text.words import words
from tests.support.growth import MOST_GROWTH, growth


@pytest.mark.parametrize(
    "question",
    [
        "What did the council decide at its last meeting?",
        "latest release notes of the importer",
        "What is the current daily allowance?",
        "Above which sum are three quotes needed today?",
        "When did the board most recently discuss parking?",
        "Was steht in der aktuellen Reiserichtlinie?",
        "Was wurde in der letzten Sitzung beschlossen?",
        "Quelle est la dernière version du règlement ?",
        "¿Cuál es la última versión?",
        "Какая последняя версия?",
        "最新のリリースで何が変わりましたか",
        "What does a wash cost now?",
        "Last update of the plan",
        "Wo ist das Lager jetzt?",
        "latest release\n",
        "when was the blade last changed",
        "aktuální vyhláška",
        "najnovšie znenie",
        "kto teraz wydaje klucze?",
        "кто сейчас сторож",
    ],
)
def test_a_question_may_ask_for_the_newest_edition(question):
    assert asked_editions(question).which == "newest"


@pytest.mark.parametrize(
    "question",
    [
        "What is the earliest report?",
        "When did the board first discuss parking?",
        "Who wrote the first version?",
        "How long did the first fire drill take?",
        "erste Fassung der Satzung",
        "primera versión del reglamento",
        "pierwsza wersja regulaminu",
        "první verze řádu",
        "первая редакция правил",
    ],
)
def test_a_question_may_ask_for_the_oldest_edition(question):
    assert asked_editions(question).which == "oldest"


@pytest.mark.parametrize(
    "question",
    [
        "What is the last name of the author?",
        "What happened last year?",
        "Will the paint last?",
        "Who was the first man on the moon?",
        "How do I restore the original file?",
        "What should I do now?",
        "Must I pay by now?",
        "User: What is the latest version?\nAssistant: 3.2.\nUser: Who wrote it?",
        "What was the first decision?",
        "when was the file last year",
        "changes in every release except 2.1",
    ],
)
def test_other_questions_ask_for_no_edition(question):
    assert asked_editions(question) is None


@pytest.mark.parametrize(
    ("question", "which", "count"),
    [
        ("What did the last three meetings say about parking?", "newest", 3),
        ("What do the two most recent inspections say?", "newest", 2),
        ("In the first two releases, was compression on?", "oldest", 2),
        ("Was stand in den letzten drei Protokollen?", "newest", 3),
        ("Que disent les trois dernières réunions ?", "newest", 3),
        ("¿Qué dicen los cinco boletines más recientes?", "newest", 1),
        ("最近三次会议说了什么", "newest", 3),
        ("最近3回の会議", "newest", 3),
        ("최근 3회 회의", "newest", 3),
        ("Which release was the last before 4.0?", "newest", 1),
        ("What did the first meeting after 1 May 2021 decide?", "oldest", 1),
        ("Was beschloss der Rat in der ersten Sitzung nach dem 1. April 2022?", "oldest", 1),
        ("What was the first decision since 2019?", "oldest", 1),
        ("What was the first decision after 2019 and before 2022?", "oldest", 1),
        ("What was the first decision up to 2019?", None, 1),
    ],
)
def test_a_question_may_ask_for_a_few_editions(question, which, count):
    asked = asked_editions(question)
    assert (asked.which, asked.count) == (which, count)


@pytest.mark.parametrize(
    "question",
    ["What happened in the last 2 years?", "the last two digits", "first two chapters", "지난 3개월 동안"],
)
def test_a_number_of_years_or_of_digits_is_no_number_of_editions(question):
    assert asked_editions(question) is None


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        ("between March and May 2023", "2023-03-01 2023-05-31", "2023-02-28 2023-06-01 2022-04-01"),
        ("from November to February 2023", "2022-11-05 2023-02-01", "2022-10-31 2023-03-01"),
        ("from 3 May to 17 May 2021", "2021-05-03 2021-05-17", "2021-05-02 2021-05-18"),
        ("between the 1st and 3rd of May 2021", "2021-05-01 2021-05-03", "2021-04-30 2021-05-04"),
        ("from March 2 to April 4, 2021", "2021-03-02 2021-04-04", "2021-03-01 2021-04-05"),
        ("after Q2 2022", "2022-07-01", "2022-06-30 2022-05-01"),
        ("until Q2 2022", "2022-06-30 2022-05-01", "2022-07-01"),
        ("before Q2 2022", "2022-03-31", "2022-04-01 2022-05-01"),
        ("between the 3rd and 17th of May 2021", "2021-05-03 2021-05-17", "2021-05-02 2021-05-18"),
        ("between 2021-03-01 and 2021-05-31", "2021-04-11 2021-05-31", "2021-06-01"),
        ("2019-2021", "2019-01-01 2021-12-31", "2018-12-31 2022-01-01"),
        ("since the June 2022 meeting", "2022-06-01 2024-01-01", "2022-05-30"),
        ("after the June 2022 meeting", "2022-07-01 2024-01-01", "2022-06-30"),
        ("up to and including 2019", "2019-12-31", "2020-01-01"),
        ("no later than June 2022", "2022-06-30", "2022-07-01"),
        ("not in 2019 but in 2021", "2021-05-01", "2019-05-01 2020-05-01"),
        ("nicht 2017, sondern 2019", "2019-05-01", "2017-05-01 2018-05-01"),
        ("in 2020, not 2022", "2020-05-01", "2022-05-01"),
        ("the minutes of 2021 rather than 2019", "2021-05-01", "2019-05-01"),
        ("not only in 2019 but in 2021", "2019-05-01 2021-05-01", "2018-05-01"),
        ("mezi lety 2019 a 2021", "2020-05-01", "2018-05-01 2022-05-01"),
        ("před rokem 2021", "2020-05-01", "2021-05-01"),
        ("prior to 2020", "2019-12-31", "2020-01-01"),
        ("after 2019 and before 2022", "2020-01-01 2021-12-31", "2019-12-31 2022-01-01"),
        ("in the 2010s", "2010-01-01 2019-12-31", "2009-12-31 2020-01-01"),
        ("in the second half of 2021", "2021-07-01 2021-12-31", "2021-06-30 2022-01-01"),
        ("in Q2 and Q3 of 2022", "2022-04-01 2022-09-30", "2022-03-31 2022-10-01"),
        ("in Q2-Q3 2022", "2022-04-01 2022-09-30", "2022-03-31 2022-10-01"),
        ("in 2022 Q2 to Q3", "2022-04-01 2022-09-30", "2022-03-31 2022-10-01"),
        ("since mid-2020", "2020-05-01 2021-01-01", "2020-04-30"),
        ("from the mid-1990s", "1990-01-01 1999-12-31", "1989-12-31 2000-01-01"),
        ("of winter-2020", "2020-12-01 2021-02-28", "2020-11-30 2021-03-01"),
        ("in the second and third quarter of 2022", "2022-04-01 2022-09-30", "2022-03-31 2022-10-01"),
        ("over the winter of 2020/21", "2020-12-01 2021-02-28", "2020-11-30 2021-03-01"),
        ("from summer 2021 to spring 2022", "2021-06-01 2022-05-31", "2021-05-31 2022-06-01"),
        ("from late 2021 to early 2023", "2021-09-01 2023-04-30", "2021-08-31 2023-05-01"),
        ("in the season 2015/16", "2015-09-01 2016-05-01", "2014-12-31 2017-01-01"),
        ("after the pump in 2022 was switched off", "2022-03-01", "2023-01-01"),
        ("zwischen März und Mai 2023", "2023-03-01 2023-05-31", "2023-06-01"),
        ("vor 2018", "2017-12-31", "2018-01-01"),
        ("entre mars et mai 2023", "2023-03-01 2023-05-31", "2023-06-01"),
        ("au deuxième trimestre 2021", "2021-04-01 2021-06-30", "2021-07-01"),
        ("durante el primer semestre de 2022", "2022-01-01 2022-06-30", "2022-07-01"),
        ("desde junio de 2021", "2021-06-01 2024-01-01", "2021-05-31"),
        ("między marcem a majem 2023", "2023-03-01 2023-05-31", "2023-06-01"),
        ("od marca 2023 do maja 2023", "2023-03-01 2023-05-31", "2023-02-28 2023-06-01"),
        ("od marca do maja 2023", "2023-03-01 2023-05-31", "2023-02-28 2023-06-01"),
        ("protokoły od maja 2023", "2023-05-01 2024-01-01", "2023-04-30"),
        ("mezi březnem a květnem 2023", "2023-03-01 2023-05-31", "2023-06-01"),
        ("між березнем і травнем 2023", "2023-03-01 2023-05-31", "2023-06-01"),
        ("schůze do roku 2019", "2019-12-31 2018-01-01", "2020-01-01"),
        ("весной 2023", "2023-03-01 2023-05-31", "2023-06-01"),
        ("с марта по май 2023 года", "2023-03-01 2023-05-31", "2023-06-01"),
        ("2019年から2021年まで", "2019-01-01 2021-12-31", "2022-01-01"),
        ("2023年3月から5月まで", "2023-03-01 2023-05-31", "2023-06-01"),
        ("2023年3月から12月まで", "2023-03-01 2023-12-31", "2023-02-28 2024-01-01"),
        ("2022年11月から1月まで", "2022-11-01 2023-01-31", "2022-10-31 2023-02-01"),
        ("2023年3月14日から3月20日まで", "2023-03-14 2023-03-20", "2023-03-13 2023-03-21"),
        ("2023년 3월 14일부터 4월 2일까지", "2023-03-14 2023-04-02", "2023-03-13 2023-04-03"),
        ("令和4年以降", "2022-01-01", "2021-12-31"),
        ("平成30年4月から令和2年3月まで", "2018-04-01 2020-03-31", "2018-03-31 2020-04-01"),
        ("2020年以降", "2020-01-01 2024-01-01", "2019-12-31"),
        ("2020年以前", "2019-12-31", "2020-01-01"),
        ("2022年上半期", "2022-06-30", "2022-07-01"),
        ("2022年第3四半期", "2022-07-01", "2022-06-30"),
        ("2020년 이후", "2021-01-01", "2019-12-31"),
        ("from 2.1 to 2.4", "2.1 2.4.3 2.2", "2.0 2.5"),
        ("2.1-2.4", "2.1 2.4.3", "2.5"),
        ("versions 3 to 5", "3.0 5.9", "2.9 6.0"),
        ("since version 3", "3.0 4.1", "2.9"),
        ("2.4 or newer", "2.4.0 3.0", "2.3"),
        ("older than 2.0", "1.9 0.3", "2.0 2.1"),
        ("up to release 1.8", "1.8.2 1.0", "1.9"),
        ("newer than 2.0 and older than 3.0", "2.1 2.9", "2.0 3.0"),
        ("in 2.8, which is older than 3.2", "2.8 3.2", "2.7 3.3"),
        ("nach Version 2.3", "2.4", "2.3.1 2.2"),
        ("desde la versión 3.2", "3.2 3.3", "3.1"),
        ("3.0以降で変更された設定", "3.0 3.1", "2.9"),
        ("2.4+", "2.4.1 3.0", "2.3"),
        ("not before 2020", "2020-01-01 2024-01-01", "2019-12-31"),
        ("not older than 2.0", "2.0 3.1", "1.9"),
        ("from 2020 until now", "2020-01-01 2024-01-01", "2019-12-31"),
        ("from 2020 to today", "2020-01-01 2024-01-01", "2019-12-31"),
        ("from 2020 and later", "2020-01-01 2024-01-01", "2019-12-31"),
        ("2020년 전에", "2019-12-31", "2020-01-01"),
        ("2020年前的", "2019-12-31", "2020-01-01"),
        ("late in 2020", "2020-09-01", "2020-08-31"),
        ("in March or June 2023", "2023-03-01 2023-06-30", "2023-02-28 2023-04-15 2023-07-01"),
        ("in Q1 and Q3 2023", "2023-03-31 2023-07-01", "2023-04-01 2023-06-30 2023-10-01"),
        ("in the first or fourth quarter of 2023", "2023-03-31 2023-10-01", "2023-04-01 2023-09-30"),
        ("between Q1 and Q3 2023", "2023-01-01 2023-05-01 2023-09-30", "2022-12-31 2023-10-01"),
        ("from Q1 to Q3 2023", "2023-01-01 2023-05-01 2023-09-30", "2022-12-31 2023-10-01"),
        ("in Q1 and Q2 2023", "2023-01-01 2023-06-30", "2022-12-31 2023-07-01"),
        ("im ersten und dritten Quartal 2023", "2023-03-31 2023-07-01", "2023-04-01"),
        ("in 2019 and in 2021", "2019-05-01 2021-05-01", "2020-05-01"),
        ("of 2015, 2017 and 2020", "2015-05-01 2017-05-01 2020-05-01", "2016-05-01 2019-05-01"),
        ("from the 3rd and the 17th of May 2021", "2021-05-03 2021-05-17", "2021-05-10"),
        ("im März oder im Juni 2023", "2023-03-01 2023-06-30", "2023-04-15"),
        ("before 2019 or after 2022", "2018-05-01 2023-05-01", "2019-05-01 2022-05-01"),
        ("in 2.1 or 2.4", "2.1.3 2.4", "2.2"),
        ("in versions 3 and 5", "3.1 5.0", "4.0"),
        ("in versions 3, 4 and 6", "3.1 4.0 6.2", "2.9 5.0"),
        ("in releases v3, v5, or v7", "3.1 5.0 7.0", "4.0 6.0"),
        ("between versions 3 and 5", "3.1 4.0 5.0", "6.0"),
        (f"between 2019, when it rained {'in the port ' * 8}, and 2022", "2020-05-01", "2018-12-31 2023-01-01"),
        ("in 5/2023", "2023-05-01", "2023-06-01"),
        ("from 03/2022 to 05/2022", "2022-03-01 2022-05-31", "2022-06-01"),
        ("after week 14 of 2024", "2024-W15 2024-04-08", "2024-W14 2024-04-05"),
        ("in week 14 of 2024", "2024-W14 2024-04-01 2024-04-07", "2024-04-08 2024-04-14"),
        ("in March, June or July 2023", "2023-03-01 2023-06-01 2023-07-01", "2023-04-01"),
        ("on May 3, June 5 and July 7, 2023", "2023-05-03 2023-06-05 2023-07-07", "2023-06-06"),
        ("in November, December or January 2023", "2022-11-01 2022-12-01 2023-01-01", "2023-11-01"),
        ("after March and before June 2023", "2023-05-31", "2023-06-01"),
        ("in Q3 in 2020", "2020-07-01", "2020-06-30"),
    ],
)
def test_a_question_may_name_a_time_or_versions(question, inside, outside):
    asked = asked_editions(f"Which texts are {question}?")
    for age in inside.split():
        assert asked.includes(edition(f"Report {age}", "", {})), age
    for age in outside.split():
        assert not asked.includes(edition(f"Report {age}", "", {})), age


@pytest.mark.parametrize(
    "question",
    [
        "Does it take between 0.5 and 1.5 seconds?",
        "Which disks have between 1.5 GB and 2.5 GB?",
        "Is it open from 8.30 to 17.30 Uhr?",
        "Which flats cost between $1950 and $2050?",
        "Which laptops cost between 1999 and 2020 dollars?",
        "Is the fee between 1.5 and 2.5 percent?",
        "Was geschah vor 2000 Jahren?",
        "Are there more than 2000 rooms?",
        "Which of RFC 2000 to 2020 are obsolete?",
        "What do sections 3.2 to 3.4 say?",
        "What does § 3.2 or later say?",
    ],
)
def test_quantities_and_numbers_of_sections_are_no_years_and_no_versions(question):
    assert asked_editions(question) is None


@pytest.mark.parametrize(
    "question",
    [
        "What must I do before upgrading to 2020?",
        "Why does the server fail after the update to 2020?",
        "Was geht nach dem Wechsel auf 2020 nicht mehr?",
        "Which forms do I need before my 2020 tax return?",
        "Which of the following reports of 2020 are long?",
        "Were rents in 2020 higher than before?",
        "What was said before and after the 2020 election?",
        "Why was turnover in 2020 lower?",
        "Was rainfall in 2020 above average?",
        "What is in the 2020 forward plan?",
        "Which calls came after 5 pm on day 3 in week 12 to 14 of 2020?",
        "Was geschah in KW 12 bis 14 2020?",
        "What was the fine in 2020?",
        "When did the contract end in 2020?",
        "Did prices fall in 2020?",
        "How did real estate in 2020 develop?",
        "2020년 전체 매출은 얼마인가?",
        "2020년 후보는 누구인가?",
        "2020年前三季度的收入",
        "2020年前后",
        "2020年の後期",
        "2020年起草的法律",
    ],
)
def test_words_beside_a_year_may_say_nothing_about_the_time(question):
    asked = asked_editions(question)
    assert asked.is_named
    assert [(one.least, one.most) for one in asked.ranges] == [((2020,), (2020,))]


@pytest.mark.parametrize(
    "question", ["since the first quarter of 2021", "seit dem ersten Mai 2021", "after the first of May 2021"]
)
def test_the_first_part_of_a_time_is_not_the_first_edition(question):
    assert asked_editions(question).which is None


@pytest.mark.parametrize(
    ("question", "least", "most"),
    [
        ("What did March say to 2021?", (2021,), (2021,)),
        ("What was said from March to 2021?", (2021,), (2021,)),
        ("What was said from March to May 2021?", (2021, 3), (2021, 5)),
        ("What was said on 0 to 3 May 2021?", (2021, 5, 3), (2021, 5, 3)),
        ("2021年3月至13月", (2021, 3), (2021, 3)),
        ("What do the releases 2019 to 2016 say?", (2016,), (2019,)),
        ("What does section 3.2 of version 2.4 say?", (2, 4), (2, 4)),
        ("2020§5", (2020,), (2020,)),
        ("5%2020年", (2020,), (2020,)),
    ],
)
def test_a_range_has_the_named_ends(question, least, most):
    (one,) = asked_editions(question).ranges
    assert (one.least, one.most) == (least, most)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What did the last three meetings in 2022 decide?", {"last", "three", "2022"}),
        ("最近三次会议", set(words("最近三次"))),
        ("What is in the earliest report?", {"earliest"}),
        ("What was the first decision since March 2019?", {"first", "march", "2019"}),
        ("when was the blade last changed", {"last"}),
        ("What are the most recent minutes?", {"most", "recent"}),
        ("What changed in versions 3 to 5?", {"versions", "3", "5"}),
    ],
)
def test_the_words_that_ask_for_editions_are_known(question, said):
    assert asked_editions(question).words == said


@pytest.mark.parametrize(
    ("question", "is_named"),
    [("the minutes of 2022", True), ("the latest minutes of 2022", False), ("the minutes since 2022", False)],
)
def test_a_question_may_just_name_a_date(question, is_named):
    assert asked_editions(question).is_named == is_named


def test_a_range_compares_editions_whose_age_it_knows():
    (dates,) = asked_editions("the minutes since 2022").ranges
    assert dates.compares(edition("Minutes 2021", "", {}))
    assert not dates.compares(edition("Notes 2.4", "", {}))


def test_a_text_about_a_quarter_is_of_each_of_its_months_but_not_before_its_end():
    quarter = edition("Report Q3 2022", "", {})
    assert asked_editions("What happened in August 2022?").includes(quarter)
    assert not asked_editions("What happened before August 2022?").includes(quarter)
    assert not asked_editions("What happened after July 2022?").includes(quarter)


def test_a_version_and_a_date_of_one_title_are_both_compared():
    notes = edition("Changelog: 2.5.3 (2024-05-01)", "", {})
    assert asked_editions("changes since 2.5").includes(notes)
    assert asked_editions("changes in 2.5 since 2024").includes(notes)
    assert not asked_editions("changes in 2.5 before 2024").includes(notes)
    assert not asked_editions("changes since 2.6").includes(notes)


@pytest.mark.parametrize(
    "question",
    [
        "What is the difference between A and B?",
        "How long after the pump is switched off may I start?",
        "How many days before boarding must I check in?",
        "Since when has the gate been closed?",
        "What may the winter bring?",
    ],
)
def test_words_for_times_alone_name_no_range(question):
    assert asked_editions(question) is None


@pytest.mark.parametrize(
    "unit",
    ["2020 ", "may 3 and ", "between 2020 and ", "2020 and in ", "q1 ", "first second 2020 ", "1.2 - ", "a-", "1.5,"],
)
def test_the_longest_question_is_read_in_linear_time(unit):
    assert growth(asked_editions, lambda size: unit * (size // len(unit)), QUESTION_CHARACTERS // 4) < MOST_GROWTH
