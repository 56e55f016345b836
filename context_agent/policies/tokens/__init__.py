"""The token policy: a language model that is sent token ids and returns token ids."""

from context_agent.policies.tokens.policy import TokenPolicy, served

__all__ = ["TokenPolicy", "served"]
