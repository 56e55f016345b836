"""Chroma's vector index (HNSW files): checked without loading it, and restored after an interrupted run.

Chroma keeps texts and metadata in SQLite, which survives a kill. It changes the vector files in place and not
atomically: a process that is killed meanwhile leaves files that do not fit each other, on which Chroma may crash or
write without end. So they are checked before Chroma opens them, unless they are, by size, times and inode, the files
that the last successful run left: the check reads them whole. Lost vectors are restored from the last complete
snapshot; vectors that no snapshot holds are computed again. The records themselves and the other collections of the
folder stay as they are.
"""

from __future__ import annotations

import json
import logging
import mmap
import shutil
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from context_agent._support.journal import sync_path
from context_agent._support.small_files import read_bytes, read_json
from context_agent.errors import CorpusNotFoundError
from context_agent.retrieval.chroma.database import BUSY_SECONDS, DATABASE, read_collection, vector_folder
from context_agent.retrieval.chroma.layouts import OwnLayout, current_snapshot
from context_agent.retrieval.chroma.records import KEY, parse_manifest, stored_chunk
from context_agent.retrieval.chroma.snapshot import Snapshot
from context_agent.retrieval.chroma.store import PAGE, Location, all_ids, connect, contents, find, own_folder, pages
from context_agent.retrieval.chroma.stored_embedder import check_writable

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder

UNFINISHED = "unfinished"
"""A file next to the snapshots while a run writes; a successful run deletes it."""
_CHECKED = "vectors.json"
"""A file next to the snapshots: size, times and inode of the vector files that the last successful run left."""
_LOG = logging.getLogger(__name__)
FILES = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin", "index_metadata.pickle")
_HEADER = struct.Struct("<i6qiI3qdq")
MIN_CAPACITY, MAX_SPARE = 10_000, 10
"""Chroma makes room for 1,000 elements, and later for a fifth more than there are. The library allocates the room that
the header claims."""
_PART = 65_536
"""Elements checked at once."""


def repair_vectors(location: Location, name: str, cache: str | Path | None, embedder: Embedder) -> None:
    """Restores Chroma's vectors of a collection in a local folder if they are damaged. Needs the writer's lock.

    The vectors are read only if the files do not fit each other, or the last run did not end successfully.
    """
    path = location.path
    if path is None or not (path / DATABASE).exists():
        return
    _undo_unfinished(path)
    try:
        stored, files = read_collection(path, name), vector_folder(path, name)
    except CorpusNotFoundError:
        return
    root = own_folder(location, stored.id, cache)
    damaged = files is not None and not (_unchanged(files, root) or intact(files))
    manifest = parse_manifest(name, stored.metadata.get(KEY))
    if manifest is None or not (damaged or (root / UNFINISHED).exists()):
        return
    root.mkdir(parents=True, exist_ok=True)
    (root / UNFINISHED).touch()
    snapshot = current_snapshot(OwnLayout(manifest), root)
    if damaged or not _restored(location, name, snapshot, embedder):
        if files is not None:
            shutil.rmtree(files, ignore_errors=True)
        _restored(location, name, snapshot, embedder, final=True)


def remember_vectors(path: Path, name: str, root: Path) -> None:
    """Notes the vector files of a collection after a successful run, so that the next run need not check them."""
    files = vector_folder(path, name)
    if files is None:
        return
    for file in FILES:
        with suppress(FileNotFoundError):
            sync_path(files / file)
    (root / _CHECKED).write_text(json.dumps(_stamps(files)), encoding="utf-8")


def _unchanged(files: Path, root: Path) -> bool:
    # A copied folder has other inodes and times of change, so what it says about itself has no effect.
    try:
        return bool(read_json(root / _CHECKED) == _stamps(files))
    except (OSError, ValueError):
        return False


def _stamps(files: Path) -> dict[str, list[int]]:
    stats = {name: (files / name).stat() for name in FILES if (files / name).exists()}
    return {
        name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
        for name, stat in stats.items()
    }


def _restored(
    location: Location, name: str, snapshot: Snapshot | None, embedder: Embedder, *, final: bool = False
) -> bool:
    """Return whether every record has its vector now. The last attempt raises what Chroma raises."""
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
            "An interrupted run had damaged the vectors of %r in %s: restored %s.", name, location, f"{count:,}"
        )
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
        rows, row_of = snapshot.rows, snapshot.row_of_record
        vectors = {record: rows.vector(row) for record in records if (row := row_of.get(record)) is not None}
    if missing := [record for record in records if record not in vectors]:
        texts = {record: _indexed_text(record, text, data) for record, text, data in contents(collection, missing)}
        vectors |= zip(texts, embedder.embed_documents(list(texts.values())), strict=True)
    return [vectors[record] for record in records]


def _indexed_text(record: str, text: str | None, metadata: Mapping[str, Any] | None) -> str:
    stored = stored_chunk(record, text, metadata)
    return stored.chunk.indexed_text if stored else text or ""


def _undo_unfinished(path: Path) -> None:
    """Rolls back the transaction of a killed writer, by opening the database for writing. Ignores a damaged file."""
    with (
        suppress(sqlite3.DatabaseError),
        closing(sqlite3.connect(path / DATABASE, timeout=BUSY_SECONDS)) as database,
    ):
        database.execute("select count(*) from sqlite_master").fetchone()


class _Header(NamedTuple):
    version: int
    level0_offset: int
    capacity: int
    elements: int
    element_bytes: int
    label_offset: int
    vector_offset: int
    top_level: int
    entry: int
    upper_links: int
    level0_links: int
    links: int
    level_factor: float
    construction: int


def intact(folder: Path) -> bool:
    """Return whether the index files in a folder fit each other; True for a folder without any. Reads each file
    once.
    """
    present = {name for name in FILES if (folder / name).exists()}
    try:
        return not present or _consistent(folder, complete=len(present) == len(FILES))
    except (OSError, ValueError, struct.error):
        return False


def _consistent(folder: Path, *, complete: bool) -> bool:
    header = _Header(*_HEADER.unpack(read_bytes(folder / "header.bin", _HEADER.size)))
    if not 0 <= header.capacity <= MAX_SPARE * (header.elements + MIN_CAPACITY):
        return False
    if header.elements == 0:
        # A new index: Chroma has allocated space and written nothing yet.
        return True
    links_end = 4 + 4 * header.level0_links
    plausible = 0 <= header.elements <= header.capacity and header.level0_links > 0 and header.upper_links > 0
    fits = links_end <= header.vector_offset < header.label_offset < header.element_bytes
    if not (complete and plausible and fits and header.entry < header.elements and _ended(folder / FILES[-1])):
        return False
    sizes = [(folder / name).stat().st_size for name in ("data_level0.bin", "length.bin")]
    if sizes != [header.elements * header.element_bytes, header.elements * 4]:
        return False
    return _level0_valid(folder / "data_level0.bin", header) and _upper_valid(folder / "link_lists.bin", header)


def _ended(pickle: Path) -> bool:
    """Return whether a pickle, which is not loaded here, has its last byte."""
    with pickle.open("rb") as file:
        return file.seek(0, 2) > 0 and file.seek(-1, 2) >= 0 and file.read() == b"."


def _mapped(file: Path) -> bytes | mmap.mmap:
    """Return the bytes of a file. They are read from the disk when they are used."""
    with file.open("rb") as stream:
        # An empty file cannot be mapped.
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if file.stat().st_size else b""


def _level0_valid(file: Path, header: _Header) -> bool:
    """Return whether every link of the lowest level leads to an element."""
    rows = np.memmap(file, np.uint8, "r", shape=(header.elements, header.element_bytes))
    for start in range(0, header.elements, _PART):
        lists = np.ascontiguousarray(rows[start : start + _PART, : 4 + 4 * header.level0_links])
        # The list's length takes two bytes; the third one marks a deleted element.
        lengths, links = lists[:, :2].copy().view(np.uint16), lists[:, 4:].copy().view(np.uint32)
        used = np.arange(header.level0_links) < lengths
        if lengths.max() > header.level0_links or (links[used] >= header.elements).any():
            return False
    return True


def _upper_valid(file: Path, header: _Header) -> bool:
    """Return whether the link lists of the upper levels end with the file, and every link leads to an element."""
    data, position, level_bytes = _mapped(file), 0, 4 + 4 * header.upper_links
    if len(data) < 4 * header.elements:
        return False
    for _ in range(header.elements):
        (size,) = struct.unpack_from("<I", data, position)
        position += 4
        if size:
            if size % level_bytes or position + size > len(data):
                return False
            lists = np.frombuffer(data, np.uint32, size // 4, position).reshape(-1, 1 + header.upper_links)
            used = np.arange(header.upper_links) < (lists[:, :1] & 0xFFFF)
            if (lists[:, 1:][used] >= header.elements).any():
                return False
            position += size
    return position == len(data)
