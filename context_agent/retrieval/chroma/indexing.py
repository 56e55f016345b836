"""Indexing documents into a Chroma collection: idempotent, resumable, one writer at a time.

A run never changes what readers see until it writes the manifest: new chunks are added beside the old ones under a
revision that no manifest names yet. The order at the end is: new snapshot, manifest, publication, removal of what was
replaced. In a local folder this is the only process that opens Chroma's files with Chroma's client.
Killed at any moment, the index opens in its last complete state, and running again skips what is already stored.

Peak memory: the ids of all chunks, and a few batches of texts and vectors. A document that is replaced needs the space
of both versions until the end of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from context_agent.errors import (
    ConfigError,
    CorpusCorruptError,
    CorpusEmptyError,
    CorpusError,
    CorpusLockedError,
    DimensionError,
)
from context_agent.retrieval.chroma.client import ClientReader
from context_agent.retrieval.chroma.corpus import Reader
from context_agent.retrieval.chroma.database import StoredCollection
from context_agent.retrieval.chroma.layouts import OwnLayout, add_stored_vectors, build
from context_agent.retrieval.chroma.local import SnapshotReader
from context_agent.retrieval.chroma.records import (
    BATCH,
    Chunking,
    Manifest,
    RecordWriter,
    check_document,
    delete_records,
    digest_in,
    digest_of,
    entries_of,
    entry_of,
    metadata_of,
    read_manifest,
    record_id,
    write_manifest,
)
from context_agent.retrieval.chroma.repair import UNFINISHED, mend
from context_agent.retrieval.chroma.snapshot import (
    Indexed,
    Publication,
    Snapshot,
    SnapshotRow,
    SnapshotWriter,
    publish,
    remove_others,
)
from context_agent.retrieval.chroma.store import (
    OWN_FOLDER,
    Place,
    all_ids,
    cache_folder,
    connect,
    disk_full,
    make_folder,
    own_folder,
    readable,
    space_of,
    writing,
)
from context_agent.retrieval.chroma.stored_embedder import check_writable
from context_agent.retrieval.fusion import Bm25Retriever, Calibration, QueryVectors, calibrate, probes_of, sample_rows
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Document

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder

DOCUMENTS = "documents"


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far a run is: documents looked at, chunks found new, chunks stored."""

    documents: int
    chunks: int
    stored: int


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What a run did. `added`, `replaced`, `unchanged`, `removed` and `empty` count documents; times in seconds."""

    collection: str
    revision: int
    chunks: int
    added: int
    replaced: int
    unchanged: int
    removed: int
    empty: int
    stored: int
    resumed: int
    seconds: float
    embedding_seconds: float
    chunking_seconds: float


def index_documents(
    documents: Iterable[Document],
    path: str | Path | None = None,
    *,
    url: str | None = None,
    collection: str = DOCUMENTS,
    embedder: Embedder | str | None = None,
    chunk_size: int | None = None,
    overlap: int = 0,
    counter: TokenCounter | None = None,
    remove_missing: bool = False,
    calibration: bool = True,
    progress: Callable[[IndexProgress], None] | None = None,
    batch_size: int = BATCH,
    headers: dict[str, str] | None = None,
    tenant: str | None = None,
    database: str | None = None,
    cache: str | Path | None = None,
) -> IndexReport:
    """Brings a collection up to date with `documents`, and makes it when there is none.

    Unchanged documents (same id, title, text, metadata and chunking) are skipped, changed ones replaced;
    `remove_missing` removes those that are not among `documents`. `embedder` is one or a spec for `load_embedder`,
    defaults to the static one, and cannot change between runs. `progress` is called every 256 documents and at the end.
    With a server, the lock holds on this machine only.

    Raises `CorpusLockedError` while another process writes, `CorpusEmptyError` when there is nothing to index,
    `CorpusError` for a document id that occurs twice with different content, a document that Chroma cannot hold (see
    `metadata.check_document`) or a collection that was not made here,
    `DimensionError` and `ConfigError` for another embedder than before.
    """
    place = Place.of(path, url, headers=headers, tenant=tenant, database=database)
    spec = embedder if isinstance(embedder, str) else "static" if embedder is None else ""
    embedder = _loaded(embedder)
    counter = counter if counter is not None else HarmonyCounter()
    if place.path is not None:
        make_folder(place.path)
    with _full_disk_explained(place), _one_writer(place, collection, cache), writing(place), readable(place):
        mend(place, collection, cache, embedder)
        chunking = _chunking(chunk_size, overlap, counter)
        first = Manifest(embedder.name, embedder.dimension, chunking, spec)
        with closing(cast("Any", connect(place))) as client:
            target = _collection(client, place, collection, first)
            root = own_folder(place, str(target.id), cache)
            run = _Run(
                target,
                root,
                whole=place.path is not None,
                embedder=embedder,
                chunking=chunking,
                counter=counter,
                progress=progress,
                batch_size=batch_size,
            )
            report = run(documents, remove_missing=remove_missing, calibration=calibration)
        (root / UNFINISHED).unlink(missing_ok=True)
        return report


class _Run:
    """One indexing run over a collection that is locked."""

    def __init__(
        self,
        collection: Collection,
        root: Path,
        *,
        whole: bool,
        embedder: Embedder,
        chunking: Chunking,
        counter: TokenCounter,
        progress: Callable[[IndexProgress], None] | None,
        batch_size: int,
    ) -> None:
        manifest = read_manifest(collection)
        assert manifest is not None
        self.began = time.monotonic()
        self.collection, self.root, self.manifest, self.whole = collection, root, manifest, whole
        root.mkdir(parents=True, exist_ok=True)
        if whole:
            (root / UNFINISHED).touch()
        self.embedder, self.chunking, self.counter, self.progress = embedder, chunking, counter, progress
        self.revision = manifest.revision + 1
        self.base = self._base()
        self.digests = {row.document: digest_in(row.record) for row in self.base.rows} if self.base else {}
        self.left_over = self._left_over()
        self.fresh = SnapshotWriter(
            root, self.base, dimension=embedder.dimension if whole else 0, space=space_of(collection)
        )
        self.writer = RecordWriter(collection, embedder, batch_size, self.fresh.put_vectors if whole else None)
        self.seen: dict[str, str] = {}
        self.counts = dict.fromkeys(("added", "replaced", "unchanged", "removed", "empty", "resumed"), 0)
        self.written: set[str] = set()
        self.chunking_seconds = 0.0

    def __call__(self, documents: Iterable[Document], *, remove_missing: bool, calibration: bool) -> IndexReport:
        try:
            with self.writer:
                for document in documents:
                    self._take(document)
            outdated = self._outdated(remove_missing)
            if not self.written and not outdated:
                self.fresh.discard()
                return self._unchanged()
            return self._complete(outdated, calibration)
        except BaseException:
            self.fresh.discard()
            raise

    def _take(self, document: Document) -> None:
        check_document(document)
        digest = digest_of(document, self.chunking)
        known = self.seen.setdefault(document.id, digest)
        if known != digest:
            raise CorpusError(f"document id {document.id!r} occurs twice with different content: make the ids unique")
        if self.digests.get(document.id) == digest:
            self.counts["unchanged"] += 1
        elif record_id(f"{document.id}_0", digest) not in self.written:
            self._add(document, digest)
        if self.progress is not None and len(self.seen) % 256 == 0:
            self.progress(IndexProgress(len(self.seen), len(self.written), self.writer.stored))

    def _add(self, document: Document, digest: str) -> None:
        began = time.monotonic()
        entries = entries_of(
            document,
            digest,
            chunking=self.chunking,
            counter=self.counter,
            revision=self.revision,
            place=len(self.seen),
        )
        self.chunking_seconds += time.monotonic() - began
        kind = "empty" if not entries else "replaced" if document.id in self.digests else "added"
        self.counts[kind] += 1
        for entry in entries:
            row = SnapshotRow(entry.record, entry.chunk.id, document.id)
            self.fresh.add(Indexed(row, entry.chunk.title, entry.chunk.text, metadata_of(entry)))
            self.written.add(entry.record)
            if entry.record in self.left_over:
                self.counts["resumed"] += 1
            else:
                self.writer.add(entry)

    def _outdated(self, remove_missing: bool) -> set[str]:
        """The complete records that the next state leaves out."""
        replaced = {document for document, digest in self.seen.items() if self.digests.get(document, digest) != digest}
        missing = self.digests.keys() - self.seen.keys() if remove_missing else set()
        self.counts["removed"] = len(missing)
        gone = replaced | missing
        return {row.record for row in self.base.rows if row.document in gone} if self.base else set()

    def _complete(self, outdated: set[str], calibration: bool) -> IndexReport:
        """From here on: snapshot, manifest, publication, removal; the index is whole before and after each."""
        delete_records(self.collection, self.left_over - self.written)
        add_stored_vectors(self.fresh, self.collection)
        self.fresh.remove(outdated)
        snapshot = self.fresh.finish()
        if not snapshot.rows:
            raise CorpusEmptyError("nothing to index: no document was given, or none has any text")
        found = self._calibrate(snapshot) if calibration else Calibration({}, {})
        name = self.fresh.publish(self.revision)
        manifest = self.manifest.next(self.chunking, len(snapshot.rows), found, name)
        write_manifest(self.collection, manifest)
        publish(self.root, Publication(name, OwnLayout(manifest).state(), self._stored(manifest)))
        delete_records(self.collection, outdated)
        self._remove_old_snapshots(name)
        stored = self.collection.count()
        if stored != len(snapshot.rows):
            raise CorpusCorruptError(
                f"{self.collection.name!r} holds {stored} records instead of {len(snapshot.rows)}: was another program "
                "writing to it? Delete the collection and index again"
            )
        return self._report(self.revision, len(snapshot.rows))

    def _base(self) -> Snapshot | None:
        """The last complete state; read from the collection where its snapshot is missing."""
        if not self.manifest.revision:
            return None
        layout = OwnLayout(self.manifest)
        current = layout.current(self.root, layout.state(), lexical=not self.whole)
        return current or build(layout, self.collection, self.root, lexical=not self.whole)

    def _stored(self, manifest: Manifest) -> StoredCollection | None:
        """The collection as readers would find it in Chroma's database."""
        if not self.whole:
            return None
        return StoredCollection(
            id=str(self.collection.id),
            name=self.collection.name,
            metadata=dict(self.collection.metadata or {}),
            configuration=None,
            schema=None,
            dimension=manifest.dimension,
            empty=False,
            sequence=0,
        )

    def _remove_old_snapshots(self, name: str) -> None:
        """All but this one and the one before it, which a reader may be opening; none while a reader makes one."""
        from filelock import FileLock, Timeout

        keep = {name, *([self.base.name] if self.base else ())}
        with suppress(Timeout), FileLock(self.root / "snapshot.lock", timeout=0):
            remove_others(self.root, keep, unfinished=True)

    def _calibrate(self, snapshot: Snapshot) -> Calibration:
        rows = [snapshot.rows[row] for row in sample_rows(len(snapshot.rows))]
        reader = self._reader(snapshot)
        dense = reader.dense(QueryVectors(self.embedder))
        sparse = Bm25Retriever(snapshot.bm25, lambda where: frozenset(), snapshot.chunk_of_record)
        chunks = reader.chunks([row.chunk for row in rows])
        return calibrate([dense, sparse], probes_of([chunks[row.chunk] for row in rows if row.chunk in chunks]))

    def _reader(self, snapshot: Snapshot) -> Reader:
        layout = OwnLayout(self.manifest)
        return SnapshotReader(snapshot, layout) if self.whole else ClientReader(self.collection, snapshot, layout)

    def _left_over(self) -> set[str]:
        """Records of this revision from a run that was interrupted; those that a completed run left are removed."""
        complete = {row.record for row in self.base.rows} if self.base else set()
        extra = [record for record in all_ids(self.collection) if record not in complete]
        usable: set[str] = set()
        for start in range(0, len(extra), BATCH):
            page = self.collection.get(ids=extra[start : start + BATCH], include=["metadatas"])
            entries = [entry_of(one, "", data) for one, data in zip(page["ids"], page["metadatas"] or [], strict=True)]
            usable |= {entry.record for entry in entries if entry and entry.revision == self.revision}
        delete_records(self.collection, set(extra) - usable)
        return usable

    def _unchanged(self) -> IndexReport:
        delete_records(self.collection, self.left_over)
        if self.base is None:
            raise CorpusEmptyError("nothing to index: no document was given, or none has any text")
        return self._report(self.manifest.revision, len(self.base.rows))

    def _report(self, revision: int, chunks: int) -> IndexReport:
        if self.progress is not None:
            self.progress(IndexProgress(len(self.seen), len(self.written), self.writer.stored))
        return IndexReport(
            collection=self.collection.name,
            revision=revision,
            chunks=chunks,
            stored=self.writer.stored,
            seconds=time.monotonic() - self.began,
            embedding_seconds=self.writer.embedding_seconds,
            chunking_seconds=self.chunking_seconds,
            **self.counts,
        )


def _collection(client: ClientAPI, place: Place, name: str, wanted: Manifest) -> Collection:
    """The collection, with a manifest that fits what is wanted; made when there is none."""
    collection = client.get_or_create_collection(
        name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    manifest, count = read_manifest(collection), collection.count()
    if manifest is None and count:
        raise CorpusError(
            f"collection {name!r} in {place} was not made by this program: it can be searched as it is, but "
            "index into one of another name"
        )
    check_writable(name, collection.configuration_json, collection.get_model().serialized_schema)
    if manifest is None or not count:
        manifest = wanted if manifest is None else replace(wanted, revision=manifest.revision)
        write_manifest(collection, manifest)
    if manifest.dimension != wanted.dimension:
        raise DimensionError(
            f"{name!r} holds vectors of {manifest.dimension} numbers by {manifest.embedder}, {wanted.embedder} makes "
            f"{wanted.dimension}: index into another collection"
        )
    if manifest.embedder != wanted.embedder:
        raise ConfigError(f"{name!r} was indexed by {manifest.embedder}, not {wanted.embedder}: use another collection")
    return collection


def _chunking(size: int | None, overlap: int, counter: TokenCounter) -> Chunking:
    from context_agent.retrieval.chunker import SIZE

    return Chunking(SIZE if size is None else size, overlap, counter.name)


@contextmanager
def _full_disk_explained(place: Place) -> Iterator[None]:
    """Says of a full disk that it is one, whatever met it: this package, tantivy or Chroma."""
    try:
        yield
    except Exception as error:
        if not disk_full(place, error):
            raise
        raise CorpusError(
            f"the disk is full, or a limit on file sizes is reached: not all documents could be indexed into {place}. "
            "The last complete state of the index is intact. Free some space and run the same command again: it "
            "resumes where it stopped"
        ) from error


@contextmanager
def _one_writer(place: Place, collection: str, cache: str | Path | None) -> Iterator[None]:
    """Holds the lock of a folder, or of a server's collection on this machine. A killed process holds none."""
    from hashlib import blake2b

    from filelock import FileLock, Timeout

    if place.path is not None:
        file = place.path / OWN_FOLDER / "writer.lock"
    else:
        name = blake2b(f"{place}/{collection}".encode(), digest_size=8).hexdigest()
        file = cache_folder(cache) / f"{name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(file, timeout=0):
            yield
    except Timeout as error:
        raise CorpusLockedError(f"another process is indexing into {place}: wait until it is done") from error


def _loaded(embedder: Embedder | str | None) -> Embedder:
    from context_agent.retrieval.embedders import load_embedder

    return load_embedder(embedder or "static") if embedder is None or isinstance(embedder, str) else embedder
