"""Pruning of the passages that another retriever returned, without a search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from context_agent._support.arguments import real_number, whole_number
from context_agent.errors import ConfigError
from context_agent.harness.profile import default
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.candidates import ANALYZED_CHARACTERS, AnalyzedPassage, ChunkCandidate
from context_agent.retrieval.embedders import STATIC
from context_agent.retrieval.engines.corpus import ASSUMED_SIZE
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk

THRESHOLD = 0.01
"""The probability below which a passage is dropped.

`benchmarks/integrations.py` prints the recall and the tokens left.
"""


def prune(
    question: str,
    passages: Sequence[tuple[str, str]],
    *,
    threshold: float = THRESHOLD,
    tokens: int | None = None,
    k: int | None = None,
    policy: BridgePolicy | None = None,
) -> list[tuple[int, float]]:
    """Return the passages that the policy would keep in view.

    The result has pairs of index and probability, in the original order. The policy scores the passages together, as it
    does in its view. If a good passage names another passage, the latter therefore scores higher.

    Args:
        question: The question. If it is empty, no passage is kept.
        passages: Pairs of a title, which may be empty, and a text.
        threshold: The lowest probability of a passage to keep, from 0 to 1.
        tokens: Maximum number of tokens of all kept passages (o200k_harmony). The best passages are kept first.
        k: Maximum number of passages to keep.
        policy: The policy that scores. Defaults to the shipped `BridgePolicy`.

    Raises:
        ConfigError: If `threshold` is outside [0, 1], or if `tokens` or `k` is not a whole number of at least 1.
    """
    if not 0 <= real_number(threshold, "threshold") <= 1:
        raise ConfigError(f"`threshold` must be from 0 to 1; got {threshold}")
    for name, number in (("tokens", tokens), ("k", k)):
        if number is not None:
            whole_number(number, name, least=1)
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
    """Return the policy's probability for each chunk, shape (n_chunks,).

    A word counts as rare if it is rare in these chunks.
    """
    actor = policy.open(question, MemoryCorpus(chunks, embedder=STATIC, calibration=False), profile=default())
    for chunk in chunks:
        passage = AnalyzedPassage(chunk.title, chunk.text)
        actor.notes.add(ChunkCandidate(chunk.id, chunk.document_id, passage, chunk.tokens, hop=0))
    # The number of passages says nothing about the size of the corpus that they come from.
    actor.judgment.corpus_size = ASSUMED_SIZE
    scores = actor.judgment.scores()
    if policy.effort.readings:
        scores = actor.judgment.read(scores)
    return actor.judgment.calibrated(scores)[1]


def _chunks(passages: Sequence[tuple[str, str]], *, counted: bool) -> list[Chunk]:
    """Return the passages as chunks. A chunk contains the part of the text that the policy analyzes.

    The size of a chunk is the size of the whole text. If `counted`, it is in tokens. Otherwise it is in characters,
    which is cheaper.
    """
    count = HarmonyCounter().count if counted else len
    return [
        Chunk(
            str(index),
            str(index),
            0,
            text[:ANALYZED_CHARACTERS],
            0,
            len(text),
            count(text),
            title[:ANALYZED_CHARACTERS],
        )
        for index, (title, text) in enumerate(passages)
    ]


@cache
def _default_policy() -> BridgePolicy:
    return BridgePolicy()
