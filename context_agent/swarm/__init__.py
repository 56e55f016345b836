"""A swarm: an orchestrator that splits a question over sub-agents, each an episode with its own bounded context.

Kimi K2.5 (arXiv 2602.02276). An agent has one where it is given a `Swarm`; without one nothing here runs.
"""

from context_agent.swarm.settings import MOST, Fresh, Swarm
from context_agent.swarm.steps import critical_steps, steps

__all__ = ["MOST", "Fresh", "Swarm", "critical_steps", "steps"]
