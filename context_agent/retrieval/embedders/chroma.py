"""Chroma's embedding functions as an `Embedder`: its default function, or a function of the caller."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property
from tarfile import TarError
from typing import Any

import numpy as np

from context_agent._support.telemetry import disable_onnxruntime_telemetry
from context_agent.errors import ConfigError, EmbedderError, reason_of
from context_agent.retrieval.embedders import CHROMA_DEFAULT, Vectors, embed_filled, unit_rows

_BATCH_TEXTS = 256
_DOWNLOAD_HINT = (
    "Chroma's default embedding function downloads an ONNX model of all-MiniLM-L6-v2 (about 80 MB) at first use, "
    "to ~/.cache/chroma/onnx_models. Without a network, copy that folder from another machine. For a new index "
    "you can also pass --embedder static, and for an existing collection --embedder none, which searches by "
    "words alone."
)


class ChromaEmbedder:
    """An `Embedder` that wraps a chromadb `EmbeddingFunction`, such as those in `chromadb.utils.embedding_functions`.

    Any other function from a list of texts to their vectors also works.

    Args:
        function: The function that embeds the texts.
        name: The name of the embedder. Defaults to the function's own name, which does not include its settings. Pass a
            name if two functions differ only in their settings.
        normalize: Whether to scale the vectors to length 1. False keeps their lengths, for a collection whose distances
            depend on them.
    """

    def __init__(self, function: Any, *, name: str | None = None, normalize: bool = True) -> None:
        self._function, self._normalize = function, normalize
        self._name = name or _name_of(function)

    @classmethod
    def default(cls) -> ChromaEmbedder:
        """Return Chroma's default embedder, all-MiniLM-L6-v2 in ONNX with 384 dimensions.

        The model is downloaded at first use.
        """
        disable_onnxruntime_telemetry()
        from chromadb.utils.embedding_functions import DefaultEmbeddingFunction

        return cls(DefaultEmbeddingFunction(), name=CHROMA_DEFAULT)

    @classmethod
    def downloaded(cls) -> ChromaEmbedder:
        """Return Chroma's default embedder if its model files are on this machine. Never download them.

        Raises:
            ConfigError: If the files are missing.
        """
        return cls(_offline_default(), name=CHROMA_DEFAULT)

    @classmethod
    def of_collection(cls, collection: Any) -> ChromaEmbedder | None:
        """Return the embedding function that the caller passed when opening the collection.

        Its vectors are not normalized. If the caller passed no function, return None. A function that is stored with
        the collection is ignored.
        """
        from chromadb.api.types import DefaultEmbeddingFunction

        function = collection._embedding_function  # noqa: SLF001 - Chroma has no public accessor
        # Chroma sets its default if the caller passed nothing.
        if function is None or isinstance(function, DefaultEmbeddingFunction):
            return None
        return cls(function, normalize=False)

    def __repr__(self) -> str:
        # The function's own repr may show a key.
        return f"ChromaEmbedder(name={self._name!r})"

    @property
    def name(self) -> str:
        """The name of the embedder.

        It is `chroma-default`, `chroma:NAME` for a function of Chroma, or `function:NAME` for any other function.
        """
        return self._name

    @cached_property
    def dimension(self) -> int:
        """The length of the vectors. Reading it for the first time calls the function."""
        return int(self._call(["dimension"], query=False).shape[1])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, shape (n, d)."""
        return self._embed(texts, query=False)

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of the query, shape (d,). If the function has a method for queries, use it."""
        vector: Vectors = self._embed([text], query=True)[0]
        return vector

    def _embed(self, texts: Sequence[str], *, query: bool) -> Vectors:
        vectors = embed_filled(
            texts, lambda batch: self._call(batch, query=query), lambda: self.dimension, batch_size=_BATCH_TEXTS
        )
        return unit_rows(vectors) if self._normalize else vectors

    def _call(self, texts: list[str], *, query: bool) -> Vectors:
        call = getattr(self._function, "embed_query", self._function) if query else self._function
        try:
            vectors = np.asarray(call(texts), dtype=np.float32)
        except Exception as error:  # each function raises the errors of the library or service behind it
            hint = f". {_DOWNLOAD_HINT}" if self._name == CHROMA_DEFAULT else ""
            raise EmbedderError(f"{self._name} failed on {len(texts)} texts ({reason_of(error)}){hint}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise EmbedderError(
                f"{self._name} must take a list of texts and return a vector for each; got shape {vectors.shape} for "
                f"{len(texts)} texts"
            )
        return vectors


def _offline_default() -> Any:
    disable_onnxruntime_telemetry()
    from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2

    class OfflineDefault(ONNXMiniLM_L6_V2):
        def _download(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
            raise OSError("the model files are not on this machine")

    try:
        function = OfflineDefault()
        # This is also Chroma's own check. The files are complete, or Chroma unpacks an archive with the right digest.
        function._download_model_if_not_exists()  # noqa: SLF001
    except (OSError, ValueError, TarError, AttributeError) as error:
        raise ConfigError(
            f"Its model files cannot be used as they are ({reason_of(error)}), and an index cannot start a download. "
            "To allow it, pass --embedder chroma-default (in Python: embedder=)."
        ) from error
    return function


def _name_of(function: Any) -> str:
    if inspect.isroutine(function):
        return f"function:{getattr(function, '__qualname__', 'unnamed')}"
    return f"chroma:{_function_name(function)}"


def _function_name(function: Any) -> str:
    from chromadb.api.types import EmbeddingFunction

    # An inherited method only warns that the function has no name.
    inherited = getattr(type(function), "name", None) in (None, EmbeddingFunction.name)
    return type(function).__name__ if inherited else str(function.name())
