"""Mends the vector index of a local collection of ours that an interrupted run left damaged.

Chroma keeps texts and metadata in SQLite, which survives a kill, and vectors in files that do not. What is lost is put
back from the last complete snapshot; vectors that no snapshot holds are computed again. The records themselves and the
other collections of the folder stay as they are.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import CorpusNotFoundError
from context_agent.retrieval import hnsw, local
from context_agent.retrieval.embedders.stored import check_writable
from context_agent.retrieval.layouts import OwnLayout
from context_agent.retrieval.manifest import KEY, entry_of, parse_manifest
from context_agent.retrieval.snapshot import Snapshot
from context_agent.retrieval.store import PAGE, Place, all_ids, connect, find, own_folder, pages

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder

UNFINISHED = "unfinished"
"""A file beside the snapshots while a run writes; a run that ended well deletes it."""
_LOG = logging.getLogger(__name__)


def mend(place: Place, name: str, cache: str | Path | None, embedder: Embedder) -> None:
    """Restores Chroma's vectors of a collection in a local folder where they are damaged. Needs the writer's lock.

    The vectors are looked through only where the files do not fit each other, or the last run did not end well.
    """
    path = place.path
    if path is None or not (path / local.DATABASE).exists():
        return
    _undo_unfinished(path)
    try:
        stored, files = local.read_collection(path, name), local.vector_folder(path, name)
    except CorpusNotFoundError:
        return
    root = own_folder(place, stored.id, cache)
    damaged = files is not None and not hnsw.intact(files)
    manifest = parse_manifest(name, stored.metadata.get(KEY))
    if manifest is None or not (damaged or (root / UNFINISHED).exists()):
        return
    root.mkdir(parents=True, exist_ok=True)
    (root / UNFINISHED).touch()
    layout = OwnLayout(manifest)
    snapshot = layout.current(root, layout.state(), lexical=False)
    if damaged or not _restored(place, name, snapshot, embedder):
        if files is not None:
            shutil.rmtree(files, ignore_errors=True)
        _restored(place, name, snapshot, embedder, final=True)


def _restored(place: Place, name: str, snapshot: Snapshot | None, embedder: Embedder, *, final: bool = False) -> bool:
    """Whether every record has its vector now. The last attempt raises what Chroma raises."""
    from chromadb.errors import InternalError

    with closing(cast("Any", connect(place))) as client:
        collection = find(client, place, name)
        check_writable(name, collection.configuration_json, collection.get_model().serialized_schema)
        if _complete(collection):
            return True
        try:
            count = _put_all(collection, snapshot, embedder)
        except InternalError:
            if final:
                raise
            return False
        _LOG.warning("An interrupted run had damaged the vectors of %r in %s: restored %s.", name, place, f"{count:,}")
        return _complete(collection)


def _complete(collection: Collection) -> bool:
    from chromadb.errors import InternalError

    try:
        return all(len(page["ids"]) == len(page["embeddings"]) for page in pages(collection, ["embeddings"]))
    except InternalError:
        return False


def _put_all(collection: Collection, snapshot: Snapshot | None, embedder: Embedder) -> int:
    records = all_ids(collection)
    for start in range(0, len(records), PAGE):
        batch = records[start : start + PAGE]
        collection.upsert(ids=batch, embeddings=cast("Any", _vectors_of(batch, collection, snapshot, embedder)))
    return len(records)


def _vectors_of(
    records: Sequence[str], collection: Collection, snapshot: Snapshot | None, embedder: Embedder
) -> list[NDArray[np.float32]]:
    vectors: dict[str, NDArray[np.float32]] = {}
    if snapshot is not None and snapshot.vectors is not None:
        rows = snapshot.row_of_record
        vectors = {record: snapshot.vectors.matrix[rows[record]] for record in records if record in rows}
    if missing := [record for record in records if record not in vectors]:
        page: dict[str, Any] = dict(collection.get(ids=missing, include=["documents", "metadatas"]))
        texts = [
            _indexed_text(*record) for record in zip(page["ids"], page["documents"], page["metadatas"], strict=True)
        ]
        vectors |= zip(page["ids"], embedder.embed_documents(texts), strict=True)
    return [vectors[record] for record in records]


def _indexed_text(record: str, text: str | None, metadata: Any) -> str:
    entry = entry_of(record, text, metadata)
    return entry.chunk.indexed_text if entry else text or ""


def _undo_unfinished(path: Path) -> None:
    """Opened for writing, SQLite undoes the transaction of a writer that was killed. A damaged file is met later on."""
    with (
        suppress(sqlite3.DatabaseError),
        closing(sqlite3.connect(path / local.DATABASE, timeout=local.BUSY_SECONDS)) as database,
    ):
        database.execute("select count(*) from sqlite_master").fetchone()
