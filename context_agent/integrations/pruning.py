"""The pruning of the embedded policy alone, for passages that another retriever returned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.harness.profile import default
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk

THRESHOLD = 0.01
"""Probability below which a passage is dropped; `benchmarks/integrations.py` prints the recall and the tokens left."""


def prune(
    question: str,
    passages: Sequence[tuple[str, str]],
    *,
    threshold: float = THRESHOLD,
    tokens: int | None = None,
    k: int | None = None,
    policy: BridgePolicy | None = None,
) -> list[tuple[int, float]]:
    """The passages that the policy would keep in view, as pairs of index and probability, in the original order.

    A passage is a title, which may be empty, and a text. Of the best `k` passages, those with a probability of at least
    `threshold` are kept, best first, as long as they fit into `tokens` (of o200k_harmony). The policy scores the
    passages together, as it does those in view: a passage that a good one names scores higher. Raises `ConfigError`.
    """
    if not 0 <= threshold <= 1 or (tokens is not None and tokens < 1) or (k is not None and k < 1):
        raise ConfigError(
            f"threshold must be between 0 and 1, tokens and k at least 1; got {threshold}, {tokens} and {k}"
        )
    if not passages or not question.strip():
        return []
    chunks = _chunks(passages, counted=tokens is not None)
    scores = _scores(question, chunks, policy or _default_policy())
    tokens_left = float("inf") if tokens is None else tokens
    kept_indices: list[int] = []
    for index in np.argsort(-scores, kind="stable")[:k]:
        if scores[index] < threshold:
            break
        if chunks[index].tokens <= tokens_left:
            tokens_left -= chunks[index].tokens
            kept_indices.append(int(index))
    return [(index, float(scores[index])) for index in sorted(kept_indices)]


def _scores(question: str, chunks: Sequence[Chunk], policy: BridgePolicy) -> NDArray[np.float32]:
    """The policy's probability for each chunk, shape (n,). A word is rare if it is rare among these chunks."""
    actor = policy.open(question, MemoryCorpus(chunks, calibration=False), profile=default())
    for chunk in chunks:
        passage = AnalyzedPassage(chunk.title, chunk.text)
        actor.notes.add(ChunkCandidate(chunk.id, chunk.document_id, passage, chunk.tokens, hop=0))
    scores = actor.judgement.scores()
    if policy.effort.readings:
        scores = actor.judgement.read(scores)
    return actor.judgement.calibrated(scores)[1]


def _chunks(passages: Sequence[tuple[str, str]], *, counted: bool) -> list[Chunk]:
    """The passages as chunks. Their size is in tokens if it is `counted`, else in characters, which is cheaper."""
    count = HarmonyCounter().count if counted else len
    return [
        Chunk(str(index), str(index), 0, text, 0, len(text), count(text), title)
        for index, (title, text) in enumerate(passages)
    ]


@cache
def _default_policy() -> BridgePolicy:
    return BridgePolicy()
