"""The plugin by whose name verifiers and prime-rl find this project's environment: `context-agent-search`."""

from context_agent.train.experimental.verifiers.environment import SearchHarness, SearchTaskset, load_environment

__all__ = ["SearchHarness", "SearchTaskset", "load_environment"]
