"""Two ways a collection can be laid out: as `index_documents` writes it, or as its owner did.

A layout says which chunk a record holds, what names the collection's present state, and what a snapshot of it holds.

**Our own**: the manifest names the state. When its snapshot is missing or damaged, it is rebuilt from the collection.

**A user's own**: nothing in it is written to. In a local folder the number of the last change names the state, so any
change is noticed; the records that were added, changed or removed since the last snapshot are followed. A client of
Chroma does not tell that number. There the snapshot counts as current when the number of records is the same, the last
records of the store are known, and 64 records spread over the whole still have their texts. So a text that was changed
in place and is not among the 64 goes unnoticed there: open with `rebuild=True` after such changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.chroma.database import (
    StoredCollection,
)
from context_agent.retrieval.chroma.records import Manifest, entry_of, live, metadata_of
from context_agent.retrieval.chroma.snapshot import (
    Indexed,
    Publication,
    Snapshot,
    SnapshotRow,
    SnapshotWriter,
    load_snapshot,
    next_number,
    publish,
    published,
    remove_others,
)
from context_agent.retrieval.chroma.store import (
    PAGE,
    all_ids,
    dimension_of,
    pages,
    space_of,
)
from context_agent.retrieval.grep import encode
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Chunk

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

SAMPLE = 64
"""Records compared to tell whether a user's collection changed."""


class Layout(Protocol):
    """How a collection's records hold chunks."""

    @property
    def revision(self) -> str:
        """The state that is read, for the corpus's name; empty when only the snapshot's number can tell."""

    def chunk(self, record: str, text: str | None, metadata: Mapping[str, Any] | None) -> Chunk | None:
        """The chunk of a record; None for a record without text or not part of the index."""

    def state(self, stored: StoredCollection) -> str:
        """What names the collection's state; equal for equal states, of the same options."""

    def current(self, root: Path, state: str, *, lexical: bool) -> Snapshot | None:
        """The snapshot in the folder `root` that shows this state; None where there is none."""

    def number(self, root: Path) -> int:
        """The number of a snapshot that is made now."""

    def write(
        self, collection: Collection, writer: SnapshotWriter, base: Snapshot | None, changed: AbstractSet[str]
    ) -> None:
        """Adds to the writer, and removes, what the collection holds otherwise than `base`.

        `changed` are records of the base whose content has changed.
        """


class OwnLayout:
    """A collection made by `index_documents`."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.revision = str(manifest.revision)

    def chunk(self, record: str, text: str | None, metadata: Mapping[str, Any] | None) -> Chunk | None:
        """See `Layout`."""
        entry = entry_of(record, text, metadata)
        return entry.chunk if entry else None

    def state(self, stored: StoredCollection | None = None) -> str:
        """See `Layout`; the manifest alone names it."""
        return json.dumps(asdict(self.manifest), sort_keys=True)

    def current(self, root: Path, state: str, *, lexical: bool) -> Snapshot | None:
        """See `Layout`; a snapshot that was rebuilt has another name than the manifest says."""
        publication = published(root)
        names = [publication.snapshot] if publication and publication.state == state else []
        candidates = (load_snapshot(root, name, lexical=lexical) for name in (*names, self.manifest.snapshot))
        return next((snapshot for snapshot in candidates if snapshot is not None), None)

    def number(self, root: Path) -> int:
        """See `Layout`."""
        return self.manifest.revision

    def write(
        self, collection: Collection, writer: SnapshotWriter, base: Snapshot | None, changed: AbstractSet[str]
    ) -> None:
        """See `Layout`; always all of it."""
        entries = (
            entry_of(record, text, metadata)
            for page in pages(collection, ["documents", "metadatas"])
            for record, text, metadata in zip(page["ids"], page["documents"], page["metadatas"], strict=True)
        )
        for entry in live([entry for entry in entries if entry], self.manifest.revision):
            row = SnapshotRow(entry.record, entry.chunk.id, entry.chunk.document_id)
            writer.add(Indexed(row, entry.chunk.title, entry.chunk.text, metadata_of(entry)))


@dataclass(frozen=True, slots=True)
class Keys:
    """Where a user's records keep things: names of metadata entries.

    Without `text` the record's document is the text; without `document` each record is a document of its own;
    without `index` the chunks of a document stand in the order of the store; without `tokens` they are counted.
    """

    text: str | None = None
    title: str | None = None
    document: str | None = None
    index: str | None = None
    tokens: str | None = None


class ForeignLayout:
    """A collection that its owner made in his own way."""

    revision = ""

    def __init__(self, keys: Keys, counter: TokenCounter | None = None) -> None:
        self.keys = keys
        self._count = lru_cache(maxsize=65_536)((counter or HarmonyCounter()).count)

    def chunk(self, record: str, text: str | None, metadata: Mapping[str, Any] | None) -> Chunk | None:
        """See `Layout`."""
        keys, metadata = self.keys, metadata or {}
        text = self._text(text, metadata)
        if not text.strip():
            return None
        index = _number(metadata, keys.index, 0)
        tokens = _number(metadata, keys.tokens, -1)
        return Chunk(
            id=record,
            document_id=self._document(record, metadata),
            index=index,
            text=text,
            start=0,
            end=len(text),
            tokens=tokens if tokens >= 0 else self._count(text),
            title=self._title(metadata),
            metadata=metadata,
        )

    def state(self, stored: StoredCollection) -> str:
        """See `Layout`."""
        return json.dumps({"keys": asdict(self.keys), "sequence": stored.sequence}, sort_keys=True)

    def current(self, root: Path, state: str, *, lexical: bool) -> Snapshot | None:
        """See `Layout`."""
        publication = published(root)
        same = publication is not None and publication.state == state
        return load_snapshot(root, publication.snapshot, lexical=lexical) if publication and same else None

    def latest(self, root: Path, *, lexical: bool) -> tuple[Snapshot | None, int]:
        """The last snapshot that was made with the same keys, and the sequence number of its state."""
        publication = published(root)
        if publication is None:
            return None, -1
        try:
            state = json.loads(publication.state)
            if state["keys"] == asdict(self.keys):
                return load_snapshot(root, publication.snapshot, lexical=lexical), int(state["sequence"])
        except (ValueError, KeyError, TypeError):
            pass
        return None, -1

    def number(self, root: Path) -> int:
        """See `Layout`."""
        return next_number(root)

    def write(
        self, collection: Collection, writer: SnapshotWriter, base: Snapshot | None, changed: AbstractSet[str]
    ) -> None:
        """See `Layout`."""
        if base is None:
            entries = self._all(collection)
        else:
            present, known = all_ids(collection), base.chunk_of_record.keys()
            writer.remove((known - set(present)) | (known & changed))
            entries = self._some(collection, [one for one in present if one not in known or one in changed])
        for entry in entries:
            writer.add(entry)

    def same(self, collection: Collection, snapshot: Snapshot) -> bool:
        """Whether the snapshot still shows the collection, as far as a sample can tell."""
        return self._same_records(collection, snapshot) and self.same_texts(collection, snapshot)

    def same_texts(self, collection: Collection, base: Snapshot) -> bool:
        """Whether those of the sampled records that are still there have the text they had."""
        if not base.rows:
            return True
        positions = np.unique(np.linspace(0, len(base.rows) - 1, SAMPLE).astype(int)).tolist()
        expected = {base.rows[position].record: base.table.raw(position) for position in positions}
        entries = list(self._some(collection, list(expected)))
        return all(expected[entry.row.record] == encode(entry.text) for entry in entries)

    def _same_records(self, collection: Collection, base: Snapshot) -> bool:
        count = collection.count()
        last = collection.get(limit=SAMPLE, offset=max(0, count - SAMPLE), include=[])["ids"]
        return count == len(base.rows) and all(record in base.chunk_of_record for record in last)

    def _all(self, collection: Collection) -> Iterator[Indexed]:
        for page in pages(collection, ["documents", "metadatas"]):
            yield from self._indexed(page)

    def _some(self, collection: Collection, records: Sequence[str]) -> Iterator[Indexed]:
        for start in range(0, len(records), PAGE):
            batch = list(records[start : start + PAGE])
            yield from self._indexed(dict(collection.get(ids=batch, include=["documents", "metadatas"])))

    def _indexed(self, page: Mapping[str, Any]) -> Iterator[Indexed]:
        # A record without text keeps its (empty) row, so that rows can be compared with the collection's count.
        for record, text, stored in zip(page["ids"], page["documents"], page["metadatas"], strict=True):
            metadata = stored or {}
            row = SnapshotRow(record, record, self._document(record, metadata))
            yield Indexed(row, self._title(metadata), self._text(text, metadata), metadata)

    def _text(self, text: str | None, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get(self.keys.text, "")) if self.keys.text else text or ""

    def _title(self, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get(self.keys.title, "")) if self.keys.title else ""

    def _document(self, record: str, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get(self.keys.document, record)) if self.keys.document else record


def build(
    layout: Layout,
    collection: Collection,
    root: Path,
    *,
    base: Snapshot | None = None,
    changed: AbstractSet[str] = frozenset(),
    lexical: bool = False,
) -> Snapshot:
    """A new snapshot of the collection in the folder `root`, from `base` where there is one; not published yet.

    Raises `CorpusCorruptError` where a record has no vector.
    """
    dimension = 0 if lexical else dimension_of(collection)
    writer = SnapshotWriter(root, base, dimension=dimension, space=space_of(collection))
    try:
        layout.write(collection, writer, base, changed)
        add_stored_vectors(writer, collection)
        return replace(writer.finish(), folder=root / writer.publish(layout.number(root)))
    except BaseException:
        writer.discard()
        raise


def add_stored_vectors(writer: SnapshotWriter, collection: Collection) -> None:
    """Puts the vectors that are missing, as the collection stores them. Raises `CorpusCorruptError` for lost ones."""
    from chromadb.errors import InternalError

    records = writer.without_vectors()
    try:
        for start in range(0, len(records), PAGE):
            page: dict[str, Any] = dict(collection.get(ids=records[start : start + PAGE], include=["embeddings"]))
            writer.put_vectors(page["ids"], np.asarray(page["embeddings"], dtype=np.float32))
    except InternalError as error:
        raise _lost_vectors(collection, str(error)) from error
    if lost := writer.without_vectors():
        raise _lost_vectors(collection, f"{len(lost):,} of {len(records):,} records have none")


def _lost_vectors(collection: Collection, reason: str) -> CorpusCorruptError:
    return CorpusCorruptError(
        f"Chroma has lost vectors of collection {collection.name!r} ({reason}): index the documents again, or restore "
        "the folder from a copy"
    )


def _number(metadata: Mapping[str, Any], key: str | None, otherwise: int) -> int:
    value = metadata.get(key) if key else None
    return int(value) if isinstance(value, int | float) else otherwise


LayoutOf = Callable[[StoredCollection], Layout]


def publish_state(fresh: Snapshot, layout: Layout, root: Path, stored: StoredCollection) -> Snapshot:
    """The snapshot, made the current one. The one before it stays: another process may be opening it."""
    previous = published(root)
    publish(root, Publication(fresh.name, layout.state(stored), stored if fresh.vectors is not None else None))
    keep = {fresh.name, *([previous.snapshot] if previous else ())}
    # In the folder of an index, what looks unfinished can be the work of an indexing run.
    remove_others(root, keep, unfinished=isinstance(layout, ForeignLayout))
    return fresh
