"""An invented corpus of a small company's working notes, with questions, for `notes.py`.

Titles are file names. Notes of one kind have the same headings, and some have front matter with dates and tags. Monthly
reports and revisions of a data sheet are nearly identical, and some facts are in tables. The facts and questions in
`notes_facts.txt` are written by hand. This module writes the facts into documents of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from context_agent.types import Document, Question

MONTHS = "January February March April May June July August September October November December".split()

FACTS = Path(__file__).with_name("notes_facts.txt")
"""The hand-written tables. A table starts with `[name] columns`. Each line below is a row, with bars between its cells.
"""


def documents() -> list[Document]:
    """Return all notes. Their titles are file names."""
    pages = [_document(f"page-{name}", f"{name}.md", text.replace(r"\n", "\n")) for name, text in _rows("pages")]
    return [*_incidents(), *_releases(), *_usage(), *_pumps(), *_meetings(), *_people(), *pages]


def questions(split: str) -> list[Question]:
    """Return the questions of a split, `train` or `dev`. Each split has every second question."""
    rows = list(_rows("questions"))[split == "dev" :: 2]
    return [Question(f"{split}-{number}", text, gold=tuple(gold.split())) for number, (text, gold) in enumerate(rows)]


def _rows(table: str) -> Iterator[list[str]]:
    """Return the cells of each row of a table in `FACTS`."""
    rows = FACTS.read_text(encoding="utf-8").partition(f"[{table}]")[2].partition("\n\n[")[0].splitlines()[1:]
    return ([cell.strip() for cell in row.split("|")] for row in rows if row)


def _document(name: str, title: str, text: str) -> Document:
    return Document(re.sub(r"\s+", "-", name), text, title)


def _spelled(date: str) -> str:
    year, month, day = date.split("-")
    return f"{int(day)} {MONTHS[int(month) - 1]} {year}"


def _incidents() -> Iterator[Document]:
    for date, service, duration, effect, cause, engineer, change, ticket in _rows("incidents"):
        text = (
            f"---\ndate: {date}\nservice: {service}\ntags: [incident, postmortem]\nticket: {ticket}\n---\n"
            f"# Summary\n\n{effect} The incident lasted {duration}.\n\n"
            f"## Timeline\n\nThe alert reached {engineer}, who was on call. "
            f"The service recovered after {duration}.\n\n## Root cause\n\n{cause}\n\n## Follow-up\n\n{change}\n"
        )
        yield _document(f"incident-{date}", f"{date}-incident_report-{service}-final.md", text)


def _releases() -> Iterator[Document]:
    for product, version, date, first, second, timeout in _rows("releases"):
        text = (
            f"# {product.title()} {version}\n\nReleased on {_spelled(date)}.\n\n## Changes\n\n- {first}\n- {second}\n\n"
            f"## Defaults\n\n| setting | value |\n|---|---|\n| timeout | {timeout} |\n| log level | info |\n\n"
            "## Follow-up\n\nUpgrade one node at a time.\n"
        )
        yield _document(f"release-{product}-{version}", f"changelog_{product}_v{version}.md", text)


def _usage() -> Iterator[Document]:
    for month, merchants, closed, availability, country in _rows("usage"):
        text = (
            f"---\nmonth: {month}\ntags: [report, usage]\n---\n# Summary\n\n"
            "This report is generated on the first working day.\n\n"
            f"| metric | value |\n|---|---|\n| new merchants | {merchants} |\n| closed accounts | {closed} |\n"
            f"| availability | {availability} % |\n| country with most growth | {country} |\n\n## Follow-up\n\nNone.\n"
        )
        yield _document(f"usage-{month}", f"{month}_UsageReport.md", text)


def _pumps() -> Iterator[Document]:
    for revision, date, pressure, power, weight, impeller, oil in _rows("pumps"):
        text = (
            f"# Pump P-40, data sheet, revision {revision}\n\nValid from {_spelled(date)}.\n\n"
            f"| property | value |\n|---|---|\n"
            f"| pressure | {pressure} |\n| power | {power} |\n| weight | {weight} |\n"
            f"| impeller | {impeller} |\n"
            f"| oil change after | {oil} |\n\nClose both valves before you open the case.\n"
        )
        yield _document(f"pump-{revision}", f"P40_datasheet_rev{revision}.pdf", text)


def _meetings() -> Iterator[Document]:
    for date, group, attendees, decision, action in _rows("meetings"):
        text = (
            f"# Meeting notes\n\nDate: {_spelled(date)}\n\nAttendees: {attendees}\n\n## Decisions\n\n- {decision}\n\n"
            f"## Follow-up\n\n- {action}\n"
        )
        yield _document(f"meeting-{date}-{group}", f"meetings/{date}_{group}.md", text)


def _people() -> Iterator[Document]:
    for name, role, office, since, private in _rows("people"):
        text = (
            f"# Profile\n\n{name} is {role} in {office}, with the company since {since}. "
            f"In private life {name} {private}.\n"
        )
        yield _document(f"people-{name.lower()}", f"people/{name.lower().replace(' ', '_')}.md", text)
