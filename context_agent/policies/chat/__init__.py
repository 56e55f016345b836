"""The chat policy: a language model behind any OpenAI-compatible server."""

from context_agent.policies.chat.policy import ChatPolicy

__all__ = ["ChatPolicy"]
