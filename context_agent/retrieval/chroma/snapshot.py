"""A complete state of an index in files of this package, which readers use without opening the store.

A snapshot is a folder that never changes once it has its name: `bm25/` (tantivy), segments with the rows, texts,
metadata and vectors (see `segments`), the rows of them that are removed, and `segments.json`, which lists the
segments. All are memory-mapped. A collection on a server keeps vectors and metadata there; its *lexical* snapshot has
none.

A snapshot is written under another name and renamed, and no name is used twice, so a reader sees all of it or nothing.
An open snapshot keeps its files, even after they are deleted. The next snapshot is made from the last one without
reading the store again: the files of tantivy and of unchanged segments are linked rather than copied, and what is added
becomes a new segment. On a file system without hard links they are copied.

`current.json` names the current snapshot of a collection. It is replaced in one step, after the snapshot has its name
and after the collection's manifest is written. It replaces Chroma's database while a writer holds that locked, or
after a writer was killed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from context_agent._support.journal import file_lock, sync_path
from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError, CorpusCorruptError
from context_agent.retrieval.chroma.database import StoredCollection, valid_id
from context_agent.retrieval.chroma.segments import (
    MAX_DIMENSION,
    ChunkOfRecord,
    PositionOf,
    Segment,
    SegmentBuilder,
    SegmentRows,
    SnapshotRow,
    load_segment,
    merge,
    merge_start,
    write_file,
    write_removed,
)
from context_agent.retrieval.chroma.vector_graph import (
    APPROXIMATE_FROM,
    SMALLEST,
    graph_file,
    graphs_available,
    write_graph,
)
from context_agent.retrieval.index.bm25 import ANALYZER_VERSION, Bm25Entry, Bm25Index
from context_agent.retrieval.index.dense import VectorTable
from context_agent.text.identification import SAMPLE, identify

VERSION = f"3.{ANALYZER_VERSION}"
_NAME = re.compile(r"snapshot-(\d{1,18})-[0-9a-f]{8}")
_SEGMENT = re.compile(r"segment-[0-9a-f]{16}\.bin")
_WRITING, _REMOVED = "writing-", "removed-"
IDENTIFIED_BY = 2_000
"""Texts that show the language of most texts of a new snapshot; BM25 waits for them."""
POINTER = "current.json"
HEAD = "segments.json"
"""Lists the segments of a snapshot."""
MAX_HEAD_BYTES = 100_000
MAX_SEGMENTS = 1_000
"""Their number grows with the logarithm of the corpus: a billion rows have fewer than 40."""
MAKER_LOCK = "snapshot.lock"


class SnapshotEntry(NamedTuple):
    """What a snapshot stores of one record, with its metadata as in the store."""

    row: SnapshotRow
    title: str
    text: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A complete state. Reads are thread-safe. `dimension` is 0 in a lexical snapshot, whose `vectors` are None."""

    folder: Path
    rows: SegmentRows
    bm25: Bm25Index
    document_count: int
    dimension: int = 0
    vectors: VectorTable | None = None

    @property
    def name(self) -> str:
        """The folder's name, unique among all states of a collection."""
        return self.folder.name

    def sample(self) -> list[str]:
        """Texts spread over the corpus, as many as identification reads."""
        return [self.rows.text(row) for row in range(0, len(self.rows), max(1, len(self.rows) // SAMPLE))][:SAMPLE]

    @property
    def number(self) -> int:
        """The number in the name: the manifest's revision, or a count of the states seen."""
        return number_in(self.name)

    @cached_property
    def row_of_chunk(self) -> PositionOf:
        """Chunk id to row."""
        return PositionOf(self.rows, "chunk")

    @cached_property
    def row_of_record(self) -> PositionOf:
        """Record id to row."""
        return PositionOf(self.rows, "record")

    @cached_property
    def chunk_of_record(self) -> ChunkOfRecord:
        """Record id to chunk id."""
        return ChunkOfRecord(self.row_of_record)

    def documents(self) -> Iterator[list[SnapshotRow]]:
        """Yield the rows of each document, ascending. A foreign collection can hold a document's chunks in another
        order.
        """
        previous = None
        for position, row in enumerate(self.rows):
            if row.document != previous:
                previous = row.document
                rows = self.rows.find("document", row.document)
                if next(rows)[0] == position:
                    yield [row, *(document_row for _, document_row in rows)]


def load_snapshot(root: Path, name: str, *, lexical: bool = False) -> Snapshot | None:
    """Return the snapshot of this name; None if it is missing, damaged, of another version, or lexical and `lexical` is
    false.

    The name may come from a file: None also for a name that no snapshot can have.
    """
    if _NAME.fullmatch(name) is None:
        return None
    try:
        snapshot = _load(root / name)
    except (OSError, ValueError, KeyError, TypeError, ConfigError, CorpusCorruptError):
        return None
    return snapshot if lexical or snapshot.vectors is not None else None


def number_in(name: str) -> int:
    """Return the number in a snapshot's name; 0 in any other name."""
    matched = _NAME.fullmatch(name)
    return int(matched[1]) if matched else 0


def next_number(root: Path) -> int:
    """One above the highest number of a snapshot in the folder."""
    return max((number_in(child.name) for child in root.glob("snapshot-*")), default=0) + 1


def remove_others(root: Path, keep: AbstractSet[str], *, unfinished: bool) -> None:
    """Deletes the snapshots that are not named in `keep`; with `unfinished`, also the leftovers of killed processes.

    A folder is renamed first, so that a reader that opens it by its name finds all of it or nothing.
    """
    for child in root.iterdir():
        if child.name not in keep and child.name.startswith("snapshot-") and child.is_dir():
            # Windows refuses while a reader has its files open; then a later run deletes them.
            with suppress(OSError):
                shutil.rmtree(child.rename(root / f"{_REMOVED}{secrets.token_hex(4)}"), ignore_errors=True)
        elif unfinished and child.name.startswith((_WRITING, _REMOVED)):
            shutil.rmtree(child, ignore_errors=True)


def adopt(folder: Path, root: Path) -> None:
    """Links, or copies, a snapshot from another folder into this one under the same name.

    Tantivy locks a file of an index that it reads, so an index in a read-only folder cannot be read in place.
    """
    target = Path(tempfile.mkdtemp(prefix=_WRITING, dir=root))
    _link_files(folder, target)
    _link_files(folder / "bm25", target / "bm25")
    target.rename(root / folder.name)


class SnapshotWriter:
    """Builds the next snapshot from the last one: any `add`, `put_vectors` and `remove`, then `finish`, then `publish`.

    Added texts, metadata and vectors are written to disk at once; the hashes of their ids stay in memory.
    """

    def __init__(
        self, root: Path, base: Snapshot | None, *, dimension: int = 0, space: str = "", language: str | None = None
    ) -> None:
        """`root` is created if missing. With dimension 0 the snapshot is lexical; otherwise `base` must not be.

        Every text is in the `language`. Without one, each is in its own, and `base`, or else the first texts, show
        that of most. A `base` has the same language, or none as well. Raises `ConfigError` for an unknown one.
        """
        root.mkdir(parents=True, exist_ok=True)
        self._root, self._base, self._dimension, self._space = root, base, dimension, space
        self._folder = Path(tempfile.mkdtemp(prefix=_WRITING, dir=root))
        if base is not None:
            _link_files(base.folder / "bm25", self._folder / "bm25")
        self._language = language if base is None else base.bm25.language
        self._mixed = language is None if base is None else base.bm25.mixed
        self._index: Bm25Index | None = None
        self._unindexed: list[Bm25Entry] = []
        self._added = SegmentBuilder(self._folder, dimension)
        self._without_vector: dict[str, int] = {}
        self._removed: set[str] = set()
        self._changed_documents: set[str] = set()
        self.rewritten = 0
        """Rows of the finished snapshot that are not in a segment of the base."""

    def add(self, entry: SnapshotEntry) -> None:
        """Adds a chunk; its chunk id must not be in the base unless that record was removed before."""
        row, title, text, metadata = entry
        if self._dimension:
            self._without_vector[row.record] = len(self._added)
        self._added.add(row, text, metadata)
        self._changed_documents.add(row.document)
        self._unindexed.append(Bm25Entry(row.record, title, text))
        if self._index is not None or len(self._unindexed) >= IDENTIFIED_BY:
            self._bm25()

    def put_vectors(self, records: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Writes the vectors of added records, shape (n, dimension)."""
        for record, vector in zip(records, np.asarray(vectors, dtype="<f4"), strict=True):
            self._added.put_vector(self._without_vector.pop(record), vector)

    def without_vectors(self) -> list[str]:
        """Return the added records whose vectors are still missing."""
        return list(self._without_vector)

    def remove(self, records: AbstractSet[str]) -> None:
        """Leaves out records of the base."""
        self._removed |= records
        self._bm25().delete(records)

    def finish(self, progress: Callable[[int], None] | None = None) -> Snapshot:
        """Writes what was added and removed, and merges segments. The result is not published yet.

        While it makes the graph of a large segment, `progress` is told how many vectors that has so far.
        """
        assert not self.without_vectors(), "every record needs its vector"
        self._bm25().commit()
        segments = self._base.rows.without(self._removed) if self._base else []
        if len(self._added):
            self._added.finish(name := _segment_name())
            segments.append(load_segment(self._folder, name, self._dimension))
            self.rewritten = len(self._added)
        self._added.close()
        segments = self._merged(segments)
        for segment in segments:
            self._place(segment)
        self._make_graphs(segments, progress)
        head = {
            "version": VERSION,
            "space": self._space,
            "language": self._bm25().language,
            "mixed": self._mixed,
            "dimension": self._dimension,
            "documents": self._document_count(SegmentRows(segments)),
            "segments": [segment.name for segment in segments],
        }
        write_file(self._folder / HEAD, [json.dumps(head).encode()])
        return _load(self._folder)

    def publish(self, number: int) -> str:
        """Gives the finished snapshot its name, and returns it."""
        name = f"snapshot-{number}-{secrets.token_hex(4)}"
        sync_path(self._folder)
        self._folder.rename(self._root / name)
        sync_path(self._root)
        return name

    def discard(self) -> None:
        """Deletes what was written, if a run ends without a new state."""
        self._added.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _bm25(self) -> Bm25Index:
        """Return the BM25 index of all texts so far."""
        if self._index is None:
            language = self._language
            if language is None:
                language = identify([entry.text for entry in self._unindexed])
            self._index = Bm25Index(self._folder / "bm25", language=language, mixed=self._mixed)
        self._index.add(self._unindexed)
        self._unindexed = []
        return self._index

    def _merged(self, segments: list[Segment]) -> list[Segment]:
        """Return the segments, those at the end merged if there are too many or too much of one is removed."""
        start = merge_start(segments)
        if start == len(segments):
            return segments
        first, last = segments[:start], segments[start:]
        if self.rewritten:
            (self._folder / last[-1].name).unlink()
        self.rewritten = sum(map(len, last))
        if not self.rewritten:
            return first
        merge(self._folder, name := _segment_name(), last, self._dimension)
        return [*first, load_segment(self._folder, name, self._dimension)]

    def _place(self, segment: Segment) -> None:
        """Puts a segment of the base, and its removed rows, into the new folder."""
        if not (self._folder / segment.name).exists():
            assert self._base is not None
            _link(self._base.folder / segment.name, self._folder / segment.name)
            write_removed(self._folder, segment)
            if segment.graph is not None:
                _link(graph_file(self._base.folder / segment.name), graph_file(self._folder / segment.name))

    def _make_graphs(self, segments: Sequence[Segment], progress: Callable[[int], None] | None) -> None:
        """Makes the graphs that are missing: also those of an index that was made without the package for them."""
        if not self._dimension or sum(map(len, segments)) < APPROXIMATE_FROM or not graphs_available():
            return
        for segment in segments:
            if segment.graph is None and len(segment) >= SMALLEST and _by_angle(segment.lengths, self._space):
                write_graph(graph_file(self._folder / segment.name), segment.vectors, progress)

    def _document_count(self, rows: SegmentRows) -> int:
        """Return the number of documents, from that of the base and the documents that were added or removed."""
        if self._base is None:
            return len(self._changed_documents)
        earlier = self._base.rows
        removed = (next(earlier.find("record", record), None) for record in self._removed)
        changed = self._changed_documents | {row[1].document for row in removed if row}
        before, after = (
            sum(next(table.find("document", document), None) is not None for document in changed)
            for table in (earlier, rows)
        )
        return self._base.document_count - before + after


def _by_angle(lengths: NDArray[np.float32], space: str) -> bool:
    """Return whether vectors of these lengths are ranked by their cosine to the query."""
    return space == "cosine" or bool(np.allclose(lengths, 1.0, atol=1e-3))


def _segment_name() -> str:
    return f"segment-{secrets.token_hex(8)}.bin"


def _load(folder: Path) -> Snapshot:
    stored = read_json(folder / HEAD, MAX_HEAD_BYTES)
    if stored["version"] != VERSION:
        raise CorpusCorruptError(f"{folder} was written by another version")
    names, dimension, documents = stored["segments"], stored["dimension"], stored["documents"]
    if not (type(dimension) is int and 0 <= dimension <= MAX_DIMENSION and type(documents) is int):
        raise CorpusCorruptError(f"{folder / HEAD} has counts that cannot be")
    if len(names) > MAX_SEGMENTS or len(set(names)) < len(names) or not all(map(_SEGMENT.fullmatch, names)):
        raise CorpusCorruptError(f"{folder / HEAD} names files that are not segments, one twice, or too many")
    rows = SegmentRows([load_segment(folder, name, dimension) for name in names])
    bm25 = Bm25Index(folder / "bm25", create=False, language=stored["language"], mixed=stored["mixed"] is True)
    if bm25.count() != len(rows) or not 0 <= documents <= len(rows):
        raise CorpusCorruptError(f"the files in {folder} do not belong together")
    vectors = VectorTable(rows.vector_parts(), str(stored["space"])) if dimension else None
    return Snapshot(folder, rows, bm25, documents, dimension, vectors)


def _link_files(source: Path, target: Path) -> None:
    """Links the files of a folder: tantivy never changes a file, and replaces meta.json by renaming."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and not file.name.endswith(".lock"):
            _link(file, target / file.name)


def _link(file: Path, target: Path) -> None:
    """Links a file instead of copying it, where the file system can."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)


@dataclass(frozen=True, slots=True)
class Publication:
    """A snapshot's name, the state that it shows (see `OwnLayout`), and the collection if it is a local one."""

    snapshot: str
    state: str
    collection: StoredCollection | None = None


def publish(root: Path, publication: Publication) -> None:
    """Makes this the current snapshot of the folder, synced to disk. Other users may read the file."""
    draft = root / f"{POINTER}.{secrets.token_hex(4)}"
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(publication), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(root / POINTER)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_path(root)


def published(root: Path) -> Publication | None:
    """Return the current snapshot of the folder; None if none was published or the file is damaged."""
    try:
        stored = read_json(root / POINTER)
        collection = stored["collection"]
        local = None if collection is None else StoredCollection(**collection)
        if local is not None and not _plausible(local):
            return None
        return Publication(str(stored["snapshot"]), str(stored["state"]), local)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plausible(stored: Any) -> bool:
    """Return whether the values have their types: they come from a file."""
    texts = (stored.configuration, stored.schema)
    return (
        valid_id(stored.id)
        and isinstance(stored.name, str)
        and isinstance(stored.metadata, dict)
        and isinstance(stored.usual_keys, dict)
        and stored.usual_keys.keys() <= {"title", "document", "index"}
        and all(isinstance(key, str) for key in stored.usual_keys.values())
        and all(text is None or isinstance(text, str) for text in texts)
        and type(stored.dimension) is type(stored.sequence) is int
        and type(stored.empty) is bool
    )


def published_collection(folder: Path, name: str) -> StoredCollection | None:
    """Return the collection of this name, as the latest publication in a folder of collections describes it."""
    stats = [(file, file.stat()) for file in folder.glob(f"*/{POINTER}")]
    # A file that many folders link to is read once.
    distinct = {(status.st_dev, status.st_ino): (status.st_mtime_ns, file) for file, status in stats}
    publications = (published(file.parent) for _, file in sorted(distinct.values(), reverse=True))
    collections = (publication.collection for publication in publications if publication)
    return next((collection for collection in collections if collection and collection.name == name), None)


@contextmanager
def one_maker(root: Path) -> Iterator[Path]:
    """Yield the folder, locked: several processes may share it, and one at a time brings it up to date."""
    root.mkdir(parents=True, exist_ok=True)
    with file_lock(root / MAKER_LOCK, timeout=-1):
        yield root
