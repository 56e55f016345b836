"""Conversations that providers accept, and the prices at which each is pruned."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from context_agent.pruning import Prices

CASES = settings(
    max_examples=int(os.environ.get("CTX1_PRUNE_CASES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


ALWAYS = Prices(cached=1.0)
"""Without a cache, every prune pays."""
