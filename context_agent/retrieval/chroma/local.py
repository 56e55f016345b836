"""A collection in a local folder, read without opening Chroma's files with Chroma.

`LocalSource` reads the published snapshot. Only if no valid snapshot was published (for a collection that another
program made, or an index of an older version) it makes a private copy of Chroma's files, opens the copy with Chroma,
and makes the snapshot from it. `SnapshotReader` answers from one snapshot.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import CorpusCorruptError, CorpusError, CorpusLockedError
from context_agent.retrieval.chroma.database import (
    BUSY_SECONDS,
    DATABASE,
    StoredCollection,
    UnreadableError,
    changed_records,
    last_sequence,
    open_database,
    read_collection,
    segment_id,
    vector_files,
)
from context_agent.retrieval.chroma.layouts import (
    ForeignLayout,
    Layout,
    LayoutOf,
    build,
    current_snapshot,
    publish_state,
)
from context_agent.retrieval.chroma.records import Manifest
from context_agent.retrieval.chroma.repair import FILES, intact
from context_agent.retrieval.chroma.segments import SegmentRows
from context_agent.retrieval.chroma.snapshot import (
    Snapshot,
    adopt,
    number_in,
    one_maker,
    publish,
    published,
    published_collection,
)
from context_agent.retrieval.chroma.store import (
    OWN_FOLDER,
    Location,
    chroma_errors,
    connect,
    find,
    is_writing,
    own_folder,
)
from context_agent.retrieval.chroma.stored_embedder import json_value, stored_embedder
from context_agent.retrieval.corpus import Column, Where, cached_by_filter, matching_rows
from context_agent.retrieval.index.dense import DenseRetriever
from context_agent.retrieval.retriever import QueryVectors
from context_agent.types import Chunk

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder

_SHORT_WAIT = 1.0
"""Seconds that a reader waits for a locked database if a publication says the same."""
_CACHED_COLUMNS = 32
_COPY = "copy-"
_ATTEMPTS = 8
_COPIED = (DATABASE, f"{DATABASE}-journal", f"{DATABASE}-wal")


class LocalSource:
    """The collection that a corpus reads. Writes nothing into Chroma's files."""

    def __init__(self, location: Location, name: str, cache: str | Path | None, layout_of: LayoutOf) -> None:
        assert location.path is not None
        self._location, self._path, self._name, self._cache = location, location.path, name, cache
        self._layout_of = layout_of

    def describe(self) -> StoredCollection:
        """Return what the collection is now; from the last publication if the database cannot be read in place.

        Raises `CorpusNotFoundError`, `CorpusCorruptError`.
        """
        fallback = published_collection(self._path / OWN_FOLDER, self._name)
        if is_writing(self._path):
            # Two copies of SQLite in one process undo each other's locks: Chroma has its own.
            if fallback is None:
                raise CorpusLockedError(
                    f"this process is indexing into {self._path}, which holds no complete state of {self._name!r} "
                    "yet: open it when the run has ended"
                )
            return fallback
        try:
            wait = BUSY_SECONDS if fallback is None else _SHORT_WAIT
            return read_collection(self._path, self._name, timeout=wait)
        except UnreadableError:
            if fallback is not None:
                return fallback
            with database_copy(self._path) as copy:
                return read_collection(copy, self._name)

    def embedder(self, stored: StoredCollection, manifest: Manifest | None) -> Embedder:
        """Return the embedder that the collection selects. Raises `ConfigError` if it selects none that may be used."""
        configuration, schema = _parsed(stored.configuration), _parsed(stored.schema)
        return stored_embedder(self._name, manifest, configuration, schema, dimension=stored.dimension)

    def snapshot(self, *, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """Return the collection's present state, and an up-to-date snapshot of it.

        Opens a published snapshot without a lock; only one process at a time makes one.
        """
        stored = self.describe()
        current = None if rebuild else current_snapshot(self._layout_of(stored), self._root(stored))
        return (stored, current) if current is not None else self._made(rebuild)

    def changed(self, stored: StoredCollection, snapshot: Snapshot) -> bool:
        """Return whether the collection is no longer in the described state."""
        present = self.describe()
        return present.id != stored.id or self._layout_of(present).state != self._layout_of(stored).state

    def reader(self, snapshot: Snapshot, layout: Layout) -> SnapshotReader:
        """Reads the state that the snapshot shows."""
        return SnapshotReader(snapshot, layout)

    def guarded(self) -> AbstractContextManager[None]:
        """Turns what reading raises into this package's errors; here nothing of Chroma's is read."""
        return nullcontext()

    def close(self) -> None:
        """Closes the client, if there is one. Idempotent."""

    def _root(self, stored: StoredCollection) -> Path:
        return own_folder(self._location, stored.id, self._cache)

    def _made(self, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        with one_maker(self._root(self.describe())) as root:
            stored = self.describe()
            if not rebuild:
                _adopt_published(self._path / OWN_FOLDER / stored.id, root)
                if (current := current_snapshot(self._layout_of(stored), root)) is not None:
                    return stored, current
            remove_copies(root)
            with private_copy(self._path, stored.id, root) as copy:
                return self._from_copy(copy, root, rebuild)

    def _from_copy(self, copy: Path, root: Path, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """Return a snapshot of the state that the copy holds, which may be later than the described one."""
        location = Location(path=copy)
        with chroma_errors(self._location), closing(cast("Any", connect(location))) as client:
            collection = find(client, location, self._name)
            collection.count()  # Chroma applies pending entries of the log now.
            stored = read_collection(copy, self._name)
            layout = self._layout_of(stored)
            base, sequence, changed = None, -1, frozenset[str]()
            if isinstance(layout, ForeignLayout) and not rebuild:
                base, sequence = layout.latest(root, lexical=False)
                base = base if sequence >= 0 else None
            if base is not None:
                changed = changed_records(copy, stored.id, sequence)
            fresh = build(layout, collection, root, base=base, changed=changed)
            return stored, publish_state(fresh, layout, root, stored)


class SnapshotReader:
    """Reads one state of a collection from its snapshot; writes nothing and opens no other file. Thread-safe.

    `matching` returns the records that a metadata filter lets through, and raises `ConfigError` for a malformed one.
    """

    def __init__(self, snapshot: Snapshot, layout: Layout) -> None:
        assert snapshot.vectors is not None
        self._snapshot, self._layout, self._vectors = snapshot, layout, snapshot.vectors
        column: Callable[[str], Column] = lru_cache(_CACHED_COLUMNS)(lambda key: _column(snapshot.rows, key))
        self._mask = cached_by_filter(lambda where: matching_rows(where, column))
        self.matching = cached_by_filter(self._records)

    def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Return the chunks by id, in any order; unknown ids are left out."""
        rows = map(self._snapshot.row_of_chunk.get, chunk_ids)
        chunks = (self._chunk(row) for row in rows if row is not None)
        return {chunk.id: chunk for chunk in chunks if chunk is not None}

    def vectors(self, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return the vectors by chunk id, each of shape (d,) and length 1; a zero vector stays zero."""
        rows = ((chunk_id, self._snapshot.row_of_chunk.get(chunk_id)) for chunk_id in chunk_ids)
        return {chunk_id: self._snapshot.rows.vector(row, unit=True) for chunk_id, row in rows if row is not None}

    def dense(self, embed_query: QueryVectors) -> DenseRetriever:
        """Exact dense search in this state."""
        return DenseRetriever(self._vectors, embed_query, lambda row: self._snapshot.rows[row].chunk, self._mask)

    def hybrid(
        self, query: str, embed_query: QueryVectors, limit: int, exclude: AbstractSet[str], where: Where | None
    ) -> None:
        """The store's own hybrid search: a snapshot has none."""
        return

    def _chunk(self, row: int) -> Chunk | None:
        rows = self._snapshot.rows
        return self._layout.chunk(rows[row].record, rows.text(row), rows.metadata(row))

    def _records(self, where: Where) -> AbstractSet[str]:
        rows = self._snapshot.rows
        return frozenset(rows[int(row)].record for row in np.flatnonzero(self._mask(where)))


def _column(rows: SegmentRows, key: str) -> Column:
    """Return a metadata key over all rows. Values of different types are different values."""
    positions = np.full(len(rows), -1, dtype=np.int32)
    values: dict[tuple[str, str], tuple[int, Any]] = {}
    for row, entries in enumerate(rows.all_metadata()):
        if key in entries:
            value = entries[key]
            positions[row], _ = values.setdefault((type(value).__name__, str(value)), (len(values), value))
    return positions, [value for _, value in values.values()]


def _adopt_published(home: Path, root: Path) -> None:
    """Copies what was published in the index folder to `root`, for a process that may not write to that folder."""
    publication = published(home) if home != root else None
    if publication is None or published(root) == publication or not number_in(publication.snapshot):
        return
    if (home / publication.snapshot).is_dir():
        adopt(home / publication.snapshot, root)
        publish(root, publication)


def _parsed(text: str | None) -> Any:
    try:
        return json_value(text)
    except ValueError as error:
        raise CorpusCorruptError(f"Chroma's settings of the collection cannot be read: {error}") from error


@contextmanager
def private_copy(folder: Path, collection: str, scratch: Path) -> Iterator[Path]:
    """Yield a copy of the database and of one collection's vector index, in a new folder under `scratch`.

    The copy is consistent even if other processes write meanwhile, and is deleted when the context ends. Raises
    `CorpusError` without room for it, `CorpusCorruptError` if every attempt gives an inconsistent copy.
    """
    _check_room(folder, scratch)
    for attempt in range(_ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix=_COPY, dir=scratch, ignore_cleanup_errors=True) as target:
            if _copied(folder, collection, Path(target)):
                yield Path(target)
                return
        time.sleep(0.1 * 2**attempt)
    raise CorpusCorruptError(
        f"the vector index of the collection in {folder} is damaged, or changes all the time: stop the program that "
        "writes to it and try again; if that does not help, restore the folder from a backup"
    )


def remove_copies(scratch: Path) -> None:
    """Deletes the copies of processes that were killed."""
    for child in scratch.glob(f"{_COPY}*"):
        shutil.rmtree(child, ignore_errors=True)


@contextmanager
def database_copy(folder: Path) -> Iterator[Path]:
    """Yield a copy of the database alone, in a temporary folder. Raises `UnreadableError` if it changes all the
    time.
    """
    with tempfile.TemporaryDirectory(prefix=_COPY, ignore_cleanup_errors=True) as target:
        _copy_files(folder, Path(target))
        yield Path(target)


def _copied(folder: Path, collection: str, target: Path) -> bool:
    """Return whether the copy is of one moment: database and vector index belong together."""
    before = _stamps(folder)
    _copy_database(folder, target)
    with open_database(target, 0) as copy:
        segment = segment_id(copy, collection, "VECTOR")
        saved = last_sequence(copy, segment)
    source = vector_files(folder, segment)
    if source is None:
        return saved == 0
    (target / segment).mkdir()
    for name in FILES:
        with suppress(FileNotFoundError):
            shutil.copy2(source / name, target / segment / name)
    after = _stamps(folder)
    unchanged = all(before.get(name) == after[name] for name in after if name.startswith(f"{segment}/"))
    return unchanged and saved == _saved_now(folder, segment, saved) and intact(target / segment)


def _saved_now(folder: Path, segment: str, default: int) -> int:
    """Return the last entry of the log that the saved vector index includes; later ones are still in the log."""
    try:
        with open_database(folder, BUSY_SECONDS) as database:
            return last_sequence(database, segment)
    except UnreadableError:
        return default


def _stamps(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time and inode of the files in a folder and in its folders."""
    stats = {}
    for file in (*folder.glob("*"), *folder.glob("*/*")):
        with suppress(FileNotFoundError):
            stats[file.relative_to(folder).as_posix()] = file.stat()
    return {name: (stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items()}


def _copy_database(folder: Path, target: Path) -> None:
    try:
        with open_database(folder, BUSY_SECONDS) as database, closing(sqlite3.connect(target / DATABASE)) as copy:
            database.backup(copy)
    except UnreadableError:
        _copy_files(folder, target)


def _copy_files(folder: Path, target: Path) -> None:
    """Copies a database with its journal. Opening the copy for writing rolls back a killed writer's transaction."""
    for attempt in range(_ATTEMPTS):
        before = _stamps(folder)
        for name in _COPIED:
            (target / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copy2(folder / name, target / name)
        after = _stamps(folder)
        if all(before.get(name) == after.get(name) for name in _COPIED):
            with closing(sqlite3.connect(target / DATABASE)) as database:
                database.execute("pragma journal_mode = delete")
                database.execute("select count(*) from collections")
            return
        time.sleep(0.1 * 2**attempt)
    raise UnreadableError(f"{folder / DATABASE} cannot be copied while it is written: try again later")


def _check_room(folder: Path, scratch: Path) -> None:
    copied = (*(folder / name for name in _COPIED), *(file for name in FILES for file in folder.glob(f"*/{name}")))
    needed = sum(file.stat().st_size for file in copied if file.exists())
    free = shutil.disk_usage(scratch).free
    if free < needed * 1.1:
        raise CorpusError(
            f"reading the collection in {folder} takes a copy of {needed / 1e6:,.0f} MB, but {scratch} has only "
            f"{free / 1e6:,.0f} MB free: free some space, or name another folder with cache="
        )
