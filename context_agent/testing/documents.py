"""Invented documents for tests: short texts that mention each other, and biographies."""

from __future__ import annotations

from context_agent.types import Document

TOPICS = ("rivers", "bridges", "painters", "engines", "gardens", "comets", "operas")


def linked_documents(count: int = 60) -> list[Document]:
    """Return invented documents that mention each other.

    Args:
        count: The number of documents. Their texts repeat a sentence one to five times.
    """
    documents = []
    for number in range(count):
        topic, other = TOPICS[number % 7], TOPICS[(number * 3 + 1) % 7]
        sentence = f"Entry {number} tells of {topic} and how they met {other}; it cites Title {(number * 7) % count}. "
        text = sentence * (1 + number % 5) + f"SENTINEL-{number:04d} closes the entry."
        documents.append(Document(f"d{number}", text, f"Title {number}"))
    return documents


PLACES = ("Lisbon", "Ghent", "Turku", "Quito", "Osaka", "Leeds", "Graz", "Sfax", "Perth", "Bergen")
TRADES = ("printer", "glazier", "botanist", "engraver", "cartographer", "organist", "chemist", "weaver")


def people(count: int, start: int = 0) -> list[Document]:
    """Return short invented biographies with metadata to filter by.

    Args:
        count: The number of biographies.
        start: The number of the first person. Persons with the same number are equal.
    """
    return [
        Document(
            id=f"person-{number}",
            title=f"Person {number}",
            text=f"Person {number} was a {TRADES[number % 8]} from {PLACES[number % 10]}, "
            f"born in {1500 + number % 400}. "
            f"The guild of the {TRADES[number % 8]}s kept the ledger number K{number * 7919 % 100_003} of this life.",
            metadata={"century": 16 + number % 400 // 100, "trade": TRADES[number % 8]},
        )
        for number in range(start, start + count)
    ]
