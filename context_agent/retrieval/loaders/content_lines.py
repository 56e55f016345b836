"""The lines of calendars and address books (RFC 5545 and RFC 6350), and the document that their entries make."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import decoded_as, unix_lines
from context_agent.retrieval.loaders.reading import Reading, content, decoded, document, one_line, storable
from context_agent.types import Document, Section

MAX_ENTRIES = 20_000
"""Maximum number of entries that are chunked on their own. Further entries are chunked like any text."""
MAX_PROPERTIES = 10_000
"""Maximum number of lines of an entry that are read."""
MAX_LABEL = 200
"""Maximum number of characters of an entry's label, which is stored with each of its chunks."""

_HEAD = re.compile(r'([\w.-]++)((?:;(?:[^":]|"[^"]*+")*+)?):')
_PARAMETER = re.compile(r';([\w-]+)(?:=("[^"]*+"|[^";]*+))?')
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_PRINTABLE = "QUOTED-PRINTABLE"


@dataclass(frozen=True, slots=True)
class ContentLine:
    """A line `NAME;PARAMETER=VALUE:value`.

    Attributes:
        name: The name in capital letters, without the group before it.
        parameters: The values of the parameters, by name in capital letters.
        value: The value, with the escapes of the format.
    """

    name: str
    parameters: dict[str, str]
    value: str

    @property
    def text(self) -> str:
        """The value as text, without the escapes of the format."""
        return _ESCAPED.sub(lambda match: "\n" if match[1] in "nN" else match[1], self.value).strip()


@dataclass(frozen=True, slots=True)
class Entry:
    """An event or a person, with its text and a label for the titles of its chunks."""

    label: str
    text: str


def read_content_lines(reading: Reading) -> Iterator[ContentLine] | None:
    """Return the lines of a source, unfolded. A line without a name is left out.

    Files of genetic variants also have the extension `.vcf`. If the source is such a file, return None.
    """
    text = unix_lines(decoded(reading, content(reading)).text)
    if not text[:MAX_LABEL].lstrip("\ufeff\n ").upper().startswith("BEGIN:"):
        reading.stream.seek(0)
        return None
    return (line for raw in _unfolded(text) if (line := _parsed(raw)) is not None)


def entries_document(reading: Reading, entries: Iterable[Entry], title: str) -> Document:
    """Return the document of the entries, in which each entry is a section. If none has text, raise `DataError`."""
    parts: list[str] = []
    sections: list[Section] = []
    position = 0
    for entry in entries:
        # A quoted-printable value may have other line ends, which would shift the sections.
        if not (text := storable(unix_lines(entry.text)).strip()):
            continue
        part = f"{text}\n\n"
        label = one_line(storable(entry.label))[:MAX_LABEL]
        if len(sections) < MAX_ENTRIES and label:
            sections.append(Section(position, position + len(part), f"{title}: {label}" if title else label))
        parts.append(part)
        position += len(part)
    if not parts:
        raise DataError("the file is empty: it has no entry with text")
    return document(reading, "".join(parts), title, sections=tuple(sections))


def _unfolded(text: str) -> Iterator[str]:
    """Yield the lines, each joined with its continuation lines.

    A continuation line begins with white space, or follows a soft line break.
    """
    parts: list[str] = []
    soft_break = False
    for line in text.split("\n"):
        if parts and (soft_break or line[:1] in {" ", "\t"}):
            parts.append(line if soft_break else line[1:])
        else:
            if parts:
                yield "".join(parts)
            parts = [line]
        soft_break = line.endswith("=") and _QUOTED_PRINTABLE in parts[0][:MAX_LABEL].upper()
        if soft_break:
            parts[-1] = parts[-1][:-1]
    yield "".join(parts)


def _parsed(line: str) -> ContentLine | None:
    head = _HEAD.match(line)
    if head is None:
        return None
    parameters = {found[1].upper(): (found[2] or "").strip('"') for found in _PARAMETER.finditer(head[2])}
    value = line[head.end() :]
    if _QUOTED_PRINTABLE in {parameters.get("ENCODING", "").upper(), *parameters}:
        data = binascii.a2b_qp(value.encode())
        text = decoded_as(data, parameters.get("CHARSET", "utf-8"))
        value = (data.decode("utf-8", "replace") if text is None else text).replace("\\", "\\\\")
    return ContentLine(head[1].rpartition(".")[2].upper(), parameters, value)
