"""Readers of text, Markdown, reStructuredText, HTML and PDF, where a file is one document, and what all readers share.

Bytes are decoded, in this order, by the encoding that the caller names; by a byte order mark (UTF-8, UTF-16, UTF-32);
as UTF-8; as UTF-8 with a few damaged characters, which are replaced; as Windows-1252, if it has no more bytes above
ASCII than Western European text. Bytes with a NUL but no byte order mark, or with many control characters, are not
text. A legacy encoding of another script is refused rather than read as gibberish.

Front matter may come from strangers: it is read with YAML's safe loader, without aliases, which could unfold to any
size, and up to `LARGEST_FRONT` characters and `DEEPEST_FRONT` levels. What is not valid YAML, or not a list of fields,
stays in the text.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO

from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.loaders.markup import declared_charset, page_text
from context_agent.retrieval.loaders.sources import Reading, identifier
from context_agent.retrieval.loaders.unpacking import LARGEST_FILE, check_unpacked
from context_agent.types import Document, MetadataValue, Section

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader


LARGEST_FIELD = 10_000
"""Characters of a metadata value."""
LONGEST_TITLE = 1_000
"""Characters of a title."""
LARGEST_FRONT = 16_384
"""Characters at the beginning of a file in which front matter must end."""
DEEPEST_FRONT = 32
"""Lists and mappings inside each other: the time that YAML takes grows with the square of their number."""
MOST_FRONT_EVENTS = 1_500
"""Values, lists and mappings of front matter, begun or ended: YAML takes a twentieth of a second for as many."""
_FRONT = re.compile(r"---[ \t]*\n(.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Return the text with each NUL and lone surrogate, which no database accepts, replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def metadata_value(reading: Reading, key: str, value: object) -> MetadataValue | None:
    """Return the value as metadata can hold it; None for an empty value or one that is too large."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if (isinstance(value, int) and -(2**63) <= value < 2**63) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes):
        reading.note_once(f"field {key[:50]!r} contains bytes: left out of the metadata")
        return None
    text = storable(_as_text(value))
    if len(text) <= LARGEST_FIELD:
        return text
    reading.note_once(f"field {key[:50]!r} has values above {LARGEST_FIELD:,} characters: left out of the metadata")
    return None


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_as_text)
    if isinstance(value, date | time):  # `datetime` is a `date`
        return value.isoformat()
    return str(value)


def split_front_matter(reading: Reading, text: str) -> tuple[dict[str, MetadataValue], str]:
    """Return the fields of the front matter as metadata, and the text below it; ({}, text) if there is none.

    Front matter that cannot be read is reported and stays in the text.
    """
    matched = _FRONT.match(text[:LARGEST_FRONT])
    if matched is None:
        return {}, text
    try:
        fields = _fields(matched[1])
        values = {storable(str(key)): metadata_value(reading, str(key), value) for key, value in (fields or {}).items()}
    except Exception as error:  # noqa: BLE001 - values such as 2024-13-45 make YAML raise nearly anything
        reading.note_once(f"its front matter stays in the text: {_problem(error)}")
        return {}, text
    if fields is None:
        return {}, text
    return {key: value for key, value in values.items() if value is not None}, text[matched.end() :].lstrip("\n")


def _fields(front: str) -> Mapping[Any, Any] | None:
    """Return the fields; None if the text between the lines is no list of fields, but for example a paragraph."""
    import yaml

    depth = 0
    for number, event in enumerate(yaml.parse(front, Loader=yaml.SafeLoader)):
        if number > MOST_FRONT_EVENTS:
            raise ValueError(f"it has more than {MOST_FRONT_EVENTS:,} values and marks of lists and fields")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_FRONT:
            raise ValueError(f"nested too deeply (more than {DEEPEST_FRONT} levels)")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases (*name)")  # noqa: TRY004
    value = yaml.safe_load(front)
    return value if isinstance(value, dict) else {} if value is None and not front.strip() else None


def _problem(error: Exception) -> str:
    """Return the error in one line."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 2} is not valid YAML: {error.problem}"
    return str(error) or type(error).__name__


_HEADING = re.compile(r"^#{1,6}[ \t]+([^\n]*)", re.MULTILINE)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_RST_HEADING = re.compile(
    r"^(?:([=\-~^\"'#*+`:._])\1{2,}[ \t]*\n[ \t]*(\S[^\n]*)\n\1{3,}[ \t]*$"
    r"|([^\s=\-~^\"'#*+`:.][^\n]*)\n([=\-~^\"'#*+`:._])\4{2,}[ \t]*$)",
    re.MULTILINE,
)
"""A title with a line of punctuation below it, or above and below."""
MOST_PAGES = 20_000
LARGEST_PAGE = 4 * 2**20
"""Bytes of a PDF page's content, unpacked."""
MOST_OPERATIONS = 1_000_000
"""Drawing operations of a PDF page, including those of its forms, which may nest."""
FRONT = 16_384
"""Characters of a Markdown file that are searched for its title."""
BLOCK = 2**20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like UTF-16's, so it comes first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LONGEST_ENCODING = 40
"""Characters of an encoding's name."""
_NO_ENCODINGS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python that no text is stored in. Some take time quadratic in the length."""
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_HIGH = bytes(range(0x80, 0x100))


def read_text(reading: Reading) -> Iterator[Document]:
    """Yield the unchanged text, titled by the file's name."""
    yield document(reading, decoded(reading, content(reading)).text)


def read_markdown(reading: Reading) -> Iterator[Document]:
    """Yield the source without its front matter, which becomes metadata, titled by `title` there or by the first
    heading.
    """
    front, text = split_front_matter(reading, unix_lines(decoded(reading, content(reading)).text))
    title = str(front.pop("title", "")) or markdown_title(text[:FRONT])
    yield document(reading, text, title, front)


def read_rst(reading: Reading) -> Iterator[Document]:
    """Yield the unchanged reStructuredText, titled by its first heading."""
    text = unix_lines(decoded(reading, content(reading)).text)
    heading = next((match[2] or match[3] for match in _RST_HEADING.finditer(text[:FRONT])), "")
    yield document(reading, text, heading)


def read_html(reading: Reading) -> Iterator[Document]:
    """Yield the page's text, titled by `<title>` or the first `<h1>`."""
    data = content(reading)
    title, text = page_text(unix_lines(decoded(reading, data, declared_charset(data)).text))
    yield document(reading, text, title)


def read_pdf(reading: Reading) -> Iterator[Document]:
    """Yield the text of all pages with blank lines between them, titled by the file's metadata. Needs the extra
    `docs`.
    """
    packed = reading.stream.seek(0, io.SEEK_END)
    if packed > LARGEST_FILE:
        raise DataError(f"has more than {LARGEST_FILE // 2**20} MB: split it")
    with _without_warnings("pypdf"):
        reader, count = _opened_pdf(reading)
        if count > MOST_PAGES:
            raise DataError(f"has {count:,} pages, more than {MOST_PAGES:,}: split it")
        pages: list[str] = []
        size = 0
        drawn = _Drawn(packed)
        for number in range(count):
            pages.append(_page(reading, reader, number, drawn))
            drawn.check()
            size += len(pages[-1])
            if size > reading.options.max_size:
                raise DataError(reading.options.too_large("its text"))
        text = "\n\n".join(page for page in pages if page)
        if not text.strip():
            raise DataError(f"no text in its {len(pages)} pages (a scan needs character recognition first)")
        title = _pdf_title(reader)
    yield document(reading, text, title, {"pages": len(pages)})


@contextmanager
def _without_warnings(name: str) -> Iterator[None]:
    """Keep a library's logger quiet: a hostile file makes it log a line for every few bytes."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def content(reading: Reading) -> bytes:
    """Return all bytes of the source. Raises `DataError` for more than the options allow."""
    data = reading.stream.read(reading.options.max_size + 1)
    if len(data) > reading.options.max_size:
        raise DataError(reading.options.too_large("the file, which is one document,"))
    return data


def decoded(reading: Reading, data: bytes, declared: str | None = None) -> Decoded:
    """Return the bytes as text, with a notice if the encoding was guessed. Raises `DataError` for bytes that are not
    text.
    """
    text = decode(data, reading.options.encoding, declared)
    if text.note:
        reading.note_once(text.note)
    return text


def document(
    reading: Reading,
    text: str,
    title: str = "",
    metadata: Mapping[str, MetadataValue] | None = None,
    sections: tuple[Section, ...] = (),
) -> Document:
    """Return the file's document, with its path in the source folder as metadata. Raises `DataError` if the text is
    empty.
    """
    text = storable(unix_lines(text))
    if not text.strip():
        raise DataError("empty: contains no text")
    title = one_line(title) or PurePath(reading.path).stem
    return Document(
        identifier(reading.path),
        text,
        storable(title),
        {**(metadata or {}), "path": storable(reading.path)},
        sections,
    )


def one_line(title: str) -> str:
    """Return a title on one line, of at most `LONGEST_TITLE` characters: it is stored with every chunk."""
    line = " ".join(title[: 2 * LONGEST_TITLE].split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 3] + "..."


def markdown_title(text: str) -> str:
    """Return the first heading outside of fenced code; "" without one."""
    heading = _HEADING.search(_FENCED.sub("", text))
    return heading[1].strip().rstrip("#").strip() if heading else ""


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
        raise DataError(f"not a readable PDF: {named(error)}") from error
    if locked:
        raise DataError("encrypted: needs a password")
    return reader, count


def _page(reading: Reading, reader: PdfReader, number: int, drawn: _Drawn) -> str:
    """One page's text; a broken page is reported and left out."""
    try:
        page = reader.pages[number]
        drawn.begin(page)
        return page.extract_text(visitor_operand_before=drawn).strip()
    except Exception as error:  # noqa: BLE001 - as above
        reason = str(error) if isinstance(error, DataError) else f"is damaged: {named(error)}"
        reading.skip(f"page {number + 1} {reason}")
        return ""


class _Drawn:
    """Counts what the pages of a file unpack to: their content, and the operations of the forms in it.

    It is called with each operation. A page that has too much is left out; a file that has too much for its size is not
    read further, since one page or form may be named again and again.
    """

    def __init__(self, packed: int) -> None:
        self._packed = packed
        self._total = self._operations = 0

    def begin(self, page: PageObject) -> None:
        """Count the content of a page. Raise `DataError` if it is too large."""
        self._operations = 0
        contents = page.get_contents()
        size = len(contents.get_data()) if contents is not None else 0
        self._total += size
        if size > LARGEST_PAGE:
            raise DataError(f"unpacks to more than {LARGEST_PAGE // 2**20} MB: it is left out")
        self.check()

    def __call__(self, *operation: object) -> None:
        self._operations += 1
        self._total += 1
        if self._operations > MOST_OPERATIONS:
            raise DataError(f"has more than {MOST_OPERATIONS:,} drawing operations: it is left out")
        self.check()

    def check(self) -> None:
        """Raise `DataError` if the file unpacks to too much for its size."""
        check_unpacked(self._total, self._packed)


def _pdf_title(reader: PdfReader) -> str:
    try:
        title: Any = reader.metadata.title if reader.metadata else ""
    except Exception:  # noqa: BLE001 - as above; a title is no reason to lose the text
        return ""
    return title if isinstance(title, str) else ""


def named(error: Exception) -> str:
    """Return the error with its class."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text, its encoding, and a notice for the user (mostly empty)."""

    text: str
    encoding: str
    note: str = ""


def decode(data: bytes, encoding: str | None = None, declared: str | None = None) -> Decoded:
    """Return the text of `data`; `declared` is a page's own encoding, used if it is not UTF-8. Raises `DataError`."""
    if encoding or (encoding := marked(data)):
        try:
            return Decoded(data.decode(encoding), encoding)
        except (UnicodeError, ValueError) as error:
            raise DataError(f"not text: no valid {encoding} ({error})") from error
    if b"\0" in data:
        raise DataError("not text: contains NUL bytes")
    try:
        decoded = Decoded(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        decoded = _declared(data, declared) or _damaged(data) or _western(data)
    sample = decoded.text[:BLOCK]
    if len(_CONTROL.findall(sample)) > len(sample) / 50:
        raise DataError("not text: full of control characters")
    return decoded


def marked(data: bytes) -> str | None:
    """Return the encoding of the byte order mark at the beginning; None without one."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)


def _declared(data: bytes, encoding: str | None) -> Decoded | None:
    text = decoded_as(data, encoding) if encoding else None
    return None if text is None else Decoded(text, str(encoding))


def decoded_as(data: bytes, encoding: str) -> str | None:
    """Return the bytes decoded by an encoding that they name themselves; None if that fails or is none of texts."""
    try:
        if len(encoding) > LONGEST_ENCODING or codecs.lookup(encoding).name in _NO_ENCODINGS:
            return None
        return data.decode(encoding)
    except (LookupError, UnicodeError, ValueError):
        return None


def _damaged(data: bytes) -> Decoded | None:
    """UTF-8 in which a few characters are broken: many more beyond ASCII are intact."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    intact = sum(not letter.isascii() for letter in text) - broken
    return Decoded(text, "utf-8", f"{broken} damaged characters replaced") if intact > 4 * broken else None


def _western(data: bytes) -> Decoded:
    high = len(data) - len(data.translate(None, _HIGH))
    try:
        if high > 0.3 * len(data):
            raise DataError("not text: neither UTF-8, UTF-16 nor Windows-1252; pass --encoding")
        return Decoded(data.decode("cp1252"), "cp1252", "read as Windows-1252, since it is not UTF-8")
    except UnicodeDecodeError as error:
        raise DataError("not text: neither UTF-8, UTF-16 nor Windows-1252; pass --encoding") from error


def stream_encoding(stream: BinaryIO, encoding: str | None) -> tuple[str, str]:
    """Return the encoding of a seekable stream and the note on it, read in blocks and rewound. Raises `DataError`."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while block := stream.read(BLOCK):
            if encoding or (encoding := marked(block) if stream.tell() == len(block) else None):
                return encoding, ""
            if b"\0" in block:
                raise DataError("not text: contains NUL bytes")
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                decoded = decode(block)
                return decoded.encoding, decoded.note
        return "utf-8", ""
    finally:
        stream.seek(0)


def unix_lines(text: str) -> str:
    """Return the text with every line ending in a single newline."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
