"""Readers of formats in which a file is one document: plain text, Markdown, HTML, PDF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.loaders.decoding import Decoded, decode, storable, unix_lines
from context_agent.retrieval.loaders.markup import declared_charset, page_text
from context_agent.retrieval.loaders.report import Reading
from context_agent.retrieval.loaders.sources import identifier
from context_agent.types import Document, MetadataValue

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

_FRONTMATTER = re.compile(r"---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title[ \t]*:[ \t]*(.+)$", re.MULTILINE | re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6}[ \t]+([^\n]*)", re.MULTILINE)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
MOST_PAGES = 20_000
LARGEST_PAGE = 4 * 2**20
"""Bytes of a PDF page's content, unpacked."""
MOST_OPERATIONS = 1_000_000
"""Drawing operations of a PDF page, those of the forms inside it included: forms may nest."""
FRONT = 16_384
"""Characters of a Markdown file in which its title is looked for."""


def read_text(reading: Reading) -> Iterator[Document]:
    """The text as it stands, titled by the file's name."""
    yield document(reading, decoded(reading, content(reading)).text)


def read_markdown(reading: Reading) -> Iterator[Document]:
    """The source as it stands, titled by its front matter or first heading."""
    text = unix_lines(decoded(reading, content(reading)).text)
    yield document(reading, text, _markdown_title(text[:FRONT]))


def read_html(reading: Reading) -> Iterator[Document]:
    """The page's text, titled by `<title>` or the first `<h1>`."""
    data = content(reading)
    title, text = page_text(unix_lines(decoded(reading, data, declared_charset(data)).text))
    yield document(reading, text, title)


def read_pdf(reading: Reading) -> Iterator[Document]:
    """The text of all pages with blank lines between them, titled by the file's metadata. Needs the extra `docs`."""
    reader, count = _opened_pdf(reading)
    if count > MOST_PAGES:
        raise DataError(f"has {count:,} pages, more than {MOST_PAGES:,}: split it")
    pages: list[str] = []
    size = 0
    for number in range(count):
        pages.append(_page(reading, reader, number))
        size += len(pages[-1])
        if size > reading.options.max_size:
            raise DataError(reading.options.too_large("its text"))
    text = "\n\n".join(page for page in pages if page)
    if not text.strip():
        raise DataError(f"no text in its {len(pages)} pages (a scan needs character recognition first)")
    yield document(reading, text, _pdf_title(reader), {"pages": len(pages)})


def content(reading: Reading) -> bytes:
    """All bytes of the source. Raises `DataError` for more than the options allow."""
    data = reading.stream.read(reading.options.max_size + 1)
    if len(data) > reading.options.max_size:
        raise DataError(reading.options.too_large("the file, which is one document,"))
    return data


def decoded(reading: Reading, data: bytes, declared: str | None = None) -> Decoded:
    """The bytes as text, with a notice where that took a guess. Raises `DataError` for what is no text."""
    found = decode(data, reading.options.encoding, declared)
    if found.note:
        reading.note_once(found.note)
    return found


def document(
    reading: Reading, text: str, title: str = "", metadata: dict[str, MetadataValue] | None = None
) -> Document:
    """The file's document, its path in the source folder in the metadata. Raises `DataError` where there is no text."""
    text = storable(unix_lines(text))
    if not text.strip():
        raise DataError("empty: holds no text")
    title = " ".join(title.split()) or PurePath(reading.path).stem
    return Document(
        identifier(reading.path), text, storable(title), {"path": storable(reading.path), **(metadata or {})}
    )


def _markdown_title(text: str) -> str:
    front = _FRONTMATTER.match(text)
    if front and (named := _FRONT_TITLE.search(front[1])):
        return named[1].strip().strip("\"'")
    body = _FENCED.sub("", text[front.end() :] if front else text)
    heading = _HEADING.search(body)
    return heading[1].strip().rstrip("#").strip() if heading else ""


def _opened_pdf(reading: Reading) -> tuple[PdfReader, int]:
    """The reader and its number of pages."""
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise MissingExtraError("pypdf", "docs") from error
    try:
        reader = PdfReader(reading.stream)
        locked = reader.is_encrypted and not reader.decrypt("")
        count = 0 if locked else len(reader.pages)
    except Exception as error:  # a broken PDF makes pypdf raise nearly anything
        raise DataError(f"not a readable PDF: {_named(error)}") from error
    if locked:
        raise DataError("encrypted: needs a password")
    return reader, count


def _page(reading: Reading, reader: PdfReader, number: int) -> str:
    """One page's text; a broken page is reported and costs only itself."""
    try:
        page = reader.pages[number]
        _check_page(page)
        return page.extract_text(visitor_operand_before=_Operations()).strip()
    except Exception as error:  # noqa: BLE001 - as above
        reason = str(error) if isinstance(error, DataError) else f"is damaged: {_named(error)}"
        reading.skip(f"page {number + 1} {reason}")
        return ""


def _check_page(page: PageObject) -> None:
    contents = page.get_contents()
    if contents is not None and len(contents.get_data()) > LARGEST_PAGE:
        raise DataError(f"unpacks to more than {LARGEST_PAGE // 2**20} MB: it is left out")


class _Operations:
    """Counts the drawing operations of a page, called with each; raises `DataError` for too many."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, *operation: object) -> None:
        self._count += 1
        if self._count > MOST_OPERATIONS:
            raise DataError(f"has more than {MOST_OPERATIONS:,} drawing operations: it is left out")


def _pdf_title(reader: PdfReader) -> str:
    try:
        title: Any = reader.metadata.title if reader.metadata else ""
    except Exception:  # noqa: BLE001 - as above; a title is no reason to lose the text
        return ""
    return title if isinstance(title, str) else ""


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
