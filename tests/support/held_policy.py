"""A policy that waits where a test needs it to wait, so that no test guesses how long a search takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from context_agent import Action, ScriptedPolicy, View
from context_agent.policies.scripted import ScriptedActor, Step
from context_agent.testing.actions import search


class HeldPolicy(ScriptedPolicy):
    """Plays its steps, and waits before one of them until the test releases it. Other steps come at once.

    Attributes:
        waits: Set when as many `episodes` wait.
        released: Set by the test. A search whose time is limited may be left waiting.
    """

    def __init__(
        self, steps: Sequence[Step] = (search("comets", limit=5),), *, at: int, episodes: int = 1, **options: Any
    ) -> None:
        super().__init__(steps, **options)
        self._at, self._expected = at, episodes
        self.waits, self.released = threading.Event(), threading.Event()

    def arrive(self) -> None:
        """Count an episode that waits."""
        self._expected -= 1
        if self._expected <= 0:
            self.waits.set()

    def open(self, *arguments: Any, **options: Any) -> ScriptedActor:
        """Return an actor at the first step."""
        actor = super().open(*arguments, **options)
        return _HeldActor(actor.steps, actor.delay, self, self._at)


@dataclass(frozen=True, slots=True)
class _HeldActor(ScriptedActor):
    policy: HeldPolicy
    left: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "left", count(-self.left))

    async def act(self, view: View) -> Action:
        if next(self.left) == 0:
            self.policy.arrive()
            while not self.policy.released.is_set():  # noqa: ASYNC110 - the test releases it from any thread
                await asyncio.sleep(0.005)
        return await ScriptedActor.act(self, view)
