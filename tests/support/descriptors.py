"""The open files of this process."""

from __future__ import annotations

from pathlib import Path


def open_descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))
