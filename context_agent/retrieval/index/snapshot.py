"""A complete state of an index in files of this package, which readers use without opening the store.

A snapshot is a folder that never changes after it gets its final name. It holds `bm25/` (tantivy), segments with the
rows, texts, metadata and vectors (see `segments`), lists of removed rows, and `segments.json`, which lists the
segments. All files are memory-mapped. A server keeps the vectors and metadata of a collection itself. So the snapshot
of such a collection is *lexical*: it has neither vectors nor metadata.

A snapshot is written under a temporary name and then renamed, and no name is used twice. So a reader sees all of it or
nothing. An open snapshot keeps its files, even after they are deleted. `writer` makes the next snapshot from the last
one, and `publication` says which one is current.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError, CorpusCorruptError
from context_agent.retrieval.index.bm25 import ANALYZER_VERSION, Bm25Index
from context_agent.retrieval.index.dense import VectorTable
from context_agent.retrieval.index.rows import ChunkOfRecord, PositionOf, SegmentRows
from context_agent.retrieval.index.segments import MAX_DIMENSION, SnapshotRow, load_segment
from context_agent.text.language_identification import SAMPLE

SNAPSHOT_VERSION = f"3.{ANALYZER_VERSION}"
"""The version of the files. A snapshot of another version is not opened, but rebuilt from the collection."""
_SNAPSHOT_NAME = re.compile(r"snapshot-(\d{1,18})-[0-9a-f]{8}")
_SEGMENT_NAME = re.compile(r"segment-[0-9a-f]{16}\.bin")
WRITING_PREFIX, _REMOVED_PREFIX = "writing-", "removed-"
COPY_PREFIX = "copy-"
"""The beginning of the name of an unfinished copy. Only the process with the lock `MAKER_LOCK` makes copies."""
HEAD_FILE = "segments.json"
"""The file that lists the segments of a snapshot."""
MAX_HEAD_BYTES = 100_000
"""The maximum size of that file."""
MAX_SEGMENTS = 1_000
"""The maximum number of segments in a snapshot.

The number of segments grows with the logarithm of the corpus. A billion rows have fewer than 40.
"""


@dataclass(frozen=True)
class Snapshot:
    """A complete state. Reads are thread-safe. In a lexical snapshot, `dimension` is 0 and `vectors` is None."""

    folder: Path
    rows: SegmentRows
    bm25: Bm25Index
    document_count: int
    dimension: int = 0
    vectors: VectorTable | None = None

    @property
    def name(self) -> str:
        """The name of the folder, which is unique among all states of a collection."""
        return self.folder.name

    def sample(self) -> list[str]:
        """Return a sample of texts from the whole corpus, for the identification of its language."""
        return [self.rows.text(row) for row in range(0, len(self.rows), max(1, len(self.rows) // SAMPLE))][:SAMPLE]

    @property
    def number(self) -> int:
        """The number in the name. It is the manifest's revision, or it counts the snapshots of a foreign collection."""
        return number_in(self.name)

    @cached_property
    def row_of_chunk(self) -> PositionOf:
        """A mapping from chunk id to row."""
        return PositionOf(self.rows, "chunk")

    @cached_property
    def row_of_record(self) -> PositionOf:
        """A mapping from record id to row."""
        return PositionOf(self.rows, "record")

    @cached_property
    def chunk_of_record(self) -> ChunkOfRecord:
        """A mapping from record id to chunk id."""
        return ChunkOfRecord(self.row_of_record)

    def documents(self) -> Iterator[list[SnapshotRow]]:
        """Yield the rows of each document, in ascending order.

        In a foreign collection, the chunks of a document need not be consecutive.
        """
        previous = None
        for position, row in enumerate(self.rows):
            if row.document != previous:
                previous = row.document
                rows = self.rows.find("document", row.document)
                if next(rows)[0] == position:
                    yield [row, *(document_row for _, document_row in rows)]


def load_snapshot(root: Path, name: str, *, lexical: bool = False) -> Snapshot | None:
    """Open a snapshot.

    Args:
        root: The folder of the snapshots.
        name: The name of the snapshot. It may come from a file, so it need not be a valid name.
        lexical: Whether a lexical snapshot is enough.

    Returns:
        The snapshot. It is None if the snapshot is missing, damaged, of another version, or lexical when `lexical` is
        false.
    """
    if _SNAPSHOT_NAME.fullmatch(name) is None:
        return None
    try:
        snapshot = read_snapshot(root / name)
    except (OSError, ValueError, KeyError, TypeError, ConfigError, CorpusCorruptError):
        return None
    return snapshot if lexical or snapshot.vectors is not None else None


def number_in(name: str) -> int:
    """Return the number in a snapshot's name. For any other name, return 0."""
    matched = _SNAPSHOT_NAME.fullmatch(name)
    return int(matched[1]) if matched else 0


def next_number(root: Path) -> int:
    """Return one more than the highest number of a snapshot in the folder."""
    return max((number_in(child.name) for child in root.glob("snapshot-*")), default=0) + 1


def remove_others(root: Path, keep: AbstractSet[str], *, unfinished: bool) -> None:
    """Delete the snapshots that `keep` does not name.

    A folder is renamed first. So a reader that opens it by its name finds all of it or nothing.

    Args:
        root: The folder of the snapshots.
        keep: The names of the snapshots to keep.
        unfinished: Whether to also delete what killed processes left.
    """
    for child in root.iterdir():
        if child.name not in keep and child.name.startswith("snapshot-") and child.is_dir():
            # Windows refuses while a reader has its files open; then a later run deletes them.
            with suppress(OSError):
                shutil.rmtree(child.rename(root / f"{_REMOVED_PREFIX}{secrets.token_hex(4)}"), ignore_errors=True)
        elif unfinished and child.name.startswith((WRITING_PREFIX, _REMOVED_PREFIX)):
            shutil.rmtree(child, ignore_errors=True)


def adopt(folder: Path, root: Path) -> None:
    """Link or copy a snapshot from another folder into this one under the same name.

    Tantivy locks a file of an index that it reads, so an index in a read-only folder cannot be read in place.

    Raises:
        OSError: If a file cannot be copied, for example because its writer has deleted it.
    """
    target = Path(tempfile.mkdtemp(prefix=COPY_PREFIX, dir=root))
    try:
        link_files(folder, target)
        link_files(folder / "bm25", target / "bm25")
        shutil.rmtree(root / folder.name, ignore_errors=True)  # An earlier copy was damaged.
        target.rename(root / folder.name)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def read_snapshot(folder: Path) -> Snapshot:
    """Open the snapshot in a folder.

    Raises:
        CorpusCorruptError: If the files do not belong together, or another version wrote them.
        OSError: If a file cannot be opened.
        ValueError: If the list of segments is not valid JSON.
    """
    stored = read_json(folder / HEAD_FILE, MAX_HEAD_BYTES)
    if stored["version"] != SNAPSHOT_VERSION:
        raise CorpusCorruptError(
            f"{folder} was written by another version of context-agent. Index the documents again."
        )
    names, dimension, documents = stored["segments"], stored["dimension"], stored["documents"]
    if not (type(dimension) is int and 0 <= dimension <= MAX_DIMENSION and type(documents) is int):
        raise CorpusCorruptError(f"{folder / HEAD_FILE} has impossible counts. Index the documents again.")
    if len(names) > MAX_SEGMENTS or len(set(names)) < len(names) or not all(map(_SEGMENT_NAME.fullmatch, names)):
        raise CorpusCorruptError(
            f"{folder / HEAD_FILE} names too many segments, a segment twice, or another file. Index the documents "
            "again."
        )
    rows = SegmentRows([load_segment(folder, name, dimension) for name in names])
    bm25 = Bm25Index(folder / "bm25", create=False, language=stored["language"], mixed=stored["mixed"] is True)
    if bm25.count() != len(rows) or not 0 <= documents <= len(rows):
        raise CorpusCorruptError(f"the files in {folder} state different counts. Index the documents again.")
    vectors = VectorTable(rows.vector_parts(), str(stored["space"])) if dimension else None
    return Snapshot(folder, rows, bm25, documents, dimension, vectors)


def link_files(source: Path, target: Path) -> None:
    """Link the files of a folder in another one.

    Linking is safe, because tantivy never changes a file. It replaces meta.json by renaming.
    """
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and not file.name.endswith(".lock"):
            link_file(file, target / file.name)


def link_file(file: Path, target: Path) -> None:
    """Link a file. If the file system has no hard links, copy it."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)
