"""The demo: a policy learns to search and prune in minutes, and a report shows what it learned."""
