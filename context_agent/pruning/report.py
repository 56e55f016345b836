"""The report of a prune: what was removed, what it frees, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from context_agent._support.strict_json import without_infinity
from context_agent.pruning.contents import MessageKind

Outcome = Literal["pruned", "within budget", "over budget", "does not pay", "declined", "passed through"]
"""The result of a prune.

If it is `over budget`, everything removable is removed, and the rest still exceeds the budget. If it is `declined`,
`confirm` returned False.
"""
Confirm = Callable[["PruneReport"], bool]
"""A function that is called with the report of a planned prune, and returns whether the prune may happen."""


@dataclass(frozen=True, slots=True)
class RemovedPassage:
    """A passage that a prune removed.

    Attributes:
        id: The id that restores it, such as `p17`.
        message: The index of its message.
        call_id: The id of the call that returned it.
        tokens: Its size in tokens.
        score: The score that the strategy gave it.
        reason: Why it was removed.
        preview: Its first characters.
    """

    id: str
    message: int
    call_id: str
    tokens: int
    score: float
    reason: str
    preview: str


@dataclass(frozen=True, slots=True)
class RestoredPassage:
    """A passage that was restored, and the task for which removing it was wrong.

    Attributes:
        task: The task.
        label: The passage's heading or title.
        text: Its text.
        tokens: Its size in tokens.
    """

    task: str
    label: str
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The gain and the cost of a prune.

    Attributes:
        outcome: The result of the prune.
        kind: The message format.
        strategy: The name of the strategy.
        tokens_before: The number of tokens of the tool results before this prune.
        tokens_after: The number of tokens of the tool results after this prune.
        freed: The number of tokens that leave the context, minus the tokens of stubs.
        cached_lost: The number of cached tokens after the first change, which the server must read again.
        savings: The cost of the freed tokens over the turns to come, in fresh input tokens. It is also reported if the
            prune does not pay.
        loss: The cost of reading the `cached_lost` tokens again, in fresh input tokens. The cost of restored passages
            is left out.
        removed: The passages that were removed.
        restored: Ids of passages that were restored because a message requested them.
        protected: The number of passages that stay whatever their score, by reason.
        warnings: Faults of the conversation, and other facts that a user should know.
        tokens_original: The number of tokens of the tool results before any prune.
        limit: The number of tokens of tool results that may remain. If the last turn takes more than half of
            the budget, the limit is larger than the budget. If nothing could be read, the limit is 0.
    """

    outcome: Outcome
    kind: MessageKind
    strategy: str
    tokens_before: int = 0
    tokens_after: int = 0
    freed: int = 0
    cached_lost: int = 0
    savings: float = 0.0
    loss: float = 0.0
    removed: tuple[RemovedPassage, ...] = ()
    restored: tuple[str, ...] = ()
    protected: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tokens_original: int = 0
    limit: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values, with keys in a fixed order.

        If a strategy gave a passage an infinite score, the score is None.
        """
        return dict(without_infinity(asdict(self)))


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of `ContextPruner.prune`.

    Attributes:
        messages: Messages of the same kind as the input.
        report: The gain and the cost of the prune.
        conversation: The number of the conversation, from 1, that `ConversationPruners` assigned. Otherwise 0.
    """

    messages: list[Any]
    report: PruneReport
    conversation: int = 0
