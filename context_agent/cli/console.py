"""Where output goes: data on stdout, everything else on stderr; colours and moving parts on terminals only."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console


UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that show nothing of their own: controls, formats (bidirectional marks), separators."""
_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")


def stdout() -> Console:
    """The console for results."""
    return _console(stderr=False)


def stderr() -> Console:
    """The console for progress and notes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    # Off a terminal the width is fixed wide, so that a pipe gets whole lines.
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, emoji=False, width=None if stream.isatty() else 100)


def print_json(value: Any) -> None:
    """One line of JSON on stdout, at once; what could steer a terminal in it is escaped, as JSON allows."""
    click.echo(_BEYOND_ASCII.sub(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if unicodedata.category(match[0]) in UNSEEN else match[0]


def printable(text: str) -> str:
    """The text without what could steer the terminal it is shown on."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in UNSEEN)


def note(text: str) -> None:
    """A line on stderr."""
    click.echo(printable(text), err=True)


@contextmanager
def progress(title: str, unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on stderr where that is a terminal, else nothing. Gives a function of (done, of how many)."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=stderr(), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
