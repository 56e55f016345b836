"""The sizes of the pages of a parquet file.

The footer states what a column unpacks to, but pyarrow does not compare it with the pages. It allocates what the header
of each page states, so only the headers bound the memory.

The headers are Thrift structures in the compact protocol (https://github.com/apache/parquet-format). A header that
cannot be read ends the column, because pyarrow reads no further either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData

HEADER_BYTES, LARGEST_HEADER = 256, 16 * 2**20
"""The bytes of a header that are read at first, and the most that pyarrow reads."""
DEEPEST_STRUCTURE = 64
"""Maximum number of levels of a header, as in Thrift."""
UNPACKED_SIZE, PACKED_SIZE = 2, 3
"""The numbers of the fields of a header that have the sizes of its page."""
_BYTE, _WHOLE_NUMBERS, _INT32, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCTURE = 3, (4, 5, 6), 5, 7, 8, (9, 10), 11, 12
"""Types of the compact protocol. A boolean field has its value in its type."""


def page_sizes(stream: BinaryIO, column: ColumnChunkMetaData) -> Iterator[int]:
    """Yield the number of bytes that each page of a column unpacks to, by its header."""
    start = column.data_page_offset
    if column.dictionary_page_offset:
        start = min(start, column.dictionary_page_offset)
    return _page_sizes(stream, start, start + column.total_compressed_size)


def _page_sizes(stream: BinaryIO, start: int, end: int) -> Iterator[int]:
    """Yield the unpacked size of each page between two offsets of a file."""
    while 0 <= start < end:
        size = HEADER_BYTES
        while True:
            stream.seek(start)
            header = _Header(stream.read(min(size, end - start)))
            try:
                fields = header.sizes()
                break
            except IndexError:
                if size >= LARGEST_HEADER or len(header.data) < size:
                    return
                size *= 16
            except (RecursionError, ValueError):
                return
        unpacked, packed = fields.get(UNPACKED_SIZE, -1), fields.get(PACKED_SIZE, -1)
        if unpacked < 0 or packed < 0:
            return
        yield unpacked
        start += header.position + packed


class _Header:
    """A reader of the header of a page. It raises `IndexError` at the end of its data."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def sizes(self) -> dict[int, int]:
        """Return the fields that are whole numbers of 32 bits, by their numbers."""
        return self._structure(0)

    def _structure(self, depth: int) -> dict[int, int]:
        if depth > DEEPEST_STRUCTURE:
            raise RecursionError
        numbers: dict[int, int] = {}
        field = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            field = field + step if step else _signed(self._varint())
            if kind == _INT32:
                numbers[field] = _signed(self._varint() & 0xFFFFFFFF)
            else:
                self._skip(kind, depth)
        return numbers

    def _skip(self, kind: int, depth: int, *, is_item: bool = False) -> None:
        """Skip a value. A boolean has a byte of its own only if it is an item of a list or of a map."""
        if kind in _WHOLE_NUMBERS:
            self._varint()
        elif kind == _BINARY:
            self._skip_bytes(self._varint())
        elif kind == _STRUCTURE:
            self._structure(depth + 1)
        elif kind in _LISTS:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            self._skip_items(count, (head & 15,), depth + 1)
        elif kind == _MAP:
            if count := self._varint():
                kinds = self._byte()
                self._skip_items(count, (kinds >> 4, kinds & 15), depth + 1)
        elif kind == _DOUBLE:
            self._skip_bytes(8)
        elif kind == _BYTE or (is_item and kind in (1, 2)):
            self._skip_bytes(1)
        elif kind not in (1, 2):
            raise ValueError(kind)

    def _skip_items(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        if depth > DEEPEST_STRUCTURE:
            raise RecursionError
        for _ in range(count):
            for kind in kinds:
                self._skip(kind, depth, is_item=True)

    def _skip_bytes(self, count: int) -> None:
        self.position += count
        if self.position > len(self.data):
            raise IndexError

    def _byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError(value)


def _signed(number: int) -> int:
    """Return the signed number that the compact protocol writes as an unsigned one."""
    return number >> 1 ^ -(number & 1)
