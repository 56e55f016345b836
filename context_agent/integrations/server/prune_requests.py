"""Pruning of a conversation that a client sent."""

from __future__ import annotations

from functools import partial

from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.json_encoding import encode
from context_agent.integrations.server.schema import PruneAnswer, PruneRequest
from context_agent.pruning.prices import Prices
from context_agent.pruning.pruner import ContextPruner


def prune_conversation(pruners: ConversationPruners, request: PruneRequest) -> PruneAnswer:
    """Prune the conversation of a request, or restore passages in it.

    Raises:
        ConfigError: If an id to restore is unknown, or if the budget is a share of 0.
    """
    options = request.model_dump(include={"budget", "strategy", "effort", "turns", "cached_price"})
    scope = encode({**options, "user": request.user})
    if request.restore:
        return PruneAnswer(messages=pruners.restore(request.messages, request.restore, scope=scope), report=None)
    prices = Prices(turns=options.pop("turns"), cached=options.pop("cached_price"))
    open_pruner = partial(ContextPruner, **options, prices=prices)
    pruned = pruners.prune(request.messages, request.task, scope=scope, open_pruner=open_pruner)
    return PruneAnswer(messages=pruned.messages, report=pruned.report.to_json())
