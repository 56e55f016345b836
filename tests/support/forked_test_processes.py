"""Test processes that are forks of a process that has already imported the packages under test.

A test process imports packages for ten seconds of the processor, most of them before its first test.
"""

from __future__ import annotations

import atexit
import multiprocessing.process
import os
import sys
from multiprocessing import resource_tracker
from types import ModuleType

from tests.support.fork_servers import TESTS
from tests.support.forked_scripts import run_in_fork, written_scripts


def forked_test_python() -> str:
    """Return the path of a script that runs `python -u -c CODE` in a fork."""
    return str(written_scripts("test-python", __name__, "python") / "python")


def main() -> None:
    """Run the code, and end as it ends."""
    run_in_fork(TESTS, _run, sys.argv[-1])


def _run(code: str) -> None:
    """Run the code in a process that has nothing left of the one that forked it but imported modules."""
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._fd = None
    sys.argv = ["-c"]
    program = sys.modules["__main__"] = ModuleType("__main__")
    exec(code, program.__dict__)
    atexit._run_exitfuncs()
    os._exit(0)
