"""What a swarm may do: numbers that are choices, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from context_agent.errors import ConfigError
from context_agent.harness.policy import Policy
from context_agent.pruning.budget import Budget

MOST = 64
"""Sub-agents that one turn may start at most."""


class Fresh(StrEnum):
    """What the searches of sub-agents do not bring up."""

    OWN = "own"
    """What the sub-agent itself was shown, as in any episode."""
    AGENT = "agent"
    """And what the agent that started it was shown."""
    OTHERS = "others"
    """And what those started with it were shown: their turns take place in the order of their tasks."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """Limits of an agent's sub-agents. They have no tool to start others: a swarm is one level deep.

    `breadth` is how many one turn may start. `tokens` bounds what is placed in the contexts of all sub-agents of an
    episode together, and what is left is shared out evenly; the agent's own limit on tokens counts them too. `budget`
    is a sub-agent's context, by default that of the agent that starts it. `turns` and `seconds` end one; by default it
    has the turns that its policy needs. `documents` is how many each may hand back. `fresh` is how far sub-agents are
    kept from showing the same: by default from all of it with the embedded policy, which passes on what it knows, and
    from nothing with a language model. `policy` decides in sub-agents, by default the orchestrator's own.
    """

    breadth: int = 4
    tokens: int | None = None
    budget: Budget | int | None = None
    turns: int | None = None
    seconds: float = 300.0
    documents: int = 10
    fresh: Fresh | None = None
    policy: Policy | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.breadth <= MOST:
            raise ConfigError(f"a swarm has 1 to {MOST} searchers; got a breadth of {self.breadth}")
        for name in ("tokens", "turns", "seconds", "documents"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} of a swarm must be positive; got {value}")
        if isinstance(self.budget, int):
            object.__setattr__(self, "budget", Budget(self.budget))
