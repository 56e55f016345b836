"""The layouts of a collection: the layout that `index_documents` writes, and the layouts of other programs.

A layout knows which chunk a record stores. It identifies the collection's state and writes a snapshot of this state.

**Own layout**: the manifest identifies the state. If its snapshot is missing or damaged, it is rebuilt from the
collection.

**Foreign layout**: nothing is written to the collection. In a local folder, the number of the last change identifies
the state. So any change is noticed, and only the records that changed since the last snapshot are read. Chroma's client
does not report that number. There, a snapshot counts as current under three conditions: the number of records is the
same, the snapshot has the last records of the store, and 64 records spread over the collection still have the same
text. So if another text was changed in place, the change goes unnoticed. After such changes, open the collection with
`rebuild=True`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from context_agent._support.small_files import parse_json
from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.index.manifest import Manifest
from context_agent.retrieval.index.metadata_keys import Keys, entry_of
from context_agent.retrieval.index.publication import Publication, StoredCollection, publish, published
from context_agent.retrieval.index.records import StoredChunk, live, metadata_of, stored_chunk
from context_agent.retrieval.index.segments import SnapshotRow
from context_agent.retrieval.index.snapshot import Snapshot, load_snapshot, next_number, remove_others
from context_agent.retrieval.index.text_table import encode
from context_agent.retrieval.index.writer import SnapshotEntry, SnapshotWriter
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Chunk

COMPARED_RECORDS = 64
"""The number of records that are compared to detect changes in a foreign collection."""


class StoredRecords(Protocol):
    """The records of a collection, read from the store."""

    @property
    def name(self) -> str:
        """The collection's name."""

    def count(self) -> int:
        """Return the number of records."""

    def ids(self) -> list[str]:
        """Return the ids of all records, in the order of the store."""

    def ids_from(self, offset: int, limit: int) -> list[str]:
        """Return the ids of at most `limit` records, after the first `offset` ones."""

    def contents(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str | None, Mapping[str, Any] | None]]:
        """Yield the id, text and metadata of each record with one of these ids. By default, yield all records."""

    def vectors(self, ids: Sequence[str]) -> Iterator[tuple[Sequence[str], NDArray[np.float32]]]:
        """Yield record ids with their vectors, shape (n, d).

        If the store has lost a vector, raise `CorpusCorruptError`.
        """

    def dimension(self) -> int:
        """Return the length of the vectors. If the collection is empty, return 0."""

    def space(self) -> str:
        """Return the name of the distance: `cosine`, `l2` or `ip`."""


class OwnLayout:
    """A collection made by `index_documents`, in one state.

    Attributes:
        revision: The state, as it appears in the corpus's name.
        state: The state, together with the options for reading the collection.
        snapshot: The name of the snapshot that the collection itself refers to.
        language: The language of all texts of a new snapshot. If it is None, the language of each text is identified.
        dimension: The length of the vectors of a collection without records. It is 0 if it is unknown.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.revision, self.snapshot = str(manifest.revision), manifest.snapshot
        self.language = None if manifest.mixed else manifest.language
        self.dimension = manifest.dimension
        self.state = json.dumps(asdict(manifest), sort_keys=True)

    def chunk(self, record: str, text: str | None, metadata: Mapping[str, Any] | None) -> Chunk | None:
        """Return the chunk of a record. If the record has no text or is not part of the index, return None."""
        stored = stored_chunk(record, text, metadata)
        return stored.chunk if stored else None

    def fits(self, snapshot: Snapshot) -> bool:
        """Return True if the snapshot has the number of chunks and the vector length that the manifest states."""
        manifest = self.manifest
        return len(snapshot.rows) == manifest.chunks and snapshot.dimension in (0, manifest.dimension)

    def number(self, root: Path) -> int:
        """Return the number for a new snapshot in the folder `root`."""
        return self.manifest.revision

    def write(
        self, records: StoredRecords, writer: SnapshotWriter, base: Snapshot | None, changed: AbstractSet[str]
    ) -> None:
        """Write the whole collection."""
        stored = filter(None, (stored_chunk(*record) for record in records.contents()))
        for chunk in live(stored, self.manifest.revision):
            writer.add(snapshot_entry(chunk))


def snapshot_entry(stored: StoredChunk) -> SnapshotEntry:
    """Return the snapshot entry for a chunk that `index_documents` wrote."""
    chunk = stored.chunk
    row = SnapshotRow(stored.record, chunk.id, chunk.document_id)
    return SnapshotEntry(row, chunk.title, chunk.text, metadata_of(stored))


class ForeignLayout:
    """A collection that another program made, in one state. See `OwnLayout`."""

    revision = snapshot = ""
    language: str | None = None
    dimension = 0

    def __init__(self, keys: Keys, sequence: int = -1, counter: TokenCounter | None = None) -> None:
        """Describe a state.

        Args:
            keys: The metadata keys of the collection.
            sequence: The number of the collection's last change. It is -1 if the number is unknown.
            counter: The token counter for chunks whose metadata does not state their number of tokens.
        """
        self.keys = keys
        self.state = json.dumps({"keys": asdict(keys), "sequence": sequence}, sort_keys=True)
        self._count = lru_cache(maxsize=65_536)((counter or HarmonyCounter()).count)

    def chunk(self, record: str, text: str | None, metadata: Mapping[str, Any] | None) -> Chunk | None:
        """See `OwnLayout`."""
        keys, metadata = self.keys, metadata or {}
        entry = self._entry(record, text, metadata)
        if not entry.text.strip():
            return None
        tokens = _number(metadata, keys.tokens, -1)
        return Chunk(
            id=record,
            document_id=entry.row.document,
            index=_number(metadata, keys.index, 0),
            text=entry.text,
            start=0,
            end=len(entry.text),
            tokens=tokens if tokens >= 0 else self._count(entry.text),
            title=entry.title,
            metadata=metadata,
        )

    def latest(self, root: Path, *, lexical: bool) -> tuple[Snapshot | None, int]:
        """Return the last snapshot that was made with the same keys, and the sequence number of its state.

        If there is none, return (None, -1).
        """
        publication = published(root)
        try:
            state = parse_json(publication.state) if publication else {}
            if publication and state["keys"] == asdict(self.keys):
                return load_snapshot(root, publication.snapshot, lexical=lexical), int(state["sequence"])
        except (ValueError, KeyError, TypeError, OverflowError):
            pass
        return None, -1

    def fits(self, snapshot: Snapshot) -> bool:
        """See `OwnLayout`. A foreign collection has no manifest that states the counts, so every snapshot fits."""
        return True

    def number(self, root: Path) -> int:
        """See `OwnLayout`."""
        return next_number(root)

    def write(
        self, records: StoredRecords, writer: SnapshotWriter, base: Snapshot | None, changed: AbstractSet[str]
    ) -> None:
        """Write the differences between the collection and `base`.

        The `changed` records of the base count as differences.
        """
        added: list[str] | None = None
        if base is not None:
            present, earlier = records.ids(), base.chunk_of_record.keys()
            writer.remove((earlier - set(present)) | (earlier & changed))
            added = [record for record in present if record not in earlier or record in changed]
        for entry in self._entries(records, added):
            writer.add(entry)

    def same(self, records: StoredRecords, snapshot: Snapshot) -> bool:
        """Return True if a sample of the records shows no change since the snapshot."""
        count = records.count()
        last = records.ids_from(max(0, count - COMPARED_RECORDS), COMPARED_RECORDS)
        same_records = count == len(snapshot.rows) and all(record in snapshot.chunk_of_record for record in last)
        return same_records and self.same_texts(records, snapshot)

    def same_texts(self, records: StoredRecords, base: Snapshot) -> bool:
        """Return True if all sampled records that still exist have the same text as in `base`."""
        if not base.rows:
            return True
        positions = np.unique(np.linspace(0, len(base.rows) - 1, COMPARED_RECORDS).astype(int)).tolist()
        expected = {base.rows[position].record: base.rows.raw_text(position) for position in positions}
        entries = self._entries(records, list(expected))
        return all(expected[entry.row.record] == encode(entry.text) for entry in entries)

    def _entries(self, records: StoredRecords, ids: Sequence[str] | None) -> Iterator[SnapshotEntry]:
        """Yield the snapshot entries of these records. By default, yield those of all records."""
        return (self._entry(record, text, data or {}) for record, text, data in records.contents(ids))

    def _entry(self, record: str, text: str | None, metadata: Mapping[str, Any]) -> SnapshotEntry:
        # A record without text has an empty row, so the number of rows equals the collection's count.
        keys = self.keys
        document = entry_of(metadata, keys.document) or record
        title = entry_of(metadata, keys.title)
        text = str(metadata.get(keys.text, "")) if keys.text else text or ""
        return SnapshotEntry(SnapshotRow(record, record, document), title, text, metadata)


Layout = OwnLayout | ForeignLayout
LayoutOf = Callable[[StoredCollection], Layout]


def current_snapshot(layout: Layout, root: Path, *, lexical: bool = False) -> Snapshot | None:
    """Return the snapshot in the folder `root` that shows the layout's state. If there is none, return None.

    A rebuilt snapshot of the own layout has a different name from the one in the manifest.
    """
    publication = published(root)
    names = [publication.snapshot] if publication and publication.state == layout.state else []
    candidates = (load_snapshot(root, name, lexical=lexical) for name in (*names, layout.snapshot))
    return next((snapshot for snapshot in candidates if snapshot is not None and layout.fits(snapshot)), None)


def build(
    layout: Layout,
    records: StoredRecords,
    root: Path,
    *,
    base: Snapshot | None = None,
    changed: AbstractSet[str] = frozenset(),
    lexical: bool = False,
) -> Snapshot:
    """Make a new snapshot of the collection and return it. It is not published yet.

    Args:
        layout: The layout of the collection.
        records: The records of the collection.
        root: The folder of the snapshots.
        base: The last snapshot. The new one reuses its files.
        changed: Records of the base that have changed.
        lexical: Whether to leave out vectors and metadata.

    Raises:
        CorpusCorruptError: If a record has no vector, or if a file of the base is damaged.
    """
    dimension = 0 if lexical else records.dimension() or layout.dimension
    writer = SnapshotWriter(root, base, dimension=dimension, space=records.space(), language=layout.language)
    with writer.discarding():
        layout.write(records, writer, base, changed)
        add_stored_vectors(writer, records)
        return replace(writer.finish(), folder=root / writer.publish(layout.number(root)))


def add_stored_vectors(writer: SnapshotWriter, records: StoredRecords) -> None:
    """Write the missing vectors, as the collection stores them.

    If the store has lost a vector, raise `CorpusCorruptError`.
    """
    missing = writer.without_vectors()
    for ids, vectors in records.vectors(missing):
        writer.put_vectors(ids, vectors)
    if lost := writer.without_vectors():
        raise lost_vectors(records.name, f"{len(lost):,} of {len(missing):,} records have none")


def publish_state(fresh: Snapshot, layout: Layout, root: Path, stored: StoredCollection | None) -> Snapshot:
    """Make a snapshot the current one, and return it.

    If the snapshot is not lexical, `stored` describes its collection. The previous snapshot stays, because a process
    may be opening it.
    """
    previous = published(root)
    publish(root, Publication(fresh.name, layout.state, stored if fresh.vectors is not None else None))
    keep = {fresh.name, *([previous.snapshot] if previous else ())}
    # In the folder of an index, unfinished files may belong to an indexing run.
    remove_others(root, keep, unfinished=isinstance(layout, ForeignLayout))
    return fresh


def lost_vectors(collection: str, reason: str) -> CorpusCorruptError:
    """Return the error for records whose vectors the store has lost."""
    return CorpusCorruptError(
        f"Chroma has lost vectors of collection {collection!r} ({reason}). Index the documents again, or restore the "
        "folder from a backup."
    )


def _number(metadata: Mapping[str, Any], key: str | None, default: int) -> int:
    value = metadata.get(key) if key else None
    return int(value) if isinstance(value, int | float) else default
