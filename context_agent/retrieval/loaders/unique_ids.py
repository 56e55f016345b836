"""The ids of the documents of a load: a repeated document is dropped, and a repeated id is changed."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from context_agent.retrieval.loaders.reading import identifier
from context_agent.retrieval.loaders.report import LoadReport
from context_agent.retrieval.loaders.sources import SourceFile
from context_agent.types import Document

ID_BYTES = 6
"""The number of bytes of a digest in the id of a row that has none. The name of the row's file precedes it."""


class UniqueIds:
    """The ids and digests of earlier documents. It takes about 200 bytes for each document."""

    def __init__(self, report: LoadReport) -> None:
        self._report = report
        self._contents: set[tuple[str, bytes]] = set()
        self._copies: dict[str, int] = {}
        self._renaming: set[str] = set()
        """The sources of which a notice says that documents are renamed."""

    def admit(self, document: Document, source: SourceFile) -> Document | None:
        """Return the document under a unique id. If it repeats an earlier one, return None."""
        digest = _digest(document)
        if (document.id, digest) in self._contents:
            self._report.duplicates += 1
            return None
        self._contents.add((document.id, digest))
        name = document.id or f"{identifier(source.path)}#{digest[:ID_BYTES].hex()}"
        fresh = self._fresh(name)
        if fresh == name:
            return document if document.id else replace(document, id=name)
        if source.name not in self._renaming:  # tables often number their rows from 1, so all of them may repeat ids
            self._renaming.add(source.name)
            self._report.note(
                source.name,
                f"the id {name!r} belongs to another document, so this one is renamed to {fresh!r}. Other "
                "repeated ids of this source are changed likewise.",
            )
        return replace(document, id=fresh)

    def _fresh(self, name: str) -> str:
        """Return `name` if no document has it, or else the name with the next unused number."""
        number = self._copies.get(name, 0) + 1
        while number > 1 and f"{name}~{number}" in self._copies:
            number += 1
        self._copies[name] = number
        fresh = name if number == 1 else f"{name}~{number}"
        self._copies.setdefault(fresh, 1)
        return fresh


def _digest(document: Document) -> bytes:
    """Return a digest of title, text and metadata. The length precedes each part, so the parts cannot be confused."""
    state = hashlib.blake2b(digest_size=16)
    for part in (document.title, document.text, repr(sorted(document.metadata.items()))):
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    return state.digest()
