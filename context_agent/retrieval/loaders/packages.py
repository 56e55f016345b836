"""Readers of zipped XML: Word, PowerPoint and Excel files, and EPUB. Need the extra `docs`.

Such a file may unpack to any size, so the directory of the archive is checked first: `LoadOptions.max_mb` bounds its
XML, `check_unpacked` and `LARGEST_PACKAGE` the rest. No reader resolves an external entity or expands one: python-docx
and python-pptx leave references alone, openpyxl and the EPUB reader parse with defusedxml.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.loaders.files import decode, document, named, storable, unix_lines
from context_agent.retrieval.loaders.markup import declared_charset, page_text
from context_agent.retrieval.loaders.rows import check_unpacked
from context_agent.retrieval.loaders.sources import Reading
from context_agent.types import Document, MetadataValue

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MOST_MEMBERS = 10_000
LARGEST_PACKAGE = 256 * 2**20
"""Bytes that all members of a file may unpack to, with its pictures."""
XML = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm")
CELL_SIZE = 16
"""Characters of the size limit per cell of a sheet, empty ones included."""
_CONTAINER = "META-INF/container.xml"
_PAGES = frozenset({"application/xhtml+xml", "text/html"})


def read_docx(reading: Reading) -> Iterator[Document]:
    """Paragraphs and tables of a Word file; headings begin with `#`."""
    with _package(reading, "docx", "python-docx"):
        import docx
        from docx.table import Table

        word = docx.Document(reading.stream)
        parts = (
            _table((cell.text for cell in row.cells) for row in item.rows)
            if isinstance(item, Table)
            else _heading(item.style.name if item.style else "") + item.text
            for item in word.iter_inner_content()
        )
        text, properties = _joined(reading, parts), _properties(word.core_properties)
    yield document(reading, text, str(properties.pop("title", "")) or _first_heading(text), properties)


def read_pptx(reading: Reading) -> Iterator[Document]:
    """The slides of a presentation, each under its title, with tables and notes."""
    with _package(reading, "pptx", "python-pptx"):
        from pptx import Presentation

        slides = Presentation(reading.stream)
        text = _joined(reading, (part for slide in slides.slides for part in _slide(slide)))
        properties = _properties(slides.core_properties)
    yield document(reading, text, str(properties.pop("title", "")) or _first_heading(text), properties)


def read_xlsx(reading: Reading) -> Iterator[Document]:
    """The sheets of a workbook, each under its name, a line for each row; formulas give their stored values."""
    with _package(reading, "openpyxl", "openpyxl"):
        from openpyxl import load_workbook

        book = load_workbook(reading.stream, read_only=True, data_only=True)
        cells = _CellCount(reading)
        text = _joined(reading, (part for sheet in book.worksheets for part in _sheet(sheet, cells)))
        properties = _properties(book.properties)
    yield document(reading, text, str(properties.pop("title", "")), properties)


def read_epub(reading: Reading) -> Iterator[Document]:
    """The chapters of a book in reading order."""
    with _package(reading, "defusedxml", "defusedxml"):
        with zipfile.ZipFile(reading.stream) as book:
            package = _attribute(_xml(book, _CONTAINER), "rootfile", "full-path")
            root = _xml(book, package)
            files = {item.get("id", ""): item for item in _elements(root, "item")}
            spine = [files[ref.get("idref", "")] for ref in _elements(root, "itemref") if ref.get("idref") in files]
            folder = posixpath.dirname(package)
            names = [
                posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
                for item in dict.fromkeys(spine)
                if item.get("media-type") in _PAGES
            ]
            text = _joined(reading, (_page(book, name) for name in names))
        fields = {name: _first_text(root, name) for name in ("title", "creator", "language", "date")}
    metadata: dict[str, MetadataValue] = {name: value for name, value in fields.items() if value and name != "title"}
    yield document(reading, text, fields["title"], metadata)


@contextmanager
def _package(reading: Reading, module: str, package: str) -> Iterator[None]:
    """Checks the archive; raises `MissingExtraError` without the library, `DataError` for what it cannot read."""
    try:
        __import__(module)
        __import__("defusedxml")
    except ImportError as error:
        raise MissingExtraError(package, "docs") from error
    try:
        _check_archive(reading)
        yield
    except DataError:
        raise
    except Exception as error:  # a broken file makes these libraries raise nearly anything
        raise DataError(f"not a readable {reading.path.rpartition('.')[2]} file: {named(error)}") from error


def _check_archive(reading: Reading) -> None:
    with zipfile.ZipFile(reading.stream) as archive:
        members = archive.infolist()
    reading.stream.seek(0)
    if len(members) > MOST_MEMBERS:
        raise DataError(f"has {len(members):,} members, more than {MOST_MEMBERS:,}: it is no document")
    if any(member.flag_bits & 1 for member in members):
        raise DataError("encrypted: needs a password")
    total = sum(member.file_size for member in members)
    check_unpacked(total, sum(member.compress_size for member in members))
    if total > LARGEST_PACKAGE:
        raise DataError(f"unpacks to more than {LARGEST_PACKAGE // 2**20} MB: remove its pictures, or split it")
    if sum(member.file_size for member in members if member.filename.lower().endswith(XML)) > reading.options.max_size:
        raise DataError(reading.options.too_large("its unpacked XML"))


def _joined(reading: Reading, parts: Iterable[str]) -> str:
    """The parts that are not empty, with blank lines between them. Raises `DataError` if they are too long."""
    texts, size = [], 0
    for part in parts:
        if stripped := part.strip():
            texts.append(stripped)
            size += len(stripped)
            if size > reading.options.max_size:
                raise DataError(reading.options.too_large("its text"))
    return "\n\n".join(texts)


def _table(rows: Iterable[Iterable[object]]) -> str:
    """A line for each row that is not empty, with ` | ` between its cells."""
    lines = (" | ".join(_cell(value) for value in row).rstrip("| ") for row in rows)
    return "\n".join(line for line in lines if line)


def _cell(value: object) -> str:
    if isinstance(value, date | time):  # `datetime` is a `date`
        return value.isoformat().removesuffix("T00:00:00")
    return "" if value is None else " ".join(str(value).split())


def _heading(style: str | None) -> str:
    """The mark of a heading's style: `# ` for `Title` and `Heading 1`."""
    name, _, level = (style or "").rpartition(" ")
    if style == "Title":
        return "# "
    return "#" * min(int(level), 6) + " " if name == "Heading" and level.isdecimal() else ""


def _first_heading(text: str) -> str:
    return next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "")


def _properties(core: Any) -> dict[str, MetadataValue]:
    """Title, author and dates of a file."""
    author = getattr(core, "author", None) or getattr(core, "creator", None)
    fields = {"title": core.title, "author": author, "created": core.created, "modified": core.modified}
    return {name: storable(_cell(value)) for name, value in fields.items() if value}


def _slide(slide: Any) -> Iterator[str]:
    title = slide.shapes.title
    yield f"## {' '.join(title.text.split())}" if title is not None and title.text.strip() else ""
    yield from _shapes(shape for shape in slide.shapes if title is None or shape.shape_id != title.shape_id)
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
        yield notes.text


def _shapes(shapes: Iterable[Any]) -> Iterator[str]:
    """The texts of shapes, of tables, and of shapes in groups."""
    for shape in shapes:
        if getattr(shape, "has_table", False) and shape.has_table:
            yield _table((cell.text for cell in row.cells) for row in shape.table.rows)
        elif shape.has_text_frame:
            yield shape.text_frame.text
        elif hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)


class _CellCount:
    """Counts the cells of a workbook, called with the width of each row; raises `DataError` for too many."""

    def __init__(self, reading: Reading) -> None:
        self._options, self._count = reading.options, 0

    def __call__(self, width: int) -> None:
        self._count += width + 1
        if self._count * CELL_SIZE > self._options.max_size:
            raise DataError(self._options.too_large("a sheet, empty cells included,"))


def _sheet(sheet: Any, count: Callable[[int], None]) -> Iterator[str]:
    """The sheet's name and its rows. The stated dimensions may be wrong: they are not used."""
    sheet.reset_dimensions()

    def rows() -> Iterator[tuple[object, ...]]:
        for row in sheet.iter_rows(values_only=True):
            count(len(row))
            yield row

    table = _table(rows())
    yield f"## {sheet.title}\n\n{table}" if table else ""


def _xml(book: zipfile.ZipFile, name: str) -> Element:
    from defusedxml.ElementTree import fromstring

    root: Element = fromstring(book.read(name))
    return root


def _elements(root: Element, name: str) -> Iterator[Element]:
    """The elements of that name in any namespace."""
    return (element for element in root.iter() if str(element.tag).rpartition("}")[2] == name)


def _attribute(root: Element, element: str, attribute: str) -> str:
    value = next((found.get(attribute) for found in _elements(root, element)), None)
    if value is None:
        raise DataError(f"not a readable epub file: no <{element} {attribute}>")
    return value


def _first_text(root: Element, name: str) -> str:
    texts = (storable(" ".join((element.text or "").split())) for element in _elements(root, name))
    return next(texts, "")


def _page(book: zipfile.ZipFile, name: str) -> str:
    data = book.read(name)
    return page_text(unix_lines(decode(data, None, declared_charset(data)).text))[1]
