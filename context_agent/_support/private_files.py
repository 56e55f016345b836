"""Private files and folders. Only their owner can read them, whatever the umask is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

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
