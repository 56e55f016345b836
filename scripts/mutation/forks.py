"""Work in a fork of this process. The fork may crash, hang or fill its memory."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

MEMORY_BYTES = 6_000_000_000
"""The most memory that a fork may use. It ends a loop that fills the memory."""


def in_fork(work: Callable[[], Any], seconds: float = float("inf")) -> Any | None:
    """Call `work` in a fork of this process, and return its result. If the fork dies, return None.

    Raises:
        TimeoutError: If the work takes longer than `seconds`.
    """
    with TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        child = os.fork()
        if child == 0:
            _work_and_exit(work, result)
        ended = 0
        try:
            deadline = time.monotonic() + seconds
            while not (ended := os.waitpid(child, os.WNOHANG)[0]):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"The work took longer than {seconds:.0f} seconds.")
                time.sleep(0.005)
        finally:
            # The group includes the programs that the work started.
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not ended:
                os.waitpid(child, 0)
        return pickle.loads(result.read_bytes()) if result.exists() else None


def _work_and_exit(work: Callable[[], Any], result: Path) -> NoReturn:
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        value = pickle.dumps(work())
        result.with_suffix(".unfinished").write_bytes(value)
        result.with_suffix(".unfinished").rename(result)
    finally:
        os._exit(0)
