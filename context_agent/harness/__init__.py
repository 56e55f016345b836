"""The episode: one question from the first view to the ranking, with the tools a policy may call."""
