"""The reader for each kind of file, by the name of the file and by its first bytes."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from itertools import chain, islice, repeat
from typing import BinaryIO

from context_agent.errors import DataError
from context_agent.retrieval.loaders.calendars import read_calendar
from context_agent.retrieval.loaders.code import read_code
from context_agent.retrieval.loaders.compressed import is_compressed, packing_of, unpacked
from context_agent.retrieval.loaders.contacts import read_contacts
from context_agent.retrieval.loaders.csv_files import read_csv
from context_agent.retrieval.loaders.definitions import BY_LINES, GRAMMARS
from context_agent.retrieval.loaders.dumps import is_dump, read_dump
from context_agent.retrieval.loaders.entry_files import FORMATS, read_entries
from context_agent.retrieval.loaders.epub import read_epub
from context_agent.retrieval.loaders.json_files import read_json
from context_agent.retrieval.loaders.jsonl import lines, read_jsonl
from context_agent.retrieval.loaders.mail import (
    begins_message,
    field_names,
    may_be_mail,
    read_apple_message,
    read_message,
)
from context_agent.retrieval.loaders.mailbox import begins_mailbox, read_mail
from context_agent.retrieval.loaders.notebook import read_notebook
from context_agent.retrieval.loaders.opendocument import read_ods, read_odt
from context_agent.retrieval.loaders.options import MAX_MB, LoadOptions
from context_agent.retrieval.loaders.parquet import read_parquet
from context_agent.retrieval.loaders.pdf import read_pdf
from context_agent.retrieval.loaders.presentation import read_pptx
from context_agent.retrieval.loaders.reading import Reading, content
from context_agent.retrieval.loaders.rows import has_text
from context_agent.retrieval.loaders.rtf import read_rtf
from context_agent.retrieval.loaders.sniffing import check_head, read_other_text
from context_agent.retrieval.loaders.sources import extension_of
from context_agent.retrieval.loaders.text_files import read_html, read_markdown, read_rst, read_text
from context_agent.retrieval.loaders.transcripts import read_transcript
from context_agent.retrieval.loaders.web_archives import read_warc
from context_agent.retrieval.loaders.word import read_docx
from context_agent.retrieval.loaders.workbook import read_xlsx
from context_agent.retrieval.loaders.xml_text import read_enex, read_svg, read_xml
from context_agent.types import Document

Reader = Callable[[Reading], Iterator[Document]]
_BY_MAGIC: dict[bytes, Reader] = {b"%PDF-": read_pdf, b"PAR1": read_parquet, b"{\\rtf": read_rtf}
_OFFICE_PARTS = (b"[Content_Types].xml", b"_rels/", b"docProps/", b"word/", b"xl/", b"ppt/")
"""The names of parts with which the archive of an Office file may begin."""
_BY_PART: dict[bytes, Reader] = {
    b"word/document": read_docx,
    b"xl/workbook.xml": read_xlsx,
    b"ppt/presentation.xml": read_pptx,
}
_BY_MIMETYPE: dict[bytes, Reader] = {
    b"application/epub+zip": read_epub,
    b"application/vnd.oasis.opendocument.spreadsheet": read_ods,
    b"application/vnd.oasis.opendocument.text": read_odt,
    b"application/vnd.oasis.opendocument.presentation": read_odt,
}
_PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:<!doctype\s++html\b|<html\b)", re.IGNORECASE)
"""The beginning of an HTML page. Programs also give such pages the names of Office files, such as `report.xls`."""
_XML_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:<\?xml\s|<!DOCTYPE TS>)")
"""The beginning of XML. Translations of Qt have the same extension as TypeScript."""
_STYLESHEETS = (".xsl", ".xslt")
"""The extensions of programs that are written in XML. They are read as plain text."""
_XHTML = re.compile(rb"<html\b", re.IGNORECASE)
XHTML_WITHIN = 2_048
"""The number of first bytes in which XML is recognized as a page."""
HEAD_BYTES = 2**16
"""The number of first bytes of a source that are examined. Mail servers often add 10 kB above a message's sender."""
LONGEST_SNIFFED_LINE = MAX_MB * 2**20
"""Maximum number of characters of a line that is examined."""
SNIFFED_LINES = 5
"""The number of first lines of a stream to examine. If one of them is a JSON object, the stream is read as JSONL."""


def read_any(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a source whose name shows no format.

    Its content shows whether it is an Office file, a book, PDF, parquet, rich text, HTML, XML, mail or JSONL, or
    compressed.
    Otherwise it is read as plain text.
    """
    head = _head(reading.stream)
    yield from (_read_compressed if is_compressed(head) else _reader_of(reading, head))(reading)


def _read_plain(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a source that is named as plain text or Markdown.

    Its content shows whether it is a page, mail, rows or a file of another format under this name.
    """
    yield from _reader_of_plain(reading, _head(reading.stream))(reading)


def _reader_of_plain(reading: Reading, head: bytes) -> Reader:
    """Return the reader for a source that is named as plain text or Markdown and begins with these bytes."""
    if reader := _by_first_bytes(head):
        return reader
    if extension_of(reading.path, _MARKDOWN):
        return read_markdown
    if begins_mailbox(head):
        return read_mail
    if begins_message(head) and b"message-id" in field_names(head):
        return read_message
    may_be_rows = head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")  # or a long first line would be read
    return read_jsonl if may_be_rows and all(map(_is_object, _first_lines(reading))) else read_text


def _by_first_bytes(head: bytes) -> Reader | None:
    """Return the reader of the packed file, the PDF or the page that begins with these bytes. Otherwise return None."""
    by_magic = next((reader for magic, reader in _BY_MAGIC.items() if head.startswith(magic)), None)
    return by_magic or _packed(head) or (read_html if _PAGE.match(head) else None)


def _reader_of(reading: Reading, head: bytes) -> Reader:
    """Return the reader for a source that begins with these bytes."""
    reader = _by_first_bytes(head)
    if reader is None and _XML_BEGINS.match(head) and not reading.path.lower().endswith(_STYLESHEETS):
        reader = read_html if _XHTML.search(head[:XHTML_WITHIN]) else _reader_of_xml(head)
    if reader is None and may_be_mail(reading.path):
        reader = read_mail if begins_mailbox(head) else read_message if begins_message(head) else None
    if reader is None:
        check_head(reading)
        holds_rows = _holds_rows(reading.stream, reading.options if reading.found else None)
        reader = read_jsonl if holds_rows else read_other_text
    return reader


def _packed(head: bytes) -> Reader | None:
    """Return the reader of the Office file or book whose archive begins with these bytes. Otherwise return None."""
    if not head.startswith(b"PK\3\4"):
        return None
    name_length = int.from_bytes(head[26:28], "little")
    first = head[30 : 30 + name_length]
    if first == b"mimetype":
        start = 30 + name_length + int.from_bytes(head[28:30], "little")
        return next((reader for kind, reader in _BY_MIMETYPE.items() if head.startswith(kind, start)), None)
    if not first.startswith(_OFFICE_PARTS):
        return None
    return next((reader for part, reader in _BY_PART.items() if part in head), None)


def _read_compressed(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a compressed source. The rest of its name shows the format, or else its content.

    Rows, mail and dumps are unpacked while they are read. Other kinds are one document and are unpacked at once.
    """
    packing = packing_of(reading.path)
    inner = replace(reading, path=reading.path.removesuffix(packing), packing=packing)
    inner.stream = unpacked(reading.stream, rows=False)
    reader = READERS[extension_of(inner.path, READERS) or ""]
    if reader in {read_any, _read_plain}:
        by_content = _reader_of if reader is read_any else _reader_of_plain
        reader = by_content(inner, _head(inner.stream))
    elif reader is _read_xml:
        reader = _reader_of_xml(_head(inner.stream))
    if reader in {read_csv, read_jsonl, _read_jsonl}:
        inner.stream = unpacked(reading.stream, rows=True)
    elif reader not in {read_dump, read_mail, read_warc}:
        inner.stream = BytesIO(content(inner))
    yield from reader(inner)


def _head(stream: BinaryIO) -> bytes:
    head = stream.read(HEAD_BYTES)
    stream.seek(0)
    return head


def _if_begins(reader: Reader, magics: Collection[bytes], *, within: int = 0) -> Reader:
    """Return the reader of a binary format. Files of another format under this name are read by their content.

    Args:
        reader: The reader.
        magics: The marks at the beginning of the format.
        within: Maximum number of bytes that may precede a mark.
    """

    def read(reading: Reading) -> Iterator[Document]:
        head = _head(reading.stream)
        begins = any(head.find(magic, 0, within + len(magic)) >= 0 for magic in magics)
        yield from (reader if begins else read_any)(reading)

    return read


def _read_json(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file that is named as JSON. Its first lines show whether it has a value on each line."""
    first, second = _first_lines(reading)
    yield from (read_jsonl if second and _is_object(first) else read_json)(reading)


def _read_jsonl(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file that is named as JSONL. Its first line shows whether it is one value on many lines.

    Such a value is an array, or an object whose first line is its brace.
    """
    first, _ = _first_lines(reading)
    yield from (read_json if first.startswith("[") or first == "{" else read_jsonl)(reading)


def _read_xml(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file that is named as XML. Its content shows whether it is the dump of a site."""
    yield from _reader_of_xml(_head(reading.stream))(reading)


def _reader_of_xml(head: bytes) -> Reader:
    return read_dump if is_dump(head) else read_xml


def _read_typescript(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a file that is named as TypeScript. Its content shows whether it is XML of Qt."""
    yield from (read_xml if _XML_BEGINS.match(_head(reading.stream)) else read_code)(reading)


def _first_lines(reading: Reading) -> tuple[str, str]:
    """Return the first two lines that are not empty. A line that is missing or too long is returned as ""."""
    try:
        with closing(lines(reading.stream, reading.options.encoding, reading.options.max_size)) as numbered:
            found = islice((line and line.strip() for _, line in numbered if line is None or line.strip()), 2)
            first, second = (line or "" for line in islice(chain(found, repeat("")), 2))
            return first, second
    except DataError:
        return "", ""
    finally:
        reading.stream.seek(0)


def _is_object(line: str) -> bool:
    """Return True if a line is a JSON object. Of a long line, only the ends are examined."""
    if not (line.startswith("{") and line.endswith("}")):
        return False
    try:
        return len(line) > HEAD_BYTES or isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


_PACKAGE_MAGICS = (b"PK\3\4", b"PK\5\6", b"\xd0\xcf\x11\xe0")
"""The beginnings of a package, and of an Office file that is encrypted or old, which the readers of packages report."""
PDF_MAGIC_WITHIN = 1_024
"""The number of bytes that may precede the mark of a PDF."""
_PACKAGES: Mapping[str, Reader] = {
    ".docm": read_docx,
    ".docx": read_docx,
    ".epub": read_epub,
    ".odp": read_odt,
    ".ods": read_ods,
    ".odt": read_odt,
    ".pptm": read_pptx,
    ".pptx": read_pptx,
    ".xlsm": read_xlsx,
    ".xlsx": read_xlsx,
}
_MARKDOWN = frozenset({".markdown", ".md"})
_XML = ".atom .dbk .dita .fb2 .gpx .kml .opml .plist .rdf .rss .tmx .xlf .xliff .xml".split()
READERS: Mapping[str, Reader] = {
    "": read_any,
    **dict.fromkeys((*GRAMMARS, *BY_LINES), read_code),
    **dict.fromkeys(_XML, _read_xml),
    **dict.fromkeys(FORMATS, read_entries),
    **{extension: _if_begins(reader, _PACKAGE_MAGICS) for extension, reader in _PACKAGES.items()},
    ".ass": read_transcript,
    ".csv": read_csv,
    ".eml": read_message,
    ".emlx": read_apple_message,
    ".enex": read_enex,
    ".geojson": _read_json,
    ".har": _read_json,
    ".htm": read_html,
    ".html": read_html,
    ".ics": read_calendar,
    ".ipynb": read_notebook,
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".lrc": read_transcript,
    ".markdown": _read_plain,
    ".mbox": read_mail,
    ".mht": read_message,
    ".mhtml": read_message,
    ".md": _read_plain,
    ".mdx": read_markdown,
    ".ndjson": _read_jsonl,
    ".nws": read_message,
    ".parquet": read_parquet,
    ".pdf": _if_begins(read_pdf, [b"%PDF-"], within=PDF_MAGIC_WITHIN),
    ".qmd": read_markdown,
    ".rmd": read_markdown,
    ".rst": read_rst,
    ".rtf": read_rtf,
    ".sbv": read_transcript,
    ".srt": read_transcript,
    ".ssa": read_transcript,
    ".svg": read_svg,
    ".text": _read_plain,
    ".ts": _read_typescript,
    ".tsv": read_csv,
    ".txt": _read_plain,
    ".vcf": read_contacts,
    ".vtt": read_transcript,
    ".warc": read_warc,
    ".xhtml": read_html,
}
"""The reader of each extension. The reader for "" reads all other sources."""


def _holds_rows(stream: BinaryIO, options: LoadOptions | None) -> bool:
    """Return True if one of the first lines is a JSON object. If there are options, it must have a text by them."""
    try:
        with closing(lines(stream, None, LONGEST_SNIFFED_LINE)) as numbered:
            first = list(islice((line for _, line in numbered if line is None or line.strip()), SNIFFED_LINES))
    except DataError:
        return False
    finally:
        stream.seek(0)
    return any(line is not None and _is_row(line, options) for line in first)


def _is_row(line: str, options: LoadOptions | None) -> bool:
    try:
        row = json.loads(line)
        return isinstance(row, dict) and (options is None or has_text(row, options))
    except (ValueError, RecursionError):
        return False
