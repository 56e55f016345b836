"""Which snapshot of an index is current.

`current.json` names the current snapshot of a collection. It is replaced in one step, after the snapshot has its name
and after the collection's manifest is written. While a writer holds Chroma's database locked, or after a writer was
killed, readers use it instead of the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from context_agent._support.journal import file_lock, replacing
from context_agent._support.small_files import read_json


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """What the store says about a collection.

    Attributes:
        id: The UUID of the collection.
        name: Its name.
        metadata: Its metadata, the manifest included.
        configuration: Chroma's configuration, as JSON.
        schema: Chroma's schema, as JSON.
        dimension: The numbers of a vector; 0 if unknown.
        empty: Whether it has no records.
        sequence: The number of the last change, which grows with each change; -1 if it is unknown, as on a server.
        usual_keys: The usual metadata keys of its records, see `metadata_keys`.
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
    """A snapshot's name, the state that it shows (see `OwnLayout`), and the collection if it is a local one."""

    snapshot: str
    state: str
    collection: StoredCollection | None = None


def publish(root: Path, publication: Publication) -> None:
    """Make this the current snapshot of the folder, synced to disk. Other users may read the file."""
    with replacing(root / POINTER_FILE, shared=True) as file:
        file.write(json.dumps(asdict(publication)).encode())


def published(root: Path) -> Publication | None:
    """Return the current snapshot of the folder. None if none was published or the file is damaged."""
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
    """Return True if the values have their types. They come from a file."""
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
    stats = [(file, file.stat()) for file in folder.glob(f"*/{POINTER_FILE}")]
    # A file that many folders link to is read once.
    distinct = {(status.st_dev, status.st_ino): (status.st_mtime_ns, file) for file, status in stats}
    publications = (published(file.parent) for _, file in sorted(distinct.values(), reverse=True))
    collections = (publication.collection for publication in publications if publication)
    return next((collection for collection in collections if collection and collection.name == name), None)


@contextmanager
def one_maker(root: Path) -> Iterator[Path]:
    """Yield the folder, locked. Several processes may share it, and one at a time brings it up to date."""
    root.mkdir(parents=True, exist_ok=True)
    with file_lock(root / MAKER_LOCK, timeout=-1):
        yield root
