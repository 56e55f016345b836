"""The append-only record of an episode: a header, events in the order they happened, and replay.

The last event is an `EpisodeEnded`. `fold` turns an event into the next view, in the live episode and in replay, so
every view of a trajectory can be reproduced byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from context_agent.errors import TrajectoryError
from context_agent.pruning import edits
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import Block, Role, Text, View
from context_agent.types import Action, RankedDocument

SCHEMA = 2
"""Version of the file format; a reader refuses a newer one."""
WITHOUT_SUMMARIES = 1
"""The version before there were summaries. An episode whose profile has none is still written as this one."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an episode started from. `profile` is the whole profile, so that a replay needs nothing else."""

    id: str
    question: str
    profile: dict[str, Any]
    budget: Budget
    policy: str = ""
    corpus: str = ""
    counter: str = ""
    seed: int = 0
    question_id: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    started: str = ""
    """UTC time, ISO 8601."""
    where: dict[str, Any] | None = None
    """The metadata filter that every call was under."""
    parent: str | None = None
    """Of a sub-agent's episode: the id of the one that started it."""


@dataclass(frozen=True, slots=True)
class SubAgentRecord:
    """A sub-agent as the episode that started it knows it. `id` is its trajectory's, empty where none was begun.

    `documents` is how many it ranked, `steps` how many actions it took, `tokens` what was placed in its own context.
    """

    id: str
    task: str
    stop_reason: str
    documents: int = 0
    steps: int = 0
    tokens: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PromptShown:
    """The first view: instructions and question."""

    segments: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class ActionTaken:
    """What the policy answered. `shown` is False where the action was too long for the view and ended the episode."""

    turn: int
    action: Action
    text: str
    tokens: int
    shown: bool = True
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EditApplied:
    """The net edit of a turn, with the summaries that it added, and its bill, in tokens."""

    turn: int
    edit: edits.Edit
    cost: edits.EditCost


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call. `mistake` names what the policy did wrong, None for a good call.

    `delegated` are the sub-agents that the call started, in the order of their tasks.
    """

    turn: int
    call: int
    name: str
    arguments: dict[str, Any]
    segments: tuple[Text | Block, ...]
    mistake: str | None = None
    seconds: float = 0.0
    delegated: tuple[SubAgentRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """The usage line that closes a turn; `total` is the size of the view in tokens, the line included."""

    turn: int
    segment: Text
    total: int


@dataclass(frozen=True, slots=True)
class EpisodeEnded:
    """How it ended. `digest` is the SHA-256 of the final view; `dropped` counts ids the ranking could not stand on."""

    stop_reason: str
    documents: tuple[RankedDocument, ...]
    turns: int
    tokens: int
    digest: str
    dropped: dict[str, int] = field(default_factory=dict)
    mistakes: int = 0
    error: str | None = None
    seconds: float = 0.0


Event = PromptShown | ActionTaken | EditApplied | ToolResult | TurnClosed | EpisodeEnded


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A header and the events so far. Complete when the last event is an `EpisodeEnded`."""

    header: Header
    events: tuple[Event, ...]

    @property
    def end(self) -> EpisodeEnded | None:
        """The closing event, None for a trajectory that was cut."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, EpisodeEnded) else None

    @property
    def encountered(self) -> tuple[str, ...]:
        """Every document shown, pruned or not, in the order first shown: what trajectory recall is measured on."""
        blocks = (s for e in self.events if isinstance(e, ToolResult) for s in e.segments if isinstance(s, Block))
        return tuple(dict.fromkeys(block.document_id for block in blocks))

    def replay(self) -> Iterator[tuple[Event, View]]:
        """Each event and the view after it. Raises `TrajectoryError` where the record is not sound."""
        view = self._opening()
        for event in self.events:
            view = _checked(view, event)
            yield event, view

    def views(self) -> Iterator[View]:
        """The view before each action, then the final one. Raises `TrajectoryError` where the record is not sound."""
        view = self._opening()
        for event, after in self.replay():
            if isinstance(event, ActionTaken):
                yield view
            view = after
        yield view

    @property
    def critical_steps(self) -> int:
        """Actions that had to wait for each other, the ranking and those of sub-agents included.

        It needs this trajectory alone: what its sub-agents took is recorded in it.
        """
        return critical_steps(self._stages())

    def _stages(self) -> Iterator[tuple[int, list[int]]]:
        """A stage for each action: 1, and the steps of each sub-agent that its calls started."""
        parallel: list[int] | None = None
        for event in self.events:
            if isinstance(event, ActionTaken):
                if parallel is not None:
                    yield 1, parallel
                parallel = []
            elif isinstance(event, ToolResult) and parallel is not None:
                parallel += [sub_agent.steps for sub_agent in event.delegated]
        if parallel is not None:
            yield 1, parallel

    def _opening(self) -> View:
        return View(self.header.question, self.header.budget, tools=tuple(self.header.profile["tools"]))

    def verify(self) -> None:
        """Replays everything and compares the final view with the digest. Raises `TrajectoryError`."""
        *_, final = self.views()
        if self.end is not None and digest(final) != self.end.digest:
            raise TrajectoryError(f"trajectory {self.header.id}: the replayed final view differs from the recorded one")

    def without_timestamps(self) -> Trajectory:
        """The same trajectory without clock readings and random ids: equal for equal decisions."""
        parent = None if self.header.parent is None else ""
        return Trajectory(replace(self.header, id="", started="", parent=parent), tuple(map(_timeless, self.events)))


def _timeless(event: Event) -> Event:
    match event:
        case ToolResult():
            return replace(
                event, seconds=0.0, delegated=tuple(replace(sub_agent, id="") for sub_agent in event.delegated)
            )
        case ActionTaken() | EpisodeEnded():
            return replace(event, seconds=0.0)
    return event


def critical_steps(stages: Iterable[tuple[int, Sequence[int]]]) -> int:
    """The steps that had to wait for each other: the sum over stages of S_main + max_i S_sub,i (Kimi K2.5).

    A stage is the steps of the main agent and those of each agent that ran beside the others. One agent alone is one
    stage without others; n rollouts in parallel are one stage without a main agent.
    """
    return sum(main + max(parallel, default=0) for main, parallel in stages)


def fold(view: View, event: Event) -> View:
    """The view after an event."""
    match event:
        case PromptShown(segments=segments):
            return view.append(segments)
        case ActionTaken(shown=True):
            text = Text(Role.ACTION, event.text, event.tokens, event.turn, action=event.action)
            return view.append([text])
        case EditApplied(edit=edit):
            return edits.apply(view, edit)
        case ToolResult(segments=segments):
            return view.append(segments)
        case TurnClosed(segment=segment):
            return view.append([segment]).next_turn()
    return view


def digest(view: View) -> str:
    """SHA-256 of the view's text, in hexadecimal."""
    return hashlib.sha256(view.text().encode("utf-8", "surrogatepass")).hexdigest()


def _checked(view: View, event: Event) -> View:
    try:
        after = fold(view, event)
    except KeyError as error:
        raise TrajectoryError(f"an edit names block {error}, which no result showed") from None
    if isinstance(event, TurnClosed) and after.tokens != event.total:
        raise TrajectoryError(f"turn {event.turn}: replay counts {after.tokens} tokens, the record says {event.total}")
    return after
