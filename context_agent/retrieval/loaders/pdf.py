"""The reader of PDF files."""

from __future__ import annotations

import io
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.headings import heading_captions
from context_agent.retrieval.loaders.pdf_fonts import FontCosts
from context_agent.retrieval.loaders.pdf_headings import PrintedSizes, page_starts, pdf_headings
from context_agent.retrieval.loaders.pdf_objects import entry, resolved
from context_agent.retrieval.loaders.reading import SAVE_AGAIN, Reading, document, named
from context_agent.retrieval.loaders.titles import meaningful_title
from context_agent.retrieval.loaders.unpacking import LARGEST_FILE, check_unpacked
from context_agent.types import Document

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

_WORD = re.compile(r"[^\W\d_]+")
_DIVIDED = re.compile(r"\b([^\W\d_]{1,40})[-\u2010]\n([^\W\d_]{1,40})\b")
"""A word that is divided at the end of a line."""
MOST_PAGES = 20_000
"""Maximum number of pages of a file."""
LARGEST_PAGE = 4 * 2**20
"""Maximum number of bytes of a page's content, unpacked."""
MOST_OPERATIONS = 1_000_000
"""Maximum number of drawing operations of a page, including those of its forms, which may be nested."""
MOST_FONTS = 2_000
"""Maximum number of fonts of a page or of a form. pypdf holds all of them at once, and takes 33 KB for each."""
MOST_FONT_OPERATIONS = 20_000_000
"""Maximum number of drawing operations that the fonts of a page and of its forms count as. pypdf takes up to 10 bytes
for each."""
FREE_FONT_OPERATIONS = 40_000_000
"""The number of drawing operations that the fonts of any file may count as, about a second. They are not counted in
relation to the size of the file, because a short document may have a large map to Unicode that packs well."""
LOOKUP_OPERATIONS = 20
"""The drawing operations that an entry of a page's resources counts as, also if it is not drawn."""


def read_pdf(reading: Reading) -> Iterator[Document]:
    """Yield the text of all pages, separated by blank lines. Its headings become captions.

    The title is that of the file's metadata, or else the line in the largest letters of the first page. Needs the extra
    `docs`.
    """
    packed = reading.stream.seek(0, io.SEEK_END)
    if packed > LARGEST_FILE:
        raise DataError(f"the file is larger than {LARGEST_FILE // 2**20} MB. Split it.")
    with _SILENT_PYPDF:
        reader, count = _opened_pdf(reading)
        if count > MOST_PAGES:
            raise DataError(f"the file has {count:,} pages, more than {MOST_PAGES:,}. Split it.")
        pages: list[str] = []
        size = 0
        drawn, sizes = _Drawn(packed), PrintedSizes()
        for number in range(count):
            sizes.begin(number)
            pages.append(_page(reading, reader, number, drawn, sizes))
            drawn.check()
            size += len(pages[-1])
            if size > reading.options.max_size:
                raise DataError(reading.options.too_large("the text of the file"))
        pages = _without_hyphens(pages)
        text = "\n\n".join(page for page in pages if page)
        if not text:
            raise DataError(f"none of the {len(pages)} pages has text. If the file is a scan, run OCR on it first.")
        title = _pdf_title(reader) or meaningful_title(sizes.title())
        captions = heading_captions(pdf_headings(reader, pages, sizes), len(text), title=title)
        starts = tuple(page_starts(pages)) if len(pages) > 1 else ()
    yield document(reading, text, title, {"pages": len(pages)}, captions=captions, pages=starts)


def _without_hyphens(pages: list[str]) -> list[str]:
    """Return the pages with the words joined that are divided at the end of a line.

    A word is joined only if it also occurs undivided, because its hyphen may belong to it.
    """
    candidates = {(divided[1] + divided[2]).lower() for page in pages for divided in _DIVIDED.finditer(page)}
    if not candidates:
        return pages
    words = (found[0].lower() for page in pages for found in _WORD.finditer(page))
    undivided = candidates.intersection(words)

    def joined(divided: re.Match[str]) -> str:
        word = divided[1] + divided[2]
        return word if word.lower() in undivided else divided[0]

    return [_DIVIDED.sub(joined, page) for page in pages]


class _Silence:
    """A switch that silences the logger of a library while any thread is in its block.

    A hostile file makes the library log a line for every few bytes.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self._lock = threading.Lock()
        self._users = 0
        self._level = logging.NOTSET
        """The logger's level before the first thread entered."""

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._level = self._logger.level
                self._logger.setLevel(logging.CRITICAL + 1)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._logger.setLevel(self._level)


_SILENT_PYPDF = _Silence("pypdf")


def _opened_pdf(reading: Reading) -> tuple[PdfReader, int]:
    """Return the reader and its number of pages."""
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise MissingExtraError("pypdf", "docs") from error
    try:
        reader = PdfReader(reading.stream)
        locked = reader.is_encrypted and not reader.decrypt("")
        count = 0 if locked else len(reader.pages)
    except Exception as error:  # a broken PDF makes pypdf raise nearly anything
        raise DataError(f"the PDF cannot be read ({named(error)}). {SAVE_AGAIN}") from error
    if locked:
        raise DataError("the file is encrypted. Save it without a password.")
    return reader, count


def _page(reading: Reading, reader: PdfReader, number: int, drawn: _Drawn, sizes: PrintedSizes) -> str:
    """Return the text of one page. A damaged page is reported and left out."""
    try:
        page = reader.pages[number]
        drawn.begin(page)
        return unix_lines(page.extract_text(visitor_operand_before=drawn, visitor_text=sizes).strip())
    except Exception as error:  # noqa: BLE001 - as above
        reason = str(error) if isinstance(error, DataError) else f"the page is damaged ({named(error)})"
        reading.skip(f"page {number + 1}: {reason}")
        return ""


class _Drawn:
    """A counter of what the pages of a file unpack to: their content, their fonts, and the operations of their forms.

    pypdf calls the counter with each operation. A page that unpacks to too much is left out. If the file unpacks to too
    much for its size, reading stops, because the file may refer to one page, font or form again and again.
    """

    def __init__(self, packed: int) -> None:
        self._packed = packed
        self._total = self._operations = self._in_fonts = 0
        self._free_in_fonts = FREE_FONT_OPERATIONS
        self._costs = FontCosts()
        self._forms: dict[str, int] = {}

    def begin(self, page: PageObject) -> None:
        """Count the content of a page. If it is too large, raise `DataError`."""
        self._operations = self._in_fonts = 0
        contents = page.get_contents()
        size = len(contents.get_data()) if contents is not None else 0
        self._total += size
        if size > LARGEST_PAGE:
            raise DataError(f"the page unpacks to more than {LARGEST_PAGE // 2**20} MB, so it is left out")
        self._count_fonts(self._font_operations(page))
        self._count_forms(page)

    def _font_operations(self, drawing: Any) -> int:
        """Return what the fonts of a page or of a form count as when it is drawn."""
        fonts = entry(entry(drawing, "/Resources"), "/Font")
        if not isinstance(fonts, dict):
            return 0
        if len(fonts) > MOST_FONTS:
            raise DataError(f"the page has more than {MOST_FONTS:,} fonts, so it is left out")
        total = 0
        for font in fonts.values():
            self._count(LOOKUP_OPERATIONS)
            total += self._costs.operations(resolved(font))
            if self._in_fonts + total > MOST_FONT_OPERATIONS:
                raise DataError("the fonts of the page are too large, so it is left out")
        self._in_fonts += total
        return total

    def _count_forms(self, page: PageObject) -> None:
        """Find what the forms of a page count as when they are drawn. Of forms with one name, the largest counts."""
        self._forms = {}
        waiting: list[Any] = [page]
        visited = set[int]()
        while waiting:
            forms = entry(entry(waiting.pop(), "/Resources"), "/XObject")
            for name, reference in forms.items() if isinstance(forms, dict) else ():
                self._count(LOOKUP_OPERATIONS)
                form = resolved(reference)
                if isinstance(form, dict) and entry(form, "/Subtype") == "/Form" and id(form) not in visited:
                    visited.add(id(form))
                    waiting.append(form)
                    self._forms[name] = max(self._font_operations(form), self._forms.get(name, 0))

    def __call__(self, operator: object, operands: Sequence[Any], *_: object) -> None:
        """Count an operation. A form that is drawn counts with its fonts, which pypdf reads each time."""
        self._operations += 1
        self._count(1)
        if operator == b"Do" and operands:
            self._count_fonts(self._forms.get(str(operands[0]), 0))
        if self._operations > MOST_OPERATIONS:
            raise DataError(f"the page has more than {MOST_OPERATIONS:,} drawing operations, so it is left out")

    def _count_fonts(self, operations: int) -> None:
        free = min(operations, self._free_in_fonts)
        self._free_in_fonts -= free
        self._count(operations - free)

    def _count(self, operations: int) -> None:
        self._total += operations
        self.check()

    def check(self) -> None:
        """Raise `DataError` if the file unpacks to too much for its size."""
        check_unpacked(self._total, self._packed)


def _pdf_title(reader: PdfReader) -> str:
    try:
        title: Any = reader.metadata.title if reader.metadata else ""
    except Exception:  # noqa: BLE001 - as above; a title is no reason to lose the text
        return ""
    return meaningful_title(title) if isinstance(title, str) else ""
