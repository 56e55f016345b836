"""The files of segments: their format, opening, writing and merging them.

A segment is one file. After a header come its columns: texts, ids and metadata with the offsets of each row, vectors
with their lengths, and a table of hashed ids. Opening reads the header alone. The size of a file follows from its
header, so a file that was cut is noticed. Rows that were removed later are in a file of the same name with the suffix
`.removed`.

Adding writes one new segment. `merge_start` decides which segments at the end become one: a segment that is less than
four times as large as all that follow it, or of which more than a fifth is removed, is merged with those after it. So
their number grows with the logarithm of the corpus, and an added row is copied a bounded number of times on average for
each of these sizes (the logarithmic method of Bentley and Saxe, "Decomposable searching problems I", Journal of
Algorithms, 1980).
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.chroma.segments import NO_ROWS, IdKind, Segment, SnapshotRow, id_hash
from context_agent.retrieval.grep import SEPARATOR, TextTable, encode

GROWTH = 4
"""A segment with fewer rows than this many times those after it is merged with them."""
REMOVED_SHARE = 5
"""A segment is rewritten when more than one row in this many is removed."""
_MAGIC, _VERSION = b"ctx1seg", 1
_HEADER = struct.Struct("<7sB5Q16x")
_ALIGNMENT = 64
_BLOCK = 1 << 20
"""Bytes copied at once."""
_TEXT_COLUMNS = ("texts", "ids", "metadata")
_KINDS: tuple[IdKind, ...] = ("record", "chunk", "document")


class _Sizes(NamedTuple):
    """What the header says: rows, numbers per vector (0: neither vectors nor metadata), bytes of the text columns."""

    rows: int
    dimension: int
    texts: int
    ids: int
    metadata: int

    def columns(self) -> Iterator[tuple[str, str, int, int]]:
        """Name, type, offset and number of items of each column, and last `end` with the size of the file."""
        rows, vectors = self.rows, bool(self.dimension)
        counts = {
            "texts": ("<u1", self.texts),
            "ids": ("<u1", self.ids),
            "metadata": ("<u1", self.metadata),
            "vectors": ("<f4", rows * self.dimension),
            "lengths": ("<f4", rows * vectors),
            "text_starts": ("<i8", rows + 1),
            "id_starts": ("<i8", rows + 1),
            "metadata_starts": ("<i8", (rows + 1) * vectors),
            "hashes": ("<u8", 3 * rows),
            "hashed_rows": ("<i4", 3 * rows),
            "end": ("<u1", 0),
        }
        offset = _HEADER.size
        for name, (dtype, count) in counts.items():
            yield name, dtype, offset, count
            offset += -(-count * int(dtype[-1]) // _ALIGNMENT) * _ALIGNMENT


def load_segment(folder: Path, name: str, dimension: int) -> Segment:
    """Opens a segment. Raises `CorpusCorruptError` if it was cut, is of another version or has other vectors."""
    path = folder / name
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:7] != _MAGIC:
            raise CorpusCorruptError(f"{path} is not a segment of an index: index the documents again")
        version, sizes = header[7], _Sizes(*_HEADER.unpack(header)[2:])
        if version != _VERSION:
            raise CorpusCorruptError(
                f"{path} has format {version}, and this version of context-agent reads {_VERSION}: install a newer "
                "version, or index the documents again"
            )
        columns = list(sizes.columns())
        if size != columns[-1][2] or sizes.dimension != dimension:
            raise CorpusCorruptError(f"{path} was cut, or belongs to another index: index the documents again")
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {column: np.frombuffer(buffer, dtype, count, offset) for column, dtype, offset, count in columns}
    return Segment(
        path,
        TextTable(buffer, arrays["text_starts"]),
        TextTable(buffer, arrays["id_starts"]),
        TextTable(buffer, arrays["metadata_starts"]) if dimension else None,
        arrays["vectors"].reshape(sizes.rows, dimension),
        arrays["lengths"],
        arrays["hashes"].data,
        arrays["hashed_rows"].data,
        _load_removed(_removed_file(path), sizes.rows),
    )


def _load_removed(file: Path, rows: int) -> NDArray[np.int32]:
    try:
        removed = np.frombuffer(file.read_bytes(), "<i4")
    except FileNotFoundError:
        return NO_ROWS
    if len(removed) and not (removed[0] >= 0 and removed[-1] < rows and (np.diff(removed) > 0).all()):
        raise CorpusCorruptError(f"{file} does not belong to its segment: index the documents again")
    return removed


def _removed_file(segment: Path) -> Path:
    return segment.with_suffix(".removed")


def write_removed(folder: Path, segment: Segment) -> None:
    """Writes which rows of a segment are removed, next to it."""
    if len(segment.removed):
        write_file(_removed_file(folder / segment.name), [segment.removed.tobytes()])


def merge_start(segments: Sequence[Segment]) -> int:
    """The index of the first segment to merge with all after it; the number of segments if nothing is to be merged."""
    start, rows_after = len(segments), 0
    for index in reversed(range(len(segments))):
        segment = segments[index]
        worn = len(segment.removed) * REMOVED_SHARE > len(segment.texts)
        start = index if worn or len(segment) < GROWTH * rows_after else start
        rows_after += len(segment)
    return start


class SegmentBuilder:
    """Writes a new segment from rows added in order. Texts, ids, metadata and vectors go to disk at once."""

    def __init__(self, folder: Path, dimension: int) -> None:
        self._folder, self._dimension = folder, dimension
        self._files: dict[str, IO[bytes]] = {
            name: (folder / f"added.{name}").open("w+b") for name in (*_TEXT_COLUMNS, "vectors")
        }
        self._lengths = {name: array("q") for name in _TEXT_COLUMNS}
        self._hashes = tuple(array("Q") for _ in SnapshotRow._fields)

    def __len__(self) -> int:
        return len(self._lengths["ids"])

    def add(self, row: SnapshotRow, text: str, metadata: Mapping[str, Any]) -> None:
        """Adds a row; its vector may come later."""
        self._append("texts", encode(text))
        self._append("ids", json.dumps(row).encode())
        if self._dimension:
            self._append("metadata", _json(metadata))
        for kind, value, hashes in zip(_KINDS, row, self._hashes, strict=True):
            hashes.append(id_hash(kind, value))

    def put_vector(self, number: int, vector: NDArray[np.float32]) -> None:
        """Writes the vector of a row, shape (dimension,)."""
        self._files["vectors"].seek(number * 4 * self._dimension)
        self._files["vectors"].write(vector.tobytes())

    def finish(self, name: str) -> None:
        """Writes the segment."""
        columns = _Columns(
            {column: np.array(lengths, dtype=np.int64) for column, lengths in self._lengths.items()},
            {column: self._blocks(column) for column in self._files},
            np.concatenate([np.array(hashes, dtype="<u8") for hashes in self._hashes]),
            np.tile(np.arange(len(self), dtype="<i4"), len(self._hashes)),
        )
        _write_segment(self._folder / name, self._dimension, columns)

    def close(self) -> None:
        """Deletes the files of added rows."""
        for file in self._files.values():
            file.close()
            Path(file.name).unlink(missing_ok=True)

    def _append(self, name: str, raw: bytes) -> None:
        self._lengths[name].append(self._files[name].write(raw + SEPARATOR))

    def _blocks(self, name: str) -> Iterator[bytes]:
        # A multiple of every vector's size, so that no vector is cut.
        size = max(4 * self._dimension, 1) * max(1, _BLOCK // max(4 * self._dimension, 1))
        self._files[name].seek(0)
        while block := self._files[name].read(size):
            yield block


def merge(folder: Path, name: str, segments: Sequence[Segment], dimension: int) -> None:
    """Writes the remaining rows of segments as one new segment."""
    firsts = list(accumulate(map(len, segments), initial=0))
    hashes, numbers = [np.zeros(0, "<u8")], [NO_ROWS]
    for first, segment in zip(firsts, segments, strict=False):
        old = np.asarray(segment.hashed_rows)
        new = np.full(len(segment.texts), -1, dtype="<i4")
        new[segment.remaining()] = np.arange(first, first + len(segment))
        hashes.append(np.asarray(segment.hashes)[new[old] >= 0])
        numbers.append(new[old][new[old] >= 0])
    columns = _Columns(
        {column: _lengths(segments, column) for column in _TEXT_COLUMNS},
        {column: _copied(segments, column) for column in _TEXT_COLUMNS} | {"vectors": _copied_vectors(segments)},
        np.concatenate(hashes),
        np.concatenate(numbers),
    )
    _write_segment(folder / name, dimension, columns)


def _lengths(segments: Sequence[Segment], column: str) -> NDArray[np.int64]:
    tables = [(segment, getattr(segment, column)) for segment in segments]
    lengths = [np.diff(table.starts)[segment.remaining()] for segment, table in tables if table is not None]
    return np.concatenate([np.zeros(0, np.int64), *lengths])


def _copied(segments: Sequence[Segment], column: str) -> Iterator[bytes]:
    """The remaining rows of a text column, in blocks."""
    tables = ((segment, getattr(segment, column)) for segment in segments)
    for segment, table in tables:
        for first, end in segment.runs() if table is not None else ():
            stop = int(table.starts[end])
            for at in range(int(table.starts[first]), stop, _BLOCK):
                yield table.buffer[at : min(at + _BLOCK, stop)]


def _copied_vectors(segments: Sequence[Segment]) -> Iterator[bytes]:
    """The remaining vectors, in blocks of whole vectors."""
    for segment in segments:
        step = max(1, _BLOCK // max(1, 4 * segment.vectors.shape[1]))
        for first, end in segment.runs():
            for at in range(first, end, step):
                yield segment.vectors[at : min(at + step, end)].tobytes()


class _Columns(NamedTuple):
    """What a segment is written from.

    `lengths` are the bytes of each row of the text columns, shape (n,); `blocks` the content of these columns and of
    the vectors. `hashes` and `hashed_rows` have shape (3n,); of rows with the same id the first one comes first.
    """

    lengths: Mapping[str, NDArray[np.int64]]
    blocks: Mapping[str, Iterable[bytes]]
    hashes: NDArray[np.uint64]
    hashed_rows: NDArray[np.int32]


def _write_segment(path: Path, dimension: int, columns: _Columns) -> None:
    """Writes a segment and syncs it to disk."""
    lengths, order = columns.lengths, np.argsort(columns.hashes, kind="stable")
    sizes = _Sizes(len(lengths["texts"]), dimension, *(int(lengths[name].sum()) for name in _TEXT_COLUMNS))
    offsets = {name: offset for name, _, offset, _ in sizes.columns()}
    norms: list[bytes] = []

    def starts(name: str) -> list[bytes]:
        return [np.cumsum(np.concatenate([[offsets[name]], lengths[name]]), dtype="<i8").tobytes()]

    def vectors() -> Iterator[bytes]:
        for block in columns.blocks["vectors"]:
            rows = np.frombuffer(block, "<f4").reshape(-1, dimension)
            norms.append(np.linalg.norm(rows, axis=1).astype("<f4").tobytes())
            yield block

    blocks: dict[str, Iterable[bytes]] = {
        **columns.blocks,
        "vectors": vectors() if dimension else (),
        "lengths": norms,
        "text_starts": starts("texts"),
        "id_starts": starts("ids"),
        "metadata_starts": starts("metadata") if dimension else (),
        "hashes": [columns.hashes[order].tobytes()],
        "hashed_rows": [columns.hashed_rows[order].tobytes()],
        "end": (),
    }
    header = _HEADER.pack(_MAGIC, _VERSION, *sizes)
    write_file(path, chain([header], *(_padded(blocks[name]) for name in offsets)))


def _padded(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of a column, and zeros up to where the next one begins."""
    size = 0
    for block in blocks:
        size += len(block)
        yield block
    yield bytes(-size % _ALIGNMENT)


def write_file(path: Path, blocks: Iterable[bytes]) -> None:
    """Writes a file and syncs it to disk. Not through a memory map: on a full disk that would kill the process."""
    with path.open("wb") as file:
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())


def _json(metadata: Mapping[str, Any]) -> bytes:
    stored = {key: value for key, value in metadata.items() if value is not None}
    return json.dumps(stored, ensure_ascii=True, separators=(",", ":")).encode()
