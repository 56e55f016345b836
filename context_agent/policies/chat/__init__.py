"""The chat policies. They use a language model on any OpenAI-compatible server, or behind Anthropic's Messages API."""

from context_agent.policies.chat.anthropic import AnthropicPolicy
from context_agent.policies.chat.policy import ChatPolicy

__all__ = ["AnthropicPolicy", "ChatPolicy"]
