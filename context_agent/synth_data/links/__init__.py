"""Tasks from a corpus's own links, without a language model: one document names another, and a question hides it."""

from context_agent.synth_data.links.tasks import DraftCounts, LinkTasks, LinkTaskSettings

__all__ = ["DraftCounts", "LinkTaskSettings", "LinkTasks"]
