"""A policy whose own pruning is replaced by a control strategy, so that pruning can be measured against its absence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from context_agent.policies.protocol import Actor, PartialRanker, Policy
from context_agent.profiles import Profile
from context_agent.pruning.strategies import Strategy
from context_agent.pruning.view import View
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import TokenCounter
from context_agent.tools import EDITS
from context_agent.types import Action, RankedId, ToolCall


class ControlledPolicy:
    """The inner policy without its edits; past the soft threshold the strategy frees a per-call budget's worth."""

    def __init__(self, inner: Policy, strategy: Strategy, label: str) -> None:
        self._inner = inner
        self._strategy = strategy
        self.name = f"{inner.name}+{label}"

    @property
    def counter(self) -> TokenCounter | None:
        """The inner policy's."""
        return self._inner.counter

    @property
    def engine(self) -> Any:
        """The inner policy's engine, None where it has none."""
        return getattr(self._inner, "engine", None)

    def instructions(self, profile: Profile) -> str:
        """The inner policy's."""
        return self._inner.instructions(profile)

    def open(self, question: str, corpus: Corpus, *, seed: int = 0) -> Actor:
        """The inner policy's actor under control."""
        return ControlledActor(self._inner.open(question, corpus, seed=seed), self._strategy)


class ControlledActor:
    """Drops the inner actor's edit calls and adds the strategy's."""

    def __init__(self, inner: Actor, strategy: Strategy) -> None:
        self._inner = inner
        self._strategy = strategy

    async def act(self, view: View) -> Action:
        """The inner action with its edits exchanged. An action of edits alone becomes the final ranking."""
        action = await self._inner.act(view)
        kept = tuple(call for call in action.calls if call.name not in EDITS)
        if not action.calls:
            return action
        need = view.tokens - view.budget.soft + view.budget.per_call
        chosen = self._strategy(view, need) if view.tokens >= view.budget.soft else ()
        edit = (ToolCall("prune_chunks", {"chunk_ids": list(chosen)}),) if chosen else ()
        if not kept and not edit:
            return Action(ranking=self.partial(view))
        # Edits of a turn come first wherever they stand; last, they leave the inner actor's calls their places.
        # What was sampled stays as long as it was; only a call that was never sampled has to be counted anew.
        return replace(action, calls=kept + edit, tokens=None if edit else action.tokens)

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """The inner actor's ranking where it can give one, else the documents in view."""
        if isinstance(self._inner, PartialRanker):
            return self._inner.partial(view)
        return tuple(RankedId(document) for document in dict.fromkeys(b.document_id for b in view.blocks))
