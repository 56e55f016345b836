"""The model of sub-agents, which training leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from context_agent.policies.engines.protocol import Engine
from context_agent.policies.engines.transformers import TransformersEngine
from context_agent.train.config import Run
from context_agent.train.models import frozen

TOGETHER = 0.05
"""Seconds in which the sub-agents of a batch of orchestrators ask."""


@contextmanager
def searching(run: Run, tokenizer: Any) -> Iterator[Engine | None]:
    """The engine that samples in sub-agents, by weights that stay; None where they have the policy's own."""
    folder = run.episodes.searchers
    if folder is None:
        yield None
        return
    # It is not told how many are at work: each turn of all sub-agents begins when the orchestrators' batch is done.
    model = frozen(run.model, folder, tokenizer)
    engine = TransformersEngine(model, name=folder, most=run.engine.batch, version="0", wait=TOGETHER)
    try:
        yield engine
    finally:
        engine.close()
