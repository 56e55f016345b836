"""The rows of a snapshot, in memory-mapped segments, whose pages all processes that read them share.

A segment never changes. Only the numbers of its *removed* rows (tombstones) are kept outside, in a file of the same
name with the suffix `.removed`. `SegmentRows` presents the remaining rows of some segments as one table; a row's number
in it is its *position*. Rows are found by record, chunk and document through sorted tables of hashed ids in the
segments: there is no dictionary of the corpus.

A segment is one file. After a header come its columns: texts, ids and metadata with the offsets of each row, vectors
with their lengths, and a table of hashed ids. Opening reads the header and the offsets. The size of a file follows from
its header, so a file that was cut is noticed, and rows that do not fill their columns are refused: an index may come
from someone else. A large segment has a second file, the graph of its vectors (see
`vector_graph`).

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
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from context_agent._support.small_files import is_hollow, parse_json, read_bytes
from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.chroma.vector_graph import VectorGraph, graph_file
from context_agent.retrieval.index.dense import VectorPart
from context_agent.retrieval.index.grep import SEPARATOR, Pattern, TextTable, encode, scan

T = TypeVar("T")
IdKind = Literal["record", "chunk", "document"]
NO_ROWS: NDArray[np.int32] = np.zeros(0, dtype="<i4")
GROWTH = 4
"""A segment with fewer rows than this many times those after it is merged with them."""
REMOVED_SHARE = 5
"""A segment is rewritten when more than one row in this many is removed."""
CACHED_ROWS = 1 << 14
"""Rows whose ids a reader holds in memory, those that were used last: one search names the same rows several times."""
MAX_COLLISIONS = 16
"""Other ids with the hash of an id: more are forged, and would make each look-up read the whole segment."""
MAX_ROWS = 2**31 - 1
"""Rows that the type of a row's number can count."""
MAX_DIMENSION = 100_000
_MAGIC, _VERSION = b"ctx1seg", 1
_HEADER = struct.Struct("<7sB5Q16x")
_ALIGNMENT = 64
_BLOCK = 1 << 20
"""Bytes copied at once."""
_TEXT_COLUMNS = ("texts", "ids", "metadata")
_KINDS: tuple[IdKind, ...] = ("record", "chunk", "document")


class SnapshotRow(NamedTuple):
    """One chunk of a snapshot."""

    record: str
    chunk: str
    document: str


@dataclass(frozen=True, slots=True)
class Segment:
    """One file, open. `removed` are the rows that no longer belong to the snapshot, ascending.

    Reading a row raises `CorpusCorruptError` if its bytes are damaged.
    """

    path: Path
    texts: TextTable
    ids: TextTable
    metadata: TextTable | None
    vectors: NDArray[np.float32]
    lengths: NDArray[np.float32]
    hashes: memoryview
    hashed_rows: memoryview
    removed: NDArray[np.int32] = field(default_factory=lambda: NO_ROWS)
    graph: VectorGraph | None = None

    def __len__(self) -> int:
        """Return the rows that remain."""
        return len(self.texts) - len(self.removed)

    @property
    def name(self) -> str:
        """The file's."""
        return self.path.name

    def row(self, number: int) -> SnapshotRow:
        """Return the ids of a row."""
        return self._read(self.ids, number, lambda raw: SnapshotRow(*parse_json(raw)))

    def text(self, number: int) -> str:
        """Return the text of a row."""
        return self._read(self.texts, number, bytes.decode)

    def metadata_of(self, number: int) -> dict[str, Any]:
        """Return the metadata of a row; only in a segment that has them."""
        assert self.metadata is not None
        return self._read(self.metadata, number, lambda raw: dict(parse_json(raw)))

    def _read(self, column: TextTable, number: int, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(column.raw(number))
        except (ValueError, TypeError, IndexError) as error:
            raise CorpusCorruptError.of(self.path, error) from error

    def find(self, kind: IdKind, value: str, key: int) -> Iterator[tuple[int, SnapshotRow]]:
        """Yield the remaining rows with this id, ascending; `key` is `id_hash(kind, value)`."""
        collisions = 0
        for index in range(bisect_left(self.hashes, key), bisect_right(self.hashes, key)):
            row = self.row(number := self.hashed_rows[index])
            if getattr(row, kind) != value:
                collisions += 1
                if collisions > MAX_COLLISIONS:
                    raise CorpusCorruptError.of(self.path, ValueError("its table of ids is not one of hashes"))
            elif not self.is_removed(number):
                yield number, row

    def is_removed(self, number: int) -> bool:
        """Return whether a row is removed."""
        index = bisect_left(self.removed.data, number)
        return index < len(self.removed) and int(self.removed[index]) == number

    def position(self, number: int) -> int:
        """Return the number of remaining rows before this one."""
        return number - bisect_left(self.removed.data, number)

    def number(self, position: int) -> int:
        """Return the row that has this many remaining rows before it."""
        if not len(self.removed):
            return position
        return position + bisect_right(range(len(self.removed)), position, key=lambda at: int(self.removed[at]) - at)

    def leaving_out(self, numbers: Sequence[int]) -> Segment:
        """Return the same segment with more rows removed."""
        return replace(self, removed=np.union1d(self.removed, numbers).astype("<i4"))

    def remaining(self) -> NDArray[np.int64]:
        """Return the remaining rows, ascending."""
        return np.delete(np.arange(len(self.texts)), self.removed)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Return the remaining rows as ranges (first, end)."""
        borders = [-1, *self.removed.tolist(), len(self.texts)]
        ranges = ((before + 1, after) for before, after in pairwise(borders))
        return (rows for rows in ranges if rows[0] < rows[1])


class SegmentRows:
    """The remaining rows of segments, by position in corpus order. Reads are thread-safe."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self._firsts = list(accumulate(map(len, self.segments), initial=0))
        # Partial functions, not methods: a cache that held this object would keep its files mapped.
        self._row = lru_cache(CACHED_ROWS)(partial(_row_at, self.segments, self._firsts))
        self._first = lru_cache(CACHED_ROWS)(partial(_first_row, self.segments, self._firsts))

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, position: int) -> SnapshotRow:
        return self._row(position)

    def __iter__(self) -> Iterator[SnapshotRow]:
        return (segment.row(number) for segment in self.segments for number in segment.remaining().tolist())

    def find(self, kind: IdKind, value: str) -> Iterator[tuple[int, SnapshotRow]]:
        """Position and ids of the rows with this record, chunk or document id, ascending."""
        return _rows_with(self.segments, self._firsts, kind, value)

    def first(self, kind: IdKind, value: str) -> tuple[int, SnapshotRow]:
        """Position and ids of the first row with this id. Raises `KeyError`."""
        return self._first(kind, value)

    def matching(self, pattern: Pattern) -> Iterator[int]:
        """Yield the positions of the texts that match, ascending, searched lazily."""
        for first, segment in zip(self._firsts, self.segments, strict=False):
            numbers = scan(segment.texts, pattern)
            yield from (first + segment.position(number) for number in numbers if not segment.is_removed(number))

    def text_bytes(self) -> int:
        """Return the size of all texts, those of removed rows included."""
        return sum(int(segment.texts.starts[-1]) for segment in self.segments)

    def raw_text(self, position: int) -> bytes:
        """One text in UTF-8."""
        segment, number = self._located(position)
        return segment.texts.raw(number)

    def text(self, position: int) -> str:
        """One text."""
        segment, number = self._located(position)
        return segment.text(number)

    def metadata(self, position: int) -> dict[str, Any]:
        """Return the metadata of a row, as in the store."""
        segment, number = self._located(position)
        return segment.metadata_of(number)

    def all_metadata(self) -> Iterator[dict[str, Any]]:
        """Return the metadata of every row."""
        return (segment.metadata_of(number) for segment in self.segments for number in segment.remaining().tolist())

    def vector(self, position: int, *, unit: bool = False) -> NDArray[np.float32]:
        """One vector as stored, shape (d,); with `unit` scaled to length 1, but a zero vector stays zero."""
        segment, number = self._located(position)
        scale = (segment.lengths[number] or np.float32(1)) if unit else np.float32(1)
        return np.asarray(segment.vectors[number] / scale)

    def vector_parts(self) -> tuple[VectorPart, ...]:
        """Return the vectors for dense search, whose rows are positions."""
        return tuple(VectorPart(part.vectors, part.lengths, part.removed, part.graph) for part in self.segments)

    def _located(self, position: int) -> tuple[Segment, int]:
        return _located(self.segments, self._firsts, position)

    def without(self, records: AbstractSet[str]) -> list[Segment]:
        """Return the segments with these records removed as well; unknown ones are ignored."""
        keys = {record: id_hash("record", record) for record in records}
        segments = []
        for segment in self.segments:
            removed = [number for record, key in keys.items() for number, _ in segment.find("record", record, key)]
            segments.append(segment.leaving_out(removed) if removed else segment)
        return segments


def _located(segments: Sequence[Segment], firsts: Sequence[int], position: int) -> tuple[Segment, int]:
    """Return the segment of a position, and the row in it. `firsts` are the positions where segments begin, and the
    end.
    """
    if not 0 <= position < firsts[-1]:
        raise IndexError(position)
    index = bisect_right(firsts, position) - 1
    return segments[index], segments[index].number(position - firsts[index])


def _row_at(segments: Sequence[Segment], firsts: Sequence[int], position: int) -> SnapshotRow:
    segment, number = _located(segments, firsts, position)
    return segment.row(number)


def _rows_with(
    segments: Sequence[Segment], firsts: Sequence[int], kind: IdKind, value: str
) -> Iterator[tuple[int, SnapshotRow]]:
    key = id_hash(kind, value)
    for first, segment in zip(firsts, segments, strict=False):
        for number, row in segment.find(kind, value, key):
            yield first + segment.position(number), row


def _first_row(segments: Sequence[Segment], firsts: Sequence[int], kind: IdKind, value: str) -> tuple[int, SnapshotRow]:
    row = next(_rows_with(segments, firsts, kind, value), None)
    if row is None:
        raise KeyError(value)
    return row


class PositionOf(Mapping[str, int]):
    """The position of the row with a chunk or record id, looked up in the segments."""

    def __init__(self, rows: SegmentRows, kind: IdKind) -> None:
        self._rows, self._kind = rows, kind

    def __getitem__(self, value: str) -> int:
        return self.find(value)[0]

    def find(self, value: str) -> tuple[int, SnapshotRow]:
        """Return the first row with this id. Raises `KeyError`."""
        return self._rows.first(self._kind, value)

    def __iter__(self) -> Iterator[str]:
        return (getattr(row, self._kind) for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class ChunkOfRecord(Mapping[str, str]):
    """The chunk id of a record, looked up in the segments."""

    def __init__(self, position_of: PositionOf) -> None:
        self._position_of = position_of

    def __getitem__(self, record: str) -> str:
        return self._position_of.find(record)[1].chunk

    def __iter__(self) -> Iterator[str]:
        return iter(self._position_of)

    def __len__(self) -> int:
        return len(self._position_of)


def id_hash(kind: IdKind, value: str) -> int:
    """Return the key of an id in a segment's table: 64 bits, so that nobody can choose ids that collide."""
    return int.from_bytes(blake2b(kind[:1].encode() + encode(value), digest_size=8).digest(), "little")


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
        plausible = sizes.rows <= MAX_ROWS and sizes.dimension == dimension <= MAX_DIMENSION
        if size != columns[-1][2] or not plausible or is_hollow(path, os.fstat(file.fileno())):
            raise CorpusCorruptError(f"{path} was cut, or belongs to another index: index the documents again")
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {column: np.frombuffer(buffer, dtype, count, offset) for column, dtype, offset, count in columns}
    _check_columns(path, arrays, {column: offset for column, _, offset, _ in columns}, sizes)
    graph = graph_file(path)
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
        VectorGraph(graph, sizes.rows, dimension) if graph.exists() else None,
    )


def _check_columns(path: Path, arrays: Mapping[str, NDArray[Any]], offsets: Mapping[str, int], sizes: _Sizes) -> None:
    """Refuse rows that lie outside of their column or over each other: small files could pass for endless texts."""
    for starts, column in (("text_starts", "texts"), ("id_starts", "ids"), ("metadata_starts", "metadata")):
        if len(array := arrays[starts]):
            first, last = offsets[column], offsets[column] + getattr(sizes, column)
            blocks = (array[at : at + _BLOCK + 1] for at in range(0, len(array), _BLOCK))
            if array[0] != first or array[-1] != last or any((block[1:] <= block[:-1]).any() for block in blocks):
                raise CorpusCorruptError.of(path, ValueError(f"its rows do not fill the column {column}"))
    numbers = arrays["hashed_rows"]
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < sizes.rows):
        raise CorpusCorruptError.of(path, ValueError("its table of ids names rows that it does not have"))


def _load_removed(file: Path, rows: int) -> NDArray[np.int32]:
    try:
        removed = np.frombuffer(read_bytes(file, 4 * rows), "<i4")
    except FileNotFoundError:
        return NO_ROWS
    except (OSError, ValueError) as error:
        raise CorpusCorruptError(f"{file} cannot be read ({error}): index the documents again") from error
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
    """Return the index of the first segment to merge with all after it; the number of segments if nothing is to be
    merged.
    """
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
    """Yield the remaining rows of a text column, in blocks."""
    tables = ((segment, getattr(segment, column)) for segment in segments)
    for segment, table in tables:
        for first, end in segment.runs() if table is not None else ():
            stop = int(table.starts[end])
            for at in range(int(table.starts[first]), stop, _BLOCK):
                yield table.buffer[at : min(at + _BLOCK, stop)]


def _copied_vectors(segments: Sequence[Segment]) -> Iterator[bytes]:
    """Yield the remaining vectors, in blocks of whole vectors."""
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
    """Yield the blocks of a column, and zeros up to where the next one begins."""
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
