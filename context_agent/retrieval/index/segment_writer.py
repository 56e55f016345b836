"""Writing segments: from rows that are added, and from segments that are merged."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.index.segments import (
    ALIGNMENT,
    BLOCK_BYTES,
    ID_KINDS,
    NO_ROWS,
    SEGMENT_HEADER,
    SEGMENT_MAGIC,
    SEGMENT_VERSION,
    TEXT_COLUMNS,
    Segment,
    SegmentSizes,
    SnapshotRow,
    id_hash,
    removed_file,
)
from context_agent.retrieval.index.text_table import SEPARATOR, encode

MERGE_RATIO = 4
"""If a segment has fewer than this many times the rows after it, it is merged with the segments after it."""
REMOVED_SHARE = 5
"""If more than one in this many rows of a segment is removed, the segment is rewritten."""


def write_removed(folder: Path, segment: Segment) -> None:
    """Write the numbers of a segment's removed rows to a file next to it."""
    if len(segment.removed):
        write_file(removed_file(folder / segment.name), [segment.removed.tobytes()])


def merge_start(segments: Sequence[Segment]) -> int:
    """Return the index of the first segment to merge with all segments after it.

    If nothing is to be merged, return the number of segments.
    """
    start, rows_after = len(segments), 0
    for index in reversed(range(len(segments))):
        segment = segments[index]
        worn = len(segment.removed) * REMOVED_SHARE > len(segment.texts)
        start = index if worn or len(segment) < MERGE_RATIO * rows_after else start
        rows_after += len(segment)
    return start


class SegmentBuilder:
    """A builder of a new segment from rows that are added in order.

    Texts, ids, metadata and vectors are written to disk at once.
    """

    def __init__(self, folder: Path, dimension: int) -> None:
        self._folder, self._dimension = folder, dimension
        self._files: dict[str, IO[bytes]] = {
            name: TemporaryFile(dir=folder)  # noqa: SIM115 (`close` closes it)
            for name in (*TEXT_COLUMNS, "vectors")
        }
        self._lengths = {name: array("q") for name in TEXT_COLUMNS}
        self._hashes = tuple(array("Q") for _ in SnapshotRow._fields)

    def __len__(self) -> int:
        return len(self._lengths["ids"])

    def add(self, row: SnapshotRow, text: str, metadata: Mapping[str, Any]) -> None:
        """Add a row. Its vector may come later."""
        self._append("texts", encode(text))
        self._append("ids", json.dumps(row).encode())
        if self._dimension:
            self._append("metadata", _json(metadata))
        for kind, value, hashes in zip(ID_KINDS, row, self._hashes, strict=True):
            hashes.append(id_hash(kind, value))

    def put_vector(self, number: int, vector: NDArray[np.float32]) -> None:
        """Write the vector of a row, shape (dimension,)."""
        self._files["vectors"].seek(number * 4 * self._dimension)
        self._files["vectors"].write(vector.tobytes())

    def finish(self, name: str) -> None:
        """Write the segment."""
        columns = _Columns(
            {column: np.array(lengths) for column, lengths in self._lengths.items()},
            {column: self._blocks(column) for column in self._files},
            np.concatenate([np.array(hashes) for hashes in self._hashes]),
            np.tile(np.arange(len(self), dtype="<i4"), len(self._hashes)),
        )
        _write_segment(self._folder / name, self._dimension, columns)

    def close(self) -> None:
        """Delete the temporary files of added rows."""
        for file in self._files.values():
            file.close()

    def _append(self, name: str, raw: bytes) -> None:
        self._lengths[name].append(self._files[name].write(raw + SEPARATOR))

    def _blocks(self, name: str) -> Iterator[bytes]:
        # A multiple of every vector's size, so that no vector is cut.
        size = BLOCK_BYTES - BLOCK_BYTES % max(4 * self._dimension, 1)
        self._files[name].seek(0)
        while block := self._files[name].read(size):
            yield block


def merge(folder: Path, name: str, segments: Sequence[Segment], dimension: int) -> None:
    """Write the remaining rows of segments as one new segment."""
    firsts = list(accumulate(map(len, segments), initial=0))
    hashes, numbers = [np.zeros(0, "<u8")], [NO_ROWS]
    for first, segment in zip(firsts, segments, strict=False):
        old = np.asarray(segment.hashed_rows)
        new = np.full(len(segment.texts), -1, dtype="<i4")
        new[segment.remaining()] = np.arange(first, first + len(segment))
        hashes.append(np.asarray(segment.hashes)[new[old] >= 0])
        numbers.append(new[old][new[old] >= 0])
    columns = _Columns(
        {column: _lengths(segments, column) for column in TEXT_COLUMNS},
        {column: _copied(segments, column) for column in TEXT_COLUMNS} | {"vectors": _copied_vectors(segments)},
        np.concatenate(hashes),
        np.concatenate(numbers),
    )
    _write_segment(folder / name, dimension, columns)


def _lengths(segments: Sequence[Segment], column: str) -> NDArray[np.int64]:
    tables = [(segment, getattr(segment, column)) for segment in segments]
    lengths = [np.diff(table.starts)[segment.remaining()] for segment, table in tables if table is not None]
    return np.concatenate([np.zeros(0, np.int64), *lengths])


def _copied(segments: Sequence[Segment], column: str) -> Iterator[bytes]:
    """Yield the remaining rows of a text column, in blocks."""
    tables = ((segment, getattr(segment, column)) for segment in segments)
    for segment, table in tables:
        for first, end in segment.runs() if table is not None else ():
            stop = int(table.starts[end])
            for at in range(int(table.starts[first]), stop, BLOCK_BYTES):
                yield table.buffer[at : min(at + BLOCK_BYTES, stop)]


def _copied_vectors(segments: Sequence[Segment]) -> Iterator[bytes]:
    """Yield the remaining vectors, in blocks of whole vectors."""
    for segment in segments:
        step = BLOCK_BYTES // (4 * segment.vectors.shape[1])
        for first, end in segment.runs():
            for at in range(first, end, step):
                yield segment.vectors[at : min(at + step, end)].tobytes()


class _Columns(NamedTuple):
    """The content of a new segment.

    Attributes:
        lengths: The bytes of each row of the text columns, shape (n,).
        blocks: The content of the text columns and of the vectors.
        hashes: The hashed ids, shape (3n,).
        hashed_rows: The row of each hashed id, shape (3n,). If rows have the same id, the first one comes first.
    """

    lengths: Mapping[str, NDArray[np.int64]]
    blocks: Mapping[str, Iterable[bytes]]
    hashes: NDArray[np.uint64]
    hashed_rows: NDArray[np.int32]


def _write_segment(path: Path, dimension: int, columns: _Columns) -> None:
    """Write a segment and sync it to disk."""
    lengths, order = columns.lengths, np.argsort(columns.hashes, kind="stable")
    sizes = SegmentSizes(len(lengths["texts"]), dimension, *(int(lengths[name].sum()) for name in TEXT_COLUMNS))
    offsets = {name: offset for name, _, offset, _ in sizes.columns()}
    norms: list[bytes] = []

    def starts(name: str) -> list[bytes]:
        return [np.cumsum(np.concatenate([[offsets[name]], lengths[name]])).tobytes()]

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
    header = SEGMENT_HEADER.pack(SEGMENT_MAGIC, SEGMENT_VERSION, *sizes)
    write_file(path, chain([header], *(_padded(blocks[name]) for name in offsets)))


def _padded(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a column, then zeros up to the start of the next column."""
    size = 0
    for block in blocks:
        size += len(block)
        yield block
    yield bytes(-size % ALIGNMENT)


def write_file(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a file and sync it to disk.

    It is not written through a memory map. On a full disk, that would kill the process.
    """
    with path.open("wb") as file:
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())


def _json(metadata: Mapping[str, Any]) -> bytes:
    stored = {key: value for key, value in metadata.items() if value is not None}
    return json.dumps(stored, separators=(",", ":")).encode()
