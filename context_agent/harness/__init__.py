"""The episode: one question from the first view to the ranking, with the tools that a policy may call."""
