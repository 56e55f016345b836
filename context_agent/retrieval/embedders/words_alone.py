"""The embedder of a corpus that is searched by words alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from context_agent.retrieval.embedders import WORDS_ALONE, Vectors


@dataclass(frozen=True, slots=True)
class NoEmbedder:
    """The embedder of a corpus that is searched by words alone. Its vectors have length 0."""

    name: str = WORDS_ALONE
    dimension: int = 0

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, 0)."""
        return np.zeros((len(texts), 0), dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        """Return a vector of shape (0,)."""
        return np.zeros(0, dtype=np.float32)
