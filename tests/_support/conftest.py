from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What reaches the disk, in order: the operation, the name, and the bytes that a file has then."""
    steps: list[tuple[str, str, int]] = []
    fsync, replace, rename = os.fsync, Path.replace, Path.rename

    def note(step: str, path: Path) -> None:
        steps.append((step, path.name, path.stat().st_size if path.is_file() else 0))

    def synced(handle: int) -> None:
        note("sync", Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    def replaced(path: Path, target: Path) -> Path:
        note("move", path)
        return replace(path, target)

    def renamed(path: Path, target: Path) -> Path:
        note("move", path)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    monkeypatch.setattr(Path, "rename", renamed)
    return steps
