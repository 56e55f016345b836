"""The editable context of an episode, and the pruning of any agent's conversation. No store, no network."""

from context_agent.pruning.budget import Budget, Tier
from context_agent.pruning.pruner import ContextPruner, Pruned, PruneReport
from context_agent.pruning.selection import Prices
from context_agent.pruning.view import Block, Edit, EditCost, Role, Source, Text, View

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
