"""The embedded policy. It needs no language model, no GPU and no download.

The policy searches for the question and for its names. Then it follows the names that retrieved passages mention. Such
a name is the bridge to the next document. The policy prunes passages with low scores, and stops when no promising
search is left. Small networks that ship with the package rank the passages.
"""

from context_agent.policies.bridge.effort import Effort
from context_agent.policies.bridge.networks import Scorer
from context_agent.policies.bridge.policy import BridgePolicy

__all__ = ["BridgePolicy", "Effort", "Scorer"]
