"""A policy that plays a list of actions: for tests, also of programs that use this package.

policy = ScriptedPolicy([
    Action(calls=(ToolCall("search_corpus", {"query": "who founded the WELL"}),)),
    lambda view: Action(ranking=tuple(RankedId(block.id) for block in view.blocks)),
])
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from context_agent.harness.profile import Profile
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId

Step = Action | Callable[[View], Action]
"""An action, or a function from the view to an action."""


class ScriptedPolicy:
    """Plays `steps` in order in every episode; after the last step it ranks what is in view and ends.

    `delay` is a pause before each action, in seconds, that simulates a model's latency. `counter` replaces a model's
    tokenizer. `instructed=False` leaves the profile's prompt out of the view.
    """

    name = "scripted"

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        delay: float = 0.0,
        counter: TokenCounter | None = None,
        instructed: bool = True,
    ) -> None:
        self._steps = tuple(steps)
        self._delay = delay
        self.counter = counter
        self._instructed = instructed

    def instructions(self, profile: Profile) -> str:
        """The profile's prompt, or nothing."""
        return profile.instructions() if self._instructed else ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> ScriptedActor:
        """An actor at the first step."""
        return ScriptedActor(iter(self._steps), self._delay)


@dataclass(frozen=True, slots=True)
class ScriptedActor:
    """One run through the steps."""

    steps: Iterator[Step]
    delay: float

    async def act(self, view: View) -> Action:
        """The next step's action."""
        if self.delay:
            await asyncio.sleep(self.delay)
        step = next(self.steps, rank_view)
        return step(view) if callable(step) else step


def rank_view(view: View) -> Action:
    """Ends the episode with every document in view, in the order its first block was shown."""
    documents = dict.fromkeys(block.document_id for block in view.blocks)
    return Action(ranking=tuple(RankedId(document) for document in documents))
