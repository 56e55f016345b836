"""A search as it happens: each turn's calls, what they brought, what was pruned, and how full the context is.

A turn is printed when it is over, so that the log scrolls like any other. On a terminal the running turn and the
filling of the context move below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from context_agent.agent import Progress
from context_agent.cli.console import printable
from context_agent.harness.tools import SPAWN
from context_agent.pruning.budget import Tier
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    Editable,
    EditApplied,
    EpisodeEnded,
    Event,
    SubAgentRecord,
    Summary,
    ToolResult,
    TurnClosed,
    View,
)

CELLS = 24
"""Width of the gauge that shows how full the context is."""
SHOWN = 4
"""Titles named after a call."""
NOTHING = "nothing new"
FEW = 2
"""Calls without a new passage that a turn names; of the others only the number is told."""
COLOURS = {Tier.OPEN: "green", Tier.SOFT: "yellow", Tier.HARD: "red"}
VERBS = {"search_corpus": "search", "grep_corpus": "grep", "read_document": "read", SPAWN: "spawn"}


class TurnLog:
    """Shows the events of one search; use with `with`, and `show` each event."""

    def __init__(self, console: Console, *, rollouts: int = 1) -> None:
        self._console = console
        self._numbered = rollouts > 1
        self._pending: defaultdict[int, list[Text]] = defaultdict(list)
        self._gauges: dict[int, Text] = {}
        self._live = Live(console=console, transient=True, refresh_per_second=12) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Adds an event."""
        lines = self._pending[progress.rollout]
        lines += _lines(progress.event, progress.view)
        self._gauges[progress.rollout] = gauge(progress.view)
        finished: list[Text] = []
        if isinstance(progress.event, TurnClosed | EpisodeEnded):
            finished = _shortened(lines)
            self._pending[progress.rollout] = []
        if self._live is not None:
            moving = [line for pending in self._pending.values() for line in pending]
            self._live.update(Group(*moving, *self._gauges.values()))
        self._print_turn(progress, finished)

    def _print_turn(self, progress: Progress, lines: list[Text]) -> None:
        name = "end"
        if isinstance(progress.event, TurnClosed):
            lines = [*lines, gauge(progress.view)]
            name = f"turn {progress.event.turn + 1}"
        if self._numbered:
            name = f"#{progress.rollout + 1} {name}"
        for number, line in enumerate(lines):
            head = (f"{name if number == 0 else '':<10}", "bold")
            self._console.print(Text.assemble(head, line), no_wrap=True, overflow="ellipsis")


def gauge(view: View) -> Text:
    """How much of the window the view fills."""
    filled = min(CELLS, -(-view.tokens * CELLS // view.budget.window))
    line = Text.assemble(("context ", "dim"))
    line.append("█" * filled, style=COLOURS[view.tier])
    line.append("░" * (CELLS - filled), style="dim")
    line.append(f" {view.tokens:,} of {view.budget.window:,} tokens", style="dim")
    return line


def _lines(event: Event, view: View) -> list[Text]:
    match event:
        case ToolResult():
            return [_call(event), *map(_searcher, event.delegated)] if event.mistake or event.name in VERBS else []
        case EditApplied():
            return _edits(event, view)
        case ActionTaken(action=action) if not action.calls:
            return []
        case EpisodeEnded():
            return [_end(event)]
    return []


def _shortened(lines: list[Text]) -> list[Text]:
    """The lines of a turn, all but the first few calls that brought nothing put together."""
    barren = [line for line in lines if line.plain.endswith(NOTHING)][FEW:]
    if not barren:
        return lines
    more = Text.assemble((f"        and {_count(len(barren), 'more call')} that brought nothing new", "dim"))
    return [*(line for line in lines if line not in barren), more]


def _call(event: ToolResult) -> Text:
    line = Text.assemble((f"{VERBS.get(event.name, printable(event.name)):<8}", "cyan"))
    line.append(_argument(event.arguments))
    if event.mistake:
        return line.append(f"  {event.mistake.replace('_', ' ')}", style="red")
    blocks = [segment for segment in event.segments if isinstance(segment, Block)]
    if not blocks:
        return line.append(f"  {NOTHING}", style="dim")
    return line.append(f"  {len(blocks)} new: {_titles(blocks)}", style="dim")


def _searcher(one: SubAgentRecord) -> Text:
    """A sub-agent on one line: its task, and what it came to."""
    line = Text.assemble(("  └ ", "dim"), _argument({"task": one.task}))
    line.append(f"  {_count(one.documents, 'document')}, {_count(one.steps, 'step')}", style="dim")
    failed = one.error or (one.stop_reason.replace("_", " ") if not one.documents else "")
    return line.append(f"  {printable(failed)}", style="red") if failed else line


def _argument(arguments: dict[str, object]) -> str:
    values = [value for value in arguments.values() if isinstance(value, str)]
    values += [f"{_count(len(value), 'task')}" for value in arguments.values() if isinstance(value, list)]
    text = printable(" ".join(values[0].split())) if values else ""
    return text if len(text) <= 48 else text[:47] + "…"


def _edits(event: EditApplied, view: View) -> list[Text]:
    by_key = view.by_key()
    lines = []
    edit = event.edit
    for verb, keys in (("prune", edit.pruned), ("summary", edit.replaced), ("restore", edit.restored)):
        passages = [by_key[key] for key in keys]
        if passages:
            line = Text.assemble((f"{verb:<8}", "magenta"))
            line.append(_count(len(passages), "passage"))
            lines.append(line.append(f"  {_titles(passages)}", style="dim"))
    cost = f"        {event.cost.freed:,} tokens freed; {event.cost.recomputed:,} behind them lose their cached prefix"
    return [*lines, Text.assemble((cost, "dim"))]


def _end(event: EpisodeEnded) -> Text:
    reason = event.stop_reason.replace("_", " ")
    line = Text.assemble((f"{reason}: ", "bold" if event.stop_reason == "finished" else "yellow"))
    return line.append(f"{_count(len(event.documents), 'document')} ranked")


def _titles(passages: Sequence[Editable]) -> str:
    names = list(dict.fromkeys(map(_name, passages)))
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return printable(", ".join(" ".join(name.split()) for name in names[:SHOWN])) + more


def _name(passage: Editable) -> str:
    return passage.id if isinstance(passage, Summary) else passage.hit.chunk.title or passage.document_id


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
