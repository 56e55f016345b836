"""Policies that send and receive token ids, so that training uses exactly the ids that were sampled."""

from context_agent.policies.tokens.loading import local, served, templated
from context_agent.policies.tokens.policy import TokenActor, TokenPolicy, VocabularyCounter

__all__ = ["TokenActor", "TokenPolicy", "VocabularyCounter", "local", "served", "templated"]
