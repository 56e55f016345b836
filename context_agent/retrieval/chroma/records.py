"""Records of a Chroma collection: the manifest, what a record holds of a chunk, what it can hold, and writing it.

The manifest is one entry of the collection's metadata, so that it travels with the collection, also on a server, and is
replaced in one transaction. It is written last: its `revision` names the last complete state, and records of a higher
revision are the unfinished work of an interrupted run. If a document has records of several complete revisions, the
newest counts; the older ones are deleted right after the manifest is written.

A record's id is `<chunk id>~<digest of the document>`: a changed document gets new records next to the old ones, and a
repeated run finds its own. Its metadata are the document's entries, and `ctx1`, a JSON list of document id, title,
index, start, end, tokens, revision, and position of the document in its run. It is one packed entry, because each entry
is a row in Chroma's database: with three, adding takes 15 % longer, with eight a third. Filters use the document's
entries.

Chroma refuses a whole batch for one wrong entry, drops others silently, and a record with thousands of entries makes a
local collection unreadable. So both kinds of documents are checked: those from sources lose their wrong entries, with a
notice (`with_storable_metadata`); those of a caller raise an error (`check_document`).
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache
from hashlib import blake2b
from itertools import count, islice, takewhile
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

import numpy as np
from annotated_types import Interval, Len, Predicate
from numpy.typing import NDArray

from context_agent._support.small_files import parse_json
from context_agent.errors import CorpusCorruptError, CorpusError, DimensionError
from context_agent.retrieval.calibration import CALIBRATION_VERSION, Calibration
from context_agent.retrieval.chunker import Span, chunk_at, chunk_document
from context_agent.text.languages import LANGUAGES
from context_agent.text.normalization import well_formed
from context_agent.tokens import TokenCounter
from context_agent.types import Chunk, Document

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection
    from pydantic import TypeAdapter

    from context_agent.retrieval.embedders import Embedder

KEY = "ctx1"
"""The manifest in a collection's metadata, and the packed entry in a record's."""
SCHEMA = 1
LONGEST_ENTRY = 100_000
"""Characters of a manifest that are read."""
_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
_Name = Annotated[str, Len(1, 4_096)]
_Language = Annotated[str, Predicate(lambda code: not code or code in LANGUAGES)]
_Count = Annotated[int, Interval(ge=0, le=2**53)]
_Scores = Annotated[Mapping[Annotated[str, Len(1, 100)], Annotated[float, Interval(ge=0, le=1e6)]], Len(0, 100)]
MOST_ENTRIES = 256
"""Metadata entries of a document: each is a row in Chroma's database for each of its chunks."""
LONGEST_KEY = 256
"""Characters of a metadata key."""
LONGEST_ID = 16_384
"""Characters of a document id; a path with every character percent-encoded has fewer."""
RESERVED = ("chroma:", "#", "$")
"""Prefixes of keys that Chroma reserves."""
_SURROGATE = re.compile("[\ud800-\udfff]")
BATCH = 500
"""Chunks embedded and added at once. An interruption loses up to a few batches; larger ones are not added faster."""
LARGEST_BATCH = 5_461
"""Records that Chroma accepts at once."""
THREADS = 2


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents were chunked: tokens per chunk, tokens of overlap, and the name of the token counter."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    size: _Count
    overlap: _Count
    counter: _Name


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of an index. Revision 0: no run has been completed yet.

    `embedder` is the embedder's name, `spec` its spec for `load_embedder`, empty if unknown. `snapshot` names the
    folder that holds this state of a local index. `calibration` is the version of the measurement of `mrr` and
    `weights`; 0 for the first one and for none. `language` is that of BM25, see `languages.LANGUAGES`; it is empty in
    an index from before languages were stored. In a `mixed` index it is the language of most texts, and each text is
    in its own; otherwise someone named it.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    embedder: _Name
    dimension: Annotated[int, Interval(ge=1, le=100_000)]
    chunking: Chunking
    spec: Annotated[str, Len(0, 4_096)] = ""
    revision: _Count = 0
    chunks: _Count = 0
    mrr: _Scores = field(default_factory=dict)
    weights: _Scores = field(default_factory=dict)
    snapshot: Annotated[str, Len(0, 100)] = ""
    calibration: _Count = 0
    language: _Language = ""
    mixed: bool = True

    def next(
        self, chunking: Chunking, chunks: int, calibration: Calibration, snapshot: str, language: str, *, mixed: bool
    ) -> Manifest:
        """Return the manifest of the next complete state."""
        return replace(
            self,
            revision=self.revision + 1,
            chunking=chunking,
            chunks=chunks,
            mrr=dict(calibration.mrr),
            weights=dict(calibration.weights),
            snapshot=snapshot,
            calibration=CALIBRATION_VERSION if calibration.weights else 0,
            language=language,
            mixed=mixed,
        )

    def stored_calibration(self) -> Calibration | None:
        """Return the calibration; None without one, and if another version of this package measured it in another
        way.
        """
        return Calibration(self.mrr, self.weights) if self.calibration == CALIBRATION_VERSION else None


def read_manifest(collection: Collection) -> Manifest | None:
    """Return the manifest; None for a collection that this package did not make. Raises `CorpusCorruptError`."""
    return parse_manifest(collection.name, (collection.metadata or {}).get(KEY))


def parse_manifest(collection: str, entry: object) -> Manifest | None:
    """Return the manifest in the metadata entry `KEY` of a collection; None for None.

    Every field is checked, because the entry may come from someone else. Raises `CorpusCorruptError`.
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    if entry is None:
        return None
    if not isinstance(entry, str) or len(entry) > LONGEST_ENTRY:
        raise _damaged(collection, f"it is not a string of at most {LONGEST_ENTRY:,} characters")
    try:
        fields = from_json(entry)
        schema = fields.pop("schema")
        if schema == SCHEMA:
            return _validator().validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _damaged(collection, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _damaged(collection, str(error)) from error
    raise CorpusCorruptError(
        f"collection {collection!a} was indexed by another version of context-agent (schema {ascii(schema)[:50]}; this "
        f"version reads {SCHEMA}). Delete the index, or name another one with --path or --collection, and index the "
        "documents there"
    )


@cache
def _validator() -> TypeAdapter[Manifest]:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def _damaged(collection: str, reason: str) -> CorpusCorruptError:
    return CorpusCorruptError(
        f"the manifest of collection {collection!a} is damaged ({ascii(reason[:200])[1:-1]}). Delete the "
        "index and index the documents again"
    )


def write_manifest(collection: Collection, manifest: Manifest) -> None:
    """Replaces the manifest in one transaction; other entries of the collection's metadata stay."""
    entry = json.dumps({"schema": SCHEMA, **asdict(manifest)}, sort_keys=True)
    collection.modify(metadata={**(collection.metadata or {}), KEY: entry})


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk with its record's id, the revision that wrote it, and its document's position in that run."""

    record: str
    chunk: Chunk
    revision: int = 0
    position: int = 0


def digest_of(document: Document, chunking: Chunking) -> str:
    """Twelve hexadecimal digits over everything that decides what is stored of a document."""
    content: list[Any] = [document.title, document.text, sorted(document.metadata.items())]
    content += [sorted(asdict(chunking).items()), *map(astuple, document.sections)]
    return blake2b(json.dumps(content, ensure_ascii=True).encode(), digest_size=6).hexdigest()


def record_id(chunk_id: str, digest: str) -> str:
    """Return the id of the record that stores a chunk."""
    return f"{chunk_id}~{digest}"


def digest_in(record: str) -> str:
    """Return the document's digest in a record's id."""
    return record.rpartition("~")[2]


def metadata_of(stored: StoredChunk) -> dict[str, Any]:
    """Return the record's metadata. A document's own entry named `ctx1` is overwritten."""
    chunk = stored.chunk
    numbers = (chunk.index, chunk.start, chunk.end, chunk.tokens, stored.revision, stored.position)
    return {**chunk.metadata, KEY: json.dumps([chunk.document_id, chunk.title, *numbers], ensure_ascii=False)}


def stored_chunk(record: str, text: str | None, metadata: Mapping[str, Any] | None) -> StoredChunk | None:
    """Reads what `metadata_of` wrote; None for a record that `metadata_of` did not write."""
    entries = dict(metadata or {})
    try:
        document_id, title, *numbers = parse_json(entries.pop(KEY))
        index, start, end, tokens, revision, position = numbers
    except (KeyError, TypeError, ValueError):
        return None
    if not (isinstance(document_id, str) and isinstance(title, str) and all(type(n) is int for n in numbers)):
        return None
    chunk = Chunk(f"{document_id}_{index}", document_id, index, text or "", start, end, tokens, title, entries)
    return StoredChunk(record, chunk, revision, position)


def live(chunks: Iterable[StoredChunk], revision: int) -> list[StoredChunk]:
    """Return the chunks of the complete state `revision`, in corpus order: of each document the newest ones."""
    complete = [stored for stored in chunks if stored.revision <= revision]
    newest: dict[str, int] = {}
    for stored in complete:
        newest[stored.chunk.document_id] = max(stored.revision, newest.get(stored.chunk.document_id, 0))
    current = [stored for stored in complete if stored.revision == newest[stored.chunk.document_id]]
    return sorted(current, key=lambda stored: (stored.revision, stored.position, stored.chunk.index))


def with_storable_metadata(document: Document, note: Callable[[str], None]) -> Document:
    """Return the document without the metadata that cannot be stored; `note` receives what is left out and why."""
    entries = dict(islice(document.metadata.items(), MOST_ENTRIES))
    if len(document.metadata) > MOST_ENTRIES:
        note(f"documents with more than {MOST_ENTRIES} metadata fields: only the first {MOST_ENTRIES} are indexed")
    refused = {key: reason for key, value in entries.items() if (reason := _refusal(key, value))}
    for key, reason in refused.items():
        note(f"field {repr(key)[:80]} is left out of the metadata: {reason}; rename or convert it")
    if not refused and len(entries) == len(document.metadata):
        return document
    return replace(document, metadata={key: value for key, value in entries.items() if key not in refused})


def check_document(document: Document) -> None:
    """Raises `CorpusError` for an id, title, text or metadata that an index cannot hold."""
    if any(not isinstance(part, str) for part in (document.id, document.title, document.text)):
        raise CorpusError(f"document {document.id!r}: id, title and text must be strings; convert them")
    if not document.id.strip():
        raise CorpusError(f"document id {document.id!r} is empty: give every document an id")
    name = repr(document.id[:80])
    if len(document.id) > LONGEST_ID:
        raise CorpusError(f"document id {name}... has {len(document.id):,} characters; use at most {LONGEST_ID:,}")
    if _SURROGATE.search(document.id):
        raise CorpusError(f"document id {name} holds a lone surrogate, which is not Unicode text: remove it")
    if len(document.metadata) > MOST_ENTRIES:
        count = len(document.metadata)
        raise CorpusError(f"document {name} has {count:,} metadata entries; keep at most {MOST_ENTRIES}")
    for key, value in document.metadata.items():
        if reason := _refusal(key, value):
            raise CorpusError(f"document {name}, metadata {repr(key)[:80]}: {reason}; rename, convert or remove it")


def _refusal(key: object, value: object) -> str:
    """Why an entry cannot be stored; empty if it can."""
    return _key_refusal(key) or _value_refusal(value)


def _key_refusal(key: object) -> str:
    if not isinstance(key, str):
        return f"its name is a {type(key).__name__}, not a string"
    if not key:
        return "its name is empty"
    if len(key) > LONGEST_KEY:
        return f"its name has more than {LONGEST_KEY} characters"
    if key.startswith(RESERVED):
        return "Chroma reserves names that begin with 'chroma:', '#' or '$'"
    return "its name holds a lone surrogate, which is not Unicode text" if _SURROGATE.search(key) else ""


def _value_refusal(value: object) -> str:
    match value:
        case bool():
            return ""
        case str():
            return "its text holds a lone surrogate, which is not Unicode text" if _SURROGATE.search(value) else ""
        case int():
            return "" if -(2**63) <= value < 2**63 else "its integer needs more than 64 bits"
        case float():
            return "" if math.isfinite(value) else f"its value is {value}, not a finite number"
    return f"its value is a {type(value).__name__}, not a string, number or boolean"


class RecordWriter:
    """Embeds chunks in batches and adds them to a collection, in threads. Leaving the context waits for all of it.

    Chroma's local client holds the interpreter's lock while it adds, so there the threads only overlap adding with
    waiting for an embedding endpoint; with a server they overlap everything.
    """

    def __init__(
        self,
        collection: Collection,
        embedder: Embedder,
        batch_size: int = BATCH,
        on_vectors: Callable[[Sequence[str], NDArray[np.float32]], None] | None = None,
    ) -> None:
        """`on_vectors` receives the records of each batch with their vectors, shape (n, d)."""
        self._collection, self._embedder, self._on_vectors = collection, embedder, on_vectors
        self._batch_size = max(1, min(batch_size, LARGEST_BATCH))
        self._waiting: list[StoredChunk] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="chroma-add")
        self._running: list[Future[int]] = []
        self._failed = Event()
        self.added = self.stored = 0
        """Chunks that were added, and those of them that are in the collection."""
        self.embedding_seconds = 0.0

    def add(self, stored: StoredChunk) -> None:
        """Adds a chunk to the next batch, which is sent once it is full."""
        self._waiting.append(stored)
        self.added += 1
        if len(self._waiting) >= self._batch_size:
            self._send()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._waiting:
                self._send()
            while self._running and kind is None:
                self._collect()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
            finished = takewhile(lambda batch: not batch.cancelled() and batch.exception() is None, self._running)
            self.stored += sum(batch.result() for batch in finished)

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        began = time.monotonic()
        vectors = self._embedder.embed_documents([stored.chunk.indexed_text for stored in batch])
        self.embedding_seconds += time.monotonic() - began
        if vectors.shape != (len(batch), self._embedder.dimension):
            raise DimensionError(
                f"{self._embedder.name} returned vectors of shape {vectors.shape} for {len(batch)} texts and "
                f"{self._embedder.dimension} dimensions"
            )
        if self._on_vectors is not None:
            self._on_vectors([stored.record for stored in batch], vectors)
        while len(self._running) > THREADS:
            self._collect()
        self._running.append(self._pool.submit(self._store, batch, vectors))

    def _collect(self) -> None:
        self.stored += self._running.pop(0).result()

    def _store(self, batch: list[StoredChunk], vectors: NDArray[np.float32]) -> int:
        # Chroma can block forever in an addition that follows a failed one, for example on a full disk.
        if self._failed.is_set():
            return 0
        try:
            self._collection.add(
                ids=[stored.record for stored in batch],
                embeddings=cast("Any", vectors),
                documents=[stored.chunk.text for stored in batch],
                metadatas=[metadata_of(stored) for stored in batch],
            )
        except BaseException:
            self._failed.set()
            raise
        return len(batch)


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
    """Return the chunks of a document with their records; none for a document without text.

    `resumable` has the spans of records that an interrupted run stored. A document with all of its records among them
    is not chunked again, unless it has sections.
    """
    document = replace(document, title=well_formed(document.title), text=well_formed(document.text))
    # The spans do not tell which section a chunk belongs to: such a document is cut again.
    chunks = [] if document.sections else _resumed_chunks(document, digest, resumable)
    chunks = chunks or chunk_document(document, size=chunking.size, counter=counter, overlap=chunking.overlap)
    return [StoredChunk(record_id(part.id, digest), part, revision, position) for part in chunks]


def _resumed_chunks(document: Document, digest: str, resumable: Mapping[str, Span]) -> list[Chunk]:
    """Return the document's chunks at the stored spans; none if they do not reach the end of its text."""
    records = (record_id(f"{document.id}_{index}", digest) for index in count())
    stored = takewhile(lambda span: span is not None, map(resumable.get, records))
    spans = [span for span in stored if span is not None]
    if not spans or spans[-1].end != len(document.text.rstrip()):
        return []
    return [chunk_at(document, index, span) for index, span in enumerate(spans)]


def delete_records(collection: Collection, records: Iterable[str]) -> None:
    """Deletes records by id, in batches, in a fixed order."""
    ids = sorted(records)
    for start in range(0, len(ids), BATCH):
        collection.delete(ids=ids[start : start + BATCH])
