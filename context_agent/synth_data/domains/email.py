"""Email from `.eml` files, mbox files and maildir folders, with a document for each thread or for each message.

The domain `email` has a document for each thread, and `email-messages` a document for each message. Replies are read
without the text that they quote. Attachments are listed by name and not read. If one message refers to another
(`References`, `In-Reply-To`), both belong to one thread. A missing message can connect them, too. To form threads, the
loader needs all messages at once, so it holds their text in memory. Single messages are streamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial

from context_agent.retrieval.loaders import LoadOptions, LoadReport, Readable, load
from context_agent.retrieval.loaders.mail import MOST_NAMES
from context_agent.retrieval.loaders.mailbox import message_digest, read_mail
from context_agent.retrieval.loaders.metadata import with_day
from context_agent.retrieval.loaders.reader_choice import Reader
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.types import Document, MetadataValue

_REPLY = re.compile(r"^(?:\s*+(?:re|fw|fwd|aw|wg|sv|antw)\s*+(?:\[\d++\]\s*+)?:)++\s*+", re.I)


def load_threads(
    sources: Readable | Iterable[Readable], *, options: LoadOptions | None = None, report: LoadReport | None = None
) -> Iterator[Document]:
    """Yield a document for each thread, with its messages ordered by date.

    Args:
        sources: Files, folders or streams of email.
        options: The options of the loader.
        report: The report to fill. Its `documents` counts threads.
    """
    report = report if report is not None else LoadReport()
    before = report.documents
    threads = _threads(list(load(sources, options=options, report=report, readers=READERS)))
    report.documents = before
    for thread in threads:
        report.documents += 1
        yield _thread_document(thread)


def _threads(messages: list[Document]) -> list[list[Document]]:
    """Return the messages by thread, in order of first arrival. Messages that refer to each other belong together."""
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
        f"thread/{message_digest(str(ordered[0].metadata['message_id']))}",
        "\n\n----\n\n".join(message.text for message in ordered),
        _REPLY.sub("", ordered[0].title) or ordered[0].title,
        with_day({name: value for name, value in metadata.items() if value}),
    )


def _timestamp(date: str) -> float:
    """Return seconds since 1970. A date without a zone counts as UTC. A missing date sorts last."""
    if not date:
        return float("inf")
    moment = datetime.fromisoformat(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


READERS: dict[str, Reader] = {".eml": read_mail, ".mbox": read_mail, ".mbx": read_mail, "": read_mail}
"""The readers by extension.

Names of maildir files have no known extension, so every other file is read as a message.
"""
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
EMAIL = Domain("email", "Email, a document for each thread.", load_threads, _TRUTH_TYPES, _HINTS, max_hops=3)
MESSAGES = Domain(
    "email-messages",
    "Email, a document for each message.",
    partial(load, readers=READERS),
    _TRUTH_TYPES,
    _HINTS,
    max_hops=3,
)
