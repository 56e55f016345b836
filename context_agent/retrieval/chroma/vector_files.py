"""Chroma's vector index (HNSW files), checked without loading it."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from context_agent._support.small_files import read_bytes

VECTOR_FILES = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin", "index_metadata.pickle")
"""The files of a vector index."""
_HEADER_FORMAT = struct.Struct("<i6qiI3qdq")
MIN_CAPACITY, MAX_SPARE = 10_000, 10
"""The parts of a limit: an index with n elements has a capacity of at most `MAX_SPARE` * (n + `MIN_CAPACITY`).

Chroma makes room for 1,000 elements, and later for a fifth more than there are. Its library allocates as much memory as
the header claims.
"""
_ELEMENTS_AT_ONCE = 65_536
"""The number of elements that are checked at once."""


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


def vectors_are_intact(folder: Path) -> bool:
    """Return True if the index files in a folder are consistent, or if there are none. Each file is read once."""
    present = {name for name in VECTOR_FILES if (folder / name).exists()}
    try:
        return not present or _consistent(folder, complete=len(present) == len(VECTOR_FILES))
    except (OSError, ValueError, struct.error):
        return False


def _consistent(folder: Path, *, complete: bool) -> bool:
    header = _Header(*_HEADER_FORMAT.unpack(read_bytes(folder / "header.bin", _HEADER_FORMAT.size)))
    if not 0 <= header.capacity <= MAX_SPARE * (header.elements + MIN_CAPACITY):
        return False
    if header.elements == 0:
        # A new index: Chroma has allocated space and written nothing yet.
        return True
    links_end = 4 + 4 * header.level0_links
    plausible = 0 <= header.elements <= header.capacity and header.level0_links > 0 and header.upper_links > 0
    fits = links_end <= header.vector_offset < header.label_offset < header.element_bytes
    if not (complete and plausible and fits and header.entry < header.elements and _ended(folder / VECTOR_FILES[-1])):
        return False
    sizes = [(folder / name).stat().st_size for name in ("data_level0.bin", "length.bin")]
    if sizes != [header.elements * header.element_bytes, header.elements * 4]:
        return False
    return _level0_valid(folder / "data_level0.bin", header) and _upper_valid(folder / "link_lists.bin", header)


def _ended(pickle: Path) -> bool:
    """Return True if a pickle file ends with the byte that marks its end. The pickle is not loaded."""
    with pickle.open("rb") as file:
        return file.seek(0, 2) > 0 and file.seek(-1, 2) >= 0 and file.read() == b"."


def _mapped(file: Path) -> bytes | mmap.mmap:
    """Return the bytes of a file as a memory map."""
    with file.open("rb") as stream:
        # An empty file cannot be mapped.
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if file.stat().st_size else b""


def _level0_valid(file: Path, header: _Header) -> bool:
    """Return True if every link of the lowest level leads to an element."""
    rows = np.memmap(file, np.uint8, "r", shape=(header.elements, header.element_bytes))
    for start in range(0, header.elements, _ELEMENTS_AT_ONCE):
        lists = np.ascontiguousarray(rows[start : start + _ELEMENTS_AT_ONCE, : 4 + 4 * header.level0_links])
        # The list's length takes two bytes; the third one marks a deleted element.
        lengths, links = lists[:, :2].copy().view(np.uint16), lists[:, 4:].copy().view(np.uint32)
        used = np.arange(header.level0_links) < lengths
        if lengths.max() > header.level0_links or (links[used] >= header.elements).any():
            return False
    return True


def _upper_valid(file: Path, header: _Header) -> bool:
    """Return True if the link lists of the upper levels end with the file, and every link leads to an element."""
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
