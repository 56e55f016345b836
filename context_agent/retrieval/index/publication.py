"""The file that names the current snapshot of an index.

`current.json` names the current snapshot of a collection. It is replaced in one step, after the snapshot has its final
name and the collection's manifest is written. Readers use it instead of Chroma's database in two cases: while a writer
has locked the database, and after a writer was killed.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from context_agent._support.atomic_files import replacing
from context_agent._support.locks import file_lock
from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError, reason_of


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """The facts about a collection that the store holds.

    Attributes:
        id: The UUID of the collection.
        name: The name of the collection.
        metadata: Its metadata, including the manifest.
        configuration: Chroma's configuration, as JSON.
        schema: Chroma's schema, as JSON.
        dimension: The length of the vectors. It is 0 if it is unknown.
        empty: Whether the collection has no records.
        sequence: The number of the last change, which grows with each change. It is -1 if it is unknown, as on a
            server.
        usual_keys: The usual metadata keys of its records (see `metadata_keys`).
    """

    id: str
    name: str
    metadata: Mapping[str, Any]
    configuration: str | None = None
    schema: str | None = None
    dimension: int = 0
    empty: bool = False
    sequence: int = -1
    usual_keys: Mapping[str, str] = field(default_factory=dict)


def valid_id(collection: object) -> bool:
    """Return True if this is a UUID as Chroma writes it. The id names a folder, so nothing else is accepted."""
    try:
        return isinstance(collection, str) and str(UUID(collection)) == collection
    except ValueError:
        return False


POINTER_FILE = "current.json"
"""The file that names the current snapshot."""
MAKER_LOCK = "snapshot.lock"
"""The file that a process locks while it makes a snapshot."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A published snapshot.

    Attributes:
        snapshot: The name of the snapshot.
        state: The state that it shows (see `OwnLayout`).
        collection: The collection. It is None if the collection is not in a local folder.
    """

    snapshot: str
    state: str
    collection: StoredCollection | None = None


def publish(root: Path, publication: Publication) -> None:
    """Make this the current snapshot of the folder, and sync the file to disk. Other users may read the file."""
    with replacing(root / POINTER_FILE, shared=True) as file:
        file.write(json.dumps(asdict(publication)).encode())


def published(root: Path) -> Publication | None:
    """Return the current snapshot of the folder. If none was published, or if the file is damaged, return None."""
    try:
        stored = read_json(root / POINTER_FILE)
        collection = stored["collection"]
        local = None if collection is None else StoredCollection(**collection)
        if local is not None and not _plausible(local):
            return None
        return Publication(str(stored["snapshot"]), str(stored["state"]), local)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plausible(stored: Any) -> bool:
    """Return True if the values, which come from a file, have the right types."""
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
    """Return the collection of this name, as described by the latest publication in the folder.

    If there is no such publication, return None. The folder has a subfolder for each collection.
    """
    stats = [(file, file.stat()) for file in folder.glob(f"*/{POINTER_FILE}")]
    # A file that many folders link to is read once.
    distinct = {(status.st_dev, status.st_ino): (status.st_mtime_ns, file) for file, status in stats}
    publications = (published(file.parent) for _, file in sorted(distinct.values(), reverse=True))
    collections = (publication.collection for publication in publications if publication)
    return next((collection for collection in collections if collection and collection.name == name), None)


@contextmanager
def one_maker(root: Path) -> Iterator[Path]:
    """Hold the lock of a folder of snapshots, and yield the folder.

    Several processes may share the folder, but only one at a time makes a snapshot in it.

    Raises:
        ConfigError: If this user cannot make the folder, for example on a read-only file system.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        raise ConfigError(
            f"the BM25 index needs the folder {root}, which cannot be made ({reason_of(error)}). Set XDG_CACHE_HOME "
            "to a folder that is writable (with ctx1 serve: --cache; in Python: cache=)."
        ) from error
    with file_lock(root / MAKER_LOCK, timeout=-1):
        yield root
