"""The reader of address books (`.vcf`, RFC 6350 and the older vCard 2.1 and 3.0). Each person is a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from context_agent.retrieval.loaders.content_lines import (
    MAX_PROPERTIES,
    ContentLine,
    Entry,
    entries_document,
    read_content_lines,
)
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.sniffing import read_other_text
from context_agent.types import Document

_FIELDS = {
    "NICKNAME": "Nickname",
    "ORG": "Organization",
    "TITLE": "Position",
    "ROLE": "Role",
    "EMAIL": "E-mail",
    "TEL": "Phone",
    "ADR": "Address",
    "BDAY": "Birthday",
    "ANNIVERSARY": "Anniversary",
    "URL": "Link",
    "CATEGORIES": "Categories",
    "RELATED": "Related",
    "IMPP": "Messages",
    "NOTE": "Note",
}
"""The fields that are read, with their labels. Pictures, keys and identifiers are left out."""


def read_contacts(reading: Reading) -> Iterator[Document]:
    """Yield the address book as a document. Its title is the file's name."""
    lines = read_content_lines(reading)
    if lines is None:
        yield from read_other_text(reading)
        return
    yield entries_document(reading, map(_entry, _cards(lines)), PurePath(reading.path).stem)


def _cards(lines: Iterable[ContentLine]) -> Iterator[list[ContentLine]]:
    card: list[ContentLine] = []
    for line in lines:
        if line.name in {"BEGIN", "END"}:
            if card:
                yield card
            card = []
        elif len(card) < MAX_PROPERTIES:
            card.append(line)
    if card:
        yield card


def _entry(card: Sequence[ContentLine]) -> Entry:
    first = {line.name: line for line in reversed(card)}
    name = first["FN"].text if "FN" in first else ""
    # Some programs write an empty FN.
    if not name and "N" in first:
        name = _parts(first["N"])
    rows = [
        f"{_FIELDS[line.name]}: {text}"
        for line in card
        if line.name in _FIELDS and (text := _parts(line) if line.name in {"ADR", "ORG"} else line.text)
    ]
    return Entry(name, "\n".join(filter(None, [name, *rows])))


def _parts(line: ContentLine) -> str:
    """Return a value whose parts are separated by semicolons as text with commas."""
    parts = (ContentLine("", {}, part).text for part in line.value.replace("\\;", "\\,").split(";"))
    return ", ".join(filter(None, parts))
