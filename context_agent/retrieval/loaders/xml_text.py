"""The reader of XML of any kind, including feeds, outlines and exported notes.

Each element with text or attributes makes a line. If a file is not well-formed or declares entities, it is read as
plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.entities import html5
from io import BytesIO
from pathlib import PurePath
from xml.parsers.expat import ExpatError

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.headings import LONGEST_HEADING, MOST_CAPTIONS, shortened
from context_agent.retrieval.loaders.html_tags import unescaped
from context_agent.retrieval.loaders.html_text import page_text
from context_agent.retrieval.loaders.outlines import nested
from context_agent.retrieval.loaders.reading import (
    LeftOutError,
    Reading,
    content,
    decoded,
    document,
    one_line,
    storable,
)
from context_agent.retrieval.loaders.sniffing import check_head, read_other_text
from context_agent.retrieval.loaders.xml_events import Attributes, Event, Kind, xml_events
from context_agent.types import Caption, Document, Section

MAX_PARTS = 20_000
"""Maximum number of sections of a file. The text of further sections is chunked like any text."""
_ENTRIES = frozenset({"Placemark", "PubmedArticle", "entry", "item", "note", "page", "record"})
"""The elements of feeds, maps, wikis, bibliographies and exported notes that have a title of their own."""
_TITLE_NAMES = {
    "FictionBook": "book-title",
    "PubmedArticleSet": "ArticleTitle",
    "gpx": "name",
    "kml": "name",
    "refentry": "refentrytitle",
}
"""The name of the elements that are titles, by the root of the file. In other files it is `title`."""
_ARTICLE_TITLE = "article-title"
"""The name of the title of an article of a journal (JATS), whose sections have a `title`."""
_PARAGRAPHS = frozenset({"p", "para", "simpara"})
"""The elements whose lines have no label, because they are the text that people read."""
_ROWS = {
    "Row": frozenset({"Cell"}),
    "row": frozenset({"cell", "entry"}),
    "sthead": frozenset({"stentry"}),
    "strow": frozenset({"stentry"}),
    "tr": frozenset({"td", "th"}),
}
"""The cells of a row of a table, by the name of the row, in HTML, DocBook, DITA, TEI and Excel."""
MOST_LEADING = 8
"""Maximum number of elements at the beginning of a sentence."""
_STYLE = "style"
"""The element with which EndNote wraps each text."""
_DRAWING_WORDS = frozenset({"desc", "foreignObject", "text", "title"})
"""The elements of a drawing (SVG) that hold words."""
_SPACE = "xml:space"
_VERBATIM = frozenset({"codeblock", "literallayout", "programlisting", "screen", "synopsis"})
"""The elements of DocBook and DITA whose line breaks stay."""
_NAMES = frozenset({"id", "key", "name", "title"})
"""The elements that name the element around them."""
_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,31});")
_PAGE_MARKS = ("</p>", "</div>", "</en-note>", "<br")
"""Marks of HTML inside the text of an element, as in feeds and exported notes."""


def read_xml(reading: Reading) -> Iterator[Document]:
    """Yield the elements of a file as one document. Entries with a title of their own are sections.

    The title is that of the file, or else its name.
    """
    yield from _elements(reading, reading.path)


def read_enex(reading: Reading) -> Iterator[Document]:
    """Yield an Evernote export as one document. Each note is a section with its own title."""
    yield from _elements(reading, PurePath(reading.path).stem)


def read_svg(reading: Reading) -> Iterator[Document]:
    """Yield the words of a drawing: its title, its description and its texts. Shapes are left out."""
    data = content(reading)
    text = _NAMED.sub(_named, decoded(reading, data).text.removeprefix("\ufeff"))
    title, words, open_elements = "", list[str](), list[str]()
    try:
        for event in xml_events(BytesIO(text.encode("utf-8", "replace")), None, "utf-8"):
            if event.kind is Kind.START:
                if open_elements or event.name in _DRAWING_WORDS:
                    open_elements.append(event.name)
            elif event.kind is Kind.END and open_elements:
                if open_elements.pop() != "tspan":
                    words.append("\n")
            elif open_elements:
                words.append(event.text)
                title = title or (event.text if open_elements == ["title"] else "")
    except (ExpatError, DataError) as error:
        reading.note_once(f"the file was read as plain text ({error})")
        reading.stream.seek(0)
        yield from read_other_text(reading)
        return
    lines = (" ".join(line.split()) for line in "".join(words).split("\n"))
    if not (found := "\n".join(filter(None, lines))):
        raise LeftOutError("a drawing without words")
    yield document(reading, found, title or reading.path)


def _elements(reading: Reading, name: str) -> Iterator[Document]:
    """Yield the document of a file, titled by its `name` if it has no title."""
    check_head(reading)
    data = content(reading)
    # The parser does not know the encodings in which a character takes several bytes, such as Shift_JIS.
    text = _NAMED.sub(_named, decoded(reading, data).text.removeprefix("\ufeff"))
    lines = _Lines(reading.options.max_size)
    try:
        for event in xml_events(BytesIO(text.encode("utf-8", "replace")), None, "utf-8"):
            lines.add(event)
    except (ExpatError, DataError) as error:
        reading.note_once(f"the file was read as plain text ({error})")
        reading.stream.seek(0)
        yield from read_other_text(reading)
        return
    text = "\n".join(lines.done)
    if data and not text.strip():
        raise DataError("the file's XML contains no text")
    sections, captions = tuple(lines.sections[:MAX_PARTS]), nested(lines.captions)
    yield document(reading, text, lines.title or name, sections=sections, captions=captions)


def _named(reference: re.Match[str]) -> str:
    """Return the character that HTML names so. Feeds use its names, which XML does not know."""
    is_markup = reference[1] in {"amp", "apos", "gt", "lt", "quot"}
    return reference[0] if is_markup else html5.get(f"{reference[1]};", reference[0])


@dataclass(slots=True)
class _Element:
    """An element that is open.

    Attributes:
        start: Where it begins in the text.
        name: What the captions inside it call it.
        tag: The name of its tag.
        label: The label of its line.
        line: The number of its first line.
        has_elements: Whether it has elements inside.
        leading: The texts of the elements at its beginning, which are a part of its text if more text follows, such as
            an emphasized word. It is None if one of them is a name or has elements inside.
    """

    start: int
    name: str
    tag: str
    label: str
    line: int
    has_elements: bool = False
    leading: list[str] | None = field(default_factory=list)


@dataclass(slots=True)
class _Lines:
    """The lines collected so far. An element inside a sentence does not begin a line."""

    most: int
    done: list[str] = field(default_factory=list)
    title: str = ""
    """The first title that is not that of an entry."""
    sections: list[Section] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    """What the elements with elements inside them are called."""
    _elements: list[_Element] = field(default_factory=list)
    _title_name: str = ""
    """The name of the elements that are titles, by the root of the file."""
    _part: tuple[int, str] = (0, "")
    """The start of the current entry, and its title."""
    _parts: int = 0
    """The number of open entries. Only the outermost one is a section."""
    _verbatim: bool = False
    """True if the lines of the element's text stay."""
    _line: list[str] = field(default_factory=list)
    _last_text: str = ""
    """The text of the last line, without its label."""
    _label: str = ""
    _inline: list[bool] = field(default_factory=list)
    _has_text: list[bool] = field(default_factory=lambda: [False])
    _size: int = 0
    _row: _Element | None = None
    """The open row of a table. Those of tables inside its cells do not count."""
    _cells: list[str] = field(default_factory=list)
    """The cells of the row."""

    def add(self, event: Event) -> None:
        """Add an event. If the text becomes too large, raise `DataError`."""
        match event.kind:
            case Kind.TEXT:
                if not self._has_text[-1] and self._elements and (element := self._elements[-1]).leading:
                    if event.text.isspace():
                        element.leading.append(event.text)
                        return
                    self._resume(element)
                self._line.append(event.text)
                self._has_text[-1] = self._has_text[-1] or not event.text.isspace()
            case Kind.START:
                inline = self._has_text[-1] or event.name == _STYLE
                self._title_name = self._title_name or _TITLE_NAMES.get(event.name, "title")
                if not inline:
                    self._end_line("")
                    self._begin(event)
                    self._verbatim = event.attributes.get(_SPACE) == "preserve" or event.name in _VERBATIM
                    if event.name in _ENTRIES and not self._parts:
                        self._part = (self._size, "")
                self._parts += event.name in _ENTRIES and self._row is None
                self._inline.append(inline)
                self._has_text.append(inline)
            case Kind.END:
                self._has_text.pop()
                self._parts -= event.name in _ENTRIES and self._row is None
                if not self._inline.pop():
                    self._end_line(event.name)
                    start, title = self._part
                    is_section = event.name in _ENTRIES and not self._parts and bool(title)
                    if is_section:
                        self._elements[-1].name = ""  # its chunks have the title
                    self._end(event.name)
                    if is_section:
                        self.sections.append(Section(start, self._size - 1, one_line(storable(title))))

    def _begin(self, event: Event) -> None:
        """Open an element. The root is called like the file, so it has no name of its own."""
        label = _label(event.name, event.attributes)
        outer = self._elements[-1] if self._elements else None
        if outer is not None:
            outer.has_elements = True
            if self._row is None and event.name in _ROWS.get(outer.tag, ()):
                self._row, self._cells, outer.name = outer, [], ""
        self._label = "" if event.name in _PARAGRAPHS or self._row is not None else label
        name = label if outer is not None and self._row is None else ""
        self._elements.append(_Element(self._size, name, event.name, self._label, len(self.done)))

    def _end(self, name: str) -> None:
        """Close an element. If it is a name, it names the element around it."""
        element = self._elements.pop()
        outer = self._elements[-1] if self._elements else None
        if self._row is not None:
            self._end_in_row(element, outer)
        elif not element.has_elements:
            if name in _NAMES and self._last_text and outer is not None and len(outer.name) < LONGEST_HEADING:
                outer.name += f" {self._last_text[:LONGEST_HEADING]}"
        elif element.name and len(self.captions) < MOST_CAPTIONS and self._size > element.start:
            self.captions.append(Caption(element.start, self._size - 1, shortened(element.name, LONGEST_HEADING)))
        if outer is not None and outer.leading is not None:
            if element.has_elements or name in _NAMES or len(outer.leading) >= MOST_LEADING:
                outer.leading = None
            else:
                outer.leading.append(self._last_text)

    def _end_in_row(self, element: _Element, outer: _Element | None) -> None:
        """Close an element in a row of a table. The text of a cell is on one line, and so are the cells of the row."""
        if element is self._row:
            cells = [*self._cells, *(line for line in self.done[element.line :] if line != element.label)]
            self._row = None
            self._drop(element.line)
            if any(cells):
                self._append(" | ".join(cells))
        elif outer is self._row:
            self._cells.append(" ".join(" ".join(self.done[element.line :]).split()))
            self._drop(element.line)

    def _append(self, line: str) -> None:
        """Add a line. If the text becomes too large, raise `DataError`."""
        self.done.append(line)
        self._size += len(line) + 1
        if self._size > self.most:
            raise DataError(f"the text has more than {self.most:,} characters. Split the file.")

    def _drop(self, first: int) -> None:
        """Remove the lines from this one on."""
        self._size -= sum(len(line) + 1 for line in self.done[first:])
        del self.done[first:]

    def _resume(self, element: _Element) -> None:
        """Continue the line of an element, with the texts of the elements at its beginning."""
        self._drop(element.line)
        self._line, self._label = [*(element.leading or ()), *self._line], element.label
        element.leading = None

    def _end_line(self, name: str) -> None:
        text = "".join(self._line)
        is_page = any(mark in text for mark in _PAGE_MARKS)
        if is_page:
            text = page_text(unix_lines(text))[1]
        elif self._verbatim:
            text = unix_lines(text).strip()
        else:
            text = " ".join((unescaped(text) if name == "title" and self._parts else text).split())
        if text or self._label.endswith(")"):  # it has attributes
            self._append(f"{self._label}: {text}" if self._label and text else text or self._label)
        self._last_text = text
        if name == self._title_name and self._parts:
            self._part = (self._part[0], self._part[1] or text)
        elif name in {self._title_name, _ARTICLE_TITLE}:
            self.title = self.title or text
        self._line, self._label, self._verbatim = [], "", False


def _label(name: str, attributes: Attributes) -> str:
    """Return the name of an element with its attributes in parentheses, without namespace declarations."""
    values = (
        f"{key}={' '.join(value.split())}"
        for key, value in attributes.items()
        if not key.startswith("xmlns") and key != _SPACE
    )
    listed = ", ".join(values)
    return f"{name} ({listed})" if listed else name
