"""The command line, `ctx1`: one module per command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `ctx1` with these arguments, and end the process with its exit code.

    By default, use the process's own arguments.
    """
    from context_agent.cli.app import run

    sys.exit(run(arguments))
