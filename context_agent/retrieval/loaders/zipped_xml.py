"""Zipped XML: the code that the readers of Word, PowerPoint, Excel and EPUB files share.

Such a file may unpack to any size, so the directory of the archive is checked first. `LoadOptions.max_mb` bounds its
XML. `check_unpacked` and `LARGEST_FILE` bound the rest. The readers take text from a stream of XML events and keep no
tree. A part that is named several times is read once, and characters are counted as they are produced. Time and memory
therefore depend only on the size of the XML.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote
from xml.parsers.expat import ExpatError

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import BLOCK_BYTES, unix_lines
from context_agent.retrieval.loaders.headings import marked_headings
from context_agent.retrieval.loaders.metadata import LARGEST_FIELD
from context_agent.retrieval.loaders.outlines import Lines, text_captions
from context_agent.retrieval.loaders.reading import SAVE_AGAIN, Reading, document, named, one_line, storable
from context_agent.retrieval.loaders.titles import meaningful_title, placed_title
from context_agent.retrieval.loaders.unpacking import LARGEST_FILE, check_unpacked
from context_agent.retrieval.loaders.xml_events import Event, Grammar, Kind, grammar, xml_events
from context_agent.types import Document, MetadataValue

MOST_MEMBERS = 10_000
"""Maximum number of members of an archive."""
XML_SUFFIXES = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm")
"""The suffixes of parts that contain XML."""
_ENTRY_MARK = b"PK\1\2"
"""The first bytes of an entry in an archive's directory."""
_COMPOUND_MARK = b"\xd0\xcf\x11\xe0"
"""The first bytes of an Office file with a password, and of one in a format before 2007 (MS-CFB)."""
_MANIFEST = "META-INF/manifest.xml"
ENCRYPTED = "the file is encrypted. Save it without a password."
_HEADING = re.compile(r"^#{1,6} ([^\n]++)", re.MULTILINE)
_RELATIONSHIPS = grammar(root="Relationships", Relationships="Relationship")
_PROPERTIES = grammar(root="coreProperties", coreProperties="title creator created modified")


class Relationship(NamedTuple):
    """A link of one part to another: the last word of its type, and the name of the part."""

    kind: str
    target: str


class Package:
    """An archive whose directory has been checked.

    The names of parts differ in more than letter case (ECMA-376 part 2). Some programs for Windows write backslashes.
    """

    def __init__(self, archive: zipfile.ZipFile, reading: Reading) -> None:
        self._archive = archive
        self._reading = reading
        self._options = reading.options
        self._packed = sum(member.compress_size for member in archive.infolist())
        self._members = {_folded(name): name for name in archive.NameToInfo}
        self._read: set[str] = set()
        self._unpacked = 0
        """Bytes of the parts that were read. Each part is counted once."""

    def events(self, part: str, elements: Grammar | None) -> Iterator[Event]:
        """Yield the XML events of a part. Raise `KeyError` if the part is missing."""
        self._count(part)
        with self._archive.open(self._member(part)) as stream:
            yield from xml_events(stream, elements)

    def __contains__(self, part: str) -> bool:
        return self._member(part) in self._archive.NameToInfo

    def _member(self, part: str) -> str:
        """Return the name of a part as the archive spells it. If the part is missing, return the name as it is."""
        return part if part in self._archive.NameToInfo else self._members.get(_folded(part), part)

    def data(self, part: str) -> bytes:
        """Return the bytes of a part. Raise `KeyError` if the part is missing."""
        self._count(part)
        return self._archive.read(self._member(part))

    def _count(self, part: str) -> None:
        """Raise `DataError` if the parts that are read are too large. A part of any name may contain XML."""
        if part not in self._read:
            self._read.add(part)
            self._unpacked += self._archive.getinfo(self._member(part)).file_size
        if self._unpacked > self._options.max_size:
            raise DataError(self._options.too_large("the unpacked XML of the file"))

    def relationships(self, part: str = "") -> dict[str, Relationship]:
        """Return the relationships of a part by id, without those that lead out of the package.

        The name "" means the package itself.
        """
        folder, name = posixpath.split(part)
        file = posixpath.join(folder, "_rels", f"{name}.rels")
        if file not in self:
            return {}
        links = {}
        for event in self.events(file, _RELATIONSHIPS):
            is_external = event.attributes.get("TargetMode", "Internal") != "Internal"
            if event.name == "Relationship" and event.kind is Kind.START and not is_external:
                target = resolved(folder, event.attributes.get("Target", ""))
                kind = event.attributes.get("Type", "").rpartition("/")[2]
                links[event.attributes.get("Id", "")] = Relationship(kind, target)
        return links

    def main_part(self) -> str:
        """Return the name of the document's main part. Raise `ValueError` if there is none."""
        if part := self.linked(self.relationships(), "officeDocument"):
            return part
        raise ValueError("the package has no main part")

    def linked(self, links: dict[str, Relationship], kind: str) -> str:
        """Return the first part of that kind that is in the package. If there is none, return an empty string."""
        targets = (link.target for link in links.values() if link.kind == kind)
        return next((target for target in targets if target in self), "")

    def properties(self) -> dict[str, MetadataValue]:
        """Return title, author and dates of an Office file."""
        part = self.linked(self.relationships(), "core-properties")
        texts = first_texts(self.events(part, _PROPERTIES)) if part else {}
        return stated_properties(*(texts.get(name, "") for name in ("title", "creator", "created", "modified")))

    def each(self, parts: Iterable[str], kind: str, read: Callable[[str], Iterator[str]]) -> Iterator[str]:
        """Yield the texts that `read` finds in each part. Parts that are missing or damaged are reported.

        If parts are damaged and none can be read, raise the error of the first one.

        Args:
            parts: The names of the parts.
            kind: The noun for such a part.
            read: The function that yields the texts of a part.
        """
        count, failures = 0, dict[str, Exception]()
        for part in parts:
            if part not in self:
                self._reading.skip(f"the {kind} {_shown(part)} is missing in the file")
                continue
            try:
                yield from read(part)
                count += 1
            except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, ExpatError) as error:
                failures[part] = error
        for part, failure in failures.items():
            if not count:
                raise failure
            self._reading.skip(f"the {kind} {_shown(part)} cannot be read ({named(failure)})")

    def joined(self, parts: Iterable[str]) -> str:
        """Return the nonempty parts, separated by blank lines. If they exceed the limit, raise `DataError`."""
        texts, size = [], 0
        for part in parts:
            if stripped := part.strip():
                texts.append(stripped)
                size += len(stripped) + 2
                self.check_size(size)
        return "\n\n".join(texts)

    def check_size(self, characters: int) -> None:
        """Raise `DataError` if a document with this many characters is too large, or far larger than the file."""
        if characters > self._options.max_size:
            raise DataError(self._options.too_large("the text of the file"))
        check_unpacked(characters, self._packed)


def _folded(name: str) -> str:
    return name.replace("\\", "/").casefold()


def _shown(part: str) -> str:
    return one_line(storable(part))


def resolved(folder: str, target: str) -> str:
    """Return the name of the part at a target.

    A relative target starts at `folder`, the folder of the part that names it.
    """
    path = posixpath.join("/", folder, unquote(target.partition("#")[0]))
    return posixpath.normpath(path).lstrip("/")


def stated_properties(title: str, author: str, created: str, modified: str) -> dict[str, MetadataValue]:
    """Return the properties that a file states.

    A date that is not in ISO 8601 is left out, and so is a title that a program made up.
    """
    fields = {
        "title": meaningful_title(title),
        "author": author,
        "created": _date(created),
        "modified": _date(modified),
    }
    return {name: value for name, value in fields.items() if value}


def first_texts(events: Iterator[Event]) -> dict[str, str]:
    """Return the first text of each element that has one, on one line and shortened to `LARGEST_FIELD` characters."""
    texts: dict[str, str] = {}
    pieces: list[str] = []
    for event in events:
        if event.kind is Kind.TEXT:
            pieces.append(event.text[:LARGEST_FIELD])
            continue
        if event.kind is Kind.END and event.name not in texts:
            text = " ".join("".join(pieces[:LARGEST_FIELD]).split())[:LARGEST_FIELD]
            if text:
                texts[event.name] = storable(text)
        pieces.clear()
    return texts


SHEET_TITLE_CHARACTERS = 4_000
"""The number of characters at the beginning of a spreadsheet's text in which its title is searched."""


def table(rows: Iterable[Iterable[str]]) -> str:
    """Return a line for each nonempty row, with ` | ` between its cells."""
    lines = (" | ".join(" ".join(cell.split()) for cell in row).rstrip("| ") for row in rows)
    return "\n".join(line for line in lines if line)


def package_document(reading: Reading, text: str, title: str, metadata: Mapping[str, MetadataValue]) -> Document:
    """Return the document of a package. Its headings and the headers of its tables become captions."""
    text = storable(unix_lines(text))
    captions = text_captions(text, Lines.LIST, headings=marked_headings(text, "page"), title=title)
    return document(reading, text, placed_title(reading, title), metadata, captions=captions)


def first_heading(text: str) -> str:
    """Return the first heading of the text. If there is none, return an empty string."""
    return found[1].strip() if (found := _HEADING.search(text)) else ""


def table_title(text: str) -> str:
    """Return the title above the table of the first sheet of a text. If there is none, return an empty string.

    A title is a row with one cell, and a row below it has several.
    """
    first, *below = text[:SHEET_TITLE_CHARACTERS].partition("\n## ")[0].splitlines()[2:] or [""]
    return first if " | " not in first and any(" | " in row for row in below) else ""


@contextmanager
def opened_package(reading: Reading) -> Iterator[Package]:
    """Check the archive, open it and yield it. If anything is wrong with the file, raise `DataError`."""
    try:
        _check_entries(reading.stream)
        with zipfile.ZipFile(reading.stream) as archive:
            _check_members(reading, archive.infolist())
            _check_manifest(archive)
            yield Package(archive, reading)
    except DataError:
        raise
    except Exception as error:  # a broken file makes `zipfile` and the readers raise nearly anything
        kind = reading.path.rpartition(".")[2]
        raise DataError(f"the {kind} file cannot be read ({named(error)}). {SAVE_AGAIN}") from error


def _check_entries(stream: BinaryIO) -> None:
    """Raise `DataError` if the file is encrypted, or if the archive has too many members.

    The members are counted before the directory is parsed.
    """
    size = count = 0
    before = b""
    while block := stream.read(BLOCK_BYTES):
        size += len(block)
        if size > LARGEST_FILE:
            raise DataError(f"the file has more than {LARGEST_FILE // 2**20} MB. Remove its pictures, or split it.")
        count += (before + block).count(_ENTRY_MARK)
        before = block[-len(_ENTRY_MARK) + 1 :]
    stream.seek(0)
    if stream.read(len(_COMPOUND_MARK)) == _COMPOUND_MARK:
        raise DataError("the file is encrypted or in an old format. Save it without a password in a current format.")
    stream.seek(0)
    _check_count(count)


def _check_count(members: int) -> None:
    if members > MOST_MEMBERS:
        raise DataError(f"the file has {members:,} members, more than {MOST_MEMBERS:,}, so it is not a document")


def _check_members(reading: Reading, members: list[zipfile.ZipInfo]) -> None:
    _check_count(len(members))
    if any(member.flag_bits & 1 for member in members):
        raise DataError(ENCRYPTED)
    if any(member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} for member in members):
        raise DataError("the members of the file are not packed as in a document. Save it again.")
    total = sum(member.file_size for member in members)
    if total > LARGEST_FILE:
        raise DataError(f"the file unpacks to more than {LARGEST_FILE // 2**20} MB. Remove its pictures, or split it.")
    if (
        sum(member.file_size for member in members if member.filename.lower().endswith(XML_SUFFIXES))
        > reading.options.max_size
    ):
        raise DataError(reading.options.too_large("the unpacked XML of the file"))
    check_unpacked(total, sum(member.compress_size for member in members))


def _check_manifest(archive: zipfile.ZipFile) -> None:
    """Raise `DataError` if an OpenDocument file is encrypted. Its members are then ordinary ones."""
    if _MANIFEST in archive.NameToInfo and b"encryption-data" in archive.read(_MANIFEST):
        raise DataError(ENCRYPTED)


def _date(text: str) -> str:
    """Return a date in ISO 8601. If the text is not a date, return an empty string."""
    try:
        return datetime.fromisoformat(text).isoformat().removesuffix("T00:00:00") if len(text) <= 40 else ""
    except ValueError:
        return ""
