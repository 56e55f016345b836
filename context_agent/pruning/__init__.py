"""The editable context of an episode, and the pruning of any agent's conversation.

Both work without a store and without a network. The names for pruning conversations are loaded when they are first
used, because they need numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from context_agent.budget import Budget, Tier
from context_agent.pruning.view import Block, Edit, EditCost, Role, Source, Text, View

if TYPE_CHECKING:
    from context_agent.pruning.prices import Prices
    from context_agent.pruning.pruner import ContextPruner
    from context_agent.pruning.report import Pruned, PruneReport

_HOME = {"ContextPruner": "pruner", "Prices": "prices", "PruneReport": "report", "Pruned": "report"}

__all__ = [
    "Block",
    "Budget",
    "ContextPruner",
    "Edit",
    "EditCost",
    "Prices",
    "PruneReport",
    "Pruned",
    "Role",
    "Source",
    "Text",
    "Tier",
    "View",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
