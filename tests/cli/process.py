"""The installed `ctx1`, run as a user runs it: in a process of its own, with or without a terminal."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

CTX1 = str(Path(sys.executable).with_name("ctx1"))
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Tests run beside each other: a maths library with a thread a core would only fight the others."""
PATIENCE = 120
"""Seconds that a command may take on a busy machine before its test gives up."""


def run(*arguments: object, cwd: Path, stdin: str | None = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Runs `ctx1` with pipes and returns what it did."""
    return subprocess.run(
        [CTX1, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
        env={**os.environ, **ONE_THREAD, **env},
        check=False,
    )


def on_terminal(*arguments: object, cwd: Path) -> str:
    """Runs `ctx1` on a pseudo-terminal and returns all it wrote."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [CTX1, *map(str, arguments)]
    with subprocess.Popen(command, cwd=cwd, stdin=follower, stdout=follower, stderr=follower, env=environment) as child:
        os.close(follower)
        written = b"".join(_parts(leader, child))
    os.close(leader)
    assert child.returncode == 0, written
    return written.decode(errors="replace")


def _parts(leader: int, child: subprocess.Popen[bytes]):
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                part = os.read(leader, 65_536)
            except OSError:  # the other end is closed
                return
            yield part
        elif child.poll() is not None:
            return
    child.kill()
