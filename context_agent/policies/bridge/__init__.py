"""The embedded policy: no language model, no GPU, no download.

It searches the question and its names, follows the names that retrieved text mentions (the bridge to the next hop),
prunes what scores low, stops when nothing promising is left, and ranks by small networks that ship with the package.
"""

from context_agent.policies.bridge.effort import Effort
from context_agent.policies.bridge.networks import Scorer
from context_agent.policies.bridge.policy import BridgePolicy

__all__ = ["BridgePolicy", "Effort", "Scorer"]
