"""E-mail messages: what they say, without the text that they quote. Attachments are listed by name and not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message as Parsed
from email.utils import getaddresses, parsedate_to_datetime

from context_agent.errors import DataError
from context_agent.retrieval.loaders.files import content, decode, document, storable, unix_lines
from context_agent.retrieval.loaders.markup import page_text, tags
from context_agent.retrieval.loaders.sources import Reading
from context_agent.types import Document

MOST_NAMES = 50
"""People and attachments of a message that are kept: they are stored with every chunk."""
_ATTRIBUTION = re.compile(
    r"^[ \t]*(?:On\b.{4,200}\bwrote|Am\b.{4,200}\bschrieb\b.{0,80}|Le\b.{4,200}\ba écrit|El\b.{4,200}\bescribió)"
    r"\s*:[ \t]*$",
    re.M | re.S | re.I,
)
_ORIGINAL = re.compile(
    r"^[ \t]*(?:-{2,}\s*(?:Original Message|Original-Nachricht|Ursprüngliche Nachricht|Message d'origine)\s*-{2,}"
    r"|_{10,})[ \t]*$|^From:[^\n]*\n(?:Sent|Date):[^\n]*\n(?:To|Cc|Subject):",
    re.M | re.I,
)
_QUOTED = re.compile(r"^[ \t]*>.*$\n?", re.M)
_IDENTIFIER = re.compile(r"<([^<>\s]+)>")


@dataclass(frozen=True, slots=True)
class MailMessage:
    """One message. `id` and `references` are Message-IDs without brackets; `date` is ISO 8601, "" if unknown.

    `text` is the message's own text, `people` are sender and recipients, the sender first.
    """

    id: str
    references: tuple[str, ...]
    subject: str
    sender: str
    people: tuple[str, ...]
    date: str
    text: str
    attachments: tuple[str, ...]

    @property
    def text_with_header(self) -> str:
        """Sender, recipients, date, subject and attachments, a line each, and the text."""
        lines = {
            "From": self.sender,
            "To": ", ".join(person for person in self.people[:MOST_NAMES] if person != self.sender),
            "Date": self.date,
            "Subject": self.subject,
            "Attachments": ", ".join(self.attachments[:MOST_NAMES]),
        }
        header = "\n".join(f"{name}: {value}" for name, value in lines.items() if value)
        return f"{header}\n\n{self.text}".strip()


def read_message(reading: Reading) -> Iterator[Document]:
    """The message of a file, titled by its subject."""
    try:
        mail = parse_message(content(reading))
    except DataError:
        raise
    except Exception as error:  # a broken message makes the parser raise nearly anything
        raise DataError(f"not a readable message: {type(error).__name__}: {error}") from error
    entries = {"from": mail.sender, "participants": "; ".join(mail.people[:MOST_NAMES]), "date": mail.date}
    metadata = {name: storable(value) for name, value in entries.items() if value}
    yield document(reading, mail.text_with_header, mail.subject, metadata)


def parse_message(data: bytes) -> MailMessage:
    """The message in these bytes. Raises `DataError` if it has no message header."""
    parsed = message_from_bytes(data)
    if not any(parsed[name] for name in ("From", "Date", "Subject", "Message-ID", "To")):
        raise DataError("not an e-mail message: it has none of the fields From, Date, Subject and Message-ID")
    texts, attachments = _contents(parsed)
    sender = _people(parsed, "From")
    references = _identifiers(parsed, "References") + _identifiers(parsed, "In-Reply-To")
    return MailMessage(
        id=next(iter(_identifiers(parsed, "Message-ID")), ""),
        references=tuple(dict.fromkeys(references)),
        subject=_decode_header(next(iter(_field_values(parsed, "Subject")), "")),
        sender=next(iter(sender), ""),
        people=tuple(dict.fromkeys((*sender, *_people(parsed, "To"), *_people(parsed, "Cc")))),
        date=_sent_at(parsed),
        text="\n\n".join(texts).strip(),
        attachments=attachments,
    )


def without_quoted_replies(text: str) -> str:
    """The text without quoted lines and their attribution; all of it if nothing else is left (a bare forward)."""
    words = text
    if cut := _ORIGINAL.search(words):
        words = words[: cut.start()]
    words = _QUOTED.sub("", _without_attributions(words))
    words = re.sub(r"\n{3,}", "\n\n", words).strip()
    return words or text.strip()


def _without_attributions(text: str) -> str:
    """Without the lines that introduce a quote, if a quote follows."""
    parts, position = [], 0
    for match in _ATTRIBUTION.finditer(text):
        if match.start() >= position and text[match.end() :].lstrip().startswith(">"):
            # "On" may begin a sentence long before: only the last lines of the match announce.
            start = max(match.start(), text.rfind("\n\n", 0, match.end()) + 1)
            parts.append(text[position:start])
            position = match.end()
    return "".join((*parts, text[position:]))


def _contents(parsed: Parsed) -> tuple[list[str], tuple[str, ...]]:
    """The texts of the message and the names of its attachments."""
    texts: list[str] = []
    attached: list[str] = []
    for part in _leaves(parsed):
        name = _decode_header(part.get_filename() or "")
        if part.get_content_disposition() == "attachment" or part.get_content_maintype() != "text":
            if part.get_content_maintype() == "message" or name:
                attached.append(name or f"a message ({part.get_content_type()})")
            continue
        if (text := _part_text(part)).strip():
            texts.append(without_quoted_replies(text))
    return texts, tuple(attached)


def _leaves(part: Parsed) -> Iterator[Parsed]:
    """The parts with content; of alternatives the plain text, else the last one. A contained message is one part."""
    if not part.is_multipart() or part.get_content_maintype() == "message":
        yield part
        return
    inner = [leaf for leaf in part.get_payload() if isinstance(leaf, Parsed)]
    if part.get_content_subtype() == "alternative" and inner:
        plain = [leaf for leaf in inner if leaf.get_content_type() == "text/plain" and _part_text(leaf).strip()]
        inner = plain[:1] or inner[-1:]
    for leaf in inner:
        yield from _leaves(leaf)


def _part_text(part: Parsed) -> str:
    data = part.get_payload(decode=True)
    raw = data if isinstance(data, bytes) else b""
    text = unix_lines(_decode_bytes(raw, part.get_content_charset()))
    return page_text(_without_blockquotes(text))[1] if part.get_content_subtype() == "html" else text


def _decode_bytes(data: bytes, charset: str | None) -> str:
    """Decoded with the part's charset if that works, else by detection, else with replacement characters."""
    try:
        return data.decode(charset or "utf-8")
    except (LookupError, UnicodeError):
        pass
    try:
        return decode(data).text
    except DataError:
        return data.decode("utf-8", "replace")


def _without_blockquotes(page: str) -> str:
    """An HTML message without its `<blockquote>`s, which hold quoted replies."""
    parts, position, depth = [], 0, 0
    for tag in tags(page):
        if tag.name != "blockquote":
            continue
        if not tag.closing:
            if depth == 0:
                parts.append(page[position : tag.start])
            depth += 1
        elif depth:
            depth -= 1
        position = tag.end if depth == 0 else position
    return "".join(parts) if depth else "".join((*parts, page[position:]))


def _field_values(parsed: Parsed, name: str) -> list[str]:
    """The field's values; bytes beyond ASCII are decoded as text is."""
    values = [str(value) for key, value in parsed.raw_items() if key.lower() == name.lower()]
    return [
        value if value.isascii() else _decode_bytes(value.encode("utf-8", "surrogateescape"), None) for value in values
    ]


def _decode_header(raw: str) -> str:
    """The words of a header; encoded words are decoded if possible."""
    try:
        text = str(make_header(decode_header(raw)))
    except (LookupError, UnicodeError, ValueError):
        text = raw
    return " ".join(text.split())


def _people(parsed: Parsed, name: str) -> list[str]:
    """The people in a field: `Name <address>`, or the part that is there."""
    pairs = [(_decode_header(person), address) for person, address in getaddresses(_field_values(parsed, name))]
    return [
        f"{person} <{address}>" if person and address else person or address
        for person, address in pairs
        if person or address
    ]


def _identifiers(parsed: Parsed, name: str) -> list[str]:
    return _IDENTIFIER.findall(" ".join(_field_values(parsed, name)))


def _sent_at(parsed: Parsed) -> str:
    try:
        return parsedate_to_datetime(str(parsed["Date"])).isoformat()
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""
