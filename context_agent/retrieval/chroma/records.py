"""What an index says about itself, and how a chunk is written into a Chroma record.

The manifest is one entry of the collection's metadata, so that it travels with the collection, on a server too, and is
replaced in one transaction. It is written last: its `revision` names the last complete state, and records of a higher
revision are the unfinished work of a run that was interrupted. Of a document with records of several complete
revisions the newest counts; the older ones are removed right after the manifest is written.

A record's id is `<chunk id>~<digest of the document>`: a changed document gets new records beside the old ones, and a
run that is repeated finds its own. Metadata: the document's own entries, and `ctx1`, a JSON list of document id, title,
index, start, end, tokens, revision, and place of the document in its run. One packed entry, because each entry is a
row in Chroma's database: with three, adding takes 15 % longer, with eight a third. Filters go by the document's own.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import blake2b
from itertools import islice
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

import numpy as np
from annotated_types import Interval, Len
from numpy.typing import NDArray

from context_agent.errors import CorpusCorruptError, CorpusError, DimensionError
from context_agent.retrieval.bm25 import whole_characters
from context_agent.retrieval.chunker import chunk
from context_agent.retrieval.fusion import Calibration
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
_Count = Annotated[int, Interval(ge=0, le=2**53)]
_Scores = Annotated[Mapping[Annotated[str, Len(1, 100)], Annotated[float, Interval(ge=0, le=1e6)]], Len(0, 100)]
MOST_ENTRIES = 256
"""Metadata entries of a document: each is a row in Chroma's database for each of its chunks."""
LONGEST_KEY = 256
"""Characters of a metadata key."""
LONGEST_ID = 16_384
"""Characters of a document id; a path with every character percent-encoded has fewer."""
RESERVED = ("chroma:", "#", "$")
"""Beginnings of keys that Chroma keeps for itself."""
_SURROGATE = re.compile("[\ud800-\udfff]")
BATCH = 2_000
"""Chunks embedded and added at once; Chroma takes at most 5,461."""
LARGEST_BATCH = 5_461
THREADS = 2


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents were cut: tokens a chunk, tokens of overlap, and what counted them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    size: _Count
    overlap: _Count
    counter: _Name


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of an index. Revision 0: no run has been completed yet.

    `embedder` is the embedder's name, `spec` what `load_embedder` makes it from, empty where that is not known.
    `snapshot` names the folder that holds this state, where the index is a local one.
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

    def next(self, chunking: Chunking, chunks: int, found: Calibration, snapshot: str) -> Manifest:
        """The manifest of the next complete state."""
        return replace(
            self,
            revision=self.revision + 1,
            chunking=chunking,
            chunks=chunks,
            mrr=dict(found.mrr),
            weights=dict(found.weights),
            snapshot=snapshot,
        )


def read_manifest(collection: Collection) -> Manifest | None:
    """The manifest; None for a collection that this package did not make. Raises `CorpusCorruptError`."""
    return parse_manifest(collection.name, (collection.metadata or {}).get(KEY))


def parse_manifest(collection: str, entry: object) -> Manifest | None:
    """The manifest in the metadata entry `KEY` of a collection; None for None.

    Every field is checked, because the entry may come from someone else. Raises `CorpusCorruptError`.
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    if entry is None:
        return None
    if not isinstance(entry, str) or len(entry) > LONGEST_ENTRY:
        raise _damaged(collection, f"it is not a text of at most {LONGEST_ENTRY:,} characters")
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
        f"collection {collection!a} was indexed by another version (schema {ascii(schema)[:50]}). Index it again"
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
class Entry:
    """A stored chunk: its record's id, the chunk, and when and where in the run it was written."""

    record: str
    chunk: Chunk
    revision: int = 0
    place: int = 0


def digest_of(document: Document, chunking: Chunking) -> str:
    """Twelve hexadecimal digits over everything that decides what is stored of a document."""
    content = [document.title, document.text, sorted(document.metadata.items()), sorted(asdict(chunking).items())]
    return blake2b(json.dumps(content, ensure_ascii=True).encode(), digest_size=6).hexdigest()


def record_id(chunk_id: str, digest: str) -> str:
    """The id of the record that stores a chunk."""
    return f"{chunk_id}~{digest}"


def digest_in(record: str) -> str:
    """The document's digest in a record's id."""
    return record.rpartition("~")[2]


def metadata_of(entry: Entry) -> dict[str, Any]:
    """The record's metadata. An entry of the document's own under our name is lost to ours."""
    chunk = entry.chunk
    place = (chunk.index, chunk.start, chunk.end, chunk.tokens, entry.revision, entry.place)
    return {**chunk.metadata, KEY: json.dumps([chunk.document_id, chunk.title, *place], ensure_ascii=False)}


def entry_of(record: str, text: str | None, metadata: Mapping[str, Any] | None) -> Entry | None:
    """What `metadata_of` wrote, read back; None for a record that `metadata_of` did not write."""
    own = dict(metadata or {})
    try:
        document_id, title, *numbers = json.loads(own.pop(KEY))
        index, start, end, tokens, revision, place = numbers
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if not (isinstance(document_id, str) and isinstance(title, str) and all(type(n) is int for n in numbers)):
        return None
    chunk = Chunk(f"{document_id}_{index}", document_id, index, text or "", start, end, tokens, title, own)
    return Entry(record, chunk, revision, place)


def live(entries: Iterable[Entry], revision: int) -> list[Entry]:
    """The entries of the complete state `revision`, in corpus order: of each document its newest records."""
    complete = [entry for entry in entries if entry.revision <= revision]
    newest: dict[str, int] = {}
    for entry in complete:
        newest[entry.chunk.document_id] = max(entry.revision, newest.get(entry.chunk.document_id, 0))
    kept = [entry for entry in complete if entry.revision == newest[entry.chunk.document_id]]
    return sorted(kept, key=lambda entry: (entry.revision, entry.place, entry.chunk.index))


def usable(document: Document, note: Callable[[str], None]) -> Document:
    """The document without the metadata that cannot be stored; `note` is told what was left out and why."""
    entries = dict(islice(document.metadata.items(), MOST_ENTRIES))
    if len(document.metadata) > MOST_ENTRIES:
        note(f"documents with more than {MOST_ENTRIES} fields of metadata: only the first {MOST_ENTRIES} are kept")
    wrong = {key: reason for key, value in entries.items() if (reason := _refusal(key, value))}
    for key, reason in wrong.items():
        note(f"field {repr(key)[:80]} is left out of the metadata: {reason}; rename or convert it")
    if not wrong and len(entries) == len(document.metadata):
        return document
    return replace(document, metadata={key: value for key, value in entries.items() if key not in wrong})


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
        raise CorpusError(f"document id {name} holds a lone surrogate, which is no Unicode text: remove it")
    if len(document.metadata) > MOST_ENTRIES:
        raise CorpusError(
            f"document {name} has {len(document.metadata):,} metadata entries; keep at most {MOST_ENTRIES}"
        )
    for key, value in document.metadata.items():
        if reason := _refusal(key, value):
            raise CorpusError(f"document {name}, metadata {repr(key)[:80]}: {reason}; rename, convert or remove it")


def _refusal(key: object, value: object) -> str:
    """Why an entry cannot be stored; empty if it can."""
    return _wrong_key(key) or _wrong_value(value)


def _wrong_key(key: object) -> str:
    if not isinstance(key, str):
        return f"its name is a {type(key).__name__}, not a string"
    if not key:
        return "its name is empty"
    if len(key) > LONGEST_KEY:
        return f"its name has more than {LONGEST_KEY} characters"
    if key.startswith(RESERVED):
        return "Chroma reserves names that begin with 'chroma:', '#' or '$'"
    return "its name holds a lone surrogate, which is no Unicode text" if _SURROGATE.search(key) else ""


def _wrong_value(value: object) -> str:
    match value:
        case bool():
            return ""
        case str():
            return "its text holds a lone surrogate, which is no Unicode text" if _SURROGATE.search(value) else ""
        case int():
            return "" if -(2**63) <= value < 2**63 else "its integer needs more than 64 bits"
        case float():
            return "" if math.isfinite(value) else f"its value is {value}, not a finite number"
    return f"its value is a {type(value).__name__}, not a string, number or boolean"


class RecordWriter:
    """Collects entries, embeds them batch by batch and adds them. Leaving the context waits for all of it."""

    def __init__(
        self,
        collection: Collection,
        embedder: Embedder,
        batch_size: int = BATCH,
        keep: Callable[[Sequence[str], NDArray[np.float32]], None] | None = None,
    ) -> None:
        """`keep` gets the records of each batch with their vectors, of shape (n, d)."""
        self._collection, self._embedder, self._keep = collection, embedder, keep
        self._batch_size = max(1, min(batch_size, LARGEST_BATCH))
        self._waiting: list[Entry] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="chroma-add")
        self._running: list[Future[int]] = []
        self._failed = Event()
        self.stored = 0
        self.embedding_seconds = 0.0

    def add(self, entry: Entry) -> None:
        """One more entry; returns once it is waiting or on its way."""
        self._waiting.append(entry)
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

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        began = time.monotonic()
        vectors = self._embedder.embed_documents([entry.chunk.indexed_text for entry in batch])
        self.embedding_seconds += time.monotonic() - began
        if vectors.shape != (len(batch), self._embedder.dimension):
            raise DimensionError(
                f"{self._embedder.name} gave vectors of shape {vectors.shape} for {len(batch)} texts and "
                f"{self._embedder.dimension} dimensions"
            )
        if self._keep is not None:
            self._keep([entry.record for entry in batch], vectors)
        while len(self._running) > THREADS:
            self._collect()
        self._running.append(self._pool.submit(self._store, batch, vectors))

    def _collect(self) -> None:
        self.stored += self._running.pop(0).result()

    def _store(self, batch: list[Entry], vectors: NDArray[np.float32]) -> int:
        # Chroma can block for good in an addition that follows a failed one, for example on a full disk.
        if self._failed.is_set():
            return 0
        try:
            self._collection.add(
                ids=[entry.record for entry in batch],
                embeddings=cast("Any", vectors),
                documents=[entry.chunk.text for entry in batch],
                metadatas=[metadata_of(entry) for entry in batch],
            )
        except BaseException:
            self._failed.set()
            raise
        return len(batch)


def entries_of(
    document: Document, digest: str, *, chunking: Chunking, counter: TokenCounter, revision: int, place: int
) -> list[Entry]:
    """The entries that store a document; none for one without text."""
    document = replace(document, title=whole_characters(document.title), text=whole_characters(document.text))
    chunks = chunk(document, size=chunking.size, counter=counter, overlap=chunking.overlap)
    return [Entry(record_id(one.id, digest), one, revision, place) for one in chunks]


def delete_records(collection: Collection, records: Iterable[str]) -> None:
    """Deletes records by id, in batches, in a fixed order."""
    ids = sorted(records)
    for start in range(0, len(ids), BATCH):
        collection.delete(ids=ids[start : start + BATCH])
