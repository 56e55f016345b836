"""A policy whose own edits are replaced by a control, so that editing can be measured against its absence.

`ControlledPolicy` lets a strategy prune in the policy's place. `SummarizingPolicy` summarises without a language model:
what the policy would prune, or, where it is left its own pruning, what is oldest past the soft threshold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from context_agent.harness.policy import Actor, Instructions, PartialRanker, Policy
from context_agent.harness.profile import SUMMARIZE, Profile
from context_agent.harness.tools import EDITS
from context_agent.pruning.strategies import Replacement, Strategy, extract
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId, ToolCall

PRUNE = "prune_chunks"


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

    def instructions(self, profile: Profile) -> str | Instructions:
        """The inner policy's."""
        return self._inner.instructions(profile)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """The inner policy's actor under control."""
        return ControlledActor(self._inner.open(question, corpus, profile=profile, seed=seed), self._strategy)


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
        need = _need(view)
        chosen = self._strategy(view, need) if view.tokens >= view.budget.soft else ()
        edit = (ToolCall(PRUNE, {"chunk_ids": list(chosen)}),) if chosen else ()
        # What was sampled stays as long as it was; only a call that was never sampled has to be counted anew.
        if not kept and not edit:
            return replace(action, calls=(), ranking=self.partial(view))
        # Edits of a turn come first wherever they stand; last, they leave the inner actor's calls their places.
        return replace(action, calls=kept + edit, tokens=None if edit else action.tokens)

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """The inner actor's ranking where it can give one, else the documents in view."""
        return _partial(self._inner, view)


class SummarizingPolicy:
    """The inner policy with summaries of one sentence a chunk; needs a profile that has them.

    Each of its prunes becomes a summary of what it would have hidden, older summaries being put together with it; a
    prune of what no sentence is shorter than stands. With `own=True` its edits stay as they are, and the oldest
    blocks are summarised past the soft threshold in turns in which it edits nothing.
    """

    def __init__(self, inner: Policy, label: str, *, own: bool = False) -> None:
        self._inner = inner
        self._own = own
        self.name = f"{inner.name}+{label}"

    @property
    def counter(self) -> TokenCounter | None:
        """The inner policy's."""
        return self._inner.counter

    def instructions(self, profile: Profile) -> str | Instructions:
        """The inner policy's."""
        return self._inner.instructions(profile)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """The inner policy's actor with summaries."""
        return SummarizingActor(self._inner.open(question, corpus, profile=profile, seed=seed), own=self._own)


class SummarizingActor:
    """Puts summaries in the place of the inner actor's prunes, or beside them."""

    def __init__(self, inner: Actor, *, own: bool = False) -> None:
        self._inner = inner
        self._own = own

    async def act(self, view: View) -> Action:
        """The inner action; its calls keep their places, for an actor may know its results by them."""
        action = await self._inner.act(view)
        edited = any(call.name in EDITS for call in action.calls)
        if edited and not self._own:
            return replace(action, calls=tuple(_summarized(view, call) for call in action.calls), tokens=None)
        if not action.calls or edited or view.tokens < view.budget.soft:
            return action
        made = extract(view, _need(view))
        return replace(action, calls=(*action.calls, _call(made)), tokens=None) if made else action

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """The inner actor's ranking where it can give one, else the documents in view."""
        return _partial(self._inner, view)


def _need(view: View) -> int:
    """Tokens to free past the soft threshold: a call's budget's worth below it."""
    return view.tokens - view.budget.soft + view.budget.per_call


def _partial(inner: Actor, view: View) -> tuple[RankedId, ...]:
    if isinstance(inner, PartialRanker):
        return inner.partial(view)
    return tuple(RankedId(document) for document in dict.fromkeys(b.document_id for b in view.citable_blocks))


def _summarized(view: View, call: ToolCall) -> ToolCall:
    """The summary in a prune's place; the call itself where it is no prune, or nothing gets shorter."""
    if call.name != PRUNE or isinstance(call.arguments, str):
        return call
    ids, rest = call.arguments.get("chunk_ids"), call.arguments.get("all_but")
    going = set(ids or ()) if rest is None else {block.id for block in view.blocks} - set(rest)
    made = extract(view, view.tokens, going | {summary.id for summary in view.summaries})
    return _call(made) if made else call


def _call(made: Replacement) -> ToolCall:
    return ToolCall(SUMMARIZE, {"chunk_ids": list(made.ids), "summary": made.summary})
