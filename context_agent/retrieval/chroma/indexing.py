"""Indexing documents into a Chroma collection: idempotent, resumable, one writer at a time.

Until a run writes the manifest, readers see the previous state. The run adds new chunks without removing the old ones,
under a revision that no manifest names yet. At the end, it makes a new snapshot, writes the manifest, publishes the
snapshot, and deletes the replaced chunks, in this order. In a local folder, only the indexing process opens Chroma's
files with Chroma's client. If this process is killed, the index opens in its last complete state. The next run skips
the chunks that are already stored.

The memory holds at most the ids of all chunks, and a few batches of texts and vectors. Until the end of the run, the
disk holds both versions of a replaced document.
"""

from __future__ import annotations

import errno
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from context_agent._support.arguments import items_of, require_callable, require_members, require_type, whole_number
from context_agent._support.folders import cache_folder
from context_agent._support.locks import file_lock
from context_agent.errors import (
    ConfigError,
    CorpusCorruptError,
    CorpusEmptyError,
    CorpusError,
    CorpusLockedError,
    CorpusNotFoundError,
    DimensionError,
)
from context_agent.retrieval.calibration import Calibration, calibrate, probes_of, sample_rows
from context_agent.retrieval.chroma import DEFAULT_COLLECTION
from context_agent.retrieval.chroma.client import chroma_errors, connect, disk_full, find, invalid_name, writing
from context_agent.retrieval.chroma.client_source import ClientReader
from context_agent.retrieval.chroma.collection import CollectionRecords, read_manifest, write_manifest
from context_agent.retrieval.chroma.database import DATABASE_FILE, read_collection
from context_agent.retrieval.chroma.location import (
    OWN_FOLDER,
    WRITER_LOCK,
    Location,
    make_folder,
    own_folder,
    without_links,
)
from context_agent.retrieval.chroma.record_writer import RecordWriter, delete_records
from context_agent.retrieval.chroma.repair import UNFINISHED_MARK, remember_vectors, repair_vectors, undo_unfinished
from context_agent.retrieval.chroma.stored_embedder import check_writable, stored_embedder
from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, Span
from context_agent.retrieval.document_checks import check_document
from context_agent.retrieval.embedders import MINILM, STATIC, as_embedder
from context_agent.retrieval.embedders.default import SMALL_CORPUS_CHARACTERS, default_embedder, is_small
from context_agent.retrieval.embedders.query_vectors import query_vectors
from context_agent.retrieval.index.bm25 import Bm25Retriever
from context_agent.retrieval.index.layouts import OwnLayout, add_stored_vectors, build, current_snapshot, snapshot_entry
from context_agent.retrieval.index.manifest import MANIFEST_KEY, Chunking, Manifest, parse_manifest
from context_agent.retrieval.index.publication import MAKER_LOCK, Publication, StoredCollection, publish
from context_agent.retrieval.index.reader import SnapshotReader
from context_agent.retrieval.index.records import chunks_to_store, digest_in, digest_of, record_id, stored_chunk
from context_agent.retrieval.index.snapshot import Snapshot, remove_others
from context_agent.retrieval.index.vector_graph import APPROXIMATE_FROM, graphs_available
from context_agent.retrieval.index.writer import SnapshotWriter
from context_agent.retrieval.language_fit import language_warning
from context_agent.text.languages import require_language
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Document

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection as ChromaCollection

    from context_agent.retrieval.embedders import Embedder, EmbeddingFunction, Vectors

MAX_MISSING_EXAMPLES = 3
"""The maximum number of missing documents that a report names."""
MEASURED_BELOW = 20_000
"""If an index has fewer rows, every run measures the weights of the retrievers. This reads all vectors 100 times."""
MEASURED_SHARE = 5
"""In a larger index, a run measures the weights only if it writes at least one of this many rows."""
_NOTHING_TO_INDEX = "there is nothing to index, because no document has text. Pass a source with text."


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of a run.

    Attributes:
        documents: The number of documents that were read.
        chunks: The number of new chunks.
        stored: The number of new chunks that are stored.
        kept: The number of new and changed documents that are stored, by this run or by the interrupted run that it
            resumes.
        graph: The number of vectors in the graph for approximate search. The graph of a large index is made last.
        embedded: The number of new chunks that have vectors. They are stored soon afterwards.
    """

    documents: int
    chunks: int
    stored: int
    kept: int = 0
    graph: int = 0
    embedded: int = 0


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of a run. Times are in seconds.

    Attributes:
        collection: The name of the collection.
        revision: The number of the state that the run completed.
        chunks: The number of chunks in the index.
        added: The number of new documents.
        replaced: The number of changed documents.
        unchanged: The number of unchanged documents.
        removed: The number of documents that were removed.
        missing: The number of documents in the index that this run did not get. They stay in the index.
        missing_examples: The ids of the first missing documents.
        empty: The number of documents without text.
        stored: The number of chunks that this run stored.
        resumed: The number of chunks that an interrupted run had stored.
        language: The language that the caller named, or the language of most texts (see `text.languages`).
        languages: The number of chunks in each language, the most frequent language first.
        embedder: The name of the embedder, such as `minilm-384@1a2b3c4d`.
        warning: A warning, or an empty text. It names a language that the embedder does not know, an index that this
            run made too large for the embedder of its first texts, a missing package for faster searches, or another
            collection that searches read before and no longer do.
        seconds: The duration of the run.
        embedding_seconds: The time spent on embedding.
        chunking_seconds: The time spent on chunking.
    """

    collection: str
    revision: int
    chunks: int
    added: int
    replaced: int
    unchanged: int
    removed: int
    missing: int
    missing_examples: tuple[str, ...]
    empty: int
    stored: int
    resumed: int
    language: str
    languages: Mapping[str, int]
    embedder: str
    warning: str
    seconds: float
    embedding_seconds: float
    chunking_seconds: float


def index_documents(
    documents: Iterable[Document],
    path: str | Path | None = None,
    *,
    url: str | None = None,
    collection: str = DEFAULT_COLLECTION,
    embedder: Embedder | EmbeddingFunction | str | None = None,
    chunk_size: int | None = None,
    overlap: int = 0,
    counter: TokenCounter | None = None,
    remove_missing: bool | Collection[str] = False,
    calibration: bool = True,
    language: str | None = None,
    progress: Callable[[IndexProgress], None] | None = None,
    batch_size: int | None = None,
    headers: dict[str, str] | None = None,
    tenant: str | None = None,
    database: str | None = None,
    cache: str | Path | None = None,
) -> IndexReport:
    """Bring a collection up to date with `documents`. Make it if it does not exist.

    Unchanged documents (same id, title, text, metadata and chunking) are skipped, and changed ones are replaced.

    Args:
        documents: The documents. Each id occurs once.
        path: The folder of the index.
        url: The address of a Chroma server. The lock then excludes only other processes on this machine.
        collection: The name of the collection.
        embedder: An embedder, a spec for `load_embedder`, or a function from texts to vectors. It cannot change between
            runs. By default, an existing index keeps its embedder. For a new one, `default_embedder` chooses by the
            size and the language of the documents.
        chunk_size: The maximum number of tokens in a chunk. Defaults to 512.
        overlap: The number of tokens that a chunk repeats from the chunk before it.
        counter: The token counter. Defaults to `HarmonyCounter`.
        remove_missing: Whether to remove documents that are not among `documents`. A collection of ids limits the
            removal to these ids.
        calibration: Whether to measure the weights of the retrievers.
        language: The language of all texts, a code of `text.languages.LANGUAGES`. If it is None, an existing index
            keeps its language, and a new index analyzes each text in its own language.
        progress: A function that receives the progress after every 256 documents, after each batch that is embedded,
            and at the end of the run, even if the run is interrupted.
        batch_size: The number of chunks that are embedded and added at once. Defaults to 500 with the static embedding,
            and to 64 with any other, because it may take seconds for them.
        headers: HTTP headers for the server, for example with a token.
        tenant: Chroma's tenant on the server.
        database: Chroma's database on the server.
        cache: The folder for the local files of an index on a server. Defaults to the user's cache folder.

    Returns:
        The report of the run.

    Raises:
        CorpusLockedError: If another process is writing.
        CorpusEmptyError: If there is nothing to index.
        CorpusError: If a document id occurs twice with different content, an index cannot hold a document, or another
            program made the collection.
        DimensionError: If the embedder's vectors have a different length from the stored ones.
        ConfigError: If the embedder is not the one of the index, or if the index cannot select its embedder by itself.

    Example:
        from context_agent import Document, index_documents

        report = index_documents([Document("rope", "Rope was directed by Alfred Hitchcock.")], "films/")
        print(report.added, report.chunks)
    """
    location = Location.of(path, url, headers=headers, tenant=tenant, database=database)
    if language is not None:
        require_language(language)
    counter = counter if counter is not None else HarmonyCounter()
    require_members(counter, "counter", ("name", "count"), "a token counter, such as HarmonyCounter()")
    size = DEFAULT_CHUNK_TOKENS if chunk_size is None else whole_number(chunk_size, "chunk_size")
    # Before anything is written: a manifest with such numbers could not be read again.
    chunking = Chunking(size, whole_number(overlap, "overlap", least=0), counter.name)
    if progress is not None:
        require_callable(progress, "progress")
    require_type(collection, "collection", str, "the name of a collection")
    items_of(documents, "documents", "documents, such as those that load(...) yields")
    if not isinstance(remove_missing, bool):
        items_of(remove_missing, "remove_missing", "True, False or a list of ids")
    batch_size = None if batch_size is None else whole_number(batch_size, "batch_size")
    if location.path is not None:
        make_folder(location.path)
    with (
        _disk_explained(location),
        _one_writer(location, collection, cache),
        writing(location),
        chroma_errors(location),
    ):
        if location.path is not None:
            undo_unfinished(location.path)
        stored = _stored_embedder(location, collection) if embedder is None else None
        if embedder is None:
            embedder, documents = (stored, documents) if stored else _chosen_embedder(documents)
        spec = embedder if isinstance(embedder, str) else ""
        embedder = as_embedder(embedder)
        repair_vectors(location, collection, cache, embedder)
        first = Manifest(embedder.name, embedder.dimension, chunking, spec)
        with closing(cast("Any", connect(location))) as client:
            replaced = _replaced_default(client, location, collection)
            target = _collection(client, location, collection, first)
            root = own_folder(location, str(target.id), cache)
            run = _IndexingRun(
                target,
                root,
                local=location.path is not None,
                embedder=embedder,
                stored=stored is not None,
                chunking=chunking,
                counter=counter,
                language=language,
                progress=progress,
                batch_size=batch_size,
            )
            report = run.index(documents, remove_missing=remove_missing, calibration=calibration)
            report = replace(report, warning="; ".join(filter(None, (report.warning, replaced))))
        if location.path is not None:
            remember_vectors(location.path, collection, root)
        (root / UNFINISHED_MARK).unlink(missing_ok=True)
        return report


def _chosen_embedder(documents: Iterable[Document]) -> tuple[Embedder, Iterator[Document]]:
    """Return the default embedder of a new index, and all documents. Of a large stream, only the beginning is read."""
    rest, read = iter(documents), list[Document]()

    def texts() -> Iterator[str]:
        for document in rest:
            check_document(document)
            read.append(document)
            yield f"{document.title}\n{document.text}"

    return default_embedder(texts()), chain(read, rest)


def _stored_embedder(location: Location, name: str) -> Embedder | None:
    """Return the embedder that made an existing index. If the collection has no records or no manifest, return None."""
    if location.path is not None:
        if not (location.path / DATABASE_FILE).exists():
            return None
        try:
            stored = read_collection(location.path, name)
        except CorpusNotFoundError:
            return None
        manifest = None if stored.empty else parse_manifest(name, stored.metadata.get(MANIFEST_KEY))
    else:
        with closing(cast("Any", connect(location))) as client:
            try:
                collection = find(client, location, name)
            except CorpusNotFoundError:
                return None
            manifest = read_manifest(collection) if collection.count() else None
    return None if manifest is None else stored_embedder(name, manifest)


class _IndexingRun:
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
        self, documents: Iterable[Document], *, remove_missing: bool | Collection[str], calibration: bool
    ) -> IndexReport:
        try:
            with self.writer:
                for document in documents:
                    self._index_document(document)
            outdated = self._outdated(remove_missing)
            if not self.written and not outdated and not self._other_language():
                self.fresh.discard()
                return self._unchanged()
            return self._complete(outdated, calibration)
        except BaseException:
            self.fresh.discard()
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

    def _outdated(self, remove_missing: bool | Collection[str]) -> set[str]:
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
        if not snapshot.rows:
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
        layout = OwnLayout(self.manifest)
        current = current_snapshot(layout, self.root, lexical=not self.local)
        if self._other_language():
            current, layout.language = None, self.language
        return current or build(layout, self.records, self.root, lexical=not self.local)

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


def _replaced_default(client: ClientAPI, location: Location, name: str) -> str:
    """Return a warning if making the collection changes what a search without a name reads. Otherwise, return "".

    Without a name, a search reads the default collection. If there is none, it reads the only collection that exists.
    """
    if name != DEFAULT_COLLECTION:
        return ""
    names = [collection.name for collection in client.list_collections()]
    if len(names) != 1 or names == [name]:
        return ""
    return (
        f"{location} also holds the collection {names[0]!r}, which stays as it is. From now on, a search that names "
        f"no collection reads {name!r}. To search the other one, pass --collection {names[0]} (in Python: "
        "collection=)."
    )


def _collection(client: ClientAPI, location: Location, name: str, first: Manifest) -> ChromaCollection:
    """Return the collection. If it does not exist, make it.

    A new collection gets the manifest `first`. An existing one must have the same embedder and dimension.
    """
    from chromadb.errors import InvalidArgumentError

    try:
        collection = client.get_or_create_collection(
            name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
    except (InvalidArgumentError, ValueError) as error:
        raise invalid_name(name, error) from error
    manifest, count = read_manifest(collection), collection.count()
    if manifest is None and count:
        raise CorpusError(
            f"collection {name!r} in {location} was made by another program, so this package searches it but does not "
            "write to it. To change it, use that program. To make an index beside it, pass another --collection NAME "
            "(in Python: collection=)."
        )
    check_writable(name, collection.configuration_json, collection.get_model().serialized_schema)
    if manifest is None or not count:
        manifest = first if manifest is None else replace(first, revision=manifest.revision)
        write_manifest(collection, manifest)
    if (manifest.embedder, manifest.dimension) != (first.embedder, first.dimension):
        mismatch = DimensionError if manifest.dimension != first.dimension else ConfigError
        raise mismatch(
            f"collection {name!r} was indexed with {manifest.embedder} ({manifest.dimension} numbers), not with "
            f"{first.embedder} ({first.dimension}). Pass the same --embedder, or another --collection."
        )
    return collection


@contextmanager
def _disk_explained(location: Location) -> Iterator[None]:
    """Raise a `CorpusError` that names the cause if a write fails because the disk is full or read-only."""
    try:
        yield
    except Exception as error:
        if getattr(error, "errno", None) in (errno.EROFS, errno.EACCES):
            message = f"{location} is read-only ({error}). Allow this user to write to the folder and its files."
            raise CorpusError(message) from error
        if not disk_full(location, error):
            raise
        raise CorpusError(
            f"the disk is full, or a file size limit is reached, so not all documents were indexed into {location}. "
            "The last complete state of the index is intact. Free some space, and run the same command again to "
            "resume."
        ) from error


@contextmanager
def _one_writer(location: Location, collection: str, cache: str | Path | None) -> Iterator[None]:
    """Hold the writer's lock of a folder, or of a server's collection on this machine. It ends with the process."""
    if location.path is not None:
        file = without_links(location.path, OWN_FOLDER) / WRITER_LOCK
    else:
        name = blake2b(f"{location}/{collection}".encode(), digest_size=8).hexdigest()
        file = cache_folder(cache) / f"{name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    busy = CorpusLockedError(f"another process is indexing into {location}. Wait until it has finished.")
    with file_lock(file, busy=busy):
        yield
