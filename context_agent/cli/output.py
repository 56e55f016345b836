"""The output of commands. Data goes to stdout, and everything else to stderr.

Colors and progress bars appear only on terminals.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from context_agent._support.strict_json import strict_json
from context_agent.cli.invocation import current_invocation
from context_agent.errors import single_stops
from context_agent.text.sentences import sentence_spans

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent.agent import SearchResult
    from context_agent.retrieval.loaders import LoadReport
    from context_agent.types import RankedDocument

UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of the characters that are not visible: controls, formats (such as bidirectional marks) and separators."""
PASSAGE = 320
"""Maximum length of a sentence in the ranking, in characters."""
MAX_WIDTH = 110
"""Maximum width of a passage, in columns."""
LISTED = 20
"""Maximum number of problems that are listed one by one."""
EXAMPLES = 3
"""Maximum number of files of a kind that are named."""
KINDS = 8
"""Maximum number of kinds of files that are named in one line."""
NOTHING_RELEVANT = "Nothing relevant found."
"""The line above the nearest documents if the evidence does not suffice."""
NO_RANKING_HINT = (
    "The model gave no valid ranking. Pass --save and read its replies with ctx1 view, or use a larger model. "
    "If the model knows no tool calls, pass --tools text."
)
"""The line below a search that a model ended without a ranking."""
_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")


def stdout() -> Console:
    """Return the console for results."""
    return _console(stderr=False)


def stderr() -> Console:
    """Return the console for progress and notes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    # Off a terminal the width is fixed wide, so that a pipe gets whole lines.
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, emoji=False, width=None if stream.isatty() else 100)


def print_json(value: Any) -> None:
    """Print a value on stdout as one line of JSON, at once.

    Characters that could steer a terminal are escaped. A number that is not finite is null.
    """
    _write(_BEYOND_ASCII.sub(_escaped, strict_json(value, ensure_ascii=False)) + "\n", sys.stdout)


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
    for line in _problem_lines(problems, unlisted):
        note(line)


def _problem_lines(problems: Sequence[object], unlisted: int = 0) -> Iterator[str]:
    listed = problems if len(problems) <= LISTED else _distinct(problems)
    for problem in listed[:LISTED]:
        yield one_line(str(problem))
    more = len(problems) - min(len(listed), LISTED) + unlisted
    if more:
        yield f"and {more:,} more"


def note_load_report(report: LoadReport, *, verbose: bool = False) -> None:
    """Print the lines of a report on stderr."""
    for line in report_lines(report, verbose=verbose):
        note(line)


def report_lines(report: LoadReport, *, verbose: bool = False) -> Iterator[str]:
    """Yield a line for each file with its own problem, and then a line for each kind of files that is not read.

    With `verbose`, add the first files of each kind.
    """
    yield from _problem_lines([notice for notice in report.notices if not notice.kind], report.unlisted)
    summaries = sorted(
        ((number, kind, reason) for kind, numbers in report.kinds.items() for reason, number in numbers.items()),
        key=lambda summary: (-summary[0], summary[1]),
    )
    for number, kind, reason in summaries[:LISTED]:
        files = (notice.source for notice in report.notices if (notice.kind, notice.reason) == (kind, reason))
        examples = f" ({', '.join(islice(files, EXAMPLES))}{' ...' if number > EXAMPLES else ''})" if verbose else ""
        yield one_line(f"{count(number, f'{kind} file')}: {reason}{examples}")
    if rest := summaries[LISTED:]:
        yield f"{count(sum(number for number, _, _ in rest), 'file')} of {len(rest)} more kinds; --json lists all"
    if report.ignored:
        yield one_line(report.ignored_text())


def files_line(report: LoadReport) -> str:
    """Return one line that says which kinds of files were read, and which were left out."""
    left_out = f" Left out: {_by_kind(report.files_left_out)}." if report.files_left_out else " None was left out."
    return one_line(f"Files read: {_by_kind(report.files_read)}.{left_out}")


def _by_kind(files: Mapping[str, int]) -> str:
    """Return the number of files, and the number of each of the most frequent kinds: `5 (3 .md, 2 .py)`."""
    ordered = sorted(files.items(), key=lambda kind: (-kind[1], kind[0]))
    named = [f"{number:,} {kind}" for kind, number in ordered[:KINDS]]
    if rest := ordered[KINDS:]:
        named.append(f"{sum(number for _, number in rest):,} of {count(len(rest), 'other kind')}")
    total = f"{sum(files.values()):,}"
    return f"{total} ({', '.join(named)})" if named else total


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


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 turn` or `2 turns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counts(numbers: Mapping[str, int]) -> str:
    """Return the numbers with their names, such as `3 short, 1 empty`. If there are none, return `none`."""
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items()) or "none"


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise `KeyboardInterrupt` in the block when SIGTERM arrives, as Python does for SIGINT.

    Outside the main thread, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


class Advance(Protocol):
    """A function that moves a progress bar."""

    def __call__(self, done: int, total: int | None, detail: str = "") -> None:
        """Show the number done, the total number if it is known, and a detail after the unit."""


@contextmanager
def progress(title: str, unit: str) -> Iterator[Advance]:
    """Yield a function that moves a progress bar on stderr. Without a terminal, it does nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total, detail="": None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(f"{unit}{{task.fields[detail]}}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=stderr(), transient=True) as bar:
        task = bar.add_task(title, total=None, detail="")
        yield lambda done, total, detail="": bar.update(task, completed=done, total=total, detail=detail)


def show_ranking(console: Console, result: SearchResult, seconds: float | None = None) -> None:
    """Print the ranked documents, each with its best sentence, and a line that says how the search ended."""
    from rich.text import Text

    from context_agent.harness.episode import StopReason
    from context_agent.text.highlights import best_sentences

    if result.sufficient is False:
        console.print(Text(NOTHING_RELEVANT + (" The nearest:" if result.documents else ""), style="yellow"))
    sentences = best_sentences(result.question, result.documents)
    for rank, (document, sentence) in enumerate(zip(result.documents, sentences, strict=True), start=1):
        _show_document(console, rank, document, "" if sentence is None else excerpt(sentence.text, result.question))
    console.print(Text(summary(result, seconds), style="dim"))
    if result.stop_reason == StopReason.NO_RANKING and not result.error:
        console.print(Text(NO_RANKING_HINT, style="yellow"), soft_wrap=True)
    if result.trajectory is not None:
        paths = ", ".join(str(path) for path in result.paths)
        console.print(Text(printable(f"trajectory: {paths}"), style="dim"), soft_wrap=True)
    if result.error:
        console.print(Text(f"error: {printable(result.error)}", style="red"), soft_wrap=True)


def summary(result: SearchResult, seconds: float | None = None) -> str:
    """Return one line with the reason for the end of the search, the turns, the tokens and any confidence.

    For a swarm, the line also gives the number of critical steps.
    """
    turns = count(result.turns, "turn")
    if result.searchers:
        turns += f" ({len(result.searchers)} sub-agents, {result.critical_steps} critical steps)"
    duration = "" if seconds is None else f", {seconds:.2f} s"
    confidence = "" if result.confidence is None else f", confidence {result.confidence:.2f}"
    return f"{result.stop_reason.replace('_', ' ')} after {turns}, {result.tokens:,} tokens{duration}{confidence}"


def _show_document(console: Console, rank: int, document: RankedDocument, sentence: str) -> None:
    from rich.text import Text

    line = Text.assemble((f"{rank:>2}. {one_line(document.title or document.id)}", "bold"))
    # The title of a definition in code begins with the file, as in `src/gate.py: SluiceGate.open`.
    if document.title and document.title != document.id and not document.title.startswith(f"{document.id}: "):
        line.append(f"  {one_line(document.id)}", style="dim")
    line.append(f"  {document.score:.3f}", style="dim")
    console.print(line)
    for row in wrapped(sentence, min(console.width, MAX_WIDTH) - 6) if sentence else ():
        console.print(Text(f"    {row}"))


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in rows of at most `width` columns.

    A wide character (Chinese, Japanese, Korean) takes two columns.
    """
    from rich.console import Console
    from rich.text import Text

    return [row.plain.rstrip() for row in Text(text).wrap(Console(width=width), width)]


def excerpt(text: str, question: str) -> str:
    """Return the part of a long text that contains most words of the question. It begins at the start of a sentence.

    If several parts have equally many words, return the first of them.
    """
    text = one_line(text)
    if len(text) <= PASSAGE:
        return text
    words = set(re.findall(r"\w{3,}", question.casefold()))
    starts = [0, *(start for start, _ in sentence_spans(text[: len(text) - PASSAGE // 2]))]
    best = max(starts, key=lambda start: _shared(words, text[start : start + PASSAGE]))
    cut = text[best : best + PASSAGE]
    if best + PASSAGE < len(text):
        cut = cut.rsplit(" ", 1)[0] + " …"
    return f"… {cut}" if best else cut


def _shared(words: set[str], text: str) -> int:
    return len(words.intersection(re.findall(r"\w{3,}", text.casefold())))
