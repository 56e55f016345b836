"""A collection in a local folder, read without opening Chroma's files with Chroma.

`LocalSource` reads the published snapshot. If there is none, for example because another program made the collection,
it copies Chroma's files, opens the private copy with Chroma, and makes a snapshot from it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from context_agent.errors import CorpusCorruptError, CorpusError, CorpusLockedError
from context_agent.retrieval.chroma.client import chroma_errors, connect, disk_full, find, is_writing
from context_agent.retrieval.chroma.collection import CollectionRecords
from context_agent.retrieval.chroma.database import (
    BUSY_SECONDS,
    UnreadableError,
    changed_records,
    read_collection,
)
from context_agent.retrieval.chroma.location import OWN_FOLDER, Location, own_folder, remove_deleted, snapshot_folders
from context_agent.retrieval.chroma.private_copy import database_copy, private_copy, remove_copies
from context_agent.retrieval.chroma.stored_embedder import json_value, stored_embedder
from context_agent.retrieval.index.layouts import (
    ForeignLayout,
    Layout,
    LayoutOf,
    build,
    current_snapshot,
    publish_state,
)
from context_agent.retrieval.index.manifest import Manifest
from context_agent.retrieval.index.publication import (
    StoredCollection,
    one_maker,
    publish,
    published,
    published_collection,
)
from context_agent.retrieval.index.reader import SnapshotReader
from context_agent.retrieval.index.snapshot import Snapshot, adopt, number_in, remove_others

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder

_SHORT_WAIT = 1.0
"""The time, in seconds, that a reader waits for a locked database if a publication also describes the collection."""


class LocalSource:
    """The source of a corpus in a local folder. It never writes to Chroma's files."""

    def __init__(self, location: Location, name: str, cache: str | Path | None, layout_of: LayoutOf) -> None:
        assert location.path is not None
        self._location, self._path, self._name, self._cache = location, location.path, name, cache
        self._layout_of = layout_of

    def describe(self) -> StoredCollection:
        """Return the present state of the collection.

        If the database cannot be read in place, the last publication describes the collection.

        Raises:
            CorpusNotFoundError: If there is no such collection.
            CorpusCorruptError: If the database is damaged.
            CorpusLockedError: If this process is indexing into the folder, and no state is complete yet.
        """
        fallback = published_collection(self._path / OWN_FOLDER, self._name)
        if is_writing(self._path):
            # Two copies of SQLite in one process undo each other's locks: Chroma has its own.
            if fallback is None:
                raise CorpusLockedError(
                    f"this process is still indexing into {self._path}, which has no complete state of {self._name!r} "
                    "yet. Open the index after the indexing has ended."
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
        """Return the embedder that the collection selects. If it may not select its embedder, raise `ConfigError`."""
        configuration, schema = self._parsed(stored.configuration), self._parsed(stored.schema)
        return stored_embedder(self._name, manifest, configuration, schema, dimension=stored.dimension)

    def snapshot(self, *, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """Return the collection's present state, and an up-to-date snapshot of it.

        A published snapshot is opened without a lock. Only one process at a time makes a new snapshot.
        """
        stored = self.describe()
        current = None if rebuild else current_snapshot(self._layout_of(stored), self._root(stored))
        return (stored, current) if current is not None else self._made(rebuild)

    def changed(self, stored: StoredCollection, snapshot: Snapshot) -> bool:
        """Return True if the collection is no longer in the described state."""
        present = self.describe()
        return present.id != stored.id or self._layout_of(present).state != self._layout_of(stored).state

    def reader(self, snapshot: Snapshot, layout: Layout) -> SnapshotReader:
        """Return a reader of the state that the snapshot shows."""
        return SnapshotReader(snapshot, layout)

    def guarded(self) -> AbstractContextManager[None]:
        """Return a context that turns Chroma's errors into errors of this package.

        A snapshot is read without Chroma, so this context does nothing.
        """
        return nullcontext()

    def close(self) -> None:
        """Close the client, if there is one. A second call does nothing."""

    def _root(self, stored: StoredCollection) -> Path:
        return own_folder(self._location, stored.id, self._cache)

    def _made(self, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        with one_maker(self._root(self.describe())) as root:
            stored = self.describe()
            remove_copies(root)
            if not rebuild:
                self._adopt_published(self._path / OWN_FOLDER / stored.id, root)
                if (current := current_snapshot(self._layout_of(stored), root)) is not None:
                    return stored, current
            snapshots = snapshot_folders(self._path) if root.parent == self._path / OWN_FOLDER else []
            with private_copy(self._path, stored.id, root) as copy:
                made = self._from_copy(copy, root, rebuild)
                remove_deleted(snapshots, copy)
                return made

    def _adopt_published(self, home: Path, root: Path) -> None:
        """If `root` is not in the index folder, copy the published snapshot of the index to `root`.

        Earlier copies are deleted, except the last one, which another process may be opening.
        """
        publication = published(home) if home != root else None
        previous = published(root)
        if publication is None or previous == publication or not number_in(publication.snapshot):
            return
        try:
            adopt(home / publication.snapshot, root)
        except OSError as error:
            if disk_full(self._location, error):
                raise CorpusError(
                    f"the snapshot of the index {self._path} is copied to {root}, but the disk there is full. Free "
                    "some space, or set XDG_CACHE_HOME to a folder on another disk (with ctx1 serve: --cache; in "
                    "Python: cache=)."
                ) from error
            if isinstance(error, FileNotFoundError | PermissionError):
                return  # A writer has deleted it, or this user may not read it. `_made` makes a new one.
            raise
        publish(root, publication)
        remove_others(root, {publication.snapshot, *([previous.snapshot] if previous else ())}, unfinished=False)

    def _from_copy(self, copy: Path, root: Path, rebuild: bool) -> tuple[StoredCollection, Snapshot]:
        """Return a snapshot of the state in the copy. It may be newer than the state that `describe` returned."""
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
            fresh = build(layout, CollectionRecords(collection), root, base=base, changed=changed)
            return stored, publish_state(fresh, layout, root, stored)

    def _parsed(self, text: str | None) -> Any:
        try:
            return json_value(text)
        except ValueError as error:
            raise CorpusCorruptError(
                f"the settings that Chroma stores for collection {self._name!r} in {self._path} cannot be read "
                f"({error}). Restore the folder from a backup."
            ) from error
