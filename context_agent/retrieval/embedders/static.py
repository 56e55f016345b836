"""An `Embedder` with the token table that ships with the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from context_agent._support.token_table import SHIPPED_FOLDER, StaticWeights, load_weights
from context_agent.errors import DataError, EmbedderError
from context_agent.retrieval.embedders import Vectors, unit_rows


class StaticEmbedder:
    """An `Embedder` that adds up the vectors of a text's tokens. A text without a known token gets the zero vector.

    The vectors are distilled from all-MiniLM-L6-v2 and already include each token's weight (see `weights/README.md`).
    Word order is lost, and a rare name is a bag of pieces. So by itself it retrieves worse than a transformer. But it
    takes microseconds, and in a multi-step search together with BM25 the difference is small.

    Args:
        folder: A folder of weights written by `scripts/build_static_embedding.py`. Defaults to the weights that ship
            with the package. They are loaded at first use.
    """

    __slots__ = ("_folder",)

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or SHIPPED_FOLDER).absolute()

    def __repr__(self) -> str:
        return f"StaticEmbedder({str(self._folder)!r})"

    @property
    def name(self) -> str:
        """The name, such as `static-minilm-380@1a2b3c4d`. The part after `@` is a digest of the weights."""
        return self._weights().name

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return self._weights().dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, shape (n, d), each of length 1 or 0."""
        return unit_rows(self._weights().sums(texts))

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of the text, shape (d,), of length 1 or 0. Queries are embedded like documents."""
        vector: Vectors = self.embed_documents([text])[0]
        return vector

    def _weights(self) -> StaticWeights:
        try:
            return load_weights(self._folder)
        except DataError as error:
            raise EmbedderError(str(error)) from error
