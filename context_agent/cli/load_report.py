"""The report on sources that were read, as text: unreadable files, and the kinds of files that were left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from context_agent.cli.output import MAX_LISTED, note, one_line, problem_lines
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.retrieval.loaders import LoadReport


EXAMPLES = 3
"""Maximum number of files of a kind that are named."""
KINDS = 8
"""Maximum number of kinds of files that are named in one line."""


def note_load_report(report: LoadReport, *, verbose: bool = False) -> None:
    """Print the lines of a report on stderr."""
    for line in report_lines(report, verbose=verbose):
        note(line)


def report_lines(report: LoadReport, *, verbose: bool = False) -> Iterator[str]:
    """Yield a line for each file with its own problem, and then a line for each kind of files that is not read.

    Problems that lost text come first, because only a few lines are listed. With `verbose`, add the first files of each
    kind.
    """
    problems = sorted((notice for notice in report.notices if not notice.kind), key=lambda notice: not notice.lost)
    yield from problem_lines(problems, report.unlisted)
    summaries = sorted(
        ((number, kind, reason) for kind, numbers in report.kinds.items() for reason, number in numbers.items()),
        key=lambda summary: (-summary[0], summary[1]),
    )
    for number, kind, reason in summaries[:MAX_LISTED]:
        files = (notice.source for notice in report.notices if (notice.kind, notice.reason) == (kind, reason))
        examples = f" ({', '.join(islice(files, EXAMPLES))}{' ...' if number > EXAMPLES else ''})" if verbose else ""
        yield one_line(f"{counted(number, f'{kind} file')}: {reason}{examples}")
    if rest := summaries[MAX_LISTED:]:
        yield f"{counted(sum(number for number, _, _ in rest), 'file')} of {len(rest)} more kinds; --json lists all"
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
        named.append(f"{sum(number for _, number in rest):,} of {counted(len(rest), 'other kind')}")
    total = f"{sum(files.values()):,}"
    return f"{total} ({', '.join(named)})" if named else total
