"""The open files of this process."""

from __future__ import annotations

from pathlib import Path


def open_descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def open_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder that this process has open."""
    links = [descriptor.readlink() for descriptor in Path("/proc/self/fd").iterdir() if descriptor.is_symlink()]
    return [link.name for link in links if link.parent == folder]
