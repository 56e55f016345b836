"""`current.json`: which snapshot of a collection is the current one.

It is replaced in one step, after the snapshot has its name and after the collection's manifest is written. It stands
in for Chroma's database while a writer holds that locked, or after a writer was killed.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from context_agent.retrieval.local import StoredCollection
from context_agent.retrieval.snapshot import sync_folder

POINTER = "current.json"
_LARGEST = 4_000_000


@dataclass(frozen=True, slots=True)
class Publication:
    """A snapshot's name, the state that it shows (see `Layout.state`), and the collection where it is a local one."""

    snapshot: str
    state: str
    collection: StoredCollection | None = None


def publish(root: Path, publication: Publication) -> None:
    """Makes this the current snapshot of the folder, durably."""
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
    sync_folder(root)


def published(root: Path) -> Publication | None:
    """The current snapshot of the folder; None where none was published, or the file is damaged."""
    try:
        with (root / POINTER).open(encoding="utf-8") as file:
            stored = json.loads(file.read(_LARGEST))
        collection = stored["collection"]
        local = None if collection is None else StoredCollection(**collection)
        return Publication(str(stored["snapshot"]), str(stored["state"]), local)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def published_collection(folder: Path, name: str) -> StoredCollection | None:
    """The collection of this name, as the latest publication in a folder of collections describes it."""
    pointers = sorted(folder.glob(f"*/{POINTER}"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    publications = (published(file.parent) for file in pointers)
    collections = (publication.collection for publication in publications if publication)
    return next((one for one in collections if one is not None and one.name == name), None)
