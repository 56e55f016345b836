"""E-mail: `.eml` files, mbox files and maildir folders; a document for each thread (`email`) or message
(`email-messages`).

Replies are read without the text that they quote. Attachments are listed by name and not read. Messages belong to one
thread if one refers to the other (`References`, `In-Reply-To`), also through a missing message. Threads need all
messages at once, so their text is held in memory; single messages are streamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message as Parsed
from email.utils import getaddresses, parsedate_to_datetime
from functools import partial
from hashlib import blake2b

from context_agent.errors import DataError
from context_agent.retrieval.loaders import LoadOptions, LoadReport, Readable, Reader, load
from context_agent.retrieval.loaders.files import decode, storable, unix_lines
from context_agent.retrieval.loaders.markup import page_text, tags
from context_agent.retrieval.loaders.report import Reading
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.types import Document, MetadataValue

MOST_NAMES = 50
"""People and attachments of a document that are kept: they are stored with every chunk."""
_BOUNDARY = re.compile(rb"From .*\d{1,2}:\d{2}.*\b\d{4}\b|From \S+@\S+")
_ESCAPED = re.compile(rb"^>(>*From )")
_REPLY = re.compile(r"^(?:\s*(?:re|fw|fwd|aw|wg|sv|antw)\s*(?:\[\d+\])?\s*:)+\s*", re.I)


def read_mail(reading: Reading) -> Iterator[Document]:
    """The messages of a file as documents: of an mbox if it starts with a `From ` line, else of one message."""
    head = reading.stream.read(5)
    reading.stream.seek(0)
    messages = 0
    for number, raw in enumerate(_messages(reading) if head == b"From " else [reading.stream.read()], start=1):
        try:
            mail = parse_message(raw)
        except DataError as error:
            if head != b"From ":
                raise
            reading.skip(f"message {number}: {error}")
        except Exception as error:  # noqa: BLE001 (a broken message makes the parser raise nearly anything)
            reading.skip(f"message {number} cannot be read: {type(error).__name__}: {error}")
        else:
            messages += 1
            yield _document(mail, raw)
    if head == b"From " and not messages:
        raise DataError("the file has no e-mail message")


def _messages(reading: Reading) -> Iterator[bytes]:
    """The messages of an mbox, read line by line. Both ways of quoting `From ` are undone (mboxo and mboxrd)."""
    lines: list[bytes] = []
    blank, started = True, False
    for line in reading.stream:
        if blank and line.startswith(b"From ") and (not started or _BOUNDARY.match(line)):
            if started:
                yield b"".join(lines)
            lines, started = [], True
        else:
            lines.append(_ESCAPED.sub(rb"\1", line))
        blank = not line.strip()
    yield b"".join(lines)


def _document(mail: MailMessage, raw: bytes) -> Document:
    """A message as a document. Its id is made from the Message-ID, so copies in several folders are one."""
    identifier = mail.id or blake2b(raw, digest_size=16).hexdigest()
    head = {
        "From": mail.sender,
        "To": ", ".join(person for person in mail.people[:MOST_NAMES] if person != mail.sender),
        "Date": mail.date,
        "Subject": mail.subject,
        "Attachments": ", ".join(mail.attachments[:MOST_NAMES]),
    }
    lines = "\n".join(f"{name}: {value}" for name, value in head.items() if value)
    metadata: dict[str, MetadataValue] = {
        "message_id": identifier,
        "references": " ".join(mail.references),
        "participants": "; ".join(mail.people[:MOST_NAMES]),
        "date": mail.date,
        "attachments": "; ".join(mail.attachments[:MOST_NAMES]),
    }
    return Document(
        f"mail/{_digest(identifier)}",
        storable(f"{lines}\n\n{mail.text}".strip()),
        storable(mail.subject or "(no subject)"),
        {name: storable(str(value)) for name, value in metadata.items() if value},
    )


def load_threads(
    sources: Readable | Iterable[Readable], *, options: LoadOptions | None = None, report: LoadReport | None = None
) -> Iterator[Document]:
    """A document for each thread with its messages by date; `report.documents` counts threads."""
    report = report if report is not None else LoadReport()
    before = report.documents
    threads = _threads(list(load(sources, options=options, report=report, readers=READERS)))
    report.documents = before
    for thread in threads:
        report.documents += 1
        yield _thread_document(thread)


def _threads(messages: list[Document]) -> list[list[Document]]:
    """The messages by thread, in order of first arrival: messages that refer to each other belong together."""
    parent: dict[str, str] = {}

    def root(message_id: str) -> str:
        while (above := parent.setdefault(message_id, message_id)) != message_id:
            parent[message_id] = parent[above]
            message_id = above
        return message_id

    for message in messages:
        message_id = str(message.metadata["message_id"])
        for reference in str(message.metadata.get("references", "")).split():
            parent[root(reference)] = root(message_id)
    grouped: dict[str, list[Document]] = {}
    for message in messages:
        grouped.setdefault(root(str(message.metadata["message_id"])), []).append(message)
    return list(grouped.values())


def _thread_document(thread: list[Document]) -> Document:
    ordered = sorted(thread, key=lambda message: (_timestamp(str(message.metadata.get("date", ""))), message.id))
    people = dict.fromkeys(
        person for message in ordered for person in str(message.metadata.get("participants", "")).split("; ") if person
    )
    attached = dict.fromkeys(
        name for message in ordered for name in str(message.metadata.get("attachments", "")).split("; ") if name
    )
    dates = [str(message.metadata["date"]) for message in ordered if message.metadata.get("date")]
    metadata: dict[str, MetadataValue] = {
        "participants": "; ".join(list(people)[:MOST_NAMES]),
        "messages": len(ordered),
        "date": dates[0] if dates else "",
        "until": dates[-1] if dates else "",
        "attachments": "; ".join(list(attached)[:MOST_NAMES]),
    }
    return Document(
        f"thread/{_digest(str(ordered[0].metadata['message_id']))}",
        "\n\n----\n\n".join(message.text for message in ordered),
        _REPLY.sub("", ordered[0].title) or ordered[0].title,
        {name: value for name, value in metadata.items() if value},
    )


def _timestamp(date: str) -> float:
    """Seconds since 1970; a date without a zone counts as UTC, and messages without a date come last."""
    if not date:
        return float("inf")
    moment = datetime.fromisoformat(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _digest(message_id: str) -> str:
    return blake2b(message_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


READERS: dict[str, Reader] = {".eml": read_mail, ".mbox": read_mail, ".mbx": read_mail, "": read_mail}
"""Maildir file names have no known extension, so every other file is tried as a message."""
_TRUTH_TYPES = (
    TruthType("person", "who wrote, decided, asked or is to do something"),
    TruthType("date", "a date, time or deadline"),
    TruthType("decision", "what was agreed or decided"),
    TruthType("amount", "a price, budget or quantity with its unit"),
    TruthType("organization", "a company, team or department"),
    TruthType("place", "a place, room or address"),
    TruthType("document", "the name of a file, contract, ticket or report"),
    TruthType("reason", "a short reason or cause that somebody stated"),
)
_HINTS = {
    "explore": "Follow people and subjects from thread to thread: who answered, what was decided later.",
    "write": "Describe people by what they did in a thread; give neither subject lines nor addresses.",
    "verify": "Quote the message itself, not what it quotes of another.",
    "distract": "Threads of the same people on a like subject are the hardest to tell apart.",
}
EMAIL = Domain("email", "E-mail, a document a thread.", load_threads, _TRUTH_TYPES, _HINTS, max_hops=3)
MESSAGES = Domain(
    "email-messages", "E-mail, a document a message.", partial(load, readers=READERS), _TRUTH_TYPES, _HINTS, max_hops=3
)


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
        subject=_field(parsed, "Subject"),
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


def _field(parsed: Parsed, name: str) -> str:
    return _decode_header(next(iter(_field_values(parsed, name)), ""))


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
