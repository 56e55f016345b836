"""A file of records that survives a kill: appended to, each line with its checksum, synced before it counts."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, DataError

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What a file holds: its lines and their records. `whole` bytes of `size` are lines that are not cut short."""

    lines: Sequence[tuple[bytes, Record]] = ()
    whole: int = 0
    size: int = 0


class LineFile:
    """The file while one process has it. Not safe to share between threads."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError` where another process has it."""
        self.path = path
        self.size = 0
        self._file: Any = None
        self._lock = _locked(path)

    def go_on(self, whole: int) -> None:
        """Opens the file to append behind its first `whole` bytes, and takes off what comes after them."""
        self.close_file()
        self._file = self.path.open("r+b", buffering=0)
        self._cut(whole)

    def append(self, lines: Sequence[bytes]) -> None:
        """Writes lines that are on disk when it returns, or leaves the file as it was and raises `DataError`."""
        try:
            _write(self._file, lines)
        except OSError as error:
            self._cut(self.size)
            raise DataError(f"{self.path} could not be written: {error.strerror or error}") from error
        self.size += sum(map(len, lines))

    def replace(self, lines: Sequence[bytes]) -> None:
        """Puts a new file in the old one's place, whole or not at all. Raises `DataError`."""
        partial = self.path.with_name(f"{self.path.name}.partial")
        try:
            with partial.open("wb", buffering=0) as file:
                _write(file, lines)
            partial.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise DataError(f"{partial} could not be written: {error.strerror or error}") from error
        self.go_on(sum(map(len, lines)))

    def close_file(self) -> None:
        """Closes the file; it stays this process's."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Closes the file and lets others have it; safe to call twice."""
        self.close_file()
        self._lock.release()

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)
        self.size = size


def line(record: Record) -> bytes:
    """`crc32 {json}`."""
    text = json.dumps(record, ensure_ascii=True, separators=(",", ":"), default=str).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read(path: Path) -> Found:
    """What is in the file; a last line that was cut short is left out. Raises `DataError` for one that is damaged."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    found: list[tuple[bytes, Record]] = []
    whole = 0
    for number, one in enumerate(_split(data), start=1):
        record = _record(one)
        if record is None:
            if whole + len(one) == len(data):
                break
            raise DataError(
                f"{path}, line {number} is damaged, and lines follow it: no kill leaves that. Put a copy back, or take "
                "the file away; what it holds is then sampled anew"
            )
        found.append((one, record))
        whole += len(one)
    return Found(found, whole, len(data))


def _split(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


def _record(text: bytes) -> Record | None:
    """None for a line that is not whole."""
    try:
        if not text.endswith(b"\n") or int(text[:8], 16) != zlib.crc32(text[9:-1]):
            return None
        made: Record = json.loads(text[9:-1])
    except ValueError:
        return None
    return made


def _write(file: Any, lines: Iterable[bytes]) -> None:
    data = memoryview(b"".join(lines))
    while data:
        data = data[file.write(data) :]
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _locked(path: Path) -> Any:
    """A lock that ends with the process at the latest."""
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(f"another process trains with the buffer {path}: wait for it, or end it") from None
    return lock
