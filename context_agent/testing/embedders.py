"""An embedder for tests. It needs no model and no download, and gives the same vectors on every machine."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class HashEmbedder:
    """An embedder that counts words in hashed buckets. Texts that share words have similar vectors.

    Args:
        dimension: The length of a vector.

    Attributes:
        embedded: The number of documents that were embedded so far.
    """

    def __init__(self, dimension: int = 64) -> None:
        self.dimension = dimension
        self.name = f"test-hash-{dimension}"
        self.embedded = 0

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector of length 1 for each text, shape (n_texts, dimension)."""
        self.embedded += len(texts)
        return np.stack([self._embed(text) for text in texts]) if texts else np.zeros((0, self.dimension), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a query, shape (dimension,)."""
        return self._embed(text)

    def _embed(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(self.dimension, dtype=np.float32)
        for word in re.findall(r"\w+", text.lower()):
            bucket = zlib.crc32(word.encode(errors="replace"))
            vector[bucket % self.dimension] += 1.0 if bucket & 0x10000 else -1.0
        norm = float(np.linalg.norm(vector))
        return vector / norm if norm else vector
