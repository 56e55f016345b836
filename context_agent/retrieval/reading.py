"""How a corpus reads a collection: a local folder from snapshots, anything else through Chroma's client.

A `Source` says what the collection is and gets a snapshot of it; a `Reader` answers from one state. `LocalSource` never
opens Chroma's own files with Chroma. It opens a private copy, and that only where no valid snapshot was published: for
a collection that its owner made, and for an index of an older version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from context_agent.errors import CorpusCorruptError, CorpusLockedError
from context_agent.retrieval import local
from context_agent.retrieval import snapshot as snapshots
from context_agent.retrieval.dense import dimension_of, embedder_of
from context_agent.retrieval.embedders.stored import json_value, stored_embedder
from context_agent.retrieval.layouts import ForeignLayout, Layout, build
from context_agent.retrieval.local import StoredCollection, UnreadableError
from context_agent.retrieval.manifest import KEY, Manifest
from context_agent.retrieval.publication import Publication, publish, published, published_collection
from context_agent.retrieval.readers import ClientReader, Reader, SnapshotReader
from context_agent.retrieval.snapshot import Snapshot
from context_agent.retrieval.store import OWN_FOLDER, Place, connect, find, is_writing, own_folder, readable

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder

_SHORT_WAIT = 1.0
"""Seconds that a reader waits for a locked database where a publication says the same."""

LayoutOf = Callable[[StoredCollection], Layout]


class Source(Protocol):
    """One collection that a corpus reads."""

    def describe(self) -> StoredCollection:
        """What the collection is now. Raises `CorpusNotFoundError`, `CorpusCorruptError`."""

    def embedder(self, stored: StoredCollection, manifest: Manifest | None) -> Embedder:
        """The embedder that the collection names. Raises `ConfigError` where it names none that may be used."""

    def snapshot(self, layout_of: LayoutOf, *, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """The collection's present state, and the snapshot that shows it, brought up to date."""

    def changed(self, stored: StoredCollection, snapshot: Snapshot, layout_of: LayoutOf) -> bool:
        """Whether the collection is no longer in the state that was described."""

    def reader(self, snapshot: Snapshot, layout: Layout) -> Reader:
        """Reads the state that the snapshot shows."""

    def guarded(self) -> AbstractContextManager[None]:
        """Turns what reading raises into this package's errors."""

    def close(self) -> None:
        """Lets go of what is open. Idempotent."""


def source_of(place: Place, name: str, cache: str | Path | None) -> Source:
    """The collection of this name in a place."""
    if place.path is not None and place.live is None:
        return LocalSource(place, place.path, name, cache)
    return ClientSource(place, name, cache)


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
            wait = local.BUSY_SECONDS if fallback is None else _SHORT_WAIT
            return local.read_collection(self._path, self._name, timeout=wait)
        except UnreadableError:
            if fallback is not None:
                return fallback
            with local.database_copy(self._path) as copy:
                return local.read_collection(copy, self._name)

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

    def reader(self, snapshot: Snapshot, layout: Layout) -> Reader:
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
        with _one_maker(self._root(self.describe())) as root:
            stored = self.describe()
            if not rebuild:
                _adopt_published(self._path / OWN_FOLDER / stored.id, root)
                if (current := _current(layout_of(stored), root, stored)) is not None:
                    return stored, current
            local.remove_copies(root)
            with local.private_copy(self._path, stored.id, root) as copy:
                return self._from_copy(copy, layout_of, root, rebuild)

    def _from_copy(
        self, copy: Path, layout_of: LayoutOf, root: Path, rebuild: bool
    ) -> tuple[StoredCollection, Snapshot]:
        """A snapshot of the state that the copy holds: it may be a later one than was described."""
        place = Place(path=copy)
        with readable(self._place), closing(cast("Any", connect(place))) as client:
            collection = find(client, place, self._name)
            collection.count()  # Chroma applies pending entries of the log now.
            stored = local.read_collection(copy, self._name)
            layout = layout_of(stored)
            base, changed = _base(layout, root, rebuild, copy, stored)
            return stored, _published(build(layout, collection, root, base=base, changed=changed), layout, root, stored)


class ClientSource:
    """A collection on a server, in memory, or held open by the caller: read through Chroma's client."""

    def __init__(self, place: Place, name: str, cache: str | Path | None) -> None:
        self._place, self._name, self._cache = place, name, cache
        self._client: ClientAPI | None = None if place.live is not None else connect(place)

    def describe(self) -> StoredCollection:
        """See `Source`."""
        with self.guarded():
            return _described(self._collection())

    def embedder(self, stored: StoredCollection, manifest: Manifest | None) -> Embedder:
        """See `Source`; a caller who holds a collection open may have given Chroma a function."""
        with self.guarded():
            return embedder_of(self._collection(), manifest)

    def snapshot(self, layout_of: LayoutOf, *, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """See `Source`. In the local folder of a live collection it is a whole one, else the lexical half."""
        lexical = self._place.path is None
        collection = self._collection()
        stored = _described(collection)
        layout = layout_of(stored)
        with _one_maker(own_folder(self._place, stored.id, self._cache)) as root, self.guarded():
            base = None if rebuild else self._last(layout, root, stored, lexical)
            if base is not None and isinstance(layout, ForeignLayout):
                if layout.same(collection, base):
                    return stored, base
                base = base if layout.same_texts(collection, base) else None
            elif base is not None:
                return stored, base
            fresh = build(layout, collection, root, base=base, lexical=lexical)
            return stored, _published(fresh, layout, root, stored)

    def changed(self, stored: StoredCollection, snapshot: Snapshot, layout_of: LayoutOf) -> bool:
        """See `Source`; see `layouts` for what tells of a change."""
        with self.guarded():
            collection = self._collection()
            present = _described(collection)
            layout = layout_of(present)
            differs = present.id != stored.id or layout.state(present) != layout_of(stored).state(stored)
            return differs or (isinstance(layout, ForeignLayout) and not layout.same(collection, snapshot))

    def reader(self, snapshot: Snapshot, layout: Layout) -> ClientReader:
        """See `Source`."""
        return ClientReader(self._collection(), snapshot, layout)

    def guarded(self) -> AbstractContextManager[None]:
        """See `Source`."""
        return readable(self._place)

    def close(self) -> None:
        """See `Source`; a collection that the caller holds open stays open."""
        client, self._client = self._client, None
        if client is not None:
            cast("Any", client).close()

    def _collection(self) -> Collection:
        return find(self._client, self._place, self._name)

    def _last(self, layout: Layout, root: Path, stored: StoredCollection, lexical: bool) -> Snapshot | None:
        if isinstance(layout, ForeignLayout):
            return layout.latest(root, lexical=lexical)[0]
        return layout.current(root, layout.state(stored), lexical=lexical)


def _current(layout: Layout, root: Path, stored: StoredCollection) -> Snapshot | None:
    return layout.current(root, layout.state(stored), lexical=False)


def _described(collection: Collection) -> StoredCollection:
    metadata = dict(collection.metadata or {})
    return StoredCollection(
        id=str(collection.id),
        name=collection.name,
        metadata=metadata,
        configuration=None,
        schema=None,
        dimension=dimension_of(collection),
        empty=KEY not in metadata and collection.count() == 0,
        sequence=-1,
    )


@contextmanager
def _one_maker(root: Path) -> Iterator[Path]:
    """The folder, which one process at a time brings up to date: several may share it."""
    from filelock import FileLock

    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / "snapshot.lock"):
        yield root


def _published(fresh: Snapshot, layout: Layout, root: Path, stored: StoredCollection) -> Snapshot:
    """The snapshot, made the current one. The one before it stays: another process may be opening it."""
    previous = published(root)
    publish(root, Publication(fresh.name, layout.state(stored), stored if fresh.vectors is not None else None))
    keep = {fresh.name, *([previous.snapshot] if previous else ())}
    # In the folder of an index, what looks unfinished can be the work of an indexing run.
    snapshots.remove_others(root, keep, unfinished=isinstance(layout, ForeignLayout))
    return fresh


def _base(
    layout: Layout, root: Path, rebuild: bool, copy: Path, stored: StoredCollection
) -> tuple[Snapshot | None, AbstractSet[str]]:
    """The snapshot to go on from, and its records that have changed since."""
    if rebuild or not isinstance(layout, ForeignLayout):
        return None, frozenset()
    base, sequence = layout.latest(root, lexical=False)
    if base is None or sequence < 0:
        return None, frozenset()
    return base, local.changed_records(copy, stored.id, sequence)


def _adopt_published(home: Path, root: Path) -> None:
    """Takes over what was published in the index folder, where this process may not write there."""
    publication = published(home) if home != root else None
    if publication is None or published(root) == publication or not snapshots.number_in(publication.snapshot):
        return
    if (home / publication.snapshot).is_dir():
        snapshots.adopt(home / publication.snapshot, root)
        publish(root, publication)


def _parsed(text: str | None) -> Any:
    try:
        return json_value(text)
    except ValueError as error:
        raise CorpusCorruptError(f"Chroma's settings of the collection cannot be read: {error}") from error
