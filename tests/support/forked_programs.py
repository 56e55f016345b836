"""Python files that run as programs, in forks of a process that has already imported the package."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

import pytest

from tests.support.forked_workers import ForkedContext, fork_workers

PATIENCE = 120
"""Seconds that a program may take on a busy machine before its test fails."""


def run_program(path: Path, *arguments: str) -> CompletedProcess[str]:
    """Run `python PATH ARGUMENTS`. The process has its own arguments, streams and exit code."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        fork_workers(patch)
        streams = [Path(folder, name) for name in ("stdout", "stderr")]
        process = ForkedContext().Process(target=_run, args=(str(path), arguments, streams))
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            pytest.fail(f"{path.name} has not ended after {PATIENCE} seconds: {streams[1].read_text()}")
        stdout, stderr = (stream.read_text(encoding="utf-8") for stream in streams)
        return CompletedProcess([str(path), *arguments], process.exitcode, stdout, stderr)


def _run(path: str, arguments: tuple[str, ...], streams: list[Path]) -> None:
    for descriptor, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")
