"""A policy that plays a list of actions, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from context_agent._support.arguments import items_of, real_number, require_type
from context_agent.harness.profile import Profile
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId

Step = Action | Callable[[View], Action]
"""An action, or a function from the view to an action."""


class ScriptedPolicy:
    """A policy that plays the same steps in every episode.

    After the last step, it ranks the documents in view and ends.

    Args:
        steps: Actions, or functions that return an action for a view.
        delay: The pause before each action, in seconds. It simulates the latency of a model.
        counter: The token counter, in place of a model's tokenizer.
        instructed: If false, the view does not contain the profile's prompt.

    Example:
        >>> from context_agent import Action, Document, MemoryCorpus, SearchAgent, ToolCall
        >>> policy = ScriptedPolicy([Action(calls=(ToolCall("search_corpus", {"query": "light"}),))])
        >>> corpus = MemoryCorpus([Document("light", "Orm Skerry Light was lit in 1868.")])
        >>> [document.id for document in SearchAgent(corpus, policy).search("When was it lit?").documents]
        ['light']
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
        self._steps = tuple(items_of(steps, "steps", "a list of actions, or of functions that return one"))
        for step in self._steps:
            if not callable(step):
                require_type(step, "steps", Action, "a list of actions, or of functions that return one")
        self._delay = real_number(delay, "delay")
        self.counter = counter
        self._instructed = instructed

    def instructions(self, profile: Profile) -> str:
        """Return the prompt of the profile, or an empty text."""
        return profile.instructions() if self._instructed else ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> ScriptedActor:
        """Return an actor at the first step."""
        return ScriptedActor(iter(self._steps), self._delay)


@dataclass(frozen=True, slots=True)
class ScriptedActor:
    """One run through the steps."""

    steps: Iterator[Step]
    delay: float

    async def act(self, view: View) -> Action:
        """Return the next step's action."""
        if self.delay:
            await asyncio.sleep(self.delay)
        step = next(self.steps, rank_view)
        return step(view) if callable(step) else step


def rank_view(view: View) -> Action:
    """Return the ranking that ends the episode.

    The ranking has all documents in view, in the order in which their first blocks were shown.
    """
    documents = dict.fromkeys(block.document_id for block in view.blocks)
    return Action(ranking=tuple(RankedId(document) for document in documents))
