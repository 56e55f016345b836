"""A retrieval subagent with self-editing context."""
