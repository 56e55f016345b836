"""The reader of archives of web pages (WARC), as wget and other crawlers write them. Each page is a document.

An archive is larger than a document, so it is read record by record. Pictures, styles and scripts are passed over.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import BinaryIO

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import BLOCK_BYTES, unix_lines
from context_agent.retrieval.loaders.headings import marked_headings
from context_agent.retrieval.loaders.html_text import declared_charset, read_page
from context_agent.retrieval.loaders.outlines import Lines, text_captions
from context_agent.retrieval.loaders.reading import LeftOutError, Reading, decoded, document, identifier, storable
from context_agent.types import Document

MOST_FIELDS = 200
"""Maximum number of header fields of a record or of a response."""
LONGEST_FIELD_LINE = 8_192
"""Maximum number of bytes of a header field."""
MOST_CHUNKS = 100_000
"""Maximum number of chunks in which a server sent a page."""
_RECORDS = frozenset({"conversion", "resource", "response"})
"""The types of records that hold a page or its text."""
_PAGES = frozenset({"application/xhtml+xml", "text/html"})
_GZIP_OR_ZLIB = 47
"""The `wbits` with which zlib finds out by itself how data was compressed."""

Fields = Mapping[str, str]
"""Header fields by their names in lower case."""


def read_warc(reading: Reading) -> Iterator[Document]:
    """Yield the pages of an archive. If a record is damaged, the pages before it are read."""
    count = 0
    for fields, body in _records(reading):
        try:
            page = _page(reading, fields, body)
        except DataError as error:
            reading.skip(f"page {_address(fields)[:200]}: {error}")
        else:
            if page is not None:
                count += 1
                yield page
    if not count:
        raise LeftOutError("the archive contains no page with text")


def _records(reading: Reading) -> Iterator[tuple[Fields, bytes]]:
    """Yield the fields and the content of each record that may hold a page. It is at most one byte above the limit."""
    most = reading.options.max_size + 1
    number = 0
    while first := reading.stream.readline(LONGEST_FIELD_LINE):
        if not first.strip():
            continue
        number += 1
        lines: list[bytes] = []
        while (line := reading.stream.readline(LONGEST_FIELD_LINE)).strip() and len(lines) < MOST_FIELDS:
            lines.append(line)
        fields = _fields(lines)
        size = fields.get("content-length", "")
        if not first.startswith(b"WARC/") or not (size.isascii() and size.isdecimal() and len(size) < 16):
            raise DataError(f"record {number:,} is damaged, so the rest of the archive was not read")
        body = reading.stream.read(min(int(size), most))
        _pass(reading.stream, int(size) - len(body))
        if fields.get("warc-type") in _RECORDS:
            yield fields, body


def _pass(stream: BinaryIO, size: int) -> None:
    """Read and drop so many bytes."""
    while size > 0 and (block := stream.read(min(size, BLOCK_BYTES))):
        size -= len(block)


def _fields(lines: list[bytes]) -> Fields:
    pairs = (line.decode("utf-8", "replace").partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _address(fields: Fields) -> str:
    return storable(fields.get("warc-target-uri", "").strip("<>"))


def _page(reading: Reading, record: Fields, body: bytes) -> Document | None:
    """Return the document of a record. If it holds no page, return None.

    Raises:
        DataError: If the page is too large, or cannot be unpacked or decoded.
    """
    fields = record
    most = reading.options.max_size
    is_too_large = len(body) > most
    if record["warc-type"] == "response":
        head, _, body = body.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")[: MOST_FIELDS + 1]
        if status.split(b" ")[1:2] != [b"200"]:
            return None
        fields = _fields(lines)
    kind, _, parameters = fields.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if kind not in {*_PAGES, "text/plain"}:
        return None
    if is_too_large:
        raise DataError(reading.options.too_large("the page"))
    data = _unpacked(reading, fields, body)
    charset = parameters.lower().partition("charset=")[2].strip("\"' ;") or None
    text = unix_lines(decoded(reading, data, charset or declared_charset(data)).text)
    title, headings = "", None
    if kind in _PAGES:
        title, text, headings = read_page(text, navigation=False)
    if not text.strip():
        return None
    address = _address(record)
    text = storable(text)
    captions = text_captions(
        text, Lines.LIST, headings=marked_headings(text, "page", known=headings or ()), title=title
    )
    metadata = {"url": address[:2_000], "date": storable(record.get("warc-date", ""))[:30]}
    stated = {name: value for name, value in metadata.items() if value}
    whole = document(reading, text, title or address, stated, captions=captions)
    return replace(whole, id=f"{whole.id}#{identifier(address)[:200]}")


def _unpacked(reading: Reading, fields: Fields, body: bytes) -> bytes:
    """Return the content of a response as its server had it."""
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body = _joined(body)
    packing = fields.get("content-encoding", "").lower()
    if packing in {"", "identity"}:
        return body
    if packing not in {"deflate", "gzip", "x-gzip"}:
        raise DataError(f"it is packed with {packing[:20]}, which is not supported. Save it again without packing.")
    most = reading.options.max_size
    try:
        data = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, most + 1)
    except zlib.error as error:
        raise DataError(f"it cannot be unpacked ({error})") from None
    if len(data) > most:
        raise DataError(reading.options.too_large("the page"))
    return data


def _joined(body: bytes) -> bytes:
    """Return the content of a response that was sent in chunks. Some programs join the chunks already."""
    parts: list[bytes] = []
    position = 0
    while len(parts) < MOST_CHUNKS:
        end = body.find(b"\r\n", position, position + 64)
        try:
            size = int(body[position:end].split(b";")[0], 16) if end > position else -1
        except ValueError:
            size = -1
        if size < 0:
            return body if not parts else b"".join(parts)
        if size == 0:
            break
        parts.append(body[end + 2 : end + 2 + size])
        position = end + 2 + size + 2
    return b"".join(parts)
