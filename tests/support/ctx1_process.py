"""`ctx1` in a process of its own, with or without a terminal.

`CTX1` is the installed one, which a user runs. `run` starts a fork unless a test names the installed one.
"""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.support.forked_ctx1 import forked_ctx1

CTX1 = str(Path(sys.executable).with_name("ctx1"))
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Tests run in parallel, so a maths library with a thread per core would slow the other tests down."""
PATIENCE = 120
"""Seconds that a command may take on a busy machine before its test fails."""


def run(
    *arguments: object, cwd: Path, stdin: str | None = "", ctx1: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `ctx1` with pipes and return its exit code and its output."""
    return subprocess.run(
        [ctx1 or forked_ctx1(), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
        env={**os.environ, **ONE_THREAD, **env},
        check=False,
    )


ON_CONTROLLING_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a command in a session of its own, whose terminal sends SIGINT to it for Ctrl-C."""


def on_terminal(*arguments: object, cwd: Path, code: int = 0, ctrl_c_at: str | None = None) -> str:
    """Run `ctx1` on a pseudo-terminal and return its output. Its exit code must be `code`.

    When `ctrl_c_at` has appeared in the output, it presses Ctrl-C.
    """
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-c", ON_CONTROLLING_TERMINAL, CTX1, *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=cwd, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
    ) as child:
        os.close(follower)
        output = b""
        for chunk in _read_until_exit(leader, child):
            output += chunk
            if ctrl_c_at is not None and ctrl_c_at.encode() in output:
                os.write(leader, b"\x03")
                ctrl_c_at = None
    os.close(leader)
    assert child.returncode == code, output
    return output.decode(errors="replace")


def _read_until_exit(leader: int, child: subprocess.Popen[bytes]):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                chunk = os.read(leader, 65_536)
            except OSError:  # the other end is closed
                return
            yield chunk
        elif child.poll() is not None:
            return
    child.kill()
