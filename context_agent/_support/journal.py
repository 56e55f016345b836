"""Files that survive a killed process, and private files.

The module has append-only logs, atomic replacement of files and folders, and locks between processes.

    with AppendLog(path, busy=ConfigError("…")) as log:      # locks the file and removes an incomplete last line
        done = {record["key"] for record in log.contents.records}
        log.append({"key": "q1"})                             # on disk when it returns

A log has one JSON object per line. It is plain JSONL, or each line has a checksum (`crc32 {json}`) so that damaged
bytes are never read as data. If a process is killed while it appends, at most one incomplete last line remains. Readers
ignore that line, and the next writer removes it. Any other damage is refused.

Only its owner can read a private file, such as a log with questions or answers, whatever the umask is.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, cast

from context_agent._support.small_files import parse_json, read_lines
from context_agent.errors import ConfigError, ContextAgentError, DataError

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_private(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file that only its owner may read, as the built-in `open` does. An existing file keeps its mode.

    Raises:
        OSError: If the file cannot be opened.
    """
    return open(path, mode, opener=_private, **options)


def private_folder(path: Path) -> Path:
    """Make a folder and its parents, which only their owner may read. An existing folder keeps its mode."""
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


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
        ConfigError: If another process has the log open.
        DataError: If the log is damaged.
    """

    def __init__(
        self, path: Path, *, checksum: bool = False, sync: bool = True, busy: ContextAgentError | None = None
    ) -> None:
        self.path = path
        self._checksum, self._sync = checksum, sync
        self._file: BinaryIO | None = None
        self._lock = _acquire(path.with_name(f"{path.name}.lock"), 0, busy)
        try:
            self.contents = read_log(path, checksum=checksum) if path.exists() else LogContents()
        except BaseException:
            self._lock.release()
            raise
        self.size = sum(map(len, self.contents.lines))

    def append(self, *records: JsonObject) -> None:
        """Write the records, all or none of them.

        Raises:
            DataError: If the file cannot be written, such as on a full disk.
        """
        data = b"".join(encode_line(record, checksum=self._checksum) for record in records)
        try:
            file = self._opened()
            try:
                _write(file, data, sync=self._sync)
            except OSError:
                self._cut(file)
                raise
        except OSError as error:
            raise DataError(f"cannot write to {self.path}: {error.strerror or error}") from error
        self.size += len(data)

    def replace(self, lines: Sequence[bytes]) -> None:
        """Replace the contents of the log with these lines, all or none of them. `encode_line` makes a line.

        Raises:
            DataError: If the file cannot be written.
        """
        self._close_file()
        try:
            with replacing(self.path) as file:
                _write(file, b"".join(lines), sync=False)
        except OSError as error:
            raise DataError(f"cannot write to {self.path}: {error.strerror or error}") from error
        self.size = sum(map(len, lines))

    def close(self) -> None:
        """Close the log and release its lock. Closing it twice is harmless."""
        self._close_file()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise _damaged(path, len(lines) + 1) from error
    return LogContents(tuple(lines), tuple(records))


def _damaged(path: Path, number: int) -> DataError:
    return DataError(
        f"{path}, line {number} is damaged; an interrupted run does not cause this. Restore the file from a backup or "
        "delete it"
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


def replace_file(path: Path, content: str | bytes) -> None:
    """Replace the contents of a file, completely or not at all, and sync the file to disk.

    Raises:
        OSError: If the file cannot be written.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, *, shared: bool = False) -> Iterator[IO[bytes]]:
    """Yield a file to write. When the block ends, the file is synced to disk and replaces `path`.

    If the block raises an error, `path` is unchanged. Missing parent folders are created.

    Args:
        path: The file to replace.
        shared: If True, other users may read the file, and several processes may replace it at the same time.

    Raises:
        OSError: If the file cannot be written.
    """
    private_folder(path.parent)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial" if shared else f".{path.name}.partial")
    try:
        # An existing file was left by a killed process, or is a link out of the folder. It must not be written through.
        partial.unlink(missing_ok=True)
        with partial.open("xb") if shared else open_private(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_path(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to write. When the block ends, the folder is synced to disk and replaces `path`.

    If the block raises an error or the process is killed, `path` is unchanged.

    Args:
        path: The folder. It must not exist, or must be empty.

    Raises:
        OSError: If the folder cannot be written, or if `path` is a file or a folder that is not empty.
    """
    path = path.resolve()
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # a killed process left it
    try:
        partial.mkdir(parents=True)
        yield partial
        for written in (*partial.rglob("*"), partial):
            sync_path(written)
        partial.rename(path)
        sync_path(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def file_lock(path: Path, *, timeout: float = 0, busy: ContextAgentError | None = None) -> Iterator[None]:
    """Hold a lock file while the block runs. The lock of a killed process is free.

    Args:
        path: The lock file.
        timeout: Seconds to wait for the lock. -1 waits forever.
        busy: The error if another process holds the lock. Defaults to a `ConfigError`.

    Raises:
        ConfigError: If another process holds the lock and there is no `busy`, or if `path` is a link.
    """
    lock = _acquire(path, timeout, busy)
    try:
        yield
    finally:
        lock.release()


def sync_path(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk.

    Raises:
        OSError: If the system cannot do that.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def _acquire(path: Path, timeout: float, busy: ContextAgentError | None) -> Any:
    from filelock import FileLock, Timeout

    private_folder(path.parent)
    if path.is_symlink():
        raise ConfigError(f"{path} is a link, and a lock is a file of its own folder: delete the link")
    lock = FileLock(path, timeout=timeout)
    try:
        lock.acquire()
    except Timeout:
        raise busy or ConfigError(f"another process holds {path}: wait until it ends, or stop it") from None
    return lock
