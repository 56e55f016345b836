"""Evaluation: benchmarks, systems, metrics, statistics, reports, and the trajectory viewer.

Do not write `from context_agent import eval`, which shadows the builtin. Import from its modules instead.
"""
