"""Helpers that tests share. What users and benchmarks can use as well is in `context_agent.testing`."""
