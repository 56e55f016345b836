"""A script `ctx1` that runs its command in a fork of a process that has already imported the package.

The installed `ctx1` spends a second of the processor on imports. This script has the same arguments, environment,
streams and exit code, and passes signals on. Four things need the installed one: killing `ctx1`, pressing Ctrl-C on a
terminal, looking at its process, and reading what its workers print.

`torchrun` starts each rank as `python -u -m context_agent.cli ARGUMENTS`, and the variable PYTHON_EXEC names another
program than `python`. The script may be that program. In a folder of its own, it is also `python`, for programs that
start `ctx1` as a module or look for it beside their Python. That folder must not be in PATH, since this `python` runs
nothing else.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from functools import cache
from multiprocessing import forkserver, resource_tracker
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from tests.support.fork_servers import ENVIRONMENT, MODELS, PROGRAMS, attach

LAUNCHER = """#!{python}
import os, sys
sys.path.insert(0, {root!r})
os.environ.setdefault({variable!r}, {folder!r})
from tests.support.forked_ctx1 import main
main()
"""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT)
MODULE = ["-m", "context_agent.cli"]


def forked_ctx1() -> str:
    """Return the path of the script. All test processes of a run share it."""
    return str(_scripts("bin", "ctx1") / "ctx1")


def forked_python() -> str:
    """Return the path of the script as `python`, which starts `ctx1` as a module. `ctx1` is beside it."""
    return str(_scripts("python", "ctx1", "python") / "python")


@cache
def _scripts(folder: str, *names: str) -> Path:
    """Return the folder with the script under each of the names."""
    shared, root = os.environ[ENVIRONMENT], str(Path(__file__).parents[2])
    text = LAUNCHER.format(python=sys.executable, root=root, variable=ENVIRONMENT, folder=shared)
    scripts = Path(shared, folder)
    scripts.mkdir(exist_ok=True)
    for name in names:
        complete = scripts / f"{name}.{os.getpid()}"
        complete.write_text(text, encoding="utf-8")
        complete.chmod(0o755)
        complete.replace(scripts / name)
    return scripts


class _Stream:
    """A standard stream of this process, which its fork gets."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self.number),)


def _received(stream: Any) -> int:
    number: int = stream.detach()
    return number


def main() -> None:
    """Run the command, and end as it ends."""
    from tests.support.forked_workers import ForkedContext

    arguments = sys.argv[1:]
    for start in (MODULE, ["-u", *MODULE]):
        if arguments[: len(start)] == start:
            del arguments[: len(start)]
    server = MODELS if arguments[:1] == ["train"] else PROGRAMS
    attach(forkserver._forkserver, server)
    # The fork runs no script, and shares no memory that a tracker would release.
    del sys.modules["__main__"].__file__
    resource_tracker._resource_tracker._fd = os.open(os.devnull, os.O_WRONLY)
    streams = [_Stream(number) for number in range(3)]
    process = ForkedContext().Process(target=_become, args=(streams, arguments, server))
    process.start()
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(process.pid, number))
    process.join()
    code = process.exitcode
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _become(streams: list[int], arguments: list[str], server: str) -> None:
    from context_agent._support import child_process
    from context_agent.cli.app import run
    from tests.support.forked_workers import ForkedContext

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # The streams of the server have found out that theirs are files.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", buffering=buffering)
        for number, (mode, buffering) in enumerate((("r", -1), ("w", -1), ("w", 1)))
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    # Workers of the command are forks, too.
    attach(forkserver._forkserver, server)
    child_process.get_context = lambda _: ForkedContext()
    sys.exit(run(arguments))
