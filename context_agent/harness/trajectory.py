"""The append-only record of an episode: a header, the events in their order, and replay.

The last event is an `EpisodeEnded`. Replay folds the events as the live episode did, so every view of a trajectory can
be reproduced byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from context_agent.budget import Budget
from context_agent.errors import TrajectoryError
from context_agent.harness.profile import Profile
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    EpisodeEnded,
    Event,
    ToolResult,
    TurnClosed,
    View,
    digest,
    fold,
)

TRAJECTORY_SCHEMA = 4
"""Version of the file format. No other version is read."""


@dataclass(frozen=True, slots=True)
class Header:
    """The settings that an episode started with. A header has the whole profile, so a replay needs no other file."""

    id: str
    question: str
    profile: Profile
    budget: Budget
    policy: str = ""
    corpus: str = ""
    counter: str = ""
    seed: int = 0
    question_id: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    started: str = ""
    """UTC time in ISO 8601."""
    where: dict[str, Any] | None = None
    """The metadata filter of every call."""
    parent: str | None = None
    """The id of the episode that started this one as a sub-agent."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of an episode: its header, and the events so far.

    The trajectory is complete if its last event is an `EpisodeEnded`.

    Example:
        >>> from context_agent import Document, MemoryCorpus, SearchAgent
        >>> corpus = MemoryCorpus([Document("light", "Orm Skerry Light was lit in 1868.")])
        >>> result = SearchAgent(corpus, effort="fast").search("When was Orm Skerry Light lit?")
        >>> trajectory = result.trajectories[0]
        >>> trajectory.verify()
        >>> trajectory.encountered
        ('light',)
    """

    header: Header
    events: tuple[Event, ...]

    @property
    def end(self) -> EpisodeEnded | None:
        """The closing event. If the trajectory is truncated, None."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, EpisodeEnded) else None

    @property
    def encountered(self) -> tuple[str, ...]:
        """Every document that was shown, pruned or not, in the order first shown.

        Trajectory recall is measured on these documents.
        """
        blocks = (s for e in self.events if isinstance(e, ToolResult) for s in e.segments if isinstance(s, Block))
        return tuple(dict.fromkeys(block.document_id for block in blocks))

    def replay(self) -> Iterator[tuple[Event, View]]:
        """Yield each event and the view after it.

        Raises:
            TrajectoryError: If the record is not sound.
        """
        view = self._opening()
        for event in self.events:
            view = _checked(view, event)
            yield event, view

    def views(self) -> Iterator[View]:
        """Yield the view before each action, then the final view.

        Raises:
            TrajectoryError: If the record is not sound.
        """
        view = self._opening()
        for event, after in self.replay():
            if isinstance(event, ActionTaken):
                yield view
            view = after
        yield view

    @property
    def critical_steps(self) -> int:
        """Actions that had to wait for each other, including the ranking and the actions of sub-agents.

        The trajectory records the steps of its sub-agents, so no other file is needed.
        """
        return critical_steps(self._stages())

    def _stages(self) -> Iterator[tuple[int, list[int]]]:
        """Yield a stage for each action: 1, and the steps of each sub-agent that its calls started."""
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
        return View(self.header.question, self.header.budget, tools=self.header.profile.tools)

    def verify(self) -> None:
        """Replay everything and compare the final view with the digest. A truncated trajectory has no digest.

        Raises:
            TrajectoryError: If the record is not sound, or the final view differs.
        """
        *_, final = self.views()
        if self.end is not None and digest(final) != self.end.digest:
            raise TrajectoryError(
                f"the replay of trajectory {self.header.id} ends with another view than the recorded one. Record the "
                "episode again."
            )

    def without_timestamps(self) -> Trajectory:
        """Return the same trajectory without clock readings and random ids.

        Equal decisions then give equal trajectories.
        """
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
    """Return the steps that had to wait for each other: the sum over stages of S_main + max_i S_sub,i (Kimi K2.5).

    A stage has the steps of the main agent, and those of each agent that ran in parallel. One agent alone is one stage
    without others. n rollouts in parallel are one stage without a main agent.
    """
    return sum(main + max(parallel, default=0) for main, parallel in stages)


def _checked(view: View, event: Event) -> View:
    try:
        after = fold(view, event)
    except KeyError as error:
        raise TrajectoryError(
            f"an edit names block {error}, which no result showed. Record the episode again."
        ) from None
    if isinstance(event, TurnClosed) and after.tokens != event.total:
        raise TrajectoryError(
            f"the replay of turn {event.turn} counts {after.tokens} tokens, but the record has {event.total}. Record "
            "the episode again."
        )
    return after
