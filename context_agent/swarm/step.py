"""Sub-agents in step: their turns take place in the order of their tasks, so that none shows what another has shown."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from context_agent.harness.policy import Actor
from context_agent.harness.trajectory import Event, ToolResult
from context_agent.pruning.view import Block, View
from context_agent.types import Action


@dataclass(slots=True)
class Step:
    """The order of turns of some sub-agents, and what they and the orchestrator have shown.

    They decide at the same time, and then act one after the other: the n-th turn of a sub-agent comes when those before
    it have had theirs, and those behind it the turn before that. So the trace does not depend on who is quick.
    """

    shown: set[str]
    _done: list[float] = field(default_factory=list)
    """Turns that each has had; infinitely many for one that has ended."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def join(self) -> int:
        """The place of one more sub-agent."""
        self._done.append(0)
        return len(self._done) - 1

    async def wait(self, place: int) -> None:
        """Until its next turn may take place."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._free(place))

    async def had(self, place: int, turns: float = math.inf) -> None:
        """It has had that many turns; by default it has ended."""
        async with self._changed:
            self._done[place] = turns
            self._changed.notify_all()

    def _free(self, place: int) -> bool:
        turn = self._done[place]
        before, behind = self._done[:place], self._done[place + 1 :]
        return all(other > turn for other in before) and all(other >= turn for other in behind)

    def see(self, event: Event, view: View) -> None:
        """Takes note of the blocks that an event showed: a listener of the sub-agents' episodes."""
        if isinstance(event, ToolResult):
            self.shown.update(segment.id for segment in event.segments if isinstance(segment, Block))


class InStep:
    """An actor whose actions wait for their place in the order."""

    def __init__(self, inner: Actor, step: Step, place: int) -> None:
        self._inner, self._step, self._place = inner, step, place

    async def act(self, view: View) -> Action:
        """The inner action, once it is its turn."""
        await self._step.had(self._place, view.turn)
        action = await self._inner.act(view)
        await self._step.wait(self._place)
        return action
