"""Calendars and address books: each event and each person is a section with the facts that people ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent import MemoryCorpus
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.types import Document

CALENDAR = """\
BEGIN:VCALENDAR
X-WR-CALNAME:Weir team
BEGIN:VTIMEZONE
TZID:Europe/Oslo
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
SUMMARY:Inspection of the sluice gate\\, part 1
DTSTART;TZID=Europe/Oslo:20260102T090000
DTEND;TZID=Europe/Oslo:20260102T103000
LOCATION:Brasko Weir
ORGANIZER;CN="Ortiz: Lena":mailto:lena@example.com
ATTENDEE:mailto:paul@example.com
RRULE:FREQ=YEARLY
DESCRIPTION:Bring the long
  ladder.\\nMeet at the pier.
BEGIN:VALARM
DESCRIPTION:Reminder
END:VALARM
END:VEVENT
BEGIN:VTODO
SUMMARY:Order paint
DUE;VALUE=DATE:20260301
END:VTODO
END:VCALENDAR
"""
CONTACTS = """\
BEGIN:VCARD
VERSION:3.0
FN:Lena Ortiz
N:Ortiz;Lena;;;
ORG:Harbour Office;Weirs
TITLE:Engineer
item1.EMAIL;TYPE=INTERNET:lena@example.com
TEL;TYPE=CELL:+47 555 0101
ADR:;;Pier 3;Brasko;;0155;Norway
PHOTO;ENCODING=b:AAAA
NOTE:Knows the gate\\; ask her first.
END:VCARD
BEGIN:VCARD
VERSION:2.1
N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:J=C3=B8rgensen;Paul
NOTE;ENCODING=QUOTED-PRINTABLE:Lives in=
 Tessel
END:VCARD
"""


def test_quoted_printable_values_are_in_the_charset_that_they_name(tmp_path: Path) -> None:
    name = "FN;CHARSET=ISO-8859-1;ENCODING=QUOTED-PRINTABLE:J=FCrgen"
    other = "NOTE;CHARSET=none;ENCODING=QUOTED-PRINTABLE:M=C3=BCller"
    card = read(tmp_path, "a.vcf", f"BEGIN:VCARD\nVERSION:2.1\n{name}\n{other}\nEND:VCARD\n")
    assert card.text.split() == ["Jürgen", "Note:", "Müller"]


def test_a_card_with_an_empty_formatted_name_has_the_name_in_parts(tmp_path: Path) -> None:
    card = read(tmp_path, "a.vcf", "BEGIN:VCARD\nVERSION:3.0\nFN:\nN:Doe;Jane;;;\nTEL:123\nEND:VCARD\n")
    assert card.text == "Doe, Jane\nPhone: 123\n\n"
    assert [section.title for section in card.sections] == ["a: Doe, Jane"]


def read(folder: Path, name: str, text: str, newline: str = "\n") -> Document:
    (folder / name).write_text(text, encoding="utf-8", newline=newline)
    (document,) = load(folder)
    return document


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_event_has_its_time_place_people_and_description(tmp_path: Path, newline: str) -> None:
    document = read(tmp_path, "team.ics", CALENDAR, newline)
    assert document.title == "Weir team"
    event, task = document.text.strip().split("\n\n")
    assert event.splitlines() == [
        "Inspection of the sluice gate, part 1",
        "2026-01-02 09:00 (Europe/Oslo) to 2026-01-02 10:30 (Europe/Oslo)",
        "Where: Brasko Weir",
        "Repeats: FREQ=YEARLY",
        "Who: Ortiz: Lena <lena@example.com>, paul@example.com",
        "Bring the long ladder.",
        "Meet at the pier.",
    ]
    assert task.splitlines() == ["Order paint", "Due: 2026-03-01"]


def test_each_event_is_a_chunk_titled_by_its_summary_and_time(tmp_path: Path) -> None:
    corpus = MemoryCorpus([read(tmp_path, "team.ics", CALENDAR)])
    assert [chunk.title for chunk in corpus.chunks] == [
        "Weir team: Inspection of the sluice gate, part 1, 2026-01-02 09:00 (Europe/Oslo)",
        "Weir team: Order paint",
    ]


def test_a_person_has_the_fields_that_people_ask_for(tmp_path: Path) -> None:
    document = read(tmp_path, "people.vcf", CONTACTS)
    first, second = document.text.strip().split("\n\n")
    assert first.splitlines() == [
        "Lena Ortiz",
        "Organization: Harbour Office, Weirs",
        "Position: Engineer",
        "E-mail: lena@example.com",
        "Phone: +47 555 0101",
        "Address: Pier 3, Brasko, 0155, Norway",
        "Note: Knows the gate; ask her first.",
    ]
    assert second.splitlines() == ["Jørgensen, Paul", "Note: Lives in Tessel"]
    assert [section.title for section in document.sections] == ["people: Lena Ortiz", "people: Jørgensen, Paul"]


def test_quoted_lines_of_windows_do_not_shift_the_entries_after_them(tmp_path: Path) -> None:
    note = "NOTE;ENCODING=QUOTED-PRINTABLE:one=0D=0Atwo=0Dthree"
    document = read(tmp_path, "a.vcf", f"BEGIN:VCARD\nFN:Ada\n{note}\nEND:VCARD\nBEGIN:VCARD\nFN:Bob\nEND:VCARD\n")
    parts = [document.text[section.start : section.end] for section in document.sections]
    assert parts == ["Ada\nNote: one\ntwo\nthree\n\n", "Bob\n\n"]


@pytest.mark.parametrize("name", ["a.ics", "a.vcf"])
def test_a_file_without_entries_is_left_out_with_a_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("BEGIN:VCALENDAR\nEND:VCALENDAR\n", encoding="utf-8")
    report = LoadReport()
    assert list(load(tmp_path, report=report)) == []
    assert [notice.reason for notice in report.notices] == ["the file is empty: it has no entry with text"]


@pytest.mark.parametrize("name", ["a.ics", "a.vcf"])
def test_a_file_of_another_format_is_read_as_text(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, name, "##fileformat=VCFv4.2\n#CHROM\tPOS\n").text.startswith("##fileformat")


def test_a_calendar_that_ends_in_an_event_keeps_it(tmp_path: Path) -> None:
    assert read(tmp_path, "a.ics", "BEGIN:VEVENT\nSUMMARY:Storm").text.strip() == "Storm"


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ("20260102", "20260103", "2026-01-02"),
        ("20260102", "20260102", "2026-01-02"),
        ("20260228", "20260302", "2026-02-28 to 2026-03-01"),
        ("20260102", "00010101", "2026-01-02 to 0001-01-01"),
        ("20260102", "20269999", "2026-01-02 to 2026-99-99"),
        ("20260102T090000", "20260102T100000", "2026-01-02 09:00 to 2026-01-02 10:00"),
    ],
)
def test_an_entry_of_whole_days_ends_before_the_day_that_is_stated(
    tmp_path: Path, start: str, end: str, text: str
) -> None:
    times = f"DTSTART;VALUE=DATE:{start}\nDTEND;VALUE=DATE:{end}"
    (tmp_path / "a.ics").write_text(
        f"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Fair\n{times}\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    (document,) = load(tmp_path)
    assert document.text.strip() == f"Fair\n{text}"


@pytest.mark.parametrize(
    ("start", "duration", "when"),
    [
        (
            ";TZID=Europe/Oslo:20260102T230000",
            "PT1H30M",
            "2026-01-02 23:00 (Europe/Oslo) to 2026-01-03 00:30 (Europe/Oslo)",
        ),
        (":20260102T090000Z", "P1DT2H", "2026-01-02 09:00 UTC to 2026-01-03 11:00 UTC"),
        (";VALUE=DATE:20260102", "P1W", "2026-01-02 to 2026-01-08"),
        (";VALUE=DATE:20260102", "P1D", "2026-01-02"),
        (":20260102T090000", "soon", "2026-01-02 09:00"),
        (":20260102T090000", "P999999W", "2026-01-02 09:00"),
        (":20261399T090000", "PT1H", "2026-13-99 09:00"),
    ],
)
def test_the_end_of_an_event_may_be_stated_as_its_duration(
    tmp_path: Path, start: str, duration: str, when: str
) -> None:
    lines = [
        "BEGIN:VCALENDAR",
        "BEGIN:VEVENT",
        "SUMMARY:Storm",
        f"DTSTART{start}",
        f"DURATION:{duration}",
        "END:VEVENT",
    ]
    (tmp_path / "a.ics").write_text("\n".join(lines))
    (document,) = load(tmp_path / "a.ics")
    assert document.text.splitlines()[1] == when
