"""Tasks from the links between documents, without a language model. A question hides the name of a linked document."""

from context_agent.synth_data.links.tasks import DraftCounts, LinkTasks, LinkTaskSettings

__all__ = ["DraftCounts", "LinkTaskSettings", "LinkTasks"]
