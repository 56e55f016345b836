"""A framework's embedding model as an `Embedder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import EmbedderError, reason_of

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


@dataclass(frozen=True, slots=True)
class FrameworkEmbedder:
    """A framework's embedding model as an `Embedder`. The model's vectors are not changed.

    Attributes:
        name: The name of the model.
        dimension: The dimension of its vectors.
        documents: A function that embeds texts of documents.
        query: A function that embeds a query.
    """

    name: str
    dimension: int
    documents: Callable[[list[str]], Any]
    query: Callable[[str], Any]

    @classmethod
    def of(cls, collection: Collection, model: object, documents: str, query: str) -> Self:
        """Return the model that embedded a user's collection.

        Args:
            collection: The collection. It states the dimension of the vectors.
            model: The framework's model.
            documents: The name of the model's method that embeds texts of documents.
            query: The name of the model's method that embeds a query.
        """
        from context_agent.retrieval.chroma.collection import CollectionRecords

        name = f"{type(model).__module__.partition('.')[0]}:{type(model).__name__}"
        return cls(name, CollectionRecords(collection).dimension(), getattr(model, documents), getattr(model, query))

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, shape (n_texts, dimension).

        Raises:
            EmbedderError: If the model fails.
        """
        return self._call(self.documents, list(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a query, shape (dimension,).

        Raises:
            EmbedderError: If the model fails.
        """
        return self._call(self.query, text)

    def _call(self, embed: Callable[[Any], Any], argument: list[str] | str) -> NDArray[np.float32]:
        try:
            return np.asarray(embed(argument), dtype=np.float32)
        except Exception as error:
            raise EmbedderError(
                f"the embedding model {self.name} failed ({reason_of(error)}). Check the model that the framework "
                "was given."
            ) from error
