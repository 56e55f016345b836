"""The token table that ships with the package, as an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from context_agent._support.token_table import SHIPPED, StaticWeights, load_weights
from context_agent.errors import DataError, EmbedderError
from context_agent.retrieval.embedders import Vectors, unit_rows


class StaticEmbedder:
    """An `Embedder` that sums the vectors of a text's tokens. A text without a known token gets the zero vector.

    The vectors are distilled from all-MiniLM-L6-v2 and already carry each token's weight (`weights/README.md` says
    how). Word order is lost, and a rare name is a bag of pieces. So alone it retrieves worse than a transformer. It
    takes microseconds, and in a multi-step search together with BM25 the gap is small.

    Args:
        folder: Weights written by `scripts/build_static_embedding.py`. By default those that ship with the package.
            They are loaded at first use.
    """

    __slots__ = ("_folder",)

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or SHIPPED).absolute()

    def __repr__(self) -> str:
        return f"StaticEmbedder({str(self._folder)!r})"

    @property
    def name(self) -> str:
        """The name, such as `static-minilm-380@1a2b3c4d`. The part after `@` is a digest of the weights."""
        return self._weights().name

    @property
    def dimension(self) -> int:
        """The numbers of a vector."""
        return self._weights().dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, shape (n, d), each of length 1 or 0."""
        return unit_rows(self._weights().sums(texts))

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of the text, shape (d,), of length 1 or 0. Queries and documents are embedded alike."""
        vector: Vectors = self.embed_documents([text])[0]
        return vector

    def _weights(self) -> StaticWeights:
        try:
            return load_weights(self._folder)
        except DataError as error:
            raise EmbedderError(str(error)) from error
