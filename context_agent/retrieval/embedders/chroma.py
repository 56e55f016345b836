"""Chroma's embedding functions as an `Embedder`: its default, or the one that a collection was made with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from context_agent.errors import EmbedderError
from context_agent.retrieval.embedders.protocol import Vectors, has_content, unit_rows, well_formed

_BATCH = 256
_DOWNLOAD = (
    "Chroma's default embedding function downloads an ONNX model of all-MiniLM-L6-v2 (about 80 MB) at first use, to "
    "~/.cache/chroma/onnx_models. Without network copy that folder from another machine, or use the embedder `static`"
)


class ChromaEmbedder:
    """An `Embedder` over a chromadb `EmbeddingFunction`, as `chromadb.utils.embedding_functions` has many.

    `name` defaults to the function's own, which says nothing of its settings: give one where two functions differ
    in their settings alone.
    """

    def __init__(self, function: Any, *, name: str | None = None) -> None:
        self._function = function
        self._name = name or f"chroma:{_function_name(function)}"

    @classmethod
    def default(cls) -> ChromaEmbedder:
        """Chroma's default: all-MiniLM-L6-v2 by ONNX, 384 dimensions, downloaded at first use."""
        from chromadb.utils.embedding_functions import DefaultEmbeddingFunction

        return cls(DefaultEmbeddingFunction(), name="chroma-default")

    def __repr__(self) -> str:
        # The function's own repr may show a key.
        return f"ChromaEmbedder(name={self._name!r})"

    @property
    def name(self) -> str:
        """`chroma-default`, or `chroma:` and the function's name."""
        return self._name

    @cached_property
    def dimension(self) -> int:
        """Length of each vector; asks the function once."""
        return int(self._call(["dimension"], query=False).shape[1])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (n, d)."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        filled = [i for i, text in enumerate(texts) if has_content(text)]
        for start in range(0, len(filled), _BATCH):
            rows = filled[start : start + _BATCH]
            vectors[rows] = self._call([texts[i] for i in rows], query=False)
        return unit_rows(vectors)

    def embed_query(self, text: str) -> Vectors:
        """Vector of the query, shape (d,), by the function's own way with queries where it has one."""
        if not has_content(text):
            return np.zeros(self.dimension, dtype=np.float32)
        vector: Vectors = unit_rows(self._call([text], query=True))[0]
        return vector

    def _call(self, texts: list[str], *, query: bool) -> Vectors:
        call = getattr(self._function, "embed_query", self._function) if query else self._function
        try:
            found = np.asarray(call([well_formed(text) for text in texts]), dtype=np.float32)
        except Exception as error:  # each function raises the errors of the library or service behind it
            hint = f". {_DOWNLOAD}" if self._name == "chroma-default" else ""
            raise EmbedderError(f"{self._name} failed on {len(texts)} texts: {error}{hint}") from error
        if found.ndim != 2 or len(found) != len(texts):
            raise EmbedderError(f"{self._name} returned shape {found.shape} for {len(texts)} texts")
        return found


def _function_name(function: Any) -> str:
    try:
        return str(function.name())
    except (AttributeError, TypeError):
        return type(function).__name__
