"""Python programs in forks of a process that has already imported their packages.

Each program has a process and a session of its own, with its own arguments, streams and exit code.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

import pytest

from context_agent._support import child_process
from tests.support.fork_servers import MODELS, PROGRAMS, attach
from tests.support.forked_workers import ForkedContext, ForkedProcess, fork_workers

PATIENCE = 120
"""Seconds that a program may take on a busy machine before its test fails."""
TRAINING_PATIENCE = 400
"""The same for a program that trains. It takes some twenty."""


@dataclass(frozen=True, slots=True)
class ForkedProgram:
    """A program, its arguments, and the fork server that starts it.

    Attributes:
        run: What runs the program, by its name.
        name: The file or the module of the program.
        arguments: The arguments of the program.
        server: The fork server.
        folder: The working directory. Defaults to that of the tests.
        python: The Python that the program starts `ctx1` with. Defaults to that of the tests.
    """

    run: Callable[[str], object]
    name: str
    arguments: tuple[str, ...]
    server: str = PROGRAMS
    folder: Path | None = None
    python: str | None = None

    def start(self, stdout: Path, stderr: Path) -> ForkedProcess:
        """Start the program, which appends its output and its errors to the files."""
        process = ForkedContext().Process(target=self._become, args=(stdout, stderr))
        with pytest.MonkeyPatch.context() as patch:
            fork_workers(patch, self.server)
            process.start()
        return process

    def completed(
        self, seconds: float = PATIENCE, at_timeout: Callable[[int], object] | None = None
    ) -> CompletedProcess[str]:
        """Run the program to its end. If it has not ended in time, `at_timeout` gets its process id before it ends."""
        with TemporaryDirectory() as folder:
            stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
            process = self.start(stdout, stderr)
            process.join(seconds)
            if process.exitcode is None:
                if at_timeout is not None and process.pid is not None:
                    at_timeout(process.pid)
                    process.join(10)
                process.kill()
                process.join()
                pytest.fail(f"{self.name} has not ended after {seconds} seconds: {stderr.read_text()}")
            texts = (stream.read_text(encoding="utf-8") for stream in (stdout, stderr))
            return CompletedProcess([self.name, *self.arguments], process.exitcode, *texts)

    def _become(self, *streams: Path) -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor, stream in enumerate(streams, start=1):
            os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
        if self.folder is not None:
            os.chdir(self.folder)
        sys.argv = [self.name, *self.arguments]
        sys.executable = self.python or sys.executable
        # A fork server of the program and its workers would import everything again.
        attach(forkserver._forkserver, self.server)
        child_process.get_context = lambda _: ForkedContext()  # type: ignore[assignment]
        self.run(self.name)


def run_program(path: Path, *arguments: str, folder: Path | None = None) -> CompletedProcess[str]:
    """Run `python PATH ARGUMENTS`."""
    return ForkedProgram(run_path, str(path), arguments, folder=folder).completed()


def run_module(
    name: str, *arguments: str, folder: Path | None = None, at_timeout: Callable[[int], object] | None = None
) -> CompletedProcess[str]:
    """Run `python -m NAME ARGUMENTS`, with what trains models imported."""
    program = ForkedProgram(_run_module, name, arguments, MODELS, folder)
    return program.completed(TRAINING_PATIENCE, at_timeout)


def run_path(path: str) -> None:
    """Run a file as `python FILE` does."""
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def _run_module(name: str) -> None:
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_main(name: str) -> None:
    """Call the function `main` of a module, as the start script of a package does."""
    sys.exit(import_module(name).main())
