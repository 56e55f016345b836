"""Email messages: what they say, without the text that they quote.

Messages that are attached to them are part of the text. Other attachments are listed by name and not read.

Messages come from strangers. The standard library takes time quadratic in the length of some fields and in the depth of
MIME parts. So this module splits a message into parts itself. The library parses one field at a time, of at most
`LONGEST_FIELD` bytes, or `LONGEST_PARAMETERS` for fields with parameters.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses, parsedate_to_datetime
from io import BytesIO
from itertools import starmap
from pathlib import PurePath

from context_agent.errors import DataError, reason_of
from context_agent.retrieval.loaders.decoding import decode, decoded_as, unix_lines
from context_agent.retrieval.loaders.html_text import page_text
from context_agent.retrieval.loaders.metadata import LARGEST_FIELD
from context_agent.retrieval.loaders.quoted_replies import is_forward, without_blockquotes, without_quoted_replies
from context_agent.retrieval.loaders.reading import Reading, content, document, storable
from context_agent.types import Document

MOST_NAMES = 50
"""Maximum number of people and attachments of a message that are kept. They are stored with every chunk."""
LONGEST_FIELD = 20_000
"""Maximum number of bytes of a header field that are read."""
LONGEST_PARAMETERS = 2_000
"""Maximum number of bytes of a field with parameters that are read."""
LONGEST_DATE = 100
LARGEST_HEADER = 200_000
"""Maximum number of bytes of a header that are read, in all fields that matter. A field may be repeated."""
MOST_PARTS = 1_000
DEEPEST_PART = 10
"""Maximum number of levels of nested parts."""
_HEADER = re.compile(rb"(?:From [^\n]*+\n)?(?:(?:[!-9;-~]*+:|[ \t])[^\n]*+(?:\n|\Z))*+")
"""All lines at the beginning of a message or part that are fields, or continue one."""
_FIELD = re.compile(rb"^([!-9;-~]++):[^\n]*+(?:\n[ \t][^\n]*+)*+", re.M)
_LIMITS = {
    **dict.fromkeys((b"from", b"to", b"cc", b"subject", b"message-id", b"references", b"in-reply-to"), LONGEST_FIELD),
    **dict.fromkeys((b"content-type", b"content-disposition", b"content-transfer-encoding"), LONGEST_PARAMETERS),
    b"date": LONGEST_DATE,
}
_AFTER_BOUNDARY = re.compile(rb"(--)?[ \t]*+(?:\n|\Z)")
_APPLE_SIZE = re.compile(rb"(\d{1,12})[ \t]{0,20}\r?\n")
_IDENTIFIER = re.compile(r"<([^<>\s]+)>")
_UUENCODED = re.compile(r"^begin [0-7]{3,4} (\S[^\n]{0,254})\n(?:[ -`]{0,90}+\n)*+end[ \t]*+$", re.M)
"""A file inside a text, as mail programs attached it before MIME."""
LONGEST_STUB, LEAST_FULLER = 200, 4
"""Maximum number of characters of a plain text that only says that the message is a page, and the factor by which the
page must be longer.
"""


@dataclass(frozen=True, slots=True)
class MailMessage:
    """One message.

    Attributes:
        id: The Message-ID without brackets.
        references: Message-IDs of the messages that it answers, without brackets.
        subject: The subject.
        sender: The sender.
        people: Sender and recipients, the sender first.
        date: The date in ISO 8601. It is empty if it is not known.
        text: The message's own text.
        attachments: Names of the attachments.
        notices: Notices about what was left out because it exceeds a limit.
    """

    id: str
    references: tuple[str, ...]
    subject: str
    sender: str
    people: tuple[str, ...]
    date: str
    text: str
    attachments: tuple[str, ...]
    notices: tuple[str, ...] = ()

    @property
    def text_with_header(self) -> str:
        """The sender, recipients, date, subject and attachments, one per line, followed by the text."""
        lines = {
            "From": self.sender,
            "To": ", ".join(person for person in self.people[:MOST_NAMES] if person != self.sender),
            "Date": self.date,
            "Subject": self.subject,
            "Attachments": ", ".join(self.attachments[:MOST_NAMES]),
        }
        header = "\n".join(f"{name}: {value}" for name, value in lines.items() if value)
        return f"{header}\n\n{self.text}".strip()


def may_be_mail(path: str) -> bool:
    """Return True if a mail program may have written the file: it has no extension, or a name as in a Maildir."""
    file = PurePath(path)
    return not file.suffix or ":2," in file.name or file.parent.name in {"cur", "new"}


def begins_message(head: bytes) -> bool:
    """Return True if the bytes begin with the header of a message: its sender, and its date or Message-ID."""
    names = field_names(head)
    return b"from" in names and not names.isdisjoint({b"date", b"message-id"})


def field_names(head: bytes) -> set[bytes]:
    """Return the names of the header fields at the beginning, in lower case."""
    header = _HEADER.match(head.replace(b"\r\n", b"\n"))
    return {name.lower() for name in _FIELD.findall(header[0])} if header else set()


def read_message(reading: Reading) -> Iterator[Document]:
    """Yield the message of a file, titled by its subject."""
    try:
        mail = parse_message(content(reading))
    except DataError:
        raise
    except Exception as error:  # a broken message makes the parser raise nearly anything
        raise DataError(f"the message cannot be read ({type(error).__name__}: {reason_of(error)})") from error
    for notice in mail.notices:
        reading.note_once(notice)
    entries = {"from": mail.sender, "participants": "; ".join(mail.people[:MOST_NAMES]), "date": mail.date}
    metadata = {name: storable(value)[:LARGEST_FIELD] for name, value in entries.items() if value}
    yield document(reading, mail.text_with_header, mail.subject, metadata)


def read_apple_message(reading: Reading) -> Iterator[Document]:
    """Yield the message of a file of Apple Mail: the size of the message in a line, the message, and a property list.

    If the file does not begin with a size, it is read as a message.
    """
    data = content(reading)
    if size := _APPLE_SIZE.match(data):
        reading.stream = BytesIO(data[size.end() : size.end() + int(size[1])])
    else:
        reading.stream.seek(0)
    yield from read_message(reading)


def parse_message(data: bytes) -> MailMessage:
    """Return the message in these bytes.

    Raises:
        DataError: If they have no message header.
    """
    reader = _Reader(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    fields = reader.whole.fields
    if not any(fields[name] for name in ("From", "Date", "Subject", "Message-ID", "To")):
        raise DataError(
            "the file is not an email message, because it has none of the fields From, To, Date, Subject and Message-ID"
        )
    return replace(reader.message(reader.whole, DEEPEST_PART), notices=tuple(reader.notices))


@dataclass(frozen=True, slots=True)
class _Part:
    """A message, or a part of one, with its fields and the span of its body in the data."""

    fields: Message
    start: int
    end: int


@dataclass(slots=True)
class _Reader:
    """A parser of the parts of a message, whose lines end in newlines."""

    data: bytes
    notices: list[str] = field(default_factory=list)
    whole: _Part = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self.whole = self._part(0, len(self.data))

    def message(self, whole: _Part, levels: int) -> MailMessage:
        """Return a message, with the messages that it contains at the end of its text."""
        fields = whole.fields
        subject = _decode_header(next(iter(_field_values(fields, "Subject")), ""))
        forwards = is_forward(subject)
        texts: list[str] = []
        contained: list[str] = []
        attached: list[str] = []
        for part, depth in self._leaves(whole, levels):
            kind = part.fields.get_content_type()
            name = _decode_header(part.fields.get_filename() or "")
            if kind == "message/rfc822" and depth and not _is_encoded(part.fields):
                inner = self.message(self._part(part.start, part.end), depth - 1)
                contained.append(f"Attached message:\n{inner.text_with_header}")
            elif part.fields.get_content_disposition() == "attachment" or not kind.startswith(("text/", "multipart/")):
                if kind.startswith("message/") or name:
                    attached.append(name or f"a message ({kind})")
            elif (text := self._text(part, with_quotes=forwards)).strip():
                attached += (found[1].strip() for found in _UUENCODED.finditer(text))
                text = _UUENCODED.sub("", text)
                texts.append(text.strip() if forwards else without_quoted_replies(text))
        sender = _people(fields, "From")
        references = _identifiers(fields, "References") + _identifiers(fields, "In-Reply-To")
        return MailMessage(
            id=next(iter(_identifiers(fields, "Message-ID")), ""),
            references=tuple(dict.fromkeys(references)),
            subject=subject,
            sender=next(iter(sender), ""),
            people=tuple(dict.fromkeys((*sender, *_people(fields, "To"), *_people(fields, "Cc")))),
            date=_sent_at(fields),
            text="\n\n".join(texts + contained).strip(),
            attachments=tuple(attached),
        )

    def _part(self, start: int, end: int) -> _Part:
        """Return the part in [start, end). Fields that matter are shortened to their limits."""
        header = _HEADER.match(self.data, start, end)
        body = header.end() if header else start
        kept: list[bytes] = []
        size = 0
        for line in _FIELD.finditer(self.data, start, body):
            limit = _LIMITS.get(line[1].lower(), 0)
            length = line.end() - line.end(1)
            if limit < length and limit:
                self._note(f"field {line[1].decode()} has more than {limit:,} bytes, so its rest is left out")
            if not limit:
                continue
            kept.append(self.data[line.start() : min(line.end(), line.end(1) + limit)])
            size += len(kept[-1])
            if size > LARGEST_HEADER:
                self._note(f"a header has more than {LARGEST_HEADER:,} bytes, so its last fields are left out")
                break
        return _Part(BytesHeaderParser().parsebytes(b"\n".join(kept)), body + self.data.startswith(b"\n", body), end)

    def _leaves(self, part: _Part, levels: int) -> Iterator[tuple[_Part, int]]:
        """Yield the parts with content, and the levels that may be inside each.

        Of alternatives, only one is yielded. A multipart whose parts cannot be found is yielded as a text.
        """
        if (inner := self._inner(part, levels)) is None:
            yield part, levels
            return
        if part.fields.get_content_subtype() == "alternative" and inner:
            inner = [self._alternative(inner)]
        for leaf in inner:
            yield from self._leaves(leaf, levels - 1)

    def _alternative(self, parts: list[_Part]) -> _Part:
        """Return the plain text, or else the last part. The calendar of an invitation does not count.

        A plain text that only says that the message is a page does not count either.
        """
        plain = (part for part in parts if part.fields.get_content_type() == "text/plain")
        words, chosen = next(((text, part) for part in plain if (text := self._text(part).strip())), ("", None))
        readable = [part for part in parts if part.fields.get_content_type() != "text/calendar"] or parts
        if chosen is None:
            return readable[-1]
        if len(words) <= LONGEST_STUB:
            pages = (part for part in parts if part.fields.get_content_type() == "text/html")
            least = max(LONGEST_STUB, LEAST_FULLER * len(words))
            return next((page for page in pages if len(self._text(page)) > least), chosen)
        return chosen

    def _inner(self, part: _Part, levels: int) -> list[_Part] | None:
        """Return the parts of a multipart.

        If the part has no inner parts, or its boundary does not occur, return None. A contained message counts as one
        part.
        """
        boundary = part.fields.get_boundary() if part.fields.get_content_maintype() == "multipart" else None
        if not boundary:
            return None
        if not levels:
            self._note(f"parts are nested in more than {DEEPEST_PART} levels, so the deeper ones are left out")
            return []
        inner: list[_Part] = []
        for start, end in self._sections(part, b"\n--" + boundary.encode("utf-8", "surrogateescape")):
            self._count += 1
            if self._count > MOST_PARTS:
                self._note(f"the message has more than {MOST_PARTS:,} parts, so the others are left out")
                return inner
            inner.append(self._part(start, end))
        return inner or None

    def _sections(self, part: _Part, delimiter: bytes) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each section between boundaries."""
        start, at = None, part.start - 1  # the line break before the body may be part of the delimiter
        while (at := self.data.find(delimiter, at, part.end)) >= 0:
            after = at + len(delimiter)
            if not (matched := _AFTER_BOUNDARY.match(self.data, after, part.end)):
                at = after
                continue
            if start is not None:
                yield start, max(start, at)
            if matched[1]:
                return
            start, at = matched.end(), matched.end() - 1
        if start is not None and start < part.end:
            yield start, part.end

    def _text(self, part: _Part, *, with_quotes: bool = False) -> str:
        """Return the text of a part. The quotes in a page are left out, unless nothing else remains."""
        fields = part.fields
        data = _transfer_decoded(self.data[part.start : part.end], str(fields.get("Content-Transfer-Encoding", "")))
        text = unix_lines(_decode_bytes(data, fields.get_content_charset()))
        if text.count("\ufffd") > data.count("\ufffd".encode()):
            self._note("characters of a message were replaced, because it does not declare the encoding that it has")
        if fields.get_content_subtype() != "html":
            return text
        return ("" if with_quotes else page_text(without_blockquotes(text))[1]) or page_text(text)[1]

    def _note(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)


def _is_encoded(fields: Message) -> bool:
    return str(fields.get("Content-Transfer-Encoding", "")).strip().lower() in {"base64", "quoted-printable"}


def _transfer_decoded(data: bytes, encoding: str) -> bytes:
    """Return the bytes after decoding base64 or quoted-printable. Damaged or plain bytes are returned unchanged."""
    try:
        match encoding.strip().lower():
            case "base64":
                return binascii.a2b_base64(data + b"===")
            case "quoted-printable":
                return binascii.a2b_qp(data)
    except binascii.Error:
        pass
    return data


def _decode_bytes(data: bytes, charset: str | None) -> str:
    """Return the bytes as text.

    They are decoded with the part's charset if that works, or else by detection, or else with replacement characters.
    """
    text = decoded_as(data, charset or "utf-8")
    if text is not None:
        return text
    try:
        return decode(data).text
    except DataError:
        return data.decode("utf-8", "replace")


def _field_values(fields: Message, name: str) -> list[str]:
    """Return the field's values. Bytes beyond ASCII are decoded as text is."""
    values = [str(value) for key, value in fields.raw_items() if key.lower() == name.lower()]
    return [
        value if value.isascii() else _decode_bytes(value.encode("utf-8", "surrogateescape"), None) for value in values
    ]


def _decode_header(raw: str) -> str:
    """Return the words of a header. Encoded words are decoded if possible."""
    try:
        text = "".join(starmap(_decode_word, decode_header(raw)))
    except (MessageError, ValueError):
        text = raw
    return " ".join(text.split())


def _decode_word(word: str | bytes, charset: str | None) -> str:
    """Return a part of a header as `decode_header` splits it. It encodes plain text beside encoded words itself."""
    if isinstance(word, str):
        return word
    if charset:
        return _decode_bytes(word, charset)
    try:
        return word.decode("raw-unicode-escape")
    except UnicodeDecodeError:  # a backslash in the text
        return word.decode("latin-1")


def _people(fields: Message, name: str) -> list[str]:
    """Return the people in a field as `Name <address>`, or as the part that is present."""
    try:
        pairs = [(_decode_header(person), address) for person, address in getaddresses(_field_values(fields, name))]
    except RecursionError:  # comments inside each other
        return []
    return [
        f"{person} <{address}>" if person and address else person or address
        for person, address in pairs
        if person or address
    ]


def _identifiers(fields: Message, name: str) -> list[str]:
    return _IDENTIFIER.findall(" ".join(_field_values(fields, name)))


def _sent_at(fields: Message) -> str:
    try:
        return parsedate_to_datetime(str(fields["Date"])).isoformat()
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""
