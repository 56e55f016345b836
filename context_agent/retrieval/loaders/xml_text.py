"""The reader of XML of any kind, including feeds, outlines and exported notes.

Each element with text or attributes makes a line. If a file is not well-formed or declares entities, it is read as
plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from xml.parsers.expat import ExpatError

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.markup import page_text
from context_agent.retrieval.loaders.reading import Reading, content, document, one_line, storable
from context_agent.retrieval.loaders.sniffing import check_head, read_other_text
from context_agent.retrieval.loaders.xml_events import Attributes, Event, Kind, xml_events
from context_agent.types import Document, Section

MAX_PARTS = 20_000
"""The most sections of a file. The text of further sections is chunked like any text."""
_PAGE_MARKS = ("</p>", "</div>", "</en-note>", "<br")
"""Marks of HTML inside the text of an element, as in feeds and exported notes."""


def read_xml(reading: Reading) -> Iterator[Document]:
    """Yield the elements of a file as one document, titled by its first `title` element."""
    yield from _elements(reading, "")


def read_enex(reading: Reading) -> Iterator[Document]:
    """Yield an Evernote export as one document. Each note is a section with its own title."""
    yield from _elements(reading, "note")


def _elements(reading: Reading, part: str) -> Iterator[Document]:
    """Yield the document of a file. Elements named `part` become sections."""
    check_head(reading)
    size = len(content(reading))
    reading.stream.seek(0)
    lines = _Lines(reading.options.max_size, part)
    try:
        for event in xml_events(reading.stream, None):
            lines.add(event)
    except (ExpatError, DataError, ValueError) as error:
        reading.note_once(f"the file was read as plain text ({error})")
        reading.stream.seek(0)
        yield from read_other_text(reading)
        return
    text = "\n".join(lines.done)
    if size and not text.strip():
        raise DataError("the file's XML contains no text")
    title = PurePath(reading.path).stem if part else lines.title or PurePath(reading.path).name
    yield document(reading, text, title, sections=tuple(lines.sections[:MAX_PARTS]))


@dataclass(slots=True)
class _Lines:
    """The lines collected so far. An element inside a sentence does not begin a line."""

    most: int
    part: str = ""
    """The name of the elements that become sections, or "" for none."""
    done: list[str] = field(default_factory=list)
    title: str = ""
    sections: list[Section] = field(default_factory=list)
    _part: tuple[int, str] = (0, "")
    """The start of the current section, and its title."""
    _line: list[str] = field(default_factory=list)
    _label: str = ""
    _inline: list[bool] = field(default_factory=list)
    _has_text: list[bool] = field(default_factory=lambda: [False])
    _size: int = 0

    def add(self, event: Event) -> None:
        """Add an event. If the text becomes too large, raise `DataError`."""
        match event.kind:
            case Kind.TEXT:
                self._line.append(event.text)
                self._has_text[-1] = self._has_text[-1] or not event.text.isspace()
            case Kind.START:
                inline = self._has_text[-1]
                if not inline:
                    self._end_line("")
                    self._label = _label(event.name, event.attributes)
                    if event.name == self.part:
                        self._part = (self._size, "")
                self._inline.append(inline)
                self._has_text.append(inline)
            case Kind.END:
                self._has_text.pop()
                if not self._inline.pop():
                    self._end_line(event.name)
                    if event.name == self.part and self._size > self._part[0]:
                        start, title = self._part
                        self.sections.append(Section(start, self._size - 1, one_line(storable(title))))

    def _end_line(self, name: str) -> None:
        text = "".join(self._line)
        is_page = any(mark in text for mark in _PAGE_MARKS)
        text = page_text(unix_lines(text))[1] if is_page else " ".join(text.split())
        if text or self._label.endswith(")"):  # it has attributes
            self.done.append(f"{self._label}: {text}" if self._label and text else text or self._label)
            self._size += len(self.done[-1]) + 1
            if self._size > self.most:
                raise DataError(f"the text has more than {self.most:,} characters. Split the file.")
        if name == "title":
            self.title = self.title or text
            self._part = (self._part[0], self._part[1] or text)
        self._line, self._label = [], ""


def _label(name: str, attributes: Attributes) -> str:
    """Return the name of an element with its attributes in parentheses, without namespace declarations."""
    values = (f"{key}={' '.join(value.split())}" for key, value in attributes.items() if not key.startswith("xmlns"))
    listed = ", ".join(values)
    return f"{name} ({listed})" if listed else name
