"""The records of an index. One record holds one chunk.

If a document has records of several complete revisions, the newest count. The older records are deleted right after the
manifest is written.

A record's id is `<chunk id>~<digest of the document>`. So a changed document gets new records beside the old ones, and
a repeated run finds its own. A record's metadata has the document's entries and the entry `ctx1`. This is a JSON list
of document id, title, index, start, end, tokens, revision, and position of the document in its run. They are packed
into one entry, because each entry is a row in Chroma's database. With three entries, adding takes 15 % longer, and with
eight, a third longer. Filters use the document's entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from hashlib import blake2b
from itertools import count, takewhile
from typing import Any

from context_agent._support.small_files import parse_json
from context_agent.retrieval.chunker import Span, chunk_at, chunk_document
from context_agent.retrieval.index.manifest import MANIFEST_KEY, Chunking
from context_agent.text.normalization import well_formed
from context_agent.tokens import TokenCounter
from context_agent.types import Chunk, Document


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk with its record's id, the revision that wrote it, and its document's position in that run."""

    record: str
    chunk: Chunk
    revision: int = 0
    position: int = 0


def digest_of(document: Document, chunking: Chunking) -> str:
    """Return twelve hexadecimal digits, computed from everything that affects what is stored of a document."""
    content: list[Any] = [document.title, document.text, sorted(document.metadata.items())]
    content += [sorted(asdict(chunking).items()), *map(astuple, document.sections)]
    content += [["captions", *map(astuple, document.captions)]] if document.captions else []
    content += [["pages", *document.pages]] if document.pages else []
    return blake2b(json.dumps(content, ensure_ascii=True).encode(), digest_size=6).hexdigest()


def record_id(chunk_id: str, digest: str) -> str:
    """Return the id of the record that stores a chunk."""
    return f"{chunk_id}~{digest}"


def digest_in(record: str) -> str:
    """Return the document's digest in a record's id."""
    return record.rpartition("~")[2]


def metadata_of(stored: StoredChunk) -> dict[str, Any]:
    """Return the record's metadata. If the document has an entry named `ctx1`, it is overwritten."""
    chunk = stored.chunk
    numbers = (chunk.index, chunk.start, chunk.end, chunk.tokens, stored.revision, stored.position)
    return {**chunk.metadata, MANIFEST_KEY: json.dumps([chunk.document_id, chunk.title, *numbers], ensure_ascii=False)}


def stored_chunk(record: str, text: str | None, metadata: Mapping[str, Any] | None) -> StoredChunk | None:
    """Return the chunk that a record stores. If the metadata does not come from `metadata_of`, return None."""
    entries = dict(metadata or {})
    try:
        document_id, title, *numbers = parse_json(entries.pop(MANIFEST_KEY))
        index, start, end, tokens, revision, position = numbers
    except (KeyError, TypeError, ValueError):
        return None
    if not (isinstance(document_id, str) and isinstance(title, str) and all(type(n) is int for n in numbers)):
        return None
    chunk = Chunk(f"{document_id}_{index}", document_id, index, text or "", start, end, tokens, title, entries)
    return StoredChunk(record, chunk, revision, position)


def live(chunks: Iterable[StoredChunk], revision: int) -> list[StoredChunk]:
    """Return the chunks of the complete state `revision`, in corpus order.

    Only the newest chunks of each document count.
    """
    complete = [stored for stored in chunks if stored.revision <= revision]
    newest: dict[str, int] = {}
    for stored in complete:
        newest[stored.chunk.document_id] = max(stored.revision, newest.get(stored.chunk.document_id, 0))
    current = [stored for stored in complete if stored.revision == newest[stored.chunk.document_id]]
    return sorted(current, key=lambda stored: (stored.revision, stored.position, stored.chunk.index))


def chunks_to_store(
    document: Document,
    digest: str,
    *,
    chunking: Chunking,
    counter: TokenCounter,
    revision: int,
    position: int,
    resumable: Mapping[str, Span],
) -> list[StoredChunk]:
    """Return the chunks of a document with their records.

    Args:
        document: The document. If it has no text, there are no chunks.
        digest: The digest of the document (see `digest_of`).
        chunking: The settings of chunking.
        counter: The token counter.
        revision: The revision that writes the records.
        position: The document's position in the run.
        resumable: The spans of records that an interrupted run stored. If they cover the document, and it has no
            sections, captions or pages, it is not chunked again.
    """
    document = replace(document, title=well_formed(document.title), text=well_formed(document.text))
    # The spans do not tell which section a chunk belongs to: such a document is cut again.
    is_divided = document.sections or document.captions or document.pages
    chunks = [] if is_divided else _resumed_chunks(document, digest, resumable)
    chunks = chunks or chunk_document(document, size=chunking.size, counter=counter, overlap=chunking.overlap)
    return [StoredChunk(record_id(part.id, digest), part, revision, position) for part in chunks]


def _resumed_chunks(document: Document, digest: str, resumable: Mapping[str, Span]) -> list[Chunk]:
    """Return the document's chunks at the stored spans.

    If the spans do not reach the end of its text, return an empty list.
    """
    records = (record_id(f"{document.id}_{index}", digest) for index in count())
    stored = takewhile(lambda span: span is not None, map(resumable.get, records))
    spans = [span for span in stored if span is not None]
    if not spans or spans[-1].end != len(document.text.rstrip()):
        return []
    return [chunk_at(document, index, span) for index, span in enumerate(spans)]
