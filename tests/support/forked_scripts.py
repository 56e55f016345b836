"""Scripts whose work is done by a fork of a process that has already imported packages.

A script has the arguments, environment, streams and exit code of a program, and passes signals on to its fork.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, NoReturn

from tests.support.fork_servers import ENVIRONMENT, attach

LAUNCHER = """#!{python}
import os, sys
sys.path.insert(0, {root!r})
os.environ.setdefault({variable!r}, {folder!r})
from {module} import main
main()
"""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT)


def written_scripts(folder: str, module: str, *names: str) -> Path:
    """Return the folder with a script under each of the names, which calls the function `main` of the module.

    All test processes of a run share it.
    """
    shared, root = os.environ[ENVIRONMENT], str(Path(__file__).parents[2])
    text = LAUNCHER.format(python=sys.executable, root=root, variable=ENVIRONMENT, folder=shared, module=module)
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


def run_in_fork(server: str, target: Callable[..., object], *arguments: Any) -> NoReturn:
    """Call the function in a fork of the server, and end as the fork ends."""
    from tests.support.forked_workers import ForkedContext

    attach(forkserver._forkserver, server)
    # The fork runs no script, and shares no memory that a tracker would release.
    del sys.modules["__main__"].__file__
    resource_tracker._resource_tracker._fd = os.open(os.devnull, os.O_WRONLY)
    streams = [_Stream(number) for number in range(3)]
    process = ForkedContext().Process(target=_become, args=(streams, target, arguments))
    process.start()
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(process.pid, number))
    process.join()
    code = process.exitcode
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _become(streams: list[int], target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # The streams of the server have found out that theirs are files.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", buffering=buffering)
        for number, (mode, buffering) in enumerate((("r", -1), ("w", -1), ("w", 1)))
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    target(*arguments)
