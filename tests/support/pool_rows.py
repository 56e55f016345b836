"""A stage whose rows are processed by worker processes, and the contexts that the workers open."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_agent._support.worker_pool import CallParent
from context_agent.synth_data.stages import DropRow, KeptRows, StageHalted


def open_folder(folder: Path, call: CallParent) -> Path:
    return folder


def cannot_open(call: CallParent) -> None:
    raise ValueError("no index here")


async def doubled(folder: Path, row: Mapping[str, Any]) -> KeptRows:
    """Drop odd numbers. If the folder has a `.fatal` file for the row, remove it and kill this process."""
    number, fatal_file = int(row["id"]), folder / f"{row['id']}.fatal"
    with (folder / "processes").open("a") as file:
        file.write(f"{number} {os.getpid()}\n")
    if fatal_file.exists():
        fatal_file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if (folder / "halt").exists() and number >= 6:
        raise StageHalted("the cap is reached")
    if number % 2:
        raise DropRow("odd", f"{number} is")
    return KeptRows(({"id": f"{number}a"}, {"id": f"{number}b"}))
