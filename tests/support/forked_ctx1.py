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
import sys
from functools import cache
from multiprocessing import forkserver

from tests.support.fork_servers import MODELS, PROGRAMS, attach
from tests.support.forked_scripts import run_in_fork, written_scripts

MODULE = ["-m", "context_agent.cli"]


@cache
def forked_ctx1() -> str:
    """Return the path of the script. All test processes of a run share it."""
    return str(written_scripts("bin", __name__, "ctx1") / "ctx1")


@cache
def forked_python() -> str:
    """Return the path of the script as `python`, which starts `ctx1` as a module. `ctx1` is beside it."""
    return str(written_scripts("python", __name__, "ctx1", "python") / "python")


def main() -> None:
    """Run the command, and end as it ends."""
    arguments = sys.argv[1:]
    for start in (MODULE, ["-u", *MODULE]):
        if arguments[: len(start)] == start:
            del arguments[: len(start)]
    server = MODELS if arguments[:1] == ["train"] else PROGRAMS
    run_in_fork(server, _run, arguments, server)


def _run(arguments: list[str], server: str) -> None:
    from context_agent._support import child_process
    from context_agent.cli.app import run
    from tests.support.forked_workers import ForkedContext

    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    # Workers of the command are forks, too.
    attach(forkserver._forkserver, server)
    child_process.get_context = lambda _: ForkedContext()
    sys.exit(run(arguments))
