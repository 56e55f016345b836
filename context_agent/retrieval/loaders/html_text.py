"""The text of an HTML page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from context_agent.retrieval.loaders.html_tags import NO_TEXT, Tag, tags, unescaped
from context_agent.retrieval.loaders.navigation import Navigation, Restored
from context_agent.retrieval.loaders.titles import meaningful_title

MOST_PARTS = 100_000
"""Maximum number of pieces of a page's text before they are joined."""
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_PARAGRAPHS = frozenset(
    "address article aside blockquote body details div dl fieldset figure figcaption footer form header hr html main"
    " nav ol p pre section summary table ul".split()
)
_LINES = frozenset("br caption dd dt legend li optgroup option select tbody tfoot thead tr".split())
_ASIDES = frozenset(["rp", "rt"])
"""The readings of the words in a ruby, and the parentheses that browsers without rubies show around them."""
_CELLS = frozenset(["td", "th"])
_DATA_PARTS = frozenset(["caption", "thead"])
"""The parts that only a table of data has, and no layout."""
_ROW_ENDS = frozenset(["table", "tbody", "tfoot", "thead", "tr"])
_TABLE_PARTS = frozenset("caption table tbody tfoot thead tr".split())
_LEAST_RAISED = 3
"""Minimum number of letters of a word whose superscript is the number of a note. After others, it is an exponent."""
_SPAN = re.compile(r"""\b(row|col)span\s{0,9}=\s{0,9}["']?\s{0,9}(\d{1,4})""", re.IGNORECASE)
"""The number of rows or columns that a cell takes."""
LONGEST_REPEATED = 200
"""Maximum number of characters of a cell that are repeated in each of its rows. A longer cell is empty there."""
MOST_REPEATED = 1_000_000
"""Maximum number of characters that the cells of several rows or columns add to a page."""
_META_CHARSET = re.compile(rb"""<meta[^>]{1,200}?charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)


def declared_charset(data: bytes) -> str | None:
    """Return the charset that the page's `<meta charset>` declares within its first 2,048 bytes.

    If the page declares none, return None.
    """
    charset = _META_CHARSET.search(data[:2048])
    return charset[1].decode("ascii") if charset else None


class PageText(NamedTuple):
    """The title and the text of a page, and the lines of the text that are headings."""

    title: str
    text: str
    headings: frozenset[str]


def page_text(page: str, *, navigation: bool = True) -> tuple[str, str]:
    """Return the title and the text of a page (see `read_page`)."""
    return read_page(page, navigation=navigation)[:2]


def read_page(page: str, *, navigation: bool = True) -> PageText:
    """Return the text of a page. The title is `<title>`, or else the first `<h1>`, or else empty.

    Blank lines separate blocks, headings begin with `#` as in Markdown, and scripts and styles are left out.

    Args:
        page: The source of the page.
        navigation: False to leave out the parts that lead to other pages. If hardly any other text remains, the parts
            stay.
    """
    text = _Page(navigation=None if navigation else Navigation())
    for tag in tags(page):
        text.add(tag.before)
        if tag.closing:
            text.closed(tag.name)
        elif tag.name == "title":
            text.title = text.title or meaningful_title(unescaped(tag.inside))
        elif tag.name not in NO_TEXT and tag.name:
            text.opened(tag)
    text.end_ruby()
    if text.navigation and text.navigation.is_most():
        return read_page(page)
    return PageText(text.title or text.heading, "".join(text.parts).strip("\n"), frozenset(text.headings))


@dataclass(slots=True)
class _Table:
    """A table that is open: its current row, and the cells of several rows."""

    cells: int = -1
    """The number of cells that the row has begun. A layout has -1."""
    is_data: bool = False
    """Whether it has a border, a caption or a head, which layouts do not have."""
    row: int = 0
    column: int = 0
    """The column of the next cell."""
    passed: int = 0
    """The number of further columns that the last cell takes."""
    cell: tuple[int, int, int] | None = None
    """The column, the last row and the first part of the open cell, if it takes several rows."""
    spans: dict[int, tuple[int, str]] = field(default_factory=dict)
    """The last row and the words of the cells that take several rows, by column."""

    def begin_row(self) -> bool:
        """Begin a row, which has no cells yet. If the table is a layout, return False."""
        self.row += 1
        self.column = self.passed = 0
        self.cells = min(self.cells, 0)
        return self.cells == 0


@dataclass(slots=True)
class _Page:
    """The text collected so far, with white space collapsed as in a browser, and the separator before the next word."""

    navigation: Navigation | None = None
    """What is left out. If it is None, nothing is."""
    title: str = ""
    heading: str = ""
    """The first `<h1>`."""
    headings: set[str] = field(default_factory=set)
    parts: list[str] = field(default_factory=list)
    _newlines: int = 0
    _space: bool = False
    _mark: str = ""
    _in_heading: bool = False
    _verbatim: int = 0
    _heading_from: int | None = None
    _aside: str = ""
    """The name of the open element that is not in the line of the text: `rt` or `rp` in a ruby."""
    _readings: list[str] = field(default_factory=list)
    _tables: list[_Table] = field(default_factory=list)
    """The tables that are open."""
    _bars: int = 0
    """The number of cells that have begun since the last word."""
    _raised: bool = False
    _room: int = MOST_REPEATED
    """The number of characters that cells of several rows or columns may still add."""

    def add(self, raw: str) -> None:
        """Add the text between two tags."""
        if self._aside:
            if self._aside == "rt" and len(self._readings) < MOST_PARTS:
                self._readings.append(" ".join(unescaped(raw).split()))
            return
        text = unescaped(raw)
        if self._verbatim:
            words = text.strip("\n") if self._newlines else text
        else:
            words = " ".join(text.split())
            self._space |= text[:1].isspace()
        if not words:
            return
        self._put(words)
        self._space = not self._verbatim and text[-1:].isspace()

    def _put(self, words: str) -> None:
        """Add words, with what separates them from those before them."""
        if len(self.parts) > MOST_PARTS:
            self._join()
        if self.parts:
            self.parts.append(self._separator(words))
        self.parts += [self._mark, words]
        if self.navigation:
            self.navigation.add(len(words), in_heading=self._in_heading)
        self._newlines, self._bars, self._mark, self._raised = 0, 0, "", False

    def _separator(self, words: str) -> str:
        """Return what separates the next words from the text before them."""
        if self._bars:
            return "\n" * self._newlines + " |" * self._bars + " "
        between = "\n" * self._newlines or " " * self._space
        if not self._raised or between:
            return between
        last = self.parts[-1][-_LEAST_RAISED:]
        if last[-1:].isdecimal():
            return "" if words[:1].isalpha() else "^"
        return " " if words.isdecimal() and len(last) == _LEAST_RAISED and last.isalpha() else ""

    def _join(self) -> None:
        """Join the parts, which take ten times the memory of one string. A heading this long is not a heading."""
        self.parts = ["".join(self.parts)]
        self._heading_from = None
        for table in self._tables:
            table.cell = None
        if self.navigation:
            self.navigation.forget()

    def end_ruby(self) -> None:
        """Add the readings of a ruby in parentheses after its words, so that searches find the words."""
        self._aside = ""
        readings, self._readings = "".join(self._readings), []
        if readings:
            self.add(f"({readings})")

    def opened(self, tag: Tag) -> None:
        """Handle a start tag."""
        name = tag.name
        if self.navigation:
            self.navigation.opened(tag, Restored(len(self.parts), self._newlines, self._space, self._mark))
        if name in _ASIDES:
            self._aside = name
        elif name == "rb":
            self._aside = ""
        self._verbatim += name == "pre"
        self._raised |= name == "sup"
        self._begin_cell(tag)
        self._separate(name)
        if name in _HEADINGS:
            self._mark, self._in_heading = _HEADINGS[name], True
            self._heading_from = len(self.parts)

    def closed(self, name: str) -> None:
        """Handle an end tag."""
        if name in _ASIDES:
            self._aside = ""
        elif name == "ruby":
            self.end_ruby()
        if name == "pre" and self._verbatim:
            self._verbatim -= 1
        if name in _ROW_ENDS:
            self._end_row()
        if name == "table" and self._tables:
            self._tables.pop()
            self._bars = 0
        self._separate(name)
        if self.navigation and (before := self.navigation.closed(name, self.parts, in_heading=self._in_heading)):
            del self.parts[before.length :]
            self._newlines, self._space = max(self._newlines, before.newlines), self._space or before.space
            self._mark = before.mark
        if name in _HEADINGS:
            self._mark, self._in_heading = "", False
        if name in _HEADINGS and self._heading_from is not None:
            heading = "".join(self.parts[self._heading_from :]).strip()
            self._heading_from = None
            if len(self.headings) < MOST_PARTS:
                self.headings.add(heading)
            if name == "h1" and not self.heading:
                self.heading = " ".join(heading.split()).removeprefix("# ")

    def _begin_cell(self, tag: Tag) -> None:
        """Count the cells of a row. Those of a table with header cells are separated by bars.

        So are those of a table with a border, a caption or a head. A table with headings or tables in its cells is a
        layout.
        """
        name = tag.name
        if (name == "table" or name in _HEADINGS) and self._tables:
            self._tables[-1], self._bars = _Table(), 0
        if name == "table":
            self._tables.append(_Table(is_data=bool(tag.get("border").strip("0px"))))
        elif name in _DATA_PARTS and self._tables:
            self._tables[-1].is_data = True
        elif name == "tr" and self._tables:
            self._end_row()
            if self._tables[-1].begin_row():
                self._bars = 0
        elif name in _CELLS and self._tables and self._is_in_row(self._tables[-1], tag):
            table = self._tables[-1]
            self._end_cell(table)
            self._repeat(table)
            self._next_cell(table)
            spans = {kind.lower(): int(number) for kind, number in _SPAN.findall(tag.attributes)}
            if (rows := spans.get("row", 1)) > 1:
                table.cell = (table.column, table.row + rows - 1, len(self.parts))
            table.passed = min(max(1, spans.get("col", 1)) - 1, self._room)
            table.column += table.passed + 1
            self._room -= table.passed

    def _is_in_row(self, table: _Table, tag: Tag) -> bool:
        """Return True if a cell is in a row with bars. In a table of data, that begins with a second cell."""
        if table.cells < 0 and tag.name == "td":
            table.is_data |= len(_SPAN.findall(tag.attributes)) == 2  # Google Docs states both
            if table.is_data and table.column:
                table.cells, self._newlines = 1, 0
        if table.cells >= 0 or tag.name == "th":
            return True
        table.column += 1
        return False

    def _next_cell(self, table: _Table) -> None:
        """Begin a cell, after the columns that the cell before it takes."""
        self._bars += (table.cells > 0) + table.passed
        table.cells, table.passed = max(1, table.cells + 1), 0

    def _end_cell(self, table: _Table) -> None:
        """Remember the words of a cell that takes several rows."""
        if table.cell is not None:
            column, last_row, start = table.cell
            words = " ".join("".join(self.parts[start + 1 :]).split())
            table.spans[column] = (last_row, words if len(words) <= LONGEST_REPEATED else "")
            table.cell = None

    def _repeat(self, table: _Table) -> None:
        """Add the cells of the next columns that began in a row above."""
        while (span := table.spans.get(table.column)) and span[0] >= table.row and self._room > len(span[1]):
            self._next_cell(table)
            if span[1]:
                self._put(span[1])
            table.column += 1
            self._room -= len(span[1]) + 1

    def _end_row(self) -> None:
        """Add the cells at the end of a row that began in a row above."""
        if self._tables and (table := self._tables[-1]).cells > 0:
            self._end_cell(table)
            self._repeat(table)

    def _separate(self, name: str) -> None:
        if (self._aside or self._readings) and (name in _PARAGRAPHS or name in _HEADINGS or name in _LINES):
            self.end_ruby()  # it was never closed
        if self._tables and self._tables[-1].cells > 0 and name not in _TABLE_PARTS:
            self._space |= name in _PARAGRAPHS or name in _HEADINGS or name in _LINES or name in _CELLS
        elif name in _PARAGRAPHS or name in _HEADINGS:
            self._newlines = 2
        elif name in _LINES:
            self._newlines = min(2, self._newlines + 1) if name == "br" else max(1, self._newlines)
        elif name in _CELLS:
            self._space = True
