"""The command line, `ctx1`: one module per command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""The exit code of a command that the user interrupted."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `ctx1` with these arguments, and end the process with its exit code.

    By default, use the process's own arguments.
    """
    try:
        from context_agent.cli.app import run

        code = run(arguments)
    except KeyboardInterrupt:
        # It came while modules were imported. `run` handles a later one, with the same exit code.
        code = INTERRUPTED
    sys.exit(code)
