"""The source that a reader reads, and the functions with which all readers make documents of it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import BinaryIO
from urllib.parse import quote

from context_agent.errors import DataError, reason_of
from context_agent.retrieval.loaders.decoding import Decoded, declared_encoding, decode, unix_lines
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.retrieval.loaders.report import MAX_LISTED_NOTICES, LoadReport
from context_agent.types import Caption, Document, MetadataValue, Section

SAVE_AGAIN = "If another program opens it, save it again there."
"""What to do about a damaged file of a packed format."""
LONGEST_TITLE = 1_000
"""Maximum number of characters of a title."""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TERMINAL_CODE = re.compile(
    r"\x1b(?:\[[0-?]{0,40}+[ -/]{0,4}+[@-~]|\][^\x07\x1b\n]{0,2000}+(?:\x07|\x1b\\)|[()][0-9A-Z]|[=>78])"
)
"""A code that colors text on a terminal, moves its cursor or makes a link. It would be a part of the word behind it."""
_UNSAFE = re.compile(r"[^\w./@+~,=-]")


class LeftOutError(DataError):
    """The error for a file of a folder that is left out because of its kind. All such files have the same reason."""


@dataclass(slots=True)
class Reading:
    """A source that a reader reads.

    Attributes:
        name: The name of the source in notices.
        path: The path below the source folder, or the file's name. The extension of a compression is left out.
        stream: The open stream, which is seekable.
        options: The options of the load.
        report: The report that gets the reader's notices.
        found: True for a file that was found in a folder, False for a source that the user named.
        users: The names of the users of exported workspaces by their ids, by the folder of their list. All sources of a
            load share them.
        packing: The extension of the compression, such as `.gz`, which follows `path` in the name of the file.
    """

    name: str
    path: str
    stream: BinaryIO
    options: LoadOptions
    report: LoadReport
    found: bool = False
    users: dict[str, dict[str, str]] = field(default_factory=dict)
    packing: str = ""
    _noted: set[str] = field(default_factory=set)

    def skip(self, reason: str, line: int | None = None) -> None:
        """Report a row or page that is left out."""
        self.report.skip(self.name, reason, line)

    def note_once(self, reason: str) -> None:
        """Report a fact that applies to many rows and loses no text. It is reported only once."""
        if reason not in self._noted:
            if len(self._noted) < MAX_LISTED_NOTICES:
                self._noted.add(reason)
            self.report.note(self.name, reason)


def identifier(path: str) -> str:
    """Return a relative path as a document id. Letters of any script stay, and special characters are percent-encoded.

    Different paths have different ids. Accents may be composed or decomposed, depending on the file system, so both
    forms have the same id.
    """
    composed = unicodedata.normalize("NFC", path)
    return _UNSAFE.sub(lambda match: quote(match[0], safe="", errors="surrogateescape"), composed)


def storable(text: str) -> str:
    """Return the text with U+FFFD in place of each NUL and lone surrogate, which no database accepts."""
    return _UNSTORABLE.sub("\ufffd", text)


def content(reading: Reading) -> bytes:
    """Return all bytes of the source. If there are more than the options allow, raise `DataError`."""
    data = reading.stream.read(reading.options.max_size + 1)
    if len(data) > reading.options.max_size:
        raise DataError(reading.options.too_large("the file, which is one document,"))
    return data


def decoded(reading: Reading, data: bytes, declared: str | None = None, *, guess: bool = True) -> Decoded:
    """Return the bytes as text without the codes of a terminal, with a notice if the encoding was guessed.

    If the bytes are not text, raise `DataError`.
    """
    text = decode(data, reading.options.encoding, declared or declared_encoding(data), guess=guess)
    if text.note:
        reading.note_once(text.note)
    return replace(text, text=_TERMINAL_CODE.sub("", text.text)) if "\x1b" in text.text else text


def document(
    reading: Reading,
    text: str,
    title: str = "",
    metadata: Mapping[str, MetadataValue] | None = None,
    sections: tuple[Section, ...] = (),
    *,
    captions: tuple[Caption, ...] = (),
    pages: tuple[int, ...] = (),
) -> Document:
    """Return the document of a file, with its path in the source folder as metadata.

    Args:
        reading: The source.
        text: The text.
        title: The title. Defaults to the file's name without its extension.
        metadata: Further metadata.
        sections: The sections of the text.
        captions: The names of its parts.
        pages: The offsets of its pages.

    Raises:
        LeftOutError: If the text is empty.
    """
    text = storable(unix_lines(text))
    if not text.strip():
        raise LeftOutError("the file is empty: it contains no text")
    title = one_line(title) or PurePath(reading.path).stem
    path = reading.path + reading.packing
    return Document(
        identifier(path),
        text,
        storable(title),
        {**(metadata or {}), "path": storable(path)},
        sections,
        captions,
        pages,
    )


def one_line(title: str) -> str:
    """Return a title on one line, shortened to `LONGEST_TITLE` characters. It is stored with every chunk."""
    line = " ".join(title[: 2 * LONGEST_TITLE].split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 3] + "..."


def named(error: Exception) -> str:
    """Return the error's class and message."""
    return f"{type(error).__name__}: {reason_of(error)}" if str(error) else type(error).__name__
