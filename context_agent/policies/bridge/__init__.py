"""The embedded policy. It needs no language model, no GPU and no download.

It searches the question and its names, and follows the names that retrieved text mentions. Such a name is the bridge to
the next document. It prunes passages with low scores, and stops when nothing promising is left. Small networks that
ship with the package rank the passages.
"""

from context_agent.policies.bridge.effort import Effort
from context_agent.policies.bridge.networks import Scorer
from context_agent.policies.bridge.policy import BridgePolicy

__all__ = ["BridgePolicy", "Effort", "Scorer"]
