"""Your own embedder and your own reranker, as two small functions. Both are toys here, so the script runs offline.

    python examples/own_embedder_and_reranker.py

An embedder may also be a spec such as "minilm" or "openai:MODEL@URL", or an embedding function of Chroma. A reranker
may be `load_reranker("cross-encoder:MODEL")` or the address of a /rerank endpoint.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from context_agent import Document, MemoryCorpus

DOCUMENTS = [
    Document("tide", "High water is at six."),
    Document("gate", "The gate opens when the water is high."),
    Document("bread", "Bread is made of flour, water and salt."),
]
QUERY = "when is high water"
DIMENSION = 512


def embed(texts: list[str]) -> NDArray[np.float32]:
    """Return vectors that count groups of three letters, shape (n, 512)."""
    vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
    for row, text in enumerate(texts):
        for start in range(len(text) - 2):
            vectors[row, zlib.crc32(text[start : start + 3].encode()) % DIMENSION] += 1
    return vectors


class SharedWords:
    """Scores a text by the share of its words that the query has."""

    name = "shared-words"

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a score for each text, shape (n,)."""
        wanted = set(query.casefold().split())
        words = [set(text.casefold().replace(".", " ").split()) for text in texts]
        return np.array([len(wanted & found) / len(found) for found in words], dtype=np.float32)


def main() -> None:
    """Print the ranking by the embedder alone, and with the reranker."""
    for reranker in (None, SharedWords()):
        corpus = MemoryCorpus(DOCUMENTS, embedder=embed, reranker=reranker)
        order = [hit.chunk.document_id for hit in corpus.search(QUERY, k=3)]
        print(f"{'fused' if reranker is None else reranker.name}: {', '.join(order)}")


if __name__ == "__main__":
    main()
