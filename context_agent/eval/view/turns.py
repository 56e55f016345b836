"""A trajectory's events turn by turn, and each turn as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from context_agent.harness.rendering import compact
from context_agent.harness.trajectory import ActionTaken, EditApplied, ToolResult, Trajectory, TurnClosed
from context_agent.pruning.view import Block, Summary


@dataclass(slots=True)
class Turn:
    """The events of one turn."""

    acted: ActionTaken
    edit: EditApplied | None = None
    results: list[ToolResult] = field(default_factory=list)
    usage: TurnClosed | None = None


def turns_of(trajectory: Trajectory) -> Iterator[Turn]:
    """The turns in order; the last one may lack what a cut file lost."""
    turn: Turn | None = None
    for event in trajectory.events:
        match event:
            case ActionTaken():
                if turn is not None:
                    yield turn
                turn = Turn(event)
            case EditApplied() if turn is not None:
                turn.edit = event
            case ToolResult() if turn is not None:
                turn.results.append(event)
            case TurnClosed() if turn is not None:
                turn.usage = event
    if turn is not None:
        yield turn


def blocks_of(trajectory: Trajectory) -> Iterator[Block]:
    """Every block that was shown."""
    for event in trajectory.events:
        if isinstance(event, ToolResult):
            yield from (segment for segment in event.segments if isinstance(segment, Block))


def summaries_of(trajectory: Trajectory) -> Iterator[Summary]:
    """Every summary that was made."""
    for event in trajectory.events:
        if isinstance(event, EditApplied):
            yield from event.edit.summaries


def turn_data(turn: Turn) -> dict[str, Any]:
    """A turn in the shape of `shape.TurnData`."""
    acted, edit, usage = turn.acted, turn.edit, turn.usage
    return {
        "turn": acted.turn,
        "tokens": acted.tokens,
        "seconds": finite(acted.seconds),
        "shown": acted.shown,
        "text": acted.action.text,
        "reasoning": acted.action.reasoning,
        "edit": edit
        and {
            "pruned": list(edit.edit.pruned),
            "replaced": list(edit.edit.replaced),
            "summaries": [summary.key for summary in edit.edit.summaries],
            "restored": list(edit.edit.restored),
            "freed": edit.cost.freed,
            "recomputed": edit.cost.recomputed,
        },
        "results": [_result(result) for result in turn.results],
        "usage": usage and {"tokens": usage.segment.tokens, "text": usage.segment.text, "total": usage.total},
    }


def _result(result: ToolResult) -> dict[str, Any]:
    arguments = [(name, value) for name, value in result.arguments.items() if value is not None]
    return {
        "call": result.call,
        "name": result.name,
        "arguments": [(name, value if isinstance(value, str) else compact(value)) for name, value in arguments],
        "mistake": result.mistake,
        "seconds": finite(result.seconds),
        "segments": [s.key if isinstance(s, Block) else {"tokens": s.tokens, "text": s.text} for s in result.segments],
        "delegated": [asdict(one) for one in result.delegated],
    }


def placed(turn: Turn) -> int:
    """Tokens that a turn placed in the context."""
    results = sum(segment.tokens for result in turn.results for segment in result.segments)
    summaries = sum(summary.tokens for summary in turn.edit.edit.summaries) if turn.edit else 0
    return turn.acted.tokens + results + summaries + (turn.usage.segment.tokens if turn.usage else 0)


def finite(value: float | None) -> float | None:
    """A number that JSON has; files may hold others."""
    return value if value is not None and math.isfinite(value) else None
