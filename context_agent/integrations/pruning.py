"""The embedded policy's pruning alone, for passages that another retriever found."""

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

THRESHOLD = 0.001
"""Probability under which a passage is dropped; `benchmarks/integrations.py` prints what that keeps and spares."""


def prune(
    question: str,
    passages: Sequence[tuple[str, str]],
    *,
    threshold: float = THRESHOLD,
    tokens: int | None = None,
    k: int | None = None,
    policy: BridgePolicy | None = None,
) -> list[tuple[int, float]]:
    """Which of the passages, each a title (may be empty) and a text, the policy would keep in view.

    Returns place and probability of those that stay, in the order given. Lowest first, what scores under `threshold`
    goes, then what does not fit into `tokens` (of o200k_harmony) or the best `k`. The passages are judged in each
    other's company, as the policy judges those in view: one that a good one names counts for more.
    """
    if not 0 <= threshold <= 1 or (tokens is not None and tokens < 1) or (k is not None and k < 1):
        raise ConfigError(
            f"threshold lies between 0 and 1, tokens and k are at least 1; got {threshold}, {tokens} and {k}"
        )
    if not passages or not question.strip():
        return []
    chunks = _chunks(passages, sized=tokens is not None)
    scores = _judged(question, chunks, policy or _shipped())
    kept: list[int] = []
    for place in np.argsort(-scores, kind="stable")[:k]:
        if scores[place] < threshold:
            break
        if tokens is None or chunks[place].tokens <= tokens:
            tokens = None if tokens is None else tokens - chunks[place].tokens
            kept.append(int(place))
    return [(place, float(scores[place])) for place in sorted(kept)]


def _judged(question: str, chunks: Sequence[Chunk], policy: BridgePolicy) -> NDArray[np.float32]:
    """The policy's probability for each chunk, shape (n,). Rare words are those rare among these chunks."""
    actor = policy.open(question, MemoryCorpus(chunks, calibration=False), profile=default())
    for chunk in chunks:
        passage = AnalyzedPassage(chunk.title, chunk.text)
        actor.notes.add(ChunkCandidate(chunk.id, chunk.document_id, passage, chunk.tokens, hop=0))
    return actor.judgement.scores()


def _chunks(passages: Sequence[tuple[str, str]], *, sized: bool) -> list[Chunk]:
    count = HarmonyCounter().count if sized else len
    return [
        Chunk(str(place), str(place), 0, text, 0, len(text), count(text), title)
        for place, (title, text) in enumerate(passages)
    ]


@cache
def _shipped() -> BridgePolicy:
    return BridgePolicy()
