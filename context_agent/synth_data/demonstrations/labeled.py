"""A policy that names blocks in its actions by their labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from context_agent.harness.policy import Actor, Instructions, PartialRanker, Policy
from context_agent.harness.profile import Profile
from context_agent.pruning.view import Block, View
from context_agent.retrieval.corpus import Corpus
from context_agent.types import Action, RankedId, ToolCall

LONGEST_TITLE = 80
"""The largest length of a title that is written before a label, in characters."""


class LabelingPolicy:
    """A policy that replaces the ids in the inner policy's actions with labels."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.name = inner.name
        self.counter = inner.counter

    def instructions(self, profile: Profile) -> str | Instructions:
        """Return the inner policy's instructions."""
        return self._inner.instructions(profile)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """Return the inner policy's actor, with labels in its actions."""
        return LabelingActor(self._inner.open(question, corpus, profile=profile, seed=seed))


class LabelingActor:
    """An actor that replaces the ids of chunks in the inner actor's actions with labels.

    It also leaves out the arguments that the lean format cannot write.
    """

    def __init__(self, inner: Actor) -> None:
        self._inner = inner

    async def act(self, view: View) -> Action:
        """Return the inner actor's action with labels."""
        action = await self._inner.act(view)
        ranking = None if action.ranking is None else _labeled_ranking(action.ranking, view)
        return replace(action, calls=tuple(_labeled_call(call, view) for call in action.calls), ranking=ranking)

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """Return the inner actor's ranking for this view. If the inner actor cannot rank, return nothing."""
        return self._inner.partial(view) if isinstance(self._inner, PartialRanker) else ()


def _labeled_call(call: ToolCall, view: View) -> ToolCall:
    if not isinstance(call.arguments, dict):
        return call
    labels = {block.id: _named(block) for block in (*view.pruned, *view.blocks)}
    arguments = {
        name: [labels.get(item, item) for item in value] if isinstance(value, list) else value
        for name, value in call.arguments.items()
        if name != "limit"
    }
    return ToolCall(call.name, arguments, call.id)


def _labeled_ranking(ranking: Iterable[RankedId], view: View) -> tuple[RankedId, ...]:
    labels = {name: _named(block) for block in view.blocks for name in (block.document_id, block.id)}
    return tuple(replace(item, id=labels.get(item.id, item.id)) for item in ranking)


def _named(block: Block) -> str:
    """Return the block's title and label in the form that its header uses. A long title is left out."""
    title, _, _ = block.header.partition(block.label)
    return f"{title}{block.label}" if len(title) <= LONGEST_TITLE else block.label
