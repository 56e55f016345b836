"""The reader of workbooks.

The sheets follow in the order of the workbook. Each sheet begins with its name and has a line for each row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from context_agent.errors import DataError
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.xml_events import Attributes, Event, Kind, attribute, grammar, reference
from context_agent.retrieval.loaders.zipped_xml import Package, opened_package, package_document, table, table_title
from context_agent.types import Document

CELL_SIZE = 16
"""The number of characters of the size limit that each cell of a sheet uses up, whether it is empty or not."""
_BOOK = grammar(root="workbook", workbook="workbookPr sheets", sheets="sheet")
_STRINGS = grammar(root="sst", sst="si", si="t r", r="t")
_STYLES = grammar(root="styleSheet", styleSheet="numFmts cellXfs", numFmts="numFmt", cellXfs="xf")
_ROWS = grammar(root="worksheet", worksheet="sheetData", sheetData="row", row="c", c="f v is", **{"is": "t r"}, r="t")
_COMMENTS = grammar(root="comments", comments="commentList", commentList="comment", comment="text", text="t r", r="t")
_THREADED = re.compile(r"\[Threaded comment\][^\n]*\n(?:[^\n]*\n){0,9}?Comment:\s*")
"""What Excel writes for older programs before the words of a comment with replies."""
_COLUMN = re.compile(r"([A-Z]{1,3})[0-9]{1,7}")
_DATES = frozenset({*range(14, 23), *range(45, 48)})
"""Built-in number formats of dates and times (ECMA-376 part 1, 18.8.30)."""
_DURATIONS = frozenset({46})
_PERCENTS = frozenset({9, 10})
SHOWN_DIGITS = 15
"""Maximum number of digits of a number that Excel shows. The file also has the error of a binary fraction."""
_LITERAL = re.compile(r'"[^"]*"|\[(?!hh?\]|mm?\]|ss?\])[^\[\]]*\]')
_DURATION = re.compile(r"\[(?:hh?|mm?|ss?)\]")
_DATE_LETTER = re.compile(r"(?<![_\\])[dmhysDMHYS]")
_PERCENT_SIGN = re.compile(r"(?<![_\\])%")
_ESCAPE = re.compile(r"_x(?!0000|[dD][89a-fA-F])([\da-fA-F]{4})_", re.ASCII)
"""The escape of a character, except NUL and surrogates, which no text has."""
NO_VALUES_NOTE = (
    "some formulas have no stored values, so their cells are read as empty. Open the file in a spreadsheet program and "
    "save it."
)
"""The notice about a file that a program wrote without computing its formulas."""
LONGEST_FORMAT = 255
"""Maximum number of characters of a number format, as in Excel."""


@dataclass(slots=True)
class Formats:
    """The formats of a workbook's cells. `kinds` has "date", "duration" or "" for each cell style."""

    strings: Sequence[str] = ()
    kinds: Sequence[str] = ()
    epoch: datetime = field(default_factory=lambda: datetime(1899, 12, 30))  # noqa: DTZ001 - cells have no zone


def read_xlsx(reading: Reading) -> Iterator[Document]:
    """Yield the sheets of a workbook as one document.

    Formulas are read as their stored values. A sheet that is named twice is written once.
    """
    with opened_package(reading) as package:
        text = package.joined(_sheets(package, reading))
        properties = package.properties()
    title = str(properties.pop("title", "")) or table_title(text)
    yield package_document(reading, text, title, properties)


def _sheets(package: Package, reading: Reading) -> Iterator[str]:
    """Yield the text of each sheet."""
    main = package.main_part()
    links, names, formats = package.relationships(main), dict[str, str](), Formats()
    for event in package.events(main, _BOOK):
        link = links.get(reference(event.attributes, "id")) if event.name == "sheet" else None
        if event.kind is Kind.START and link is not None and link.kind == "worksheet":
            names.setdefault(link.target, attribute(event.attributes, "name"))
        if event.name == "workbookPr" and event.attributes.get("date1904") in {"1", "true"}:
            formats.epoch = datetime(1904, 1, 1)  # noqa: DTZ001
    if part := package.linked(links, "sharedStrings"):
        formats.strings = list(_strings(package, part))
    if part := package.linked(links, "styles"):
        formats.kinds = _kinds(package, part)
    size = _Size(package, reading.options)

    def sheet(part: str) -> Iterator[str]:
        rows = _rows(package.events(part, _ROWS), formats, size, reading)
        text = "\n".join(line for row in rows if (line := table([row])))
        comments = package.linked(package.relationships(part), "comments")
        notes = "\n".join(_comments(package, comments, size)) if comments else ""
        blocks = "\n\n".join(filter(None, (text, notes)))
        yield f"## {names[part]}\n\n{blocks}" if blocks else ""

    yield from package.each(names, "sheet", sheet)


def _strings(package: Package, part: str) -> Iterator[str]:
    """Yield the shared strings. A string in several runs is joined."""
    pieces: list[str] = []
    for event in package.events(part, _STRINGS):
        if event.kind is Kind.TEXT and event.name == "t":
            pieces.append(event.text)
        elif event.kind is Kind.END and event.name == "si":
            yield _unescaped("".join(pieces))
            pieces.clear()


def _comments(package: Package, part: str, size: _Size) -> Iterator[str]:
    """Yield the comments of a sheet, each on a line after the name of its cell."""
    cell, pieces = "", list[str]()
    for event in package.events(part, _COMMENTS):
        if event.kind is Kind.TEXT and event.name == "t":
            pieces.append(event.text)
        elif event.name == "comment" and event.kind is Kind.START:
            cell, pieces = attribute(event.attributes, "ref"), []
        elif event.name == "comment" and (words := " ".join(_THREADED.sub("", "".join(pieces)).split())):
            size.add(1, len(words))
            yield f"{cell}: {words}"


def _kinds(package: Package, part: str) -> list[str]:
    """Return "date", "duration", "percent" or "" for each cell style, by its number format."""
    codes, kinds = dict[str, str](), list[str]()
    for event in package.events(part, _STYLES):
        if event.kind is not Kind.START:
            continue
        number = attribute(event.attributes, "numFmtId")
        if event.name == "numFmt":
            codes[number] = _kind(attribute(event.attributes, "formatCode"))
        elif event.name == "xf":
            kinds.append(codes[number] if number in codes else _builtin(number))
    return kinds


def _builtin(number: str) -> str:
    value = int(number) if number.isdecimal() and len(number) <= 3 else 0
    if value in _PERCENTS:
        return "percent"
    return "duration" if value in _DURATIONS else "date" if value in _DATES else ""


def _kind(code: str) -> str:
    """Return "date", "duration", "percent" or "" for a number format, by its first section."""
    first = code[:LONGEST_FORMAT].partition(";")[0]
    if _DURATION.search(first):
        return "duration"
    marks = _LITERAL.sub("", first)
    return "percent" if _PERCENT_SIGN.search(marks) else "date" if _DATE_LETTER.search(marks) else ""


class _Size:
    """The number of cells and characters that were read from a workbook, with limits."""

    def __init__(self, package: Package, options: LoadOptions) -> None:
        self._package, self._options = package, options
        self._cells = self._characters = 0

    def add(self, cells: int, characters: int = 0) -> None:
        """Count cells and characters. If there are too many, raise `DataError`."""
        self._cells += cells
        self._characters += characters
        if self._cells * CELL_SIZE > self._options.max_size:
            raise DataError(self._options.too_large("a sheet, empty cells included,"))
        self._package.check_size(self._characters)


def _rows(events: Iterator[Event], formats: Formats, size: _Size, reading: Reading) -> Iterator[list[str]]:
    """Yield the cells of each row without empty ones at its end. A cell that the file leaves out is an empty text.

    Formulas without stored values are reported.
    """
    row, value = list[str](), list[str]()
    column = following = 0
    is_formula = False
    cell: Attributes = {}
    for event in events:
        if event.kind is Kind.TEXT:
            if event.name in {"v", "t"}:
                value.append(event.text)
        elif event.kind is Kind.START and event.name == "c":
            cell, is_formula = event.attributes, False
            column = _column(attribute(cell, "r"), following)
            following = column + 1
        elif event.kind is Kind.START:
            is_formula |= event.name == "f"
        elif event.name == "c":
            if text := _value("".join(value), cell, formats):
                empty = column - len(row)
                size.add(empty + 1, len(text))
                row += [*[""] * empty, text]
            elif is_formula and attribute(cell, "t") != "str":  # the value of a formula may be an empty text
                reading.note_once(NO_VALUES_NOTE)
            size.add(1)
            value = []
        elif event.name == "row":
            size.add(1)
            yield row
            row, following = [], 0


def _column(reference: str, following: int) -> int:
    """Return the column of a cell, from 0.

    If the reference names no column, or one before the next column, return the next column.
    """
    matched = _COLUMN.fullmatch(reference) if len(reference) <= 10 else None
    if matched is None:
        return following
    column = 0
    for letter in matched[1]:
        column = 26 * column + ord(letter) - ord("A") + 1
    return max(following, column - 1)


def _value(text: str, cell: Attributes, formats: Formats) -> str:
    """Return the text that a cell shows, by its type and style."""
    kind = attribute(cell, "t") or "n"
    if kind == "s":
        if text and not (text.isdecimal() and int(text) < len(formats.strings)):
            raise ValueError(
                f"the number of a shared string must be from 0 to {len(formats.strings) - 1}; got {text[:20]!r}"
            )
        return formats.strings[int(text)] if text else ""
    if kind == "b":
        return {"1": "True", "0": "False"}.get(text, text)
    if kind != "n":
        return _unescaped(text)
    style = attribute(cell, "s")
    index = int(style) if style.isdecimal() and len(style) <= 9 else 0
    return _number(text, formats.kinds[index] if index < len(formats.kinds) else "", formats.epoch)


def _unescaped(text: str) -> str:
    """Return a text with the characters that it has as escapes, such as `_x000D_` (ECMA-376 part 1, 22.9.2.19)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _number(text: str, kind: str, epoch: datetime) -> str:
    """Return a number as a cell shows it, which may be a date, a duration or a share. Other text stays unchanged."""
    if len(text) > 100:
        return text
    try:
        value = float(text) if kind or not text.lstrip("-").isdecimal() else int(text)
        if not math.isfinite(value):
            return text
        return _shown(value, kind, epoch)
    except ValueError:
        return text
    except OverflowError:
        return "#VALUE!"


def _shown(value: float, kind: str, epoch: datetime) -> str:
    """Return a number as a cell of this kind shows it."""
    if kind == "percent":
        return f"{100 * value:.{SHOWN_DIGITS}g}%"
    if kind:
        return _date(value, kind, epoch)
    return str(value) if isinstance(value, int) else str(float(f"{value:.{SHOWN_DIGITS}g}"))


def _date(value: float, kind: str, epoch: datetime) -> str:
    """Return a date, a time of day or a duration from a number of days.

    Excel counts 29 February 1900, although 1900 was not a leap year. The days before it are therefore shifted by one
    (ECMA-376 part 1, 18.17.4).
    """
    days = timedelta(milliseconds=round(value * 86_400_000))
    if kind == "duration":
        return str(days)
    if 0 <= value < 1 and days.days == 0:
        return (epoch + days).time().isoformat()
    if 0 < value < 60 and epoch.year == 1899:
        days += timedelta(days=1)
    return (epoch + days).isoformat().removesuffix("T00:00:00")
