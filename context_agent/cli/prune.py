"""`ctx1 prune`: what pruning would remove from a saved conversation, why, and at what cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from context_agent.cli import output
from context_agent.cli.command import FILE, INPUT, Argument, Json, Option, command
from context_agent.cli.options import PruneOptions
from context_agent.errors import DataError

if TYPE_CHECKING:
    from rich.text import Text

    from context_agent.pruning.pruner import PruneReport, RemovedPassage

CONVERSATION_KEYS = ("messages", "input")
"""Where the body of a request to a model has its messages."""


@command
def prune(
    file: Annotated[Path, Argument("FILE.json", INPUT)],
    *,
    task: Annotated[str | None, Option("What the agent works on.", default="the last message of the user")] = None,
    pruning: PruneOptions,
    out: Annotated[Path | None, Option("Write the pruned conversation to this file.", FILE, "FILE.json")] = None,
    as_json: Json,
) -> int:
    """Prune a saved conversation and show what goes.

      ctx1 prune conversation.json --budget 4000
      ctx1 prune request.json --task "Who directed Rope?" --out pruned.json

    FILE.json (- for standard input) has a list of messages, or the body of a request that holds one: OpenAI's chat
    messages or response items, or Anthropic's messages. --json prints the pruned messages and the report. The exit code
    is 1 if the conversation is broken, so that it is passed through.
    """
    body, key, messages = read_conversation(file)
    pruned = pruning.open().prune(messages, task)
    if out is not None:
        _write(out, {**body, key: pruned.messages} if key else pruned.messages)
    if as_json:
        output.print_json({"messages": pruned.messages, "report": pruned.report.to_json()})
    else:
        for line in _lines(pruned.report):
            output.stdout().print(line, soft_wrap=True)
    return 1 if pruned.report.outcome == "passed through" else 0


def read_conversation(file: Path) -> tuple[Any, str | None, list[Any]]:
    """The value in the file, the key in it that holds the messages, and the messages. Raises `DataError`."""
    body = _read(file)
    key = next((name for name in CONVERSATION_KEYS if isinstance(body, dict) and name in body), None)
    messages = body[key] if key else body
    if not isinstance(messages, list):
        raise DataError(f'{_name(file)} is neither a list of messages nor an object with "messages" or "input"')
    return body, key, messages


def _read(file: Path) -> Any:
    """The JSON value in the file. Raises `DataError`."""
    try:
        return json.loads(sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{_name(file)} is not JSON: {error}") from error


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _write(out: Path, value: Any) -> None:
    from context_agent._support.journal import replace_file

    replace_file(out, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def _lines(report: PruneReport) -> Iterator[Text]:
    """The report: what goes from each message, then both sides of the prune."""
    from rich.text import Text

    for message, passages in groupby(report.removed, key=lambda item: item.message):
        rows = list(passages)
        tokens = sum(row.tokens for row in rows)
        yield Text(f"message {message}: {output.count(len(rows), 'passage')} removed, {tokens:,} tokens", style="bold")
        yield from (_line(row) for row in rows)
    for warning in report.warnings:
        yield Text(f"warning: {output.one_line(warning)}", style="yellow")
    yield Text(f"{report.outcome}: {_sizes(report)}", style="bold")
    if report.freed:
        yield Text(
            f"saves {report.savings:,.0f} and costs {report.loss:,.0f} fresh input tokens: "
            f"{report.freed:,} tokens freed, {report.cached_lost:,} cached tokens read afresh"
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
        return "the conversation is broken, so nothing was changed"
    return f"{report.tokens_after:,} of {report.tokens_before:,} tokens of tool results remain"
