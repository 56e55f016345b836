"""The next snapshot of an index, made from the last one.

The writer does not read the store again. It links the files of tantivy and of unchanged segments instead of copying
them, and writes the added rows as a new segment. If the file system has no hard links, it copies the files.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from context_agent._support.atomic_files import sync_path
from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.index.bm25 import LIST_FILES, Bm25Entry, Bm25Index
from context_agent.retrieval.index.manifest import MANIFEST_KEY
from context_agent.retrieval.index.rows import SegmentRows
from context_agent.retrieval.index.segment_writer import SegmentBuilder, merge, merge_start, write_file, write_removed
from context_agent.retrieval.index.segments import Segment, SnapshotRow, load_segment
from context_agent.retrieval.index.snapshot import (
    HEAD_FILE,
    SNAPSHOT_VERSION,
    WRITING_PREFIX,
    Snapshot,
    link_file,
    link_files,
    read_snapshot,
)
from context_agent.retrieval.index.vector_graph import (
    APPROXIMATE_FROM,
    MIN_GRAPH_ROWS,
    graph_file,
    graphs_available,
    write_graph,
)
from context_agent.text.language_identification import identify

IDENTIFICATION_TEXTS = 2_000
"""The number of texts from which the language of most texts in a new snapshot is identified. BM25 waits for them."""


class SnapshotEntry(NamedTuple):
    """The parts of one record that a snapshot stores. The metadata is the same as in the store."""

    row: SnapshotRow
    title: str
    text: str
    metadata: Mapping[str, Any]


class SnapshotWriter:
    """A writer that makes the next snapshot from the last one.

    Call `add`, `put_vectors` and `remove` in any order, then `finish`, then `publish`. Added texts, metadata and
    vectors are written to disk at once. The hashes of their ids stay in memory.
    """

    def __init__(
        self, root: Path, base: Snapshot | None, *, dimension: int = 0, space: str = "", language: str | None = None
    ) -> None:
        """Begin a snapshot.

        Args:
            root: The folder of the snapshots. It is made if it is missing.
            base: The last snapshot. If it is None, the new snapshot begins without rows.
            dimension: The length of the vectors. If it is 0, the snapshot is lexical. Otherwise, `base` must not be
                lexical.
            space: Chroma's name of the distance.
            language: The language of every text. If it is None, each text is analyzed in its own language, and the
                language of most texts comes from `base` or from the first texts. If there is a `base`, pass the same
                value as for it.

        Raises:
            ConfigError: If the language is unknown.
        """
        root.mkdir(parents=True, exist_ok=True)
        self._root, self._base, self._dimension, self._space = root, base, dimension, space
        # Not `mkdtemp`: other users could not read the folder, whatever the umask is.
        self._folder = root / f"{WRITING_PREFIX}{secrets.token_hex(4)}"
        self._folder.mkdir()
        if base is not None:
            link_files(base.folder / "bm25", self._folder / "bm25")
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
        """Add a chunk. If the base has a record with the same chunk id, remove that record first."""
        row, title, text, metadata = entry
        if self._dimension:
            self._without_vector[row.record] = len(self._added)
        self._added.add(row, text, metadata)
        self._changed_documents.add(row.document)
        named = {name: value for name, value in metadata.items() if name != MANIFEST_KEY}
        self._unindexed.append(Bm25Entry(row.record, title, text, row.document, named))
        if self._index is not None or len(self._unindexed) >= IDENTIFICATION_TEXTS:
            self._bm25()

    def put_vectors(self, records: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Write the vectors of added records, shape (n, dimension)."""
        for record, vector in zip(records, np.asarray(vectors, dtype="<f4"), strict=True):
            self._added.put_vector(self._without_vector.pop(record), vector)

    def without_vectors(self) -> list[str]:
        """Return the added records whose vectors are still missing."""
        return list(self._without_vector)

    def remove(self, records: AbstractSet[str]) -> None:
        """Leave these records of the base out of the new snapshot."""
        self._removed |= records
        self._bm25().delete(records)

    def finish(self, progress: Callable[[int], None] | None = None) -> Snapshot:
        """Write what was added and removed, and merge segments. The result is not published yet.

        Args:
            progress: A function that receives the number of vectors in the graph of a large segment.

        Returns:
            The snapshot, which still has its temporary name.
        """
        assert not self.without_vectors(), "every record needs its vector"
        index = self._bm25()
        index.commit()
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
            "version": SNAPSHOT_VERSION,
            "space": self._space,
            "language": index.language,
            "mixed": self._mixed,
            "dimension": self._dimension,
            "documents": self._document_count(SegmentRows(segments)),
            "segments": [segment.name for segment in segments],
        }
        write_file(self._folder / HEAD_FILE, [json.dumps(head).encode()])
        # Tantivy makes its lists private. Whoever may read the other files may read them.
        for name in LIST_FILES:
            (self._folder / "bm25" / name).chmod((self._folder / HEAD_FILE).stat().st_mode)
        return read_snapshot(self._folder)

    def publish(self, number: int) -> str:
        """Give the finished snapshot its final name, and return the name."""
        name = f"snapshot-{number}-{secrets.token_hex(4)}"
        sync_path(self._folder)
        self._folder.rename(self._root / name)
        sync_path(self._root)
        return name

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """Delete what was written if the block raises an error.

        If the error is about a damaged file, it names the file of the base. The deleted file was a link to it, and the
        next run would find the same damage.
        """
        try:
            yield
        except CorpusCorruptError as error:
            self.discard()
            if self._base is None:
                raise
            raise CorpusCorruptError(str(error).replace(str(self._folder), str(self._base.folder))) from error
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Delete what was written. Call it if a run ends without a new state."""
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
        """Return the segments. If there are too many, or too many rows of one are removed, merge the last ones."""
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
        """Link a segment of the base into the new folder, and write its removed rows there."""
        if not (self._folder / segment.name).exists():
            assert self._base is not None
            link_file(self._base.folder / segment.name, self._folder / segment.name)
            write_removed(self._folder, segment)
            if segment.graph is not None:
                link_file(graph_file(self._base.folder / segment.name), graph_file(self._folder / segment.name))

    def _make_graphs(self, segments: Sequence[Segment], progress: Callable[[int], None] | None) -> None:
        """Make the missing graphs. This includes those of an index that was made without usearch."""
        if not self._dimension or sum(map(len, segments)) < APPROXIMATE_FROM or not graphs_available():
            return
        for segment in segments:
            if segment.graph is None and len(segment) >= MIN_GRAPH_ROWS and _by_angle(segment.lengths, self._space):
                write_graph(graph_file(self._folder / segment.name), segment.vectors, progress)

    def _document_count(self, rows: SegmentRows) -> int:
        """Return the number of documents, computed from the number in the base and the documents that changed."""
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
    """Return True if vectors of these lengths are ranked by their cosine with the query."""
    return space == "cosine" or bool(np.allclose(lengths, 1.0, atol=1e-3))


def _segment_name() -> str:
    return f"segment-{secrets.token_hex(8)}.bin"
