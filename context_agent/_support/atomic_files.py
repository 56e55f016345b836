"""Atomic replacement of files and folders. If a process is killed, the whole old one or the whole new one remains."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from context_agent._support.private_files import open_private, private_folder

_STREAM_FOLDERS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


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

    If the block raises an error, `path` is unchanged. Missing parent folders are created. An existing file keeps its
    mode.

    Args:
        path: The file to replace.
        shared: If True, other users may read the file, and several processes may replace it at the same time.

    Raises:
        OSError: If the file cannot be written.
    """
    private_folder(path.parent)
    if is_stream(path):
        raise FileExistsError(errno.EEXIST, "A device or a pipe is in the way", str(path))
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial" if shared else f".{path.name}.partial")
    try:
        # An existing file was left by a killed process, or is a link out of the folder. It must not be written through.
        partial.unlink(missing_ok=True)
        with naming_disk_errors(path), partial.open("xb") if shared else open_private(partial, "xb") as file:
            yield file
            file.flush()
            with suppress(FileNotFoundError):
                before = path.lstat().st_mode
                if stat.S_ISREG(before):
                    partial.chmod(before & 0o777)
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
        with naming_disk_errors(path):
            yield partial
        for written in (*partial.rglob("*"), partial):
            sync_path(written)
        partial.rename(path)
        sync_path(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def is_stream(path: Path) -> bool:
    """Return True if the path is a device, a pipe or a socket, or names an open file as `/dev/stdout` does.

    Replacing it would take it away from all programs.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or path.absolute().parent in _STREAM_FOLDERS


@contextmanager
def naming_disk_errors(path: Path) -> Iterator[None]:
    """Name the path in an error of its disk. A failed write names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_ERRORS:
            error.filename = str(path)
        raise


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
