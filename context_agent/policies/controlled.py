"""Policies whose edits are replaced by a control, so that the value of editing can be measured.

    ControlledPolicy(policy, prune_by(strategy("oldest")), "oldest")

A control rewrites each action of the policy. `prune_by` prunes by a strategy. Two controls summarize without a language
model: `summarize_prunes` summarizes what the policy would prune, `summarize_oldest` keeps the policy's edits and
summarizes the oldest blocks in turns without any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from context_agent.harness.policy import Actor, Instructions, PartialRanker, Policy
from context_agent.harness.profile import SUMMARIZE, Profile
from context_agent.harness.tools import EDITS
from context_agent.pruning.strategies import Replacement, Strategy, extract
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.types import Action, RankedId, ToolCall

PRUNE = "prune_chunks"

Control = Callable[[View, Action], Action]
"""(view, an action with calls) -> the action to take instead. One without calls ends the episode."""


class ControlledPolicy:
    """The inner policy with each action rewritten by a control. The label is added to the policy's name."""

    def __init__(self, inner: Policy, control: Control, label: str) -> None:
        self._inner = inner
        self._control = control
        self.name = f"{inner.name}+{label}"
        self.counter = inner.counter
        self.engine: Any = getattr(inner, "engine", None)
        """The inner policy's engine, None if it has none."""

    def instructions(self, profile: Profile) -> str | Instructions:
        """The inner policy's."""
        return self._inner.instructions(profile)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """The inner policy's actor under control."""
        return ControlledActor(self._inner.open(question, corpus, profile=profile, seed=seed), self._control)


class ControlledActor:
    """The inner actor with each action rewritten by a control."""

    def __init__(self, inner: Actor, control: Control) -> None:
        self._inner = inner
        self._control = control

    async def act(self, view: View) -> Action:
        """The rewritten action. If the control leaves no calls, it becomes the final ranking."""
        action = await self._inner.act(view)
        if not action.calls:
            return action
        rewritten = self._control(view, action)
        return rewritten if rewritten.calls else replace(rewritten, ranking=self.partial(view))

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """The inner actor's ranking if it can give one, else the documents in view."""
        if isinstance(self._inner, PartialRanker):
            return self._inner.partial(view)
        return tuple(RankedId(document) for document in dict.fromkeys(b.document_id for b in view.citable_blocks))


def prune_by(strategy: Strategy) -> Control:
    """Drops the policy's edits. Past the soft threshold the strategy frees the tokens of one call below it."""

    def control(view: View, action: Action) -> Action:
        calls = tuple(call for call in action.calls if call.name not in EDITS)
        pruned = strategy(view, _excess(view)) if view.tokens >= view.budget.soft else ()
        if not pruned:
            return replace(action, calls=calls)
        # A turn's edits are applied first wherever they stand. At the end they leave the indices of the other calls
        # unchanged. The new call was not sampled, so the action's tokens have to be counted again.
        return replace(action, calls=(*calls, ToolCall(PRUNE, {"chunk_ids": list(pruned)})), tokens=None)

    return control


def summarize_prunes(view: View, action: Action) -> Action:
    """Replaces each prune by a summary of what it would hide and of earlier summaries, one sentence a chunk.

    A prune stays if no summary would be shorter. Needs a profile with `summarize_context`.
    """
    if not any(call.name in EDITS for call in action.calls):
        return summarize_oldest(view, action)
    return replace(action, calls=tuple(_summarized(view, call) for call in action.calls), tokens=None)


def summarize_oldest(view: View, action: Action) -> Action:
    """Past the soft threshold, adds a summary of the oldest blocks to an action that edits nothing itself."""
    if view.tokens < view.budget.soft or any(call.name in EDITS for call in action.calls):
        return action
    summary = extract(view, _excess(view))
    return replace(action, calls=(*action.calls, _summary_call(summary)), tokens=None) if summary else action


def _excess(view: View) -> int:
    """Tokens to free past the soft threshold: down to one call's tokens below it."""
    return view.tokens - view.budget.soft + view.budget.per_call


def _summarized(view: View, call: ToolCall) -> ToolCall:
    """The summary that replaces a prune; the call itself if it is no prune or nothing would get shorter."""
    if call.name != PRUNE or isinstance(call.arguments, str):
        return call
    ids, all_but = call.arguments.get("chunk_ids"), call.arguments.get("all_but")
    pruned_ids = set(ids or ()) if all_but is None else {block.id for block in view.blocks} - set(all_but)
    summary = extract(view, view.tokens, pruned_ids | {summary.id for summary in view.summaries})
    return _summary_call(summary) if summary else call


def _summary_call(replacement: Replacement) -> ToolCall:
    return ToolCall(SUMMARIZE, {"chunk_ids": list(replacement.ids), "summary": replacement.summary})
