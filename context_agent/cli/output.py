"""The output of commands. Data goes to stdout, and everything else to stderr.

Colors and progress bars appear only on terminals. Elsewhere, long work prints a line about its progress now and then.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from context_agent._support.strict_json import strict_json
from context_agent.cli.invocation import current_invocation
from context_agent.errors import single_stops

if TYPE_CHECKING:
    from rich.console import Console


UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of the characters that are not visible: controls, formats (such as bidirectional marks) and separators."""
MAX_LISTED = 20
"""Maximum number of problems that are listed one by one."""
LOG_SECONDS = 60.0
"""Minimum number of seconds between two lines about the progress of work, if there is no terminal."""
_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")


def stdout() -> Console:
    """Return the console for results."""
    return _console(stderr=False)


def stderr() -> Console:
    """Return the console for progress and notes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    # Off a terminal the width is fixed wide, so that a pipe gets whole lines. Brackets in a name are no markup.
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=None if stream.isatty() else 100)


def print_json(value: Any) -> None:
    """Print a value on stdout as one line of JSON, at once.

    Characters that could steer a terminal are escaped. If the encoding of stdout is not UTF-8, all characters beyond
    ASCII are escaped. A number that is not finite is null.
    """
    ascii_only = codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8"
    _write(_BEYOND_ASCII.sub(_escaped, strict_json(value, ensure_ascii=ascii_only)) + "\n", sys.stdout)


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if unicodedata.category(match[0]) in UNSEEN else match[0]


def echo(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print lines on stdout, or on stderr."""
    _write(printable(text) + end, sys.stderr if err else sys.stdout)


def _write(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()


def note(text: str) -> None:
    """Print a line on stderr that begins with the command's name."""
    invocation = current_invocation()
    echo(f"{invocation.path if invocation else 'ctx1'}: {single_stops(text)}", err=True)


def note_problems(problems: Sequence[object], unlisted: int = 0) -> None:
    """Print notes about input that could not be read. `unlisted` is the number of problems that are only counted.

    If there are too many problems, only the first one of those with the same reason is listed.
    """
    for line in problem_lines(problems, unlisted):
        note(line)


def note_failure(failure: str) -> None:
    """Print the error of the first input that failed, if one did."""
    if failure:
        note(
            one_line(
                f"the first input that failed: {failure.rstrip('.')}. To try the failed inputs again, run the "
                "same command."
            )
        )


def problem_lines(problems: Sequence[object], unlisted: int = 0) -> Iterator[str]:
    """Yield a line for each problem, as `note_problems` prints them."""
    listed = problems if len(problems) <= MAX_LISTED else _distinct(problems)
    for problem in listed[:MAX_LISTED]:
        yield one_line(str(problem))
    more = len(problems) - min(len(listed), MAX_LISTED) + unlisted
    if more:
        yield f"and {more:,} more"


def _distinct(problems: Sequence[object]) -> list[object]:
    """Return the first problem for each reason. If a problem has no `reason`, it is listed by itself."""
    return list({getattr(problem, "reason", problem): problem for problem in reversed(problems)}.values())[::-1]


def result(data: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result of a command on stdout, as JSON or as text."""
    if as_json:
        print_json(data)
    else:
        echo(text)


def printable(text: str) -> str:
    """Return the text without the characters that could steer a terminal."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in UNSEEN)


def one_line(text: str) -> str:
    """Return the printable text with single spaces."""
    return printable(" ".join(text.split()))


def one_field(text: str) -> str:
    """Return the printable text with spaces in place of tabs and line breaks, so that programs can split the output."""
    return printable(text).replace("\n", " ").replace("\t", " ")


def counts(numbers: Mapping[str, int]) -> str:
    """Return the numbers with their names, such as `3 short, 1 empty`. If there are none, return `none`."""
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items()) or "none"


class Advance(Protocol):
    """A function that shows the progress of work."""

    def __call__(self, done: int, total: int | None, detail: str = "") -> None:
        """Show the number done, the total number if it is known, and a detail after the unit."""


@contextmanager
def progress(title: str, unit: str) -> Iterator[Advance]:
    """Yield a function that moves a progress bar on stderr. Without a terminal, it prints a line now and then."""
    if not sys.stderr.isatty():
        yield _logged(title, unit)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    described = TextColumn("{task.description}", markup=False)
    counted = TextColumn(f"{unit}{{task.fields[detail]}}", markup=False)
    columns = (described, BarColumn(), MofNCompleteColumn(), counted)
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=stderr(), transient=True) as bar:
        task = bar.add_task(one_line(title), total=None, detail="")
        yield lambda done, total, detail="": bar.update(task, completed=done, total=total, detail=detail)


def _logged(title: str, unit: str) -> Advance:
    """Return a function that prints a line about the progress, unless it printed one in the last `LOG_SECONDS`."""
    began = last = time.monotonic()

    def advance(done: int, total: int | None, detail: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LOG_SECONDS:
            last = now
            numbers = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            with suppress(OSError):  # a full log is no reason to end the work
                note(one_line(f"{title}: {numbers} {unit}{detail}, after {now - began:.0f} s"))

    return advance
