"""Who decides: a `Policy` opens an `Actor` for each episode; the actor turns views into actions."""

from __future__ import annotations

from typing import Protocol

from context_agent.pruning.view import View
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action


class Actor(Protocol):
    """The decisions of one episode. Single use; may keep notes between turns, as a language model's reasoning does."""

    async def act(self, view: View) -> Action:
        """The next action for this view. Raises `PolicyError` when it cannot go on."""


class Policy(Protocol):
    """Opens actors; holds weights, connections and settings, and is shared by concurrent episodes."""

    @property
    def name(self) -> str:
        """Written into trajectories, e.g. `bridge@<weights hash>`."""

    @property
    def counter(self) -> TokenCounter | None:
        """Counts tokens as the policy's model does; None for the default, o200k_harmony."""

    def open(self, question: str, corpus: Corpus, *, seed: int = 0) -> Actor:
        """A fresh actor for one episode. Equal seeds give equal decisions where the policy is deterministic."""
