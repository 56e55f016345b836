"""The demo: a policy learns to search and prune in minutes, and a report shows its progress."""
