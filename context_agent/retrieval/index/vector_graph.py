"""Approximate dense search in a large segment, through a graph of near vectors in a file next to it.

Exact dense search reads every vector. The graph leads to the nearest vectors after a few hundred comparisons of 8-bit
vectors. The rows that it returns are then scored with the stored vectors. The graph is an HNSW (Malkov and Yashunin,
"Efficient and Robust Approximate Nearest Neighbor Search Using Hierarchical Navigable Small World Graphs", TPAMI 2018),
made by usearch. If the corpus has `APPROXIMATE_FROM` chunks, the writer makes a graph for each segment of at least
`MIN_GRAPH_ROWS` rows. It uses one core, so the same rows give the same graph. Without the package usearch, graphs are
neither made nor used.

usearch follows the numbers in its file without checking them, and an index folder may come from a stranger. So
`VectorGraph` checks the whole file before its first search, which takes .5 s for a million rows. The format is that of
usearch 2 with keys of 64 bits and slots of 32 bits: a table of vectors, a header, the level of each node, and the
nodes. A node has its key, its level, and one list of neighbors for each level. A list has its length and a fixed number
of slots.
"""

from __future__ import annotations

import importlib.util
import mmap
import struct
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent._support.atomic_files import sync_path

if TYPE_CHECKING:
    from usearch.index import Index

APPROXIMATE_FROM = 100_000
"""The minimum number of chunks for approximate dense search. Below, an exact search takes at most 10 ms."""
MIN_GRAPH_ROWS = 20_000
"""The minimum number of rows in a segment with a graph. With fewer rows, an exact search is as fast."""
CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 24, 128, 512
"""The parameters of usearch.

In 36,000 Wikipedia paragraphs, they find .98 of the 58 paragraphs nearest to a question in 1 ms. With connectivity 16,
it is .97.
"""
_BLOCK_ROWS = 1 << 14
_SHAPE_FORMAT = struct.Struct("<2I")
_HEADER_FORMAT = struct.Struct("<7s6x4B3Q?22x")
_GRAPH_FORMAT = struct.Struct("<5Q")
_STORED_KINDS = (99, 23, 14, 15)
"""usearch's codes for cosine, vectors of 8 bits, keys of 64 bits and slots of 32 bits."""
_MAX_LEVEL = 32


def graphs_available() -> bool:
    """Return True if usearch is installed."""
    return importlib.util.find_spec("usearch") is not None


def graph_file(segment: Path) -> Path:
    """Return the file for the graph of a segment."""
    return segment.with_suffix(".graph")


def write_graph(path: Path, vectors: NDArray[np.float32], progress: Callable[[int], None] | None = None) -> None:
    """Write the graph of vectors, and sync the file to disk.

    It takes 1,000 to 6,000 vectors a second.

    Args:
        path: The file. It is written when all vectors are in the graph.
        vectors: The vectors, shape (n, d).
        progress: A function that receives the number of vectors in the graph.
    """
    graph = _empty(vectors.shape[1])
    for first in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[first : first + _BLOCK_ROWS]
        graph.add(np.arange(first, first + len(block)), _bytes(block), threads=1)
        if progress is not None:
            progress(first + len(block))
    graph.save(str(path))
    sync_path(path)


class VectorGraph:
    """The memory-mapped graph of a segment with `rows` vectors of length `dimension`. Searches are thread-safe."""

    def __init__(self, path: Path, rows: int, dimension: int) -> None:
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            empty = not file.read(1)
            self._buffer = memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._rows, self._dimension = rows, dimension
        # usearch gives every search of an index the same scratch memory unless it chooses the thread itself.
        self._lock = threading.Lock()

    def nearest(self, query: NDArray[np.float32], k: int) -> NDArray[np.intp] | None:
        """See `NearestRows`. If usearch is missing, or the file is invalid, return None."""
        with self._lock:
            if self._index is None:
                return None
            self._index.expansion_search = max(EXPANSION_SEARCH, 2 * k)  # type: ignore[misc]  # Its stub has no setter.
            return np.asarray(self._index.search(_bytes(query), k, threads=1).keys, dtype=np.intp)

    @cached_property
    def _index(self) -> Index | None:
        if not (graphs_available() and is_sound(self._buffer, self._rows, self._dimension)):
            return None
        index = _empty(self._dimension)
        index.view(self._buffer)
        return index


def _empty(dimension: int) -> Index:
    from usearch.index import Index

    return Index(
        ndim=dimension,
        metric="cos",
        dtype="i8",
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
        enable_key_lookups=False,
    )


def _bytes(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return vectors of 8-bit numbers. Each vector is scaled by its largest number, which does not change cosines."""
    vectors = np.nan_to_num(vectors)
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    return np.rint(vectors / np.where(largest > 0, largest, 1) * 127).astype(np.int8)


def is_sound(buffer: memoryview, rows: int, dimension: int) -> bool:
    """Return True if a file is a valid graph of this package for this many vectors.

    In a valid graph, no number leads out of the file.
    """
    start = _SHAPE_FORMAT.size + rows * dimension
    levels_start = start + _HEADER_FORMAT.size + _GRAPH_FORMAT.size
    nodes_start = levels_start + 2 * rows
    if not rows or len(buffer) < nodes_start or _SHAPE_FORMAT.unpack_from(buffer) != (rows, dimension):
        return False
    magic, *kinds, present, deleted, dimensions, multi = _HEADER_FORMAT.unpack_from(buffer, start)
    head = (magic, tuple(kinds), present, deleted, dimensions, multi)
    if head != (b"usearch", _STORED_KINDS, rows, 0, dimension, False):
        return False
    size, connectivity, base_connectivity, deepest, entry = _GRAPH_FORMAT.unpack_from(
        buffer, start + _HEADER_FORMAT.size
    )
    if (size, connectivity, base_connectivity) != (rows, CONNECTIVITY, 2 * CONNECTIVITY):
        return False
    levels = np.frombuffer(buffer, "<i2", rows, levels_start)
    if not (levels.min() >= 0 and levels.max() == deepest <= _MAX_LEVEL and entry < rows and levels[entry] == deepest):
        return False
    nodes = np.frombuffer(buffer, "u1", offset=nodes_start)
    end = 0
    for first in range(0, rows, _BLOCK_ROWS):
        sizes = _BASE_NODE.itemsize + levels[first : first + _BLOCK_ROWS] * np.int64(_UPPER_LIST.itemsize)
        starts = end + np.cumsum(sizes) - sizes
        end = int(starts[-1] + sizes[-1])
        if end > len(nodes) or not _sound_nodes(nodes, levels, starts, first):
            return False
    return end == len(nodes)


def _list_type(room: int) -> np.dtype[Any]:
    return np.dtype([("count", "<u4"), ("slots", "<u4", (room,))])


_UPPER_LIST = _list_type(CONNECTIVITY)
_BASE_NODE = np.dtype([("key", "<u8"), ("level", "<i2"), ("list", _list_type(2 * CONNECTIVITY))])


def _sound_nodes(nodes: NDArray[np.uint8], levels: NDArray[np.int16], starts: NDArray[np.int64], first: int) -> bool:
    """Return True if the nodes of a block have the stated levels and link only to nodes.

    The bytes of the nodes begin at `starts`.
    """
    own = levels[first : first + len(starts)]
    block = _at(nodes, starts, _BASE_NODE)
    if not ((block["key"] == np.arange(first, first + len(starts))).all() and (block["level"] == own).all()):
        return False
    if not _sound_lists(block["list"], levels, 0):
        return False
    for level in range(1, int(own.max()) + 1):
        offsets = starts[own >= level] + _BASE_NODE.itemsize + (level - 1) * _UPPER_LIST.itemsize
        if not _sound_lists(_at(nodes, offsets, _UPPER_LIST), levels, level):
            return False
    return True


def _sound_lists(lists: NDArray[Any], levels: NDArray[np.int16], level: int) -> bool:
    """Return True if the lists fit in their slots and contain only nodes of this level."""
    slots = lists["slots"]
    used = np.arange(slots.shape[1]) < lists["count"][:, None]
    named = slots[used]
    return bool(
        (lists["count"] <= slots.shape[1]).all()
        and (named < len(levels)).all()
        and (not level or (levels[named] >= level).all())
    )


def _at(nodes: NDArray[np.uint8], starts: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a copy of the records that begin at these bytes."""
    windows = np.ndarray((len(nodes) - dtype.itemsize + 1,), f"V{dtype.itemsize}", nodes, strides=(1,))
    return windows[starts].view(dtype)
