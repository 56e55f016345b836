"""The editable context: blocks, budget tiers, edits and control strategies. Pure functions over values, no I/O."""

from context_agent.pruning.budget import Budget, Tier
from context_agent.pruning.view import Block, Edit, EditCost, Role, Source, Text, View

__all__ = ["Block", "Budget", "Edit", "EditCost", "Role", "Source", "Text", "Tier", "View"]
