"""A policy whose own edits are replaced by a control strategy, so that editing can be measured against its absence.

A strategy prunes, or it summarises; then the profile must have `summarize_context`. `own=True` lets the policy edit by
itself, too, and the strategy acts only in turns in which it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from context_agent.policies.protocol import Actor, PartialRanker, Policy
from context_agent.profiles import SUMMARIZE, Profile
from context_agent.pruning.extracts import Replacement
from context_agent.pruning.strategies import Strategy
from context_agent.pruning.view import View
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import TokenCounter
from context_agent.tools import EDITS
from context_agent.types import Action, RankedId, ToolCall

Summarizer = Callable[[View, int], Replacement | None]
"""(view, tokens to free) -> what to summarise and how; None for nothing."""


class ControlledPolicy:
    """The inner policy without its edits; past the soft threshold the strategy frees a per-call budget's worth."""

    def __init__(self, inner: Policy, strategy: Strategy | Summarizer, label: str, *, own: bool = False) -> None:
        """`own` keeps the inner policy's edits."""
        self._inner = inner
        self._strategy = strategy
        self._own = own
        self.name = f"{inner.name}+{label}"

    @property
    def counter(self) -> TokenCounter | None:
        """The inner policy's."""
        return self._inner.counter

    def instructions(self, profile: Profile) -> str:
        """The inner policy's."""
        return self._inner.instructions(profile)

    def open(self, question: str, corpus: Corpus, *, seed: int = 0) -> Actor:
        """The inner policy's actor under control."""
        return ControlledActor(self._inner.open(question, corpus, seed=seed), self._strategy, own=self._own)


class ControlledActor:
    """Drops the inner actor's edit calls, unless they are to stay, and adds the strategy's."""

    def __init__(self, inner: Actor, strategy: Strategy | Summarizer, *, own: bool = False) -> None:
        self._inner = inner
        self._strategy = strategy
        self._own = own

    async def act(self, view: View) -> Action:
        """The inner action with its edits exchanged. An action of edits alone becomes the final ranking."""
        action = await self._inner.act(view)
        kept = tuple(call for call in action.calls if call.name not in EDITS)
        if not action.calls or (self._own and len(kept) < len(action.calls)):
            return action
        need = view.tokens - view.budget.soft + view.budget.per_call
        chosen = self._strategy(view, need) if view.tokens >= view.budget.soft else ()
        edit = _edit(chosen)
        if not kept and not edit:
            return Action(ranking=self.partial(view))
        # Edits of a turn come first wherever they stand; last, they leave the inner actor's calls their places.
        return replace(action, calls=kept + edit, tokens=None)

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """The inner actor's ranking where it can give one, else the documents in view."""
        if isinstance(self._inner, PartialRanker):
            return self._inner.partial(view)
        return tuple(RankedId(document) for document in dict.fromkeys(b.document_id for b in view.standing))


def _edit(chosen: tuple[str, ...] | Replacement | None) -> tuple[ToolCall, ...]:
    """The call that does what a strategy chose; none where it chose nothing."""
    if isinstance(chosen, Replacement):
        return (ToolCall(SUMMARIZE, {"chunk_ids": list(chosen.ids), "summary": chosen.summary}),)
    return (ToolCall("prune_chunks", {"chunk_ids": list(chosen)}),) if chosen else ()
