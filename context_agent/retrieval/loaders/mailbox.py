"""The reader of mail files: one message, or many in the mbox format. Each message is a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b

from context_agent.errors import DataError, reason_of
from context_agent.retrieval.loaders.decoding import BLOCK_BYTES
from context_agent.retrieval.loaders.mail import MOST_NAMES, MailMessage, field_names, parse_message
from context_agent.retrieval.loaders.metadata import LARGEST_FIELD
from context_agent.retrieval.loaders.reading import Reading, content, one_line, storable
from context_agent.types import Document, MetadataValue

_BOUNDARY = re.compile(rb"From .*\d{1,2}:\d{2}.*\b\d{4}\b|From \S+@\S+")
LONGEST_FROM = 1_000
"""Maximum number of bytes of a `From ` line that are compared."""
_ESCAPED = re.compile(rb"^>(>*From )")


def begins_mailbox(head: bytes) -> bool:
    """Return True if the bytes begin with a `From ` line and a header that names the sender."""
    first, _, rest = head.partition(b"\n")
    return bool(_BOUNDARY.match(first[:LONGEST_FROM])) and b"from" in field_names(rest)


def read_mail(reading: Reading) -> Iterator[Document]:
    """Yield the messages of a file. If it starts with a `From ` line, it is an mbox. Otherwise it is one message."""
    head = reading.stream.read(5)
    reading.stream.seek(0)
    messages = 0
    for number, raw in enumerate(_messages(reading) if head == b"From " else [content(reading)], start=1):
        try:
            if len(raw) > reading.options.max_size:
                raise DataError(reading.options.too_large("the message"))  # noqa: TRY301
            mail = parse_message(raw)
        except DataError as error:
            if head != b"From ":
                raise
            reading.skip(f"message {number}: {error}")
        except Exception as error:  # noqa: BLE001 (a broken message makes the parser raise nearly anything)
            reading.skip(f"message {number} cannot be read ({type(error).__name__}: {reason_of(error)})")
        else:
            messages += 1
            for notice in mail.notices:
                reading.note_once(f"message {number}: {notice}")
            yield _document(mail, raw)
    if head == b"From " and not messages:
        raise DataError("the file contains no email message")


def _messages(reading: Reading) -> Iterator[bytes]:
    """Yield the messages of an mbox, which is read line by line.

    Both ways of escaping `From ` are undone (mboxo and mboxrd). If a message exceeds the size limit, the rest of it is
    dropped.
    """
    lines: list[bytes] = []
    blank, started, size, line_begins = True, False, 0, True
    while line := reading.stream.readline(BLOCK_BYTES):
        if (
            line_begins
            and blank
            and line.startswith(b"From ")
            and (not started or _BOUNDARY.match(line[:LONGEST_FROM]))
        ):
            if started:
                yield b"".join(lines)
            lines, started, size = [], True, 0
        elif size <= reading.options.max_size:
            lines.append(_ESCAPED.sub(rb"\1", line) if line_begins else line)
            size += len(line)
        blank, line_begins = line_begins and not line.strip(), line.endswith(b"\n")
    yield b"".join(lines)


def _document(mail: MailMessage, raw: bytes) -> Document:
    """Return a message as a document.

    Its id is made from the Message-ID, so copies in several folders are one document.
    """
    identifier = mail.id or blake2b(raw, digest_size=16).hexdigest()
    metadata: dict[str, MetadataValue] = {
        "from": mail.sender,
        "message_id": identifier,
        "references": " ".join(mail.references),
        "participants": "; ".join(mail.people[:MOST_NAMES]),
        "date": mail.date,
        "attachments": "; ".join(mail.attachments[:MOST_NAMES]),
    }
    return Document(
        f"mail/{message_digest(identifier)}",
        storable(mail.text_with_header),
        storable(one_line(mail.subject) or "(no subject)"),
        {name: storable(str(value))[:LARGEST_FIELD] for name, value in metadata.items() if value},
    )


def message_digest(message_id: str) -> str:
    """Return a short digest of a Message-ID, which becomes part of a document's id."""
    return blake2b(message_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
