"""A complete state of an index in files of this package, which readers use without opening the store.

A snapshot is a folder that never changes once it has its name: `bm25/` (tantivy), `rows.json` (which record holds which
chunk, and the language of BM25), `texts.bin` and `metadata.bin` with the offsets `texts.npy` and `metadata.npy` (see
`TextTable`), `vectors.npy` and `lengths.npy` (see `VectorTable`). All but the row ids are memory-mapped. A collection
on a server keeps vectors and metadata there; its *lexical* snapshot has none.

A snapshot is written under another name and renamed, and no name is used twice, so a reader sees all of it or nothing.
An open snapshot keeps its files, even after they are deleted. The next snapshot is made from the last
one without reading the store again: tantivy's files are linked rather than copied, then changed by what was added and
removed.

`current.json` names the current snapshot of a collection. It is replaced in one step, after the snapshot has its name
and after the collection's manifest is written. It replaces Chroma's database while a writer holds that locked, or
after a writer was killed.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from context_agent._support.journal import file_lock, sync_path
from context_agent.errors import ConfigError, CorpusCorruptError
from context_agent.retrieval.bm25 import ANALYZER_VERSION, BEFORE_LANGUAGES, Bm25Entry, Bm25Index
from context_agent.retrieval.chroma.database import StoredCollection, valid_id
from context_agent.retrieval.fusion import VectorTable
from context_agent.retrieval.grep import SEPARATOR, TextTable, encode
from context_agent.retrieval.languages import SAMPLE, identify

VERSION = f"2.{ANALYZER_VERSION}"
_NAME = re.compile(r"snapshot-(\d{1,18})-[0-9a-f]{8}")
_WRITING, _REMOVED = "writing-", "removed-"
_BLOCK = 8_192
"""Vectors copied at once."""
IDENTIFIED_BY = 2_000
"""Texts from which the language of a new snapshot is identified; BM25 waits for them."""
POINTER = "current.json"
MAKER_LOCK = "snapshot.lock"
_LARGEST = 4_000_000


class SnapshotRow(NamedTuple):
    """One chunk of a snapshot."""

    record: str
    chunk: str
    document: str


class SnapshotEntry(NamedTuple):
    """What a snapshot stores of one record, with its metadata as in the store."""

    row: SnapshotRow
    title: str
    text: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A complete state. Reads are thread-safe. `metadata` and `vectors` are None in a lexical snapshot."""

    folder: Path
    rows: list[SnapshotRow]
    table: TextTable
    bm25: Bm25Index
    metadata: TextTable | None = None
    vectors: VectorTable | None = None

    @property
    def name(self) -> str:
        """The folder's name, unique among all states of a collection."""
        return self.folder.name

    def sample(self) -> list[str]:
        """Texts spread over the corpus, as many as identification reads."""
        return [self.table.text(row) for row in range(0, len(self.rows), max(1, len(self.rows) // SAMPLE))][:SAMPLE]

    @property
    def number(self) -> int:
        """The number in the name: the manifest's revision, or a count of the states seen."""
        return number_in(self.name)

    @cached_property
    def row_of_chunk(self) -> Mapping[str, int]:
        """Chunk id to row."""
        return {row.chunk: position for position, row in enumerate(self.rows)}

    @cached_property
    def row_of_record(self) -> Mapping[str, int]:
        """Record id to row."""
        return {row.record: position for position, row in enumerate(self.rows)}

    @cached_property
    def chunk_of_record(self) -> Mapping[str, str]:
        """Record id to chunk id."""
        return {row.record: row.chunk for row in self.rows}

    @cached_property
    def rows_of_document(self) -> Mapping[str, list[int]]:
        """Document id to its rows, ascending. A foreign collection can hold a document's chunks in another order."""
        documents: dict[str, list[int]] = {}
        for position, row in enumerate(self.rows):
            documents.setdefault(row.document, []).append(position)
        return documents


def load_snapshot(root: Path, name: str, *, lexical: bool = False) -> Snapshot | None:
    """The snapshot of this name; None if it is missing, damaged, of another version, or lexical and `lexical` is false.

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
    """The number in a snapshot's name; 0 in any other name."""
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

    Added texts, metadata and vectors are written to disk at once; ids stay in memory.
    """

    def __init__(
        self, root: Path, base: Snapshot | None, *, dimension: int = 0, space: str = "", language: str | None = None
    ) -> None:
        """`root` is created if missing. With dimension 0 the snapshot is lexical; otherwise `base` must not be.

        The language is that of `base`, else `language`, else that of the first texts. Raises `ConfigError` for an
        unknown one.
        """
        root.mkdir(parents=True, exist_ok=True)
        self._root, self._base, self._dimension, self._space = root, base, dimension, space
        self._folder = Path(tempfile.mkdtemp(prefix=_WRITING, dir=root))
        if base is not None:
            _link_files(base.folder / "bm25", self._folder / "bm25")
        self._language = language if base is None else base.bm25.language
        self._index: Bm25Index | None = None
        self._unindexed: list[Bm25Entry] = []
        self._rows: list[SnapshotRow] = []
        self._position: dict[str, int] = {}
        self._removed: set[str] = set()
        self._texts, self._metadata = _TextColumn(self._folder, "texts"), _TextColumn(self._folder, "metadata")
        self._vectors: IO[bytes] = (self._folder / "added.vectors").open("w+b")

    def add(self, entry: SnapshotEntry) -> None:
        """Adds a chunk; its chunk id must not be in the base unless that record was removed before."""
        row, title, text, metadata = entry
        self._position[row.record] = len(self._rows)
        self._rows.append(row)
        self._texts.add(encode(text))
        if self._dimension:
            self._metadata.add(_json(metadata))
        self._unindexed.append(Bm25Entry(row.record, title, text))
        if self._index is not None or len(self._unindexed) >= IDENTIFIED_BY:
            self._bm25()

    def put_vectors(self, records: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Writes the vectors of added records, shape (n, dimension)."""
        for record, vector in zip(records, np.asarray(vectors, dtype="<f4"), strict=True):
            self._vectors.seek(self._position.pop(record) * 4 * self._dimension)
            self._vectors.write(vector.tobytes())

    def without_vectors(self) -> list[str]:
        """The added records whose vectors are still missing."""
        return list(self._position) if self._dimension else []

    def remove(self, records: AbstractSet[str]) -> None:
        """Leaves out records of the base."""
        self._removed |= records
        self._bm25().delete(records)

    def finish(self) -> Snapshot:
        """Writes the remaining rows of the base, then the added ones. The result is not published yet."""
        assert not self.without_vectors(), "every record needs its vector"
        base = self._base
        base_rows = [n for n, row in enumerate(base.rows) if row.record not in self._removed] if base else []
        rows = [base.rows[position] for position in base_rows] + self._rows if base else self._rows
        self._bm25().commit()
        self._texts.finish(base.table if base else None, base_rows)
        if self._dimension:
            self._metadata.finish(base.metadata if base else None, base_rows)
            self._write_vectors(base.vectors if base else None, np.array(base_rows, dtype=np.int64))
        columns = {name: [getattr(row, name) for row in rows] for name in SnapshotRow._fields}
        head = {"version": VERSION, "space": self._space, "language": self._bm25().language}
        stored = json.dumps({**head, **columns})
        _write(self._folder / "rows.json", [stored.encode()])
        self._close()
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
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _bm25(self) -> Bm25Index:
        """The BM25 index of all texts so far."""
        if self._index is None:
            language = self._language
            if language is None:
                language = identify([entry.text for entry in self._unindexed])
            self._index = Bm25Index(self._folder / "bm25", language=language)
        self._index.add(self._unindexed)
        self._unindexed = []
        return self._index

    def _write_vectors(self, base: VectorTable | None, base_rows: NDArray[np.int64]) -> None:
        shape = (len(base_rows) + len(self._rows), self._dimension)
        lengths: list[NDArray[np.float32]] = [np.zeros(0, np.float32)]

        def blocks() -> Iterator[bytes]:
            for vectors in self._vector_blocks(base, base_rows):
                lengths.append(np.linalg.norm(vectors, axis=1))
                yield np.ascontiguousarray(vectors, dtype="<f4").tobytes()

        _write_array(self._folder / "vectors.npy", shape, blocks())
        norms = np.concatenate(lengths).astype("<f4")
        _write_array(self._folder / "lengths.npy", norms.shape, [norms.tobytes()])

    def _vector_blocks(self, base: VectorTable | None, base_rows: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        for start in range(0, len(base_rows), _BLOCK):
            assert base is not None
            yield base.matrix[base_rows[start : start + _BLOCK]]
        self._vectors.seek(0)
        while block := self._vectors.read(_BLOCK * 4 * self._dimension):
            yield np.frombuffer(block, dtype="<f4").reshape(-1, self._dimension)

    def _close(self) -> None:
        for file in (self._texts.file, self._metadata.file, self._vectors):
            file.close()
            Path(file.name).unlink(missing_ok=True)


class _TextColumn:
    """Writes a `TextTable`. Added texts are in a separate file until it is clear which texts of the base remain."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._lengths: list[int] = []
        self.file: IO[bytes] = (folder / f"added.{name}").open("w+b")

    def add(self, raw: bytes) -> None:
        self._lengths.append(self.file.write(raw + SEPARATOR))

    def finish(self, base: TextTable | None, base_rows: Sequence[int]) -> None:
        lengths = [int(base.starts[row + 1] - base.starts[row]) for row in base_rows] if base else []
        starts = np.zeros(len(lengths) + len(self._lengths) + 1, dtype="<i8")
        np.cumsum(lengths + self._lengths, out=starts[1:])
        _write(self._folder / f"{self._name}.bin", self._blocks(base, base_rows))
        _write_array(self._folder / f"{self._name}.npy", starts.shape, [starts.tobytes()], starts.dtype.str)

    def _blocks(self, base: TextTable | None, base_rows: Sequence[int]) -> Iterator[bytes]:
        for row in base_rows:
            assert base is not None
            yield base.raw(row) + SEPARATOR
        self.file.seek(0)
        while block := self.file.read(1 << 20):
            yield block


def _load(folder: Path) -> Snapshot:
    stored = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    if stored["version"] != VERSION:
        raise CorpusCorruptError(f"{folder} was written by another version")
    rows = [SnapshotRow(*columns) for columns in zip(*(stored[name] for name in SnapshotRow._fields), strict=True)]
    table = _load_table(folder, "texts")
    lexical = not (folder / "vectors.npy").exists()
    metadata = None if lexical else _load_table(folder, "metadata")
    vectors = None if lexical else _load_vectors(folder, str(stored["space"]))
    bm25 = Bm25Index(folder / "bm25", create=False, language=stored.get("language", BEFORE_LANGUAGES))
    counts = {len(table), bm25.count(), *([len(metadata), *vectors.matrix.shape[:1]] if metadata and vectors else ())}
    if counts != {len(rows)}:
        raise CorpusCorruptError(f"the files in {folder} do not belong together")
    return Snapshot(folder, rows, table, bm25, metadata, vectors)


def _load_table(folder: Path, name: str) -> TextTable:
    starts = np.load(folder / f"{name}.npy")
    with (folder / f"{name}.bin").open("rb") as texts:
        size = os.fstat(texts.fileno()).st_size
        # Mapping an empty file is an error.
        buffer = mmap.mmap(texts.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    if starts.dtype != np.int64 or starts.ndim != 1 or starts[-1] != size:
        raise CorpusCorruptError(f"the files of {name} in {folder} do not belong together")
    return TextTable(buffer, starts)


def _load_vectors(folder: Path, space: str) -> VectorTable:
    lengths = np.load(folder / "lengths.npy")
    # An empty matrix cannot be mapped.
    matrix = np.load(folder / "vectors.npy", mmap_mode="r" if len(lengths) else None)
    if matrix.ndim != 2 or matrix.dtype != np.float32 or lengths.shape != matrix.shape[:1]:
        raise CorpusCorruptError(f"the vectors in {folder} do not belong together")
    return VectorTable(matrix, lengths, space)


def _write(path: Path, blocks: Iterable[bytes]) -> None:
    """Writes a file and syncs it to disk. Not through a memory map: on a full disk that would kill the process."""
    with path.open("wb") as file:
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())


def _write_array(path: Path, shape: tuple[int, ...], blocks: Iterable[bytes], dtype: str = "<f4") -> None:
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    _write(path, chain([header.getvalue()], blocks))


def _json(metadata: Mapping[str, Any]) -> bytes:
    stored = {key: value for key, value in metadata.items() if value is not None}
    return json.dumps(stored, ensure_ascii=True, separators=(",", ":")).encode()


def _link_files(source: Path, target: Path) -> None:
    """Links files instead of copying them: tantivy never changes a file, and replaces meta.json by renaming."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.name.endswith(".lock") or not file.is_file():
            continue
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copy2(file, target / file.name)


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
    """The current snapshot of the folder; None if none was published or the file is damaged."""
    try:
        with (root / POINTER).open(encoding="utf-8") as file:
            stored = json.loads(file.read(_LARGEST))
        collection = stored["collection"]
        local = None if collection is None else StoredCollection(**collection)
        if local is not None and not valid_id(local.id):
            return None
        return Publication(str(stored["snapshot"]), str(stored["state"]), local)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def published_collection(folder: Path, name: str) -> StoredCollection | None:
    """The collection of this name, as the latest publication in a folder of collections describes it."""
    pointers = sorted(folder.glob(f"*/{POINTER}"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    publications = (published(file.parent) for file in pointers)
    collections = (publication.collection for publication in publications if publication)
    return next((collection for collection in collections if collection and collection.name == name), None)


@contextmanager
def one_maker(root: Path) -> Iterator[Path]:
    """The folder, locked: several processes may share it, and one at a time brings it up to date."""
    root.mkdir(parents=True, exist_ok=True)
    with file_lock(root / MAKER_LOCK, timeout=-1):
        yield root
