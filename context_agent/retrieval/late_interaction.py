"""Late interaction: how well a text answers a query, compared word piece by word piece.

One vector of a whole text blurs what its single sentences say. Here each word piece of the query is compared with each
piece of the text, and its largest cosine counts (MaxSim; Khattab and Zaharia, "ColBERT", SIGIR 2020, equation 3). The
vectors of the pieces are the last states of all-MiniLM-L6-v2, which was not trained for this comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from context_agent._support.shipped_models import shipped_minilm

BLOCK = 64
"""The texts whose states are in memory at a time."""


def late_interaction(query: str, texts: Sequence[str], *, longest: int = 254) -> NDArray[np.float32]:
    """Return the mean over the query's word pieces of the largest cosine with a piece of each text.

    Args:
        query: The query.
        texts: The texts.
        longest: The word pieces of the query and of each text that count, at most 254.

    Returns:
        One number for each text, shape (n_texts,). If the query is empty, all are 0.
    """
    states = map(_unit_rows, _states([query, *texts], longest))
    pieces = next(states)[1:-1]
    if not len(pieces):
        return np.zeros(len(texts), dtype=np.float32)
    return np.array([(pieces @ own.T).max(axis=1).mean() for own in states], dtype=np.float32)


def _states(texts: Sequence[str], longest: int) -> Iterator[NDArray[np.float32]]:
    for start in range(0, len(texts), BLOCK):
        yield from shipped_minilm().encode_pieces(texts[start : start + BLOCK], longest)


def _unit_rows(states: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(states / np.linalg.norm(states, axis=1, keepdims=True))
