"""Append-only logs that survive a killed process.

    with AppendLog(path, busy=ConfigError("…")) as log:      # locks the file and removes an incomplete last line
        done = {record["key"] for record in log.contents.records}
        log.append({"key": "q1"})                             # on disk when it returns

A log has one JSON object per line. It is plain JSONL, or each line has a checksum (`crc32 {json}`) so that damaged
bytes are never read as data. If a process is killed while it appends, at most one incomplete last line remains. Readers
ignore that line, and the next writer removes it. Any other damage is refused.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, cast

from context_agent._support.atomic_files import replacing, sync_path
from context_agent._support.locks import acquired_lock
from context_agent._support.private_files import open_private
from context_agent._support.small_files import parse_json, read_lines, require_files
from context_agent.errors import ConfigError, ContextAgentError, DataError, reason_of

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogContents:
    """The contents of a log.

    Attributes:
        lines: The complete lines.
        records: The record of each line.
        torn_bytes: The length of an incomplete last line in bytes, or 0.
    """

    lines: tuple[bytes, ...] = ()
    records: tuple[JsonObject, ...] = ()
    torn_bytes: int = 0


class AppendLog:
    """An append-only log, locked against other processes while it is open. Threads must not share it.

    The lock is the file `path` + `.lock`. The first `append` or `replace` creates the log itself.

    Args:
        path: The file of the log.
        checksum: True if each line has a checksum.
        sync: If True, records are on disk when `append` returns. If False, the operating system writes them later.
        busy: The error if another process has the log open. Defaults to a `ConfigError`.

    Attributes:
        path: The file of the log.
        contents: The contents of the log when it was opened.
        size: The length of the file in bytes, without an incomplete last line.

    Raises:
        ConfigError: If another process has the log open, or if the file is a link.
        DataError: If the log is damaged.
    """

    def __init__(
        self, path: Path, *, checksum: bool = False, sync: bool = True, busy: ContextAgentError | None = None
    ) -> None:
        if path.is_symlink():
            # In a folder from someone else it could lead to any file, which would lose an incomplete last line.
            raise ConfigError(f"{path} is a symbolic link, but a log must be a regular file. Delete the link.")
        self.path = path
        self._checksum, self._sync = checksum, sync
        self._file: BinaryIO | None = None
        self._is_closed = False
        self._lock = acquired_lock(path.with_name(f"{path.name}.lock"), 0, busy)
        try:
            self.contents = read_log(path, checksum=checksum) if path.exists() else LogContents()
        except BaseException:
            self._lock.release()
            raise
        self.size = sum(map(len, self.contents.lines))

    def append(self, *records: JsonObject) -> None:
        """Write the records, all or none of them.

        Raises:
            DataError: If the file cannot be written, such as on a full disk, or if the log is closed.
        """
        self._require_open()
        data = b"".join(encode_line(record, checksum=self._checksum) for record in records)
        try:
            file = self._opened()
            try:
                _write(file, data, sync=self._sync)
            except OSError:
                self._cut(file)
                raise
        except OSError as error:
            raise DataError(
                f"cannot write to {self.path} ({reason_of(error)}). Check the disk and the file's permissions."
            ) from error
        self.size += len(data)

    def replace(self, lines: Sequence[bytes]) -> None:
        """Replace the contents of the log with these lines, all or none of them. `encode_line` makes a line.

        Raises:
            DataError: If the file cannot be written, or if the log is closed.
        """
        self._require_open()
        self._close_file()
        try:
            with replacing(self.path) as file:
                _write(file, b"".join(lines), sync=False)
        except OSError as error:
            raise DataError(
                f"cannot write to {self.path} ({reason_of(error)}). Check the disk and the file's permissions."
            ) from error
        self.size = sum(map(len, lines))

    def close(self) -> None:
        """Close the log and release its lock. Closing it twice is harmless."""
        self._is_closed = True
        self._close_file()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        """Raise `DataError` if the log is closed. Another process may have added records, which would be cut off."""
        if self._is_closed:
            raise DataError(f"cannot write to {self.path}, because the log is closed. Open it again.")

    def _opened(self) -> BinaryIO:
        if self._file is None:
            is_new = not self.path.exists()
            file = cast("BinaryIO", open_private(self.path, "w+b" if is_new else "r+b", buffering=0))
            self._cut(file)
            self._file = file
            if is_new and self._sync:
                sync_path(self.path.parent)
        return self._file

    def _cut(self, file: BinaryIO) -> None:
        file.truncate(self.size)
        file.seek(self.size)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_log(path: Path, *, checksum: bool = False) -> LogContents:
    """Return the contents of a log, without locking it.

    Args:
        path: The file of the log.
        checksum: True if each line has a checksum.

    Raises:
        DataError: If the log cannot be read or is damaged.
    """
    require_files([path])
    lines: list[bytes] = []
    records: list[JsonObject] = []
    try:
        with path.open("rb") as file:
            for line in read_lines(file):
                record = _decode(line, checksum)
                if record is None:
                    if (checksum or not line.endswith(b"\n")) and not file.read(1):
                        return LogContents(tuple(lines), tuple(records), len(line))
                    raise _damaged(path, len(lines) + 1)
                lines.append(line)
                records.append(record)
    except OSError as error:
        raise DataError(f"cannot read {path} ({reason_of(error)}). Check the file's permissions.") from error
    except ValueError as error:
        raise _damaged(path, len(lines) + 1) from error
    return LogContents(tuple(lines), tuple(records))


def _damaged(path: Path, number: int) -> DataError:
    return DataError(
        f"{path}, line {number} is damaged, which an interrupted run does not cause. Restore the file from a backup, "
        "or delete it."
    )


def encode_line(record: JsonObject, *, checksum: bool = False) -> bytes:
    """Return the line of a record.

    Args:
        record: The record.
        checksum: True to add a checksum.

    Raises:
        ValueError: If the record has NaN or infinity and no checksum. A log without checksums is plain JSON.
    """
    text = json.dumps(record, allow_nan=checksum, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text) if checksum else text + b"\n"


def _decode(line: bytes, checksum: bool) -> JsonObject | None:
    """Return the record of a line. If the line is incomplete or damaged, return None."""
    try:
        if not line.endswith(b"\n"):
            return None
        text = line[:-1]
        if checksum:
            expected, text = int(text[:8], 16), text[9:]
            if expected != zlib.crc32(text):
                return None
        record = parse_json(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _write(file: IO[bytes], data: bytes, *, sync: bool) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    if sync:
        os.fsync(file.fileno())
