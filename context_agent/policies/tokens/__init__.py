"""The token policy: a language model that is sent token ids and returns token ids."""

from context_agent.policies.tokens.policy import TokenPolicy, VocabularyCounter, local, served, templated

__all__ = ["TokenPolicy", "VocabularyCounter", "local", "served", "templated"]
