"""The command `ctx1 prune`, which shows what pruning removes from a saved conversation, why, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import DASH_VALUE, INPUT_FILE, OUTPUT_FILE, TEXT, CommonOptions
from context_agent.cli.prune_options import PruneOptions
from context_agent.cli.saved_conversation import read_conversation
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from rich.text import Text

    from context_agent.pruning.report import PruneReport, RemovedPassage

SHOWN = 12
"""Number of messages that the report lists without `--verbose`. They are the messages from which most was removed."""


def prune(
    file: Annotated[Path, INPUT_FILE],
    /,
    *,
    task: Annotated[str | None, TEXT, DASH_VALUE, Parameter(show_default="the last message of the user")] = None,
    pruning: PruneOptions = PruneOptions(),
    out: Annotated[Path | None, OUTPUT_FILE, Parameter(metavar="FILE.json")] = None,
    verbose: bool = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Prune a saved conversation and show what is removed.

      ctx1 prune conversation.json --budget 4000
      ctx1 prune request.json --budget 25% --out pruned.json

    --json prints the pruned messages and the report. The exit code is 1 if the list contains anything other than
    messages.

    Args:
        file: The conversation, or - for standard input: a list of messages, JSON Lines with a message per line, or an
            object that contains the messages, such as the body of a request, a saved state or a trace.
        task: What the agent is trying to do.
        out: Write the pruned conversation to this file.
        verbose: List every removed passage.
    """
    saved = read_conversation(file)
    pruned = pruning.open().prune(saved.bundle.messages, task)
    if out is not None:
        _write(out, saved.with_messages(pruned.messages))
    if common.json:
        output.print_json({"messages": pruned.messages, "report": pruned.report.to_json()})
    else:
        for line in _lines(pruned.report, verbose=verbose):
            output.stdout().print(line, soft_wrap=True)
    return 1 if pruned.report.outcome == "passed through" else 0


def _write(out: Path, text: str) -> None:
    from context_agent._support.atomic_files import replace_file

    # UTF-8 cannot encode a lone surrogate. The replacement is its escape in JSON.
    replace_file(out, text.encode("utf-8", "backslashreplace"))


def _lines(report: PruneReport, *, verbose: bool) -> Iterator[Text]:
    """Yield the lines of the report: what is removed from each message, then the gain and the cost of the prune."""
    from rich.text import Text

    by_message = [(message, list(rows)) for message, rows in groupby(report.removed, key=lambda item: item.message)]
    largest = sorted(by_message, key=lambda item: -sum(row.tokens for row in item[1]))[: None if verbose else SHOWN]
    shown = {message for message, _ in largest}
    for message, rows in by_message:
        if message in shown:
            tokens = sum(row.tokens for row in rows)
            yield Text(f"message {message}: {counted(len(rows), 'passage')} removed, {tokens:,} tokens", style="bold")
            yield from (_line(row) for row in (rows if verbose else rows[:1]))
    if hidden := len(report.removed) - (len(report.removed) if verbose else len(shown)):
        yield Text(f"{counted(hidden, 'more passage')} removed; --verbose lists them", style="dim")
    for warning in report.warnings:
        yield Text(f"warning: {output.one_line(warning)}", style="yellow")
    yield Text(f"{report.outcome}: {_sizes(report)}", style="bold")
    if report.freed:
        yield Text(
            f"{report.freed:,} tokens freed, worth {report.savings:,.0f} fresh input tokens in the turns to come; "
            f"{report.cached_lost:,} cached tokens read afresh, at the cost of {report.loss:,.0f}"
        )
    if report.protected:
        yield Text(f"passages that stay in any case: {output.counts(report.protected)}")


def _line(row: RemovedPassage) -> Text:
    from rich.text import Text

    reason = "" if row.reason.startswith("less") else f" ({row.reason})"
    line = Text.assemble((f"  - {row.id:<5}", "red"), f"{row.tokens:>6,} {row.score:>7.3f}  ")
    return line.append(f"{output.one_line(row.preview)}{reason}", style="dim")


def _sizes(report: PruneReport) -> str:
    if report.outcome == "passed through":
        return "the list contains entries that are not messages, so nothing was changed"
    if not report.tokens_original:
        return "the conversation has no tool results that can be pruned"
    sizes = f"{report.tokens_after:,} of {report.tokens_before:,} tokens of tool results remain"
    return f"{sizes}; {report.limit:,} may remain"
