"""Folders that one test process makes and that all test processes of a run use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder with this name. The first test process that asks makes it, and the others wait.

    Tests must not change the folder. If `make` fails, the next process tries again in the same folder.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, complete = base / name, base / f"{name}.complete"
    with FileLock(base / f"{name}.lock"):
        if not complete.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            complete.touch()
    return folder
