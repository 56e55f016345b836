"""Bytes to text, or a reason why they are none.

In order: the encoding that the caller names; a byte order mark (UTF-8, UTF-16, UTF-32); UTF-8; UTF-8 with a few damaged
characters, replaced; Windows-1252, where the bytes above ASCII are no more than in Western European text. A NUL without
a byte order mark, or many control characters, are taken for something else than text. A legacy encoding of another
script is refused rather than read as gibberish.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import BinaryIO

from context_agent.errors import DataError

BLOCK = 2**20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like UTF-16's, so it comes first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_HIGH = bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text, the encoding it was in, and what the user should hear about it ("" mostly)."""

    text: str
    encoding: str
    note: str = ""


def decode(data: bytes, encoding: str | None = None, declared: str | None = None) -> Decoded:
    """The text of `data`; `declared` is what a page says of itself, tried when it is not UTF-8. Raises `DataError`."""
    if encoding or (encoding := marked(data)):
        try:
            return Decoded(data.decode(encoding), encoding)
        except (UnicodeError, ValueError) as error:
            raise DataError(f"not text: no valid {encoding} ({error})") from error
    if b"\0" in data:
        raise DataError("not text: holds NUL bytes")
    try:
        decoded = Decoded(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        decoded = _declared(data, declared) or _damaged(data) or _western(data)
    sample = decoded.text[:BLOCK]
    if len(_CONTROL.findall(sample)) > len(sample) / 50:
        raise DataError("not text: full of control characters")
    return decoded


def marked(data: bytes) -> str | None:
    """The encoding that a byte order mark at the beginning tells."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)


def _declared(data: bytes, encoding: str | None) -> Decoded | None:
    try:
        return Decoded(data.decode(encoding), encoding) if encoding else None
    except (LookupError, UnicodeError, ValueError):
        return None


def _damaged(data: bytes) -> Decoded | None:
    """UTF-8 in which a few characters are broken: many more beyond ASCII are whole."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    whole = sum(not letter.isascii() for letter in text) - broken
    return Decoded(text, "utf-8", f"{broken} damaged characters replaced") if whole > 4 * broken else None


def _western(data: bytes) -> Decoded:
    high = len(data) - len(data.translate(None, _HIGH))
    try:
        if high > 0.3 * len(data):
            raise DataError("not text: neither UTF-8 nor UTF-16, and too far from Windows-1252; name its encoding")
        return Decoded(data.decode("cp1252"), "cp1252", "read as Windows-1252, since it is not UTF-8")
    except UnicodeDecodeError as error:
        raise DataError("not text: neither UTF-8, UTF-16 nor Windows-1252; name its encoding") from error


def stream_encoding(stream: BinaryIO, encoding: str | None) -> tuple[str, str]:
    """The encoding of a seekable stream and the note on it, read in blocks and rewound. Raises `DataError`."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while block := stream.read(BLOCK):
            if encoding or (encoding := marked(block) if stream.tell() == len(block) else None):
                return encoding, ""
            if b"\0" in block:
                raise DataError("not text: holds NUL bytes")
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                decoded = decode(block)
                return decoded.encoding, decoded.note
        return "utf-8", ""
    finally:
        stream.seek(0)


def storable(text: str) -> str:
    """`text` with NULs and lone surrogates, which no database takes, replaced by U+FFFD one for one."""
    return _UNSTORABLE.sub("\ufffd", text)


def unix_lines(text: str) -> str:
    """`text` with every line ending in a single newline."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
