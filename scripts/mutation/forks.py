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
TIMES_LONGER_ON_A_CLOCK = 50
"""How much longer than its processor time a fork may take. It ends a fork that asks for something again and again."""
MOST_IDLE_SECONDS = 60.0
"""How long a fork may use no processor time. It ends a fork that waits for something forever."""


def in_fork(work: Callable[[], Any], seconds: float = float("inf")) -> Any | None:
    """Call `work` in a fork of this process, and return its result. If the fork dies, return None.

    Raises:
        TimeoutError: If the work takes more than `seconds` of processor time, or waits for something forever. Other
            programs that keep the processor busy do not count.
    """
    with TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        child = os.fork()
        if child == 0:
            _work_and_exit(work, result, seconds)
        ended = status = 0
        try:
            used, now = 0.0, time.monotonic()
            deadline, idle_deadline = now + TIMES_LONGER_ON_A_CLOCK * seconds, now + MOST_IDLE_SECONDS
            while not ended:
                ended, status = os.waitpid(child, os.WNOHANG)
                now = time.monotonic()
                if (used_now := _processor_time(child)) != used:
                    used, idle_deadline = used_now, now + MOST_IDLE_SECONDS
                if now > min(deadline, idle_deadline):
                    break
                time.sleep(0.005)
        finally:
            # The group includes the programs that the work started.
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not ended:
                os.waitpid(child, 0)
        if not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            raise TimeoutError(f"The work took longer than {seconds:g} seconds of processor time, or waited forever.")
        return pickle.loads(result.read_bytes()) if result.exists() else None


def _processor_time(process: int) -> float:
    """Return the processor time of a process, in ticks. On systems other than Linux, every process seems busy."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return int(fields[11]) + int(fields[12])


def _work_and_exit(work: Callable[[], Any], result: Path, seconds: float) -> NoReturn:
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        if seconds < float("inf"):
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        value = pickle.dumps(work())
        result.with_suffix(".unfinished").write_bytes(value)
        result.with_suffix(".unfinished").rename(result)
    finally:
        os._exit(0)
