"""A framework's embedding model as an `Embedder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import EmbedderError

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


@dataclass(frozen=True, slots=True)
class FrameworkEmbedder:
    """A framework's embedding model as an `Embedder`; its vectors are used as they are."""

    name: str
    dimension: int
    documents: Callable[[list[str]], Any]
    query: Callable[[str], Any]

    @classmethod
    def of(cls, collection: Collection, model: object, documents: str, query: str) -> Self:
        """Return the model that embedded a user's collection; `documents` and `query` are the names of its methods."""
        from context_agent.retrieval.chroma.collection import CollectionRecords

        name = f"{type(model).__module__.partition('.')[0]}:{type(model).__name__}"
        return cls(name, CollectionRecords(collection).dimension(), getattr(model, documents), getattr(model, query))

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (n, d)."""
        return self._call(self.documents, list(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Vector of a query, shape (d,)."""
        return self._call(self.query, text)

    def _call(self, embed: Callable[[Any], Any], argument: list[str] | str) -> NDArray[np.float32]:
        try:
            return np.asarray(embed(argument), dtype=np.float32)
        except Exception as error:
            raise EmbedderError(f"the embedding model {self.name} failed: {error}") from error
