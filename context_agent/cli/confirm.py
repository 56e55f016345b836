"""The question on the terminal before a large prune, for `ctx1 proxy --confirm-above N`."""

from __future__ import annotations

import os
import select
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from context_agent.cli import output
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.pruning.report import PruneReport

CONFIRM_SECONDS = 20.0
"""Seconds to wait for an answer. Without one, the prune happens."""
SHOWN_PASSAGES = 3


class TerminalConfirmation:
    """A question on the terminal that asks whether a prune may happen. If the user does not answer in time, it may.

    Without a terminal, the prune is announced and happens. The announcement contains no text of the conversation.
    Threads may share the object.
    """

    def __init__(self, seconds: float = CONFIRM_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()

    def __call__(self, report: PruneReport) -> bool:
        """Return True if the prune of this report may happen."""
        with self._lock:
            messages = len({passage.message for passage in report.removed})
            output.note(
                f"a prune frees {report.freed:,} of {report.tokens_before:,} tokens of tool results "
                f"({counted(len(report.removed), 'passage')} of {counted(messages, 'message')})"
            )
            if not _can_ask():
                return True
            largest = sorted(report.removed, key=lambda passage: -passage.tokens)[:SHOWN_PASSAGES]
            for passage in largest:
                output.echo(f"  {passage.tokens:>8,} tokens  {output.one_line(passage.preview)}", err=True)
            output.echo(f"Prune? [Y/n] (yes in {self._seconds:g} s)", err=True)
            return not self._answer().strip().lower().startswith("n")

    def _answer(self) -> str:
        """Return the next line that the user types. If none is typed in time, return an empty string."""
        import termios

        # A line that was typed before the question does not answer it.
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        readable, _, _ = select.select([sys.stdin], [], [], self._seconds)
        return sys.stdin.readline() if readable else ""


def _can_ask() -> bool:
    """Return True if this process may read from a terminal. A process in the background would be stopped."""
    try:
        if not sys.stdin.isatty():
            return False
    except (AttributeError, ValueError):  # there is no standard input, or it is closed
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except AttributeError:  # Windows has no jobs, and cannot wait for a line
        return False
    except OSError:  # a terminal that controls nobody
        return True
