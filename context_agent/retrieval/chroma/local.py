"""How a corpus reads a collection: a local folder from snapshots, anything else through Chroma's client.

A `Source` says what the collection is and gets a snapshot of it; a `Reader` answers from one state. `LocalSource` never
opens Chroma's own files with Chroma. It opens a private copy, and that only where no valid snapshot was published: for
a collection that its owner made, and for an index of an older version.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from context_agent.retrieval.chroma.layouts import ForeignLayout, Layout, LayoutOf, build, publish_state
from context_agent.retrieval.chroma.records import Manifest
from context_agent.retrieval.chroma.repair import intact
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
    Place,
    connect,
    find,
    is_writing,
    own_folder,
    readable,
)
from context_agent.retrieval.chroma.stored_embedder import json_value, stored_embedder
from context_agent.retrieval.corpus import Column, Where, cached_by_filter, matching_rows
from context_agent.retrieval.fusion import ExactDense, QueryVectors
from context_agent.retrieval.grep import TextTable
from context_agent.types import Chunk

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.fusion import Retriever

_SHORT_WAIT = 1.0
"""Seconds that a reader waits for a locked database where a publication says the same."""
_KNOWN_COLUMNS = 32
_COPY = "copy-"
_ATTEMPTS = 8
_COPIED = (DATABASE, f"{DATABASE}-journal", f"{DATABASE}-wal")


class LocalSource:
    """A collection in a local folder, read without Chroma's client."""

    def __init__(self, place: Place, path: Path, name: str, cache: str | Path | None) -> None:
        self._place, self._path, self._name, self._cache = place, path, name, cache

    def describe(self) -> StoredCollection:
        """See `Source`; from the last publication where the database cannot be read in place."""
        fallback = published_collection(self._path / OWN_FOLDER, self._name)
        if is_writing(self._path):
            # Two copies of SQLite in one process undo each other's locks: Chroma has its own.
            return self._of_last_run(fallback)
        try:
            wait = BUSY_SECONDS if fallback is None else _SHORT_WAIT
            return read_collection(self._path, self._name, timeout=wait)
        except UnreadableError:
            if fallback is not None:
                return fallback
            with database_copy(self._path) as copy:
                return read_collection(copy, self._name)

    def embedder(self, stored: StoredCollection, manifest: Manifest | None) -> Embedder:
        """See `Source`."""
        configuration, schema = _parsed(stored.configuration), _parsed(stored.schema)
        return stored_embedder(self._name, manifest, configuration, schema, dimension=stored.dimension)

    def snapshot(self, layout_of: LayoutOf, *, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """See `Source`. A published one is opened without a lock; processes that have to make one wait in line."""
        stored = self.describe()
        current = None if rebuild else _current(layout_of(stored), self._root(stored), stored)
        return (stored, current) if current is not None else self._made(layout_of, rebuild)

    def changed(self, stored: StoredCollection, snapshot: Snapshot, layout_of: LayoutOf) -> bool:
        """See `Source`."""
        present = self.describe()
        return present.id != stored.id or layout_of(present).state(present) != layout_of(stored).state(stored)

    def reader(self, snapshot: Snapshot, layout: Layout) -> SnapshotReader:
        """See `Source`."""
        return SnapshotReader(snapshot, layout)

    def guarded(self) -> AbstractContextManager[None]:
        """See `Source`; nothing of Chroma's is read."""
        return nullcontext()

    def close(self) -> None:
        """See `Source`; there is nothing to close."""

    def _of_last_run(self, publication: StoredCollection | None) -> StoredCollection:
        if publication is None:
            raise CorpusLockedError(
                f"this process is indexing into {self._path}, which holds no complete state of {self._name!r} yet: "
                "open it when the run has ended"
            )
        return publication

    def _root(self, stored: StoredCollection) -> Path:
        return own_folder(self._place, stored.id, self._cache)

    def _made(self, layout_of: LayoutOf, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        with one_maker(self._root(self.describe())) as root:
            stored = self.describe()
            if not rebuild:
                _adopt_published(self._path / OWN_FOLDER / stored.id, root)
                if (current := _current(layout_of(stored), root, stored)) is not None:
                    return stored, current
            remove_copies(root)
            with private_copy(self._path, stored.id, root) as copy:
                return self._from_copy(copy, layout_of, root, rebuild)

    def _from_copy(
        self, copy: Path, layout_of: LayoutOf, root: Path, rebuild: bool
    ) -> tuple[StoredCollection, Snapshot]:
        """A snapshot of the state that the copy holds: it may be a later one than was described."""
        place = Place(path=copy)
        with readable(self._place), closing(cast("Any", connect(place))) as client:
            collection = find(client, place, self._name)
            collection.count()  # Chroma applies pending entries of the log now.
            stored = read_collection(copy, self._name)
            layout = layout_of(stored)
            base, changed = _base(layout, root, rebuild, copy, stored)
            return stored, publish_state(
                build(layout, collection, root, base=base, changed=changed), layout, root, stored
            )


def _current(layout: Layout, root: Path, stored: StoredCollection) -> Snapshot | None:
    return layout.current(root, layout.state(stored), lexical=False)


def _base(
    layout: Layout, root: Path, rebuild: bool, copy: Path, stored: StoredCollection
) -> tuple[Snapshot | None, AbstractSet[str]]:
    """The snapshot to go on from, and its records that have changed since."""
    if rebuild or not isinstance(layout, ForeignLayout):
        return None, frozenset()
    base, sequence = layout.latest(root, lexical=False)
    if base is None or sequence < 0:
        return None, frozenset()
    return base, changed_records(copy, stored.id, sequence)


def _adopt_published(home: Path, root: Path) -> None:
    """Takes over what was published in the index folder, where this process may not write there."""
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


class SnapshotReader:
    """Reads a whole snapshot. Nothing is written and no other file is opened."""

    def __init__(self, snapshot: Snapshot, layout: Layout) -> None:
        assert snapshot.vectors is not None
        assert snapshot.metadata is not None
        self._snapshot, self._layout = snapshot, layout
        self._vectors, self._metadata = snapshot.vectors, snapshot.metadata
        column: Callable[[str], Column] = lru_cache(_KNOWN_COLUMNS)(lambda key: _column(self._metadata, key))
        self._mask = cached_by_filter(lambda where: matching_rows(where, column))
        self._matching = cached_by_filter(self._records)

    def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """See `Reader`."""
        row_of = self._snapshot.row_of_chunk
        chunks = (self._chunk(row_of[chunk_id]) for chunk_id in chunk_ids if chunk_id in row_of)
        return {chunk.id: chunk for chunk in chunks if chunk is not None}

    def vectors(self, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """See `Reader`."""
        row_of = self._snapshot.row_of_chunk
        return {one: self._vectors.unit_row(row_of[one]) for one in chunk_ids if one in row_of}

    def matching(self, where: Where) -> AbstractSet[str]:
        """See `Reader`."""
        return self._matching(where)

    def dense(self, embed_query: QueryVectors) -> Retriever:
        """See `Reader`; exact."""
        return ExactDense(self._vectors, embed_query, [row.chunk for row in self._snapshot.rows], self._mask)

    def hybrid(
        self, query: str, embed_query: QueryVectors, limit: int, exclude: AbstractSet[str], where: Where | None
    ) -> None:
        """See `Reader`."""
        return

    def _chunk(self, row: int) -> Chunk | None:
        text, metadata = self._snapshot.table.text(row), json.loads(self._metadata.raw(row))
        return self._layout.chunk(self._snapshot.rows[row].record, text, metadata)

    def _records(self, where: Where) -> frozenset[str]:
        rows = self._snapshot.rows
        return frozenset(rows[row].record for row in np.flatnonzero(self._mask(where)))


def _column(metadata: TextTable, key: str) -> Column:
    """A metadata key over all rows. Values of different types are different values."""
    positions = np.full(len(metadata), -1, dtype=np.int32)
    values: list[Any] = []
    known: dict[tuple[str, str], int] = {}
    for row in range(len(metadata)):
        entries: Mapping[str, Any] = json.loads(metadata.raw(row))
        if key in entries:
            value = entries[key]
            identity = (type(value).__name__, str(value))
            if (position := known.get(identity)) is None:
                position = known[identity] = len(values)
                values.append(value)
            positions[row] = position
    return positions, values


@contextmanager
def private_copy(folder: Path, collection: str, scratch: Path) -> Iterator[Path]:
    """A copy of the database and of one collection's vector index, in a folder of its own under `scratch`.

    The copy is consistent although others may write meanwhile, and is gone when the context is left. Raises
    `CorpusError` without room for it, `CorpusCorruptError` when no consistent copy can be had.
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
        "writes to it and try again; if that does not help, restore the folder from a copy"
    )


def remove_copies(scratch: Path) -> None:
    """Deletes what processes that were killed left of their copies."""
    for child in scratch.glob(f"{_COPY}*"):
        shutil.rmtree(child, ignore_errors=True)


@contextmanager
def database_copy(folder: Path, scratch: Path | None = None) -> Iterator[Path]:
    """A copy of the database alone, for one that cannot be read in place. Raises `UnreadableError`."""
    with tempfile.TemporaryDirectory(prefix=_COPY, dir=scratch, ignore_cleanup_errors=True) as target:
        _copy_files(folder, Path(target))
        yield Path(target)


def _copied(folder: Path, collection: str, target: Path) -> bool:
    """Whether the copy is of one moment: database and vector index belong together."""
    before = _stamps(folder)
    _copy_database(folder, target)
    with open_database(target, 0) as copy:
        segment = segment_id(copy, collection, "VECTOR")
        saved = last_sequence(copy, segment)
    source = vector_files(folder, segment)
    if source is None:
        return saved == 0
    with suppress(FileNotFoundError):
        shutil.copytree(source, target / segment)
    after = _stamps(folder)
    unchanged = all(before.get(name) == after[name] for name in after if name.startswith(f"{segment}/"))
    return unchanged and saved == _saved_now(folder, segment, saved) and intact(target / segment)


def _saved_now(folder: Path, segment: str, otherwise: int) -> int:
    """Up to which entry of the log the vector index is saved; the later ones are still in the log."""
    try:
        with open_database(folder, BUSY_SECONDS) as database:
            return last_sequence(database, segment)
    except UnreadableError:
        return otherwise


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
    """Copies a database with its journal. Opened for writing, SQLite undoes what a killed writer had not finished."""
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
    needed = sum(
        file.stat().st_size for file in (folder / DATABASE, *folder.glob("*/data_level0.bin")) if file.exists()
    )
    free = shutil.disk_usage(scratch).free
    if free < needed * 1.1:
        raise CorpusError(
            f"reading the collection in {folder} takes a copy of {needed / 1e6:,.0f} MB, but {scratch} has "
            f"{free / 1e6:,.0f} MB free: free some space, or name another folder with cache="
        )
