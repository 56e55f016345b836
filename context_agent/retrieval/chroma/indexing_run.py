"""One run of indexing over a collection that is locked, in the order that `indexing` describes."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

from context_agent._support.locks import file_lock
from context_agent.errors import (
    CorpusCorruptError,
    CorpusEmptyError,
    CorpusError,
    CorpusLockedError,
)
from context_agent.retrieval.chroma.client_source import ClientReader
from context_agent.retrieval.chroma.collection import CollectionRecords, read_manifest, write_manifest
from context_agent.retrieval.chroma.indexing_report import IndexProgress, IndexReport
from context_agent.retrieval.chroma.record_writer import RecordWriter, delete_records
from context_agent.retrieval.chroma.repair import UNFINISHED_MARK
from context_agent.retrieval.chunker import Span
from context_agent.retrieval.document_checks import check_document
from context_agent.retrieval.embedders import MINILM, STATIC
from context_agent.retrieval.embedders.default import SMALL_CORPUS_CHARACTERS, is_small
from context_agent.retrieval.embedders.query_vectors import query_vectors
from context_agent.retrieval.index.bm25 import Bm25Retriever
from context_agent.retrieval.index.layouts import (
    OwnLayout,
    add_stored_vectors,
    build,
    current_snapshot,
    publish_state,
    snapshot_entry,
)
from context_agent.retrieval.index.manifest import Chunking, Manifest
from context_agent.retrieval.index.publication import MAKER_LOCK, Publication, StoredCollection, one_maker, publish
from context_agent.retrieval.index.reader import SnapshotReader
from context_agent.retrieval.index.records import chunks_to_store, digest_in, digest_of, record_id, stored_chunk
from context_agent.retrieval.index.snapshot import Snapshot, remove_others
from context_agent.retrieval.index.vector_graph import APPROXIMATE_FROM, graphs_available
from context_agent.retrieval.index.writer import SnapshotWriter
from context_agent.retrieval.language_fit import language_warning
from context_agent.retrieval.retriever_weights import Calibration, calibrate, probes_of, sample_rows
from context_agent.tokens import TokenCounter
from context_agent.types import Document

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection as ChromaCollection

    from context_agent.retrieval.embedders import Embedder, Vectors


MAX_MISSING_EXAMPLES = 3
"""The maximum number of missing documents that a report names."""
MEASURED_BELOW = 20_000
"""If an index has fewer rows, every run measures the weights of the retrievers. This reads all vectors 100 times."""
MEASURED_SHARE = 5
"""In a larger index, a run measures the weights only if it writes at least one of this many rows."""
_NOTHING_TO_INDEX = "there is nothing to index, because no document has text. Pass a source with text."


class IndexingRun:
    """One indexing run over a collection that is locked."""

    def __init__(
        self,
        collection: ChromaCollection,
        root: Path,
        *,
        local: bool,
        embedder: Embedder,
        stored: bool,
        chunking: Chunking,
        counter: TokenCounter,
        language: str | None,
        progress: Callable[[IndexProgress], None] | None,
        batch_size: int | None,
    ) -> None:
        manifest = read_manifest(collection)
        assert manifest is not None
        self.began = time.monotonic()
        self.collection, self.root, self.manifest, self.local = collection, root, manifest, local
        self.records = CollectionRecords(collection)
        root.mkdir(parents=True, exist_ok=True)
        if local:
            (root / UNFINISHED_MARK).touch()
        self.embedder, self.chunking, self.counter, self.progress = embedder, chunking, counter, progress
        self.revision, self.language, self.stored = manifest.revision + 1, language, stored
        self.base = self._base()
        self.resumable = self._resumable_records()
        self.resumable_documents = sum(record.endswith(f"_0~{digest_in(record)}") for record in self.resumable)
        self.fresh = SnapshotWriter(
            root,
            self.base,
            dimension=embedder.dimension if local else 0,
            space=self.records.space(),
            language=language,
        )
        self.writer = RecordWriter(collection, embedder, batch_size, self._put_vectors)
        self.seen: dict[str, str] = {}
        """The digest of each document of this run, by id."""
        self.earlier: dict[str, str] = {}
        """The digest of each of these documents in the last complete state. It is empty for a new document."""
        self.counts = dict.fromkeys(("added", "replaced", "unchanged", "removed", "empty", "resumed"), 0)
        self.missing, self.missing_examples, self.embedded = 0, tuple[str, ...](), 0
        self.written: set[str] = set()
        self.ends: list[int] = []
        """For each document that no earlier run stored, the number of new chunks up to its last one."""
        self.chunking_seconds = 0.0

    def index(
        self,
        documents: Iterable[Document],
        *,
        remove_missing: bool | Collection[str],
        keep: Callable[[str], bool] | None,
        calibration: bool,
    ) -> IndexReport:
        """Bring the collection up to date with the documents. The options are those of `index_documents`."""
        try:
            with self.fresh.discarding():
                with self.writer:
                    for document in documents:
                        self._index_document(document)
                outdated = self._outdated(remove_missing, keep)
                if not self.written and not outdated and not self._other_language():
                    self.fresh.discard()
                    return self._unchanged()
                return self._complete(outdated, calibration)
        except BaseException:
            self._show_progress()
            raise

    def _index_document(self, document: Document) -> None:
        check_document(document)
        digest = digest_of(document, self.chunking)
        if self.seen.setdefault(document.id, digest) != digest:
            raise CorpusError(f"document id {document.id!r} occurs twice with different content. Make the ids unique.")
        earlier = self.earlier[document.id] = self._digest(document.id)
        if earlier == digest:
            self.counts["unchanged"] += 1
        elif record_id(f"{document.id}_0", digest) not in self.written:
            self._add(document, digest, replaced=bool(earlier))
        if len(self.seen) % 256 == 0:
            self._show_progress()

    def _put_vectors(self, records: Sequence[str], vectors: Vectors) -> None:
        if self.local:
            self.fresh.put_vectors(records, vectors)
        self.embedded += len(records)
        self._show_progress()

    def _show_progress(self, graph: int = 0) -> None:
        if self.progress is not None:
            stored, embedded = self.writer.stored, self.counts["resumed"] + self.embedded
            kept = self.resumable_documents + bisect_right(self.ends, stored)
            self.progress(IndexProgress(len(self.seen), len(self.written), stored, kept, graph, embedded))

    def _digest(self, document: str) -> str:
        """Return the digest of a document in the last complete state. If it has no such document, return ""."""
        row = next(self.base.rows.find("document", document), None) if self.base else None
        return digest_in(row[1].record) if row else ""

    def _add(self, document: Document, digest: str, *, replaced: bool) -> None:
        began = time.monotonic()
        stored_chunks = chunks_to_store(
            document,
            digest,
            chunking=self.chunking,
            counter=self.counter,
            revision=self.revision,
            position=len(self.seen),
            resumable=self.resumable,
        )
        self.chunking_seconds += time.monotonic() - began
        kind = "empty" if not stored_chunks else "replaced" if replaced else "added"
        self.counts[kind] += 1
        for stored in stored_chunks:
            self.fresh.add(snapshot_entry(stored))
            self.written.add(stored.record)
            if stored.record in self.resumable:
                self.counts["resumed"] += 1
            else:
                self.writer.add(stored)
        if stored_chunks and stored_chunks[0].record not in self.resumable:
            self.ends.append(self.writer.added)

    def _outdated(self, remove_missing: bool | Collection[str], keep: Callable[[str], bool] | None) -> set[str]:
        """Return the records of the last complete state that the next one will not contain. Count missing documents."""
        if self.base is None:
            return set()
        replaced = {document for document, digest in self.seen.items() if self.earlier[document] not in ("", digest)}
        if remove_missing is True:
            removed = {row.document for row in self.base.rows} - self.seen.keys()
        else:
            removed = {
                document for document in remove_missing or () if document not in self.seen and self._digest(document)
            }
        if keep is not None:
            removed = {document for document in removed if not keep(document)}
        self.counts["removed"] = len(removed)
        self.missing = self.base.document_count - sum(map(bool, self.earlier.values())) - len(removed)
        if self.missing:
            documents = (document for document, _ in groupby(row.document for row in self.base.rows))
            missing = (document for document in documents if document not in self.seen and document not in removed)
            self.missing_examples = tuple(islice(missing, MAX_MISSING_EXAMPLES))
        gone = replaced | removed
        return {row.record for document in gone for _, row in self.base.rows.find("document", document)}

    def _complete(self, outdated: set[str], calibration: bool) -> IndexReport:
        """Make the snapshot, write the manifest, publish, and then delete the outdated records.

        The index is complete before and after each step.
        """
        delete_records(self.collection, self.resumable.keys() - self.written)
        add_stored_vectors(self.fresh, self.records)
        self.fresh.remove(outdated)
        snapshot = self.fresh.finish(self._show_progress)
        if not snapshot.rows and not self.counts["removed"]:
            raise CorpusEmptyError(_NOTHING_TO_INDEX)
        calibrated = self._calibration(snapshot) if calibration else Calibration({}, {})
        name = self.fresh.publish(self.revision)
        bm25 = snapshot.bm25
        manifest = self.manifest.next(
            self.chunking, len(snapshot.rows), calibrated, name, bm25.language, mixed=bm25.mixed
        )
        write_manifest(self.collection, manifest)
        publish(self.root, Publication(name, OwnLayout(manifest).state, self._described(manifest)))
        delete_records(self.collection, outdated)
        self._remove_old_snapshots(name)
        stored = self.collection.count()
        if stored != len(snapshot.rows):
            raise CorpusCorruptError(
                f"{self.collection.name!r} has {stored} records instead of {len(snapshot.rows)}, so another program "
                "may have written to it. Delete the collection, and index the documents again."
            )
        return self._report(self.revision, snapshot)

    def _other_language(self) -> bool:
        """Return True if the caller names a language, and the index is in several languages or in another one."""
        named = "" if self.manifest.mixed else self.manifest.language
        return self.language is not None and self.language != named

    def _base(self) -> Snapshot | None:
        """Return the last complete state.

        If its snapshot is missing, or if the caller names another language, read the state from the collection.
        """
        if not self.manifest.revision:
            return None
        layout, lexical = OwnLayout(self.manifest), not self.local
        if self._other_language():
            layout.language = self.language
            return build(layout, self.records, self.root, lexical=lexical)
        if (current := current_snapshot(layout, self.root, lexical=lexical)) is not None:
            return current
        with one_maker(self.root) as root:
            fresh = build(layout, self.records, root, lexical=lexical)
            # Without changes, the run ends without a new state. The next run must find this snapshot.
            return publish_state(fresh, layout, root, self._described(self.manifest))

    def _described(self, manifest: Manifest) -> StoredCollection | None:
        """Return the collection as readers would find it in Chroma's database."""
        metadata, dimension = dict(self.collection.metadata or {}), manifest.dimension
        described = StoredCollection(str(self.collection.id), self.collection.name, metadata, dimension=dimension)
        return described if self.local else None

    def _remove_old_snapshots(self, name: str) -> None:
        """Remove all snapshots except this one and its predecessor, which a reader may be opening.

        If a reader is making a snapshot, remove none.
        """
        keep = {name, *([self.base.name] if self.base else ())}
        busy = CorpusLockedError("a reader is making a snapshot")
        with suppress(CorpusLockedError), file_lock(self.root / MAKER_LOCK, busy=busy):
            remove_others(self.root, keep, unfinished=True)

    def _calibration(self, snapshot: Snapshot) -> Calibration:
        """Return the weights of the retrievers. If a large index has few new rows, it keeps its weights."""
        rows, stored = len(snapshot.rows), self.manifest.stored_calibration()
        little_new = rows >= MEASURED_BELOW and self.fresh.rewritten * MEASURED_SHARE < rows
        return stored if stored is not None and little_new else self._calibrate(snapshot)

    def _calibrate(self, snapshot: Snapshot) -> Calibration:
        layout = OwnLayout(self.manifest)
        reader = SnapshotReader(snapshot, layout) if self.local else ClientReader(self.collection, snapshot, layout)
        sparse = Bm25Retriever(snapshot.bm25, reader.matching, snapshot.chunk_of_record)
        sample = [snapshot.rows[row].chunk for row in sample_rows(len(snapshot.rows))]
        probes = probes_of(sample, snapshot.bm25, reader.chunks, snapshot.chunk_of_record)
        return calibrate([reader.dense(query_vectors(self.embedder)), sparse], probes)

    def _resumable_records(self) -> dict[str, Span]:
        """Return the records that an interrupted run of this revision stored. Delete other leftover records."""
        if self.base is not None and self.collection.count() == len(self.base.rows):
            return {}
        complete = self.base.row_of_record if self.base else {}
        extra = [record for record in self.records.ids() if record not in complete]
        usable: dict[str, Span] = {}
        for page in self.records.pages(["metadatas"], extra):
            for record, metadata in zip(page["ids"], page["metadatas"] or [], strict=True):
                stored = stored_chunk(record, "", metadata)
                if stored and stored.revision == self.revision:
                    usable[record] = Span(stored.chunk.start, stored.chunk.end, stored.chunk.tokens)
        delete_records(self.collection, set(extra) - usable.keys())
        return usable

    def _unchanged(self) -> IndexReport:
        delete_records(self.collection, self.resumable)
        if self.base is None:
            raise CorpusEmptyError(_NOTHING_TO_INDEX)
        return self._report(self.manifest.revision, self.base)

    def _report(self, revision: int, snapshot: Snapshot) -> IndexReport:
        self._show_progress()
        return IndexReport(
            collection=self.collection.name,
            revision=revision,
            chunks=len(snapshot.rows),
            missing=self.missing,
            missing_examples=self.missing_examples,
            stored=self.writer.stored,
            language=snapshot.bm25.language,
            languages=snapshot.bm25.languages,
            embedder=self.embedder.name,
            warning=language_warning(self.embedder.name, snapshot.sample())
            or self._outgrown(snapshot)
            or _without_graph(snapshot),
            seconds=time.monotonic() - self.began,
            embedding_seconds=self.writer.embedding_seconds,
            chunking_seconds=self.chunking_seconds,
            **self.counts,
        )

    def _outgrown(self, snapshot: Snapshot) -> str:
        """Return a warning if this run made an index with MiniLM so large that a new index would not get it.

        If the caller named the embedder, or if the index was that large before, return "".
        """
        if not self.stored or not self.embedder.name.startswith(f"{MINILM}-") or _has_small_texts(snapshot):
            return ""
        if self.base is not None and not _has_small_texts(self.base):
            return ""
        target = "--path NEW_FOLDER" if self.local else "--url URL --collection NEW_NAME"
        return (
            f"the index now has more than {SMALL_CORPUS_CHARACTERS:,} characters, but keeps the embedder {MINILM}, "
            f"which takes up to 20 ms for each further passage. {STATIC} takes a hundredth of that, and finds a little "
            f"less. To make the index anew with it, run `ctx1 index SOURCE {target} --embedder {STATIC}`."
        )


def _has_small_texts(snapshot: Snapshot) -> bool:
    return is_small(len(snapshot.rows.text(row)) for row in range(len(snapshot.rows)))


def _without_graph(snapshot: Snapshot) -> str:
    """Return a hint to install usearch if each search of a large index reads all vectors. Otherwise, return ""."""
    if not snapshot.dimension or len(snapshot.rows) < APPROXIMATE_FROM or graphs_available():
        return ""
    return (
        f"every search reads the vectors of all {len(snapshot.rows):,} chunks. For quicker searches, run `pip "
        'install "context-agent[large]"`. The next run that changes the index then makes a graph of its vectors.'
    )
