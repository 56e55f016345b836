"""Private files: only their owner may read them, whatever the umask says. For questions, answers and judgements."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_private(path: Path, mode: str, **options: Any) -> IO[Any]:
    """`open` for a file that only its owner may read. A file that exists keeps its mode. Raises `OSError`."""
    return open(path, mode, opener=_private, **options)


def private_folder(path: Path) -> Path:
    """Makes the folder and its parents, each readable by its owner alone; one that exists keeps its mode."""
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
