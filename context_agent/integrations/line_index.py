"""An index of a growing file of lines, which gives the offset of the line for each key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import BinaryIO


class LineIndex:
    """An index that finds the line for a key in a growing file.

    Each look-up reads the bytes that were added since the last one. The index stores two numbers for each key: the hash
    of the key, and the offset of its line. Several threads may use it.
    """

    def __init__(self, path: Path, key_of: Callable[[bytes], str | None], latest: int | None = None) -> None:
        """Index a file.

        Args:
            path: The file. It need not exist yet.
            key_of: A function that returns the key of a line. If the line has no key, it returns None.
            latest: The number of keys to keep. If it is given, the index has the last line of each of the latest keys.
                Otherwise it has the first line of every key.
        """
        self._path, self._key_of, self._latest = path, key_of, latest
        self._offsets: dict[int, int] = {}
        self._end = self._inode = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._offsets)

    def line_of(self, key: str) -> bytes:
        """Return the line for a key. If there is none, return empty bytes.

        In rare cases it is the line for another key with the same hash.
        """
        try:
            with self._lock, self._path.open("rb") as stream:
                self._read_added(stream)
                offset = self._offsets.get(hash(key))
                if offset is None:
                    return b""
                stream.seek(offset)
                return stream.readline()
        except FileNotFoundError:
            return b""

    def _read_added(self, stream: BinaryIO) -> None:
        status = os.fstat(stream.fileno())
        if status.st_ino != self._inode or status.st_size < self._end:
            self._offsets.clear()
            self._end, self._inode = 0, status.st_ino
        stream.seek(self._end)
        for line in stream:
            key = self._key_of(line)
            if key is not None:
                self._note(hash(key), self._end)
            if line.endswith(b"\n"):  # An incomplete line is still being written: the next look-up reads it again.
                self._end += len(line)

    def _note(self, key: int, offset: int) -> None:
        if self._latest is None:
            self._offsets.setdefault(key, offset)
            return
        self._offsets.pop(key, None)
        self._offsets[key] = offset
        if len(self._offsets) > self._latest:
            del self._offsets[next(iter(self._offsets))]
