"""Files compressed by gzip, bzip2 or xz. They are unpacked while they are read, within the limits of `unpacking`."""

from __future__ import annotations

import bz2
import gzip
import io
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from context_agent.errors import DataError
from context_agent.retrieval.loaders.reading import named
from context_agent.retrieval.loaders.unpacking import check_rows, check_unpacked

if TYPE_CHECKING:
    from lzma import LZMADecompressor

LARGEST_DICTIONARY = 128 * 2**20
"""Maximum number of bytes that unpacking xz may take. Its strongest preset takes 65 MB."""
BLOCK_BYTES = 2**16
_GZIP = re.compile(rb"\x1f\x8b\x08")
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_XZ = re.compile(rb"\xfd7zXZ\0")
_EXTENSIONS = (".gz", ".bz2", ".xz")


def is_compressed(head: bytes) -> bool:
    """Return True if a file that begins with these bytes is compressed by gzip, bzip2 or xz."""
    return any(magic.match(head) for magic in (_GZIP, _BZIP2, _XZ))


def packing_of(path: str) -> str:
    """Return the extension of a compression at the end of a path. If there is none, return ""."""
    suffix = PurePath(path).suffix
    return suffix if suffix.lower() in _EXTENSIONS else ""


def unpacked(packed: BinaryIO, *, rows: bool) -> BinaryIO:
    """Return the unpacked bytes of a compressed stream.

    They can be read in order, and again from the beginning. If the stream unpacks to too much, reading raises
    `DataError`. If it is damaged, reading raises `OSError` or `EOFError`.

    Args:
        packed: The stream. It is read from its beginning.
        rows: True if each line becomes a document. Then the number of lines is limited, too.
    """
    return cast("BinaryIO", io.BufferedReader(_Unpacked(packed, rows=rows), BLOCK_BYTES))


class _Unpacked(io.RawIOBase):
    """The unpacked bytes of a stream, with limits."""

    def __init__(self, packed: BinaryIO, *, rows: bool) -> None:
        super().__init__()
        self._packed, self._rows = packed, rows
        self._begin()

    def _begin(self) -> None:
        self._packed.seek(0)
        head = self._packed.read(10)
        self._packed.seek(0)
        self._position = self._lines = 0
        self._stream: Any
        if _GZIP.match(head):
            self._stream = gzip.GzipFile(fileobj=self._packed)
        else:
            begin = bz2.BZ2Decompressor if _BZIP2.match(head) else _xz_decompressor
            self._stream = _Blocks(self._packed, begin)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go back to the beginning. Other places would have to be unpacked again."""
        if whence == io.SEEK_CUR and not offset:
            return self._position
        if offset or whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a compressed stream is read in order")
        self._begin()
        return 0

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (DataError, OSError, EOFError):
            raise
        except Exception as error:  # damage makes each of the libraries raise its own errors
            raise OSError(named(error)) from error
        self._position += len(data)
        packed = self._packed.tell()
        check_unpacked(self._position, packed)
        if self._rows:
            self._lines += data.count(b"\n")
            check_rows(self._lines, packed)
        buffer[: len(data)] = data
        return len(data)


def _xz_decompressor() -> LZMADecompressor:
    import lzma  # some builds of Python lack it

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST_DICTIONARY)


class _Blocks:
    """A reader of bzip2 or xz. That of the standard library has no limit on the memory of xz."""

    def __init__(self, packed: BinaryIO, begin: Callable[[], bz2.BZ2Decompressor | LZMADecompressor]) -> None:
        self._packed, self._begin = packed, begin
        self._decompressor = begin()

    def read(self, size: int) -> bytes:
        """Return the next bytes, and none at the end."""
        while True:
            block = b""
            if self._decompressor.eof:
                block = self._decompressor.unused_data.lstrip(b"\0")  # files may be padded
                while not block and (more := self._packed.read(BLOCK_BYTES)):
                    block = more.lstrip(b"\0")
                if not block:
                    return b""
                self._decompressor = self._begin()
            elif self._decompressor.needs_input and not (block := self._packed.read(BLOCK_BYTES)):
                raise EOFError("the compressed file ends too early")
            if data := self._decompressor.decompress(block, size):
                return data
