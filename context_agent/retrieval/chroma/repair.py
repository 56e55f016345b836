"""Chroma's vector index, restored after an interrupted run.

Chroma keeps texts and metadata in SQLite, which survives a kill. But Chroma changes the vector files in place and not
atomically. If a process is killed during a change, the files are inconsistent. Chroma may crash on such files, or write
without end. So the files are checked before Chroma opens them. The check reads all of them. If size, times and inode
show that they are the files of the last successful run, the check is skipped.

Lost vectors are restored from the last complete snapshot. Vectors that no snapshot holds are computed again. The
records themselves and the other collections in the folder do not change.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from context_agent._support.atomic_files import sync_path
from context_agent._support.small_files import read_json
from context_agent.errors import CorpusNotFoundError
from context_agent.retrieval.chroma.client import connect, find
from context_agent.retrieval.chroma.collection import PAGE_RECORDS, CollectionRecords
from context_agent.retrieval.chroma.database import (
    BUSY_SECONDS,
    DATABASE_FILE,
    read_collection,
    require_own_journal,
    require_sound,
    vector_folder,
)
from context_agent.retrieval.chroma.location import Location, own_folder
from context_agent.retrieval.chroma.stored_embedder import check_writable
from context_agent.retrieval.chroma.vector_files import VECTOR_FILES, vectors_are_intact
from context_agent.retrieval.embedders import document_vectors
from context_agent.retrieval.index.layouts import OwnLayout, current_snapshot
from context_agent.retrieval.index.manifest import MANIFEST_KEY, parse_manifest
from context_agent.retrieval.index.records import stored_chunk
from context_agent.retrieval.index.snapshot import Snapshot

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder

UNFINISHED_MARK = "unfinished"
"""The file next to the snapshots that exists while a run writes. A successful run deletes it."""
_CHECKED_FILE = "vectors.json"
"""The file next to the snapshots with size, times and inode of the vector files after the last successful run."""
_LOG = logging.getLogger(__name__)


def undo_unfinished(path: Path) -> None:
    """Roll back the transaction of a killed writer. A folder without a readable database stays as it is.

    Opening the database for writing rolls it back. Until then, `read_collection` raises `UnreadableError`.

    Raises:
        CorpusCorruptError: If the journal of the transaction names another file.
    """
    if not (path / DATABASE_FILE).exists():
        return
    require_own_journal(path)
    with (
        suppress(sqlite3.DatabaseError, UnicodeDecodeError),
        closing(sqlite3.connect(path / DATABASE_FILE, timeout=BUSY_SECONDS)) as database,
    ):
        database.execute("select count(*) from sqlite_master").fetchone()


def repair_vectors(location: Location, name: str, cache: str | Path | None, embedder: Embedder) -> None:
    """If a collection's vectors in a local folder are damaged, restore them.

    The caller must hold the writer's lock, and call `undo_unfinished` first. The vectors are read only in three cases:
    the files are inconsistent, the last run did not end successfully, or there is no snapshot with the same vectors.

    Raises:
        CorpusCorruptError: If the database is damaged. It is checked unless the vectors are those of the last run.
    """
    path = location.path
    if path is None or not (path / DATABASE_FILE).exists():
        return
    try:
        stored, files = read_collection(path, name), vector_folder(path, name)
    except CorpusNotFoundError:
        require_sound(path)
        return
    root = own_folder(location, stored.id, cache)
    is_known = files is not None and _unchanged(files, root)
    if not is_known:
        require_sound(path)
    damaged = files is not None and not (is_known or vectors_are_intact(files))
    manifest = parse_manifest(name, stored.metadata.get(MANIFEST_KEY))
    snapshot = current_snapshot(OwnLayout(manifest), root) if manifest else None
    if manifest is None or not (damaged or snapshot is None or (root / UNFINISHED_MARK).exists()):
        return
    root.mkdir(parents=True, exist_ok=True)
    (root / UNFINISHED_MARK).touch()
    if damaged or not _restored(location, name, snapshot, embedder):
        if files is not None:
            shutil.rmtree(files, ignore_errors=True)
        _restored(location, name, snapshot, embedder, final=True)


def remember_vectors(path: Path, name: str, root: Path) -> None:
    """Record the vector files after a successful run, so the next run can skip the check."""
    files = vector_folder(path, name)
    if files is None:
        return
    for file in VECTOR_FILES:
        with suppress(FileNotFoundError):
            sync_path(files / file)
    (root / _CHECKED_FILE).write_text(json.dumps(_stamps(files)), encoding="utf-8")


def _unchanged(files: Path, root: Path) -> bool:
    # A copied folder has other inodes and times of change, so what it says about itself has no effect.
    try:
        return bool(read_json(root / _CHECKED_FILE) == _stamps(files))
    except (OSError, ValueError):
        return False


def _stamps(files: Path) -> dict[str, list[int]]:
    stats = {name: (files / name).stat() for name in VECTOR_FILES if (files / name).exists()}
    return {
        name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
        for name, stat in stats.items()
    }


def _restored(
    location: Location, name: str, snapshot: Snapshot | None, embedder: Embedder, *, final: bool = False
) -> bool:
    """Restore the vectors, and return True if every record has one now.

    With `final`, errors of Chroma are raised. Otherwise, they give False.
    """
    from chromadb.errors import InternalError

    with closing(cast("Any", connect(location))) as client:
        collection = find(client, location, name)
        check_writable(name, collection.configuration_json, collection.get_model().serialized_schema)
        if _complete(collection):
            return True
        try:
            count = _put_all(collection, snapshot, embedder)
        except InternalError:
            if final:
                raise
            return False
        _LOG.warning(
            "an interrupted run had damaged the vectors of collection %r in %s. The vectors of its %s records "
            "were restored.",
            name,
            location,
            f"{count:,}",
        )
        return _complete(collection)


def _complete(collection: Collection) -> bool:
    from chromadb.errors import InternalError

    try:
        return all(
            len(page["ids"]) == len(page["embeddings"]) for page in CollectionRecords(collection).pages(["embeddings"])
        )
    except InternalError:
        return False


def _put_all(collection: Collection, snapshot: Snapshot | None, embedder: Embedder) -> int:
    records = CollectionRecords(collection).ids()
    for start in range(0, len(records), PAGE_RECORDS):
        batch = records[start : start + PAGE_RECORDS]
        collection.upsert(ids=batch, embeddings=cast("Any", _vectors_of(batch, collection, snapshot, embedder)))
    return len(records)


def _vectors_of(
    records: Sequence[str], collection: Collection, snapshot: Snapshot | None, embedder: Embedder
) -> list[NDArray[np.float32]]:
    vectors: dict[str, NDArray[np.float32]] = {}
    if snapshot is not None and snapshot.vectors is not None:
        rows, row_of = snapshot.rows, snapshot.row_of_record
        vectors = {record: rows.vector(row) for record in records if (row := row_of.get(record)) is not None}
    if missing := [record for record in records if record not in vectors]:
        texts = {
            record: _indexed_text(record, text, data)
            for record, text, data in CollectionRecords(collection).contents(missing)
        }
        vectors |= zip(texts, document_vectors(embedder, list(texts.values())), strict=True)
    return [vectors[record] for record in records]


def _indexed_text(record: str, text: str | None, metadata: Mapping[str, Any] | None) -> str:
    stored = stored_chunk(record, text, metadata)
    return stored.chunk.indexed_text if stored else text or ""
