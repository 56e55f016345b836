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
from context_agent.text.identification import SAMPLE

SNAPSHOT_VERSION = f"3.{ANALYZER_VERSION}"
_NAME = re.compile(r"snapshot-(\d{1,18})-[0-9a-f]{8}")
_SEGMENT = re.compile(r"segment-[0-9a-f]{16}\.bin")
WRITING_PREFIX, _REMOVED = "writing-", "removed-"
HEAD_FILE = "segments.json"
"""Lists the segments of a snapshot."""
MAX_HEAD_BYTES = 100_000
MAX_SEGMENTS = 1_000
"""Their number grows with the logarithm of the corpus: a billion rows have fewer than 40."""


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
        snapshot = read_snapshot(root / name)
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
        elif unfinished and child.name.startswith((WRITING_PREFIX, _REMOVED)):
            shutil.rmtree(child, ignore_errors=True)


def adopt(folder: Path, root: Path) -> None:
    """Links, or copies, a snapshot from another folder into this one under the same name.

    Tantivy locks a file of an index that it reads, so an index in a read-only folder cannot be read in place.
    """
    target = Path(tempfile.mkdtemp(prefix=WRITING_PREFIX, dir=root))
    link_files(folder, target)
    link_files(folder / "bm25", target / "bm25")
    target.rename(root / folder.name)


def read_snapshot(folder: Path) -> Snapshot:
    """Open the snapshot in a folder. Raise `CorpusCorruptError`, `OSError`, `ValueError`, `KeyError` or `TypeError`."""
    stored = read_json(folder / HEAD_FILE, MAX_HEAD_BYTES)
    if stored["version"] != SNAPSHOT_VERSION:
        raise CorpusCorruptError(f"{folder} was written by another version")
    names, dimension, documents = stored["segments"], stored["dimension"], stored["documents"]
    if not (type(dimension) is int and 0 <= dimension <= MAX_DIMENSION and type(documents) is int):
        raise CorpusCorruptError(f"{folder / HEAD_FILE} has counts that cannot be")
    if len(names) > MAX_SEGMENTS or len(set(names)) < len(names) or not all(map(_SEGMENT.fullmatch, names)):
        raise CorpusCorruptError(f"{folder / HEAD_FILE} names files that are not segments, one twice, or too many")
    rows = SegmentRows([load_segment(folder, name, dimension) for name in names])
    bm25 = Bm25Index(folder / "bm25", create=False, language=stored["language"], mixed=stored["mixed"] is True)
    if bm25.count() != len(rows) or not 0 <= documents <= len(rows):
        raise CorpusCorruptError(f"the files in {folder} do not belong together")
    vectors = VectorTable(rows.vector_parts(), str(stored["space"])) if dimension else None
    return Snapshot(folder, rows, bm25, documents, dimension, vectors)


def link_files(source: Path, target: Path) -> None:
    """Links the files of a folder: tantivy never changes a file, and replaces meta.json by renaming."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and not file.name.endswith(".lock"):
            link_file(file, target / file.name)


def link_file(file: Path, target: Path) -> None:
    """Links a file instead of copying it, where the file system can."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)
