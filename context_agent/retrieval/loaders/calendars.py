"""The reader of calendars (`.ics`, RFC 5545). A calendar is a document, and each entry is a chunk with its times.

Entries are events, tasks and journal entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import PurePath

from context_agent.retrieval.loaders.content_lines import (
    MAX_PROPERTIES,
    ContentLine,
    Entry,
    entries_document,
    read_content_lines,
)
from context_agent.retrieval.loaders.reading import Reading, one_line, storable
from context_agent.retrieval.loaders.sniffing import read_other_text
from context_agent.types import Document

MAX_PEOPLE = 100
"""Maximum number of people of an event that are named."""
MAX_TIME = 80
"""Maximum number of characters of a time, including its zone."""

_CALENDAR_NAMES = {"X-WR-CALNAME", "NAME"}
_COMPONENTS = {"VEVENT", "VTODO", "VJOURNAL"}
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d{0,2}(Z?))?", re.ASCII)
_DURATION = re.compile(
    r"\+?P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})S)?)?", re.ASCII
)
_DETAILS = {"LOCATION": "Where", "STATUS": "Status", "RRULE": "Repeats", "DUE": "Due", "URL": "Link"}
"""The label of a line in an entry's text, by the name of the property."""


def read_calendar(reading: Reading) -> Iterator[Document]:
    """Yield the calendar as a document. Its title is the calendar's name or, if it has none, the file's name."""
    lines = read_content_lines(reading)
    if lines is None:
        yield from read_other_text(reading)
        return
    names: list[str] = []
    entries = [_entry(properties) for properties in _components(lines, names)]
    title = one_line(storable("".join(names))) or PurePath(reading.path).stem
    yield entries_document(reading, entries, title)


def _components(lines: Iterable[ContentLine], names: list[str]) -> Iterator[list[ContentLine]]:
    """Yield the properties of each event, task and journal entry, without those of its alarms.

    The calendar's name is added to `names` when it is found.
    """
    properties: list[ContentLine] | None = None
    depth = 0
    for line in lines:
        if line.name == "BEGIN":
            if properties is None and line.value.strip().upper() in _COMPONENTS:
                properties, depth = [], 0
            else:
                depth += 1
        elif properties is None:
            if line.name in _CALENDAR_NAMES and not names:
                names.append(line.text)
        elif line.name == "END" and depth == 0:
            yield properties
            properties = None
        elif line.name == "END":
            depth -= 1
        elif depth == 0 and len(properties) < MAX_PROPERTIES:
            properties.append(line)
    if properties is not None:
        yield properties


def _entry(properties: Sequence[ContentLine]) -> Entry:
    first = {line.name: line for line in reversed(properties)}
    summary = first["SUMMARY"].text if "SUMMARY" in first else ""
    start = _moment(first["DTSTART"]) if "DTSTART" in first else ""
    last = first.get("DTEND") or (
        _after(first["DTSTART"], first["DURATION"]) if {"DTSTART", "DURATION"} <= first.keys() else None
    )
    end = _end(last, start) if last else ""
    lines = [summary, f"{start} to {end}" if start and end and end != start else start]
    for name, label in _DETAILS.items():
        if name in first:
            lines.append(f"{label}: {_moment(first[name]) if name == 'DUE' else first[name].text}")
    people = [_person(line) for line in properties if line.name in {"ORGANIZER", "ATTENDEE"}]
    if people:
        lines.append(f"Who: {', '.join(dict.fromkeys(people[:MAX_PEOPLE]))}")
    lines += [first[name].text for name in ("DESCRIPTION", "COMMENT") if name in first]
    return Entry(", ".join(filter(None, (summary, start))), "\n".join(filter(None, lines)))


def _moment(line: ContentLine) -> str:
    """Return a time as `2026-01-02 09:00 (Europe/Berlin)`, or a date as `2026-01-02`.

    Other values are only shortened.
    """
    value = line.value.strip()
    match = _MOMENT.fullmatch(value)
    if match is None:
        return value[:MAX_TIME]
    year, month, day, hour, minute, utc = match.groups()
    stated = f"{year}-{month}-{day}"
    if hour is None:
        return stated
    zone = " UTC" if utc else f" ({line.parameters['TZID']})" if "TZID" in line.parameters else ""
    return f"{stated} {hour}:{minute}{zone}"[:MAX_TIME]


def _after(start: ContentLine, duration: ContentLine) -> ContentLine | None:
    """Return the time after a duration from another time. If one of them is invalid, return None."""
    stated, length = _MOMENT.fullmatch(start.value.strip()), _DURATION.fullmatch(duration.value.strip())
    if stated is None or length is None:
        return None
    weeks, days, hours, minutes, seconds = (int(number or 0) for number in length.groups())
    try:
        year, month, day, hour, minute = (int(number or 0) for number in stated.groups()[:5])
        moment = datetime(year, month, day, hour, minute)  # noqa: DTZ001 - in the zone of the start
        moment += timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (ValueError, OverflowError):
        return None
    value = moment.isoformat().replace("-", "").replace(":", "")
    return replace(start, value=value.partition("T")[0] if stated[4] is None else value + stated[6])


def _end(line: ContentLine, start: str) -> str:
    """Return the end of an entry. The end of an entry of whole days is stated as the day after it."""
    end = _moment(line)
    try:
        last = date.fromisoformat(end) - timedelta(days=1)
    except (ValueError, OverflowError):
        return end
    return max(start, last.isoformat())


def _person(line: ContentLine) -> str:
    address = re.sub(r"(?i)^mailto:", "", line.value.strip())
    name = line.parameters.get("CN", "")
    return f"{name} <{address}>" if name and name != address else address
