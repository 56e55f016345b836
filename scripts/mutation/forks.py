"""Work in a fork of this process. The fork may crash, hang or fill its memory."""

from __future__ import annotations

import math
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
"""Maximum number of bytes that a fork may use. It ends a loop that fills the memory."""


def in_fork(work: Callable[[], Any], seconds: float = math.inf, waiting: float = math.inf) -> Any | None:
    """Call `work` in a fork of this process, and return its result. If the fork dies, return None.

    Raises:
        TimeoutError: If the work takes more than `seconds` of processor time, or waits for something else than the
            processor for more than `waiting` seconds. Other programs that keep the processor busy do not count.
    """
    with TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        child = os.fork()
        if child == 0:
            _work_and_exit(work, result, seconds)
        ended = status = 0
        try:
            waited, now = 0.0, time.monotonic()
            while not ended and waited <= waiting:
                before, now = now, time.monotonic()
                waited += (now - before) * _is_waiting(child)
                ended, status = os.waitpid(child, os.WNOHANG)
                time.sleep(0.005)
        finally:
            # The group includes the programs that the work started.
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not ended:
                os.waitpid(child, 0)
        if not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            raise TimeoutError(
                f"The work took longer than {seconds:g} seconds of processor time, or waited longer than {waiting:g}."
            )
        return pickle.loads(result.read_bytes()) if result.exists() else None


def _is_waiting(process: int) -> bool:
    """Return True if a process sleeps, as far as Linux says so. A process that could run on a busy machine does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


def _work_and_exit(work: Callable[[], Any], result: Path, seconds: float) -> NoReturn:
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        if seconds < math.inf:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        value = pickle.dumps(work())
        result.with_suffix(".unfinished").write_bytes(value)
        result.with_suffix(".unfinished").rename(result)
    finally:
        os._exit(0)
