"""An `Embedder` for any model of sentence-transformers (extra `embed`)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from context_agent.errors import EmbedderError, MissingExtraError, reason_of
from context_agent.retrieval.embedders import Vectors, embed_filled, unit_rows


class SentenceTransformerEmbedder:
    """An `Embedder` with a model of sentence-transformers.

    Code in the model's folder or repository is never run.

    Args:
        model: A folder, or a name on the hub of sentence-transformers, which is downloaded at first use.
        device: torch's device, such as `cpu` or `cuda:0`. By default, the library chooses it.
        query_prompt: The text before each query. Defaults to the model's own prompt. An empty string means no prompt.
        document_prompt: The text before each document. Defaults to the model's own prompt. An empty string means no
            prompt.
        batch_size: The number of texts that are embedded at once.

    Raises:
        MissingExtraError: If the extra is not installed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        batch_size: int = 32,
    ) -> None:
        if find_spec("sentence_transformers") is None:
            raise MissingExtraError("sentence-transformers", "embed")
        self._source, self._device, self._batch_size = str(model), device, batch_size
        self._prompts = (query_prompt, document_prompt)
        self._model: Any = None
        self._loading = threading.Lock()

    def __repr__(self) -> str:
        return f"SentenceTransformerEmbedder({self._source!r}, device={self._device!r})"

    @property
    def name(self) -> str:
        """The name of the model or of its folder. If the prompts are not the model's own, a digest of them is added."""
        folder = Path(self._source).expanduser()
        label = f"sentence-transformers:{folder.resolve().name if folder.is_dir() else self._source}"
        if self._prompts == (None, None):
            return label
        return f"{label}+{hashlib.sha256(repr(self._prompts).encode()).hexdigest()[:8]}"

    @property
    def dimension(self) -> int:
        """The length of the vectors. Reading it loads the model."""
        return int(self._loaded().get_embedding_dimension())

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, shape (n, d). The model truncates texts that are longer than its window."""
        return self._embed(texts, "encode_document", self._prompts[1])

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of the query, shape (d,). If the model has a prompt for queries, it is used."""
        vector: Vectors = self._embed([text], "encode_query", self._prompts[0])[0]
        return vector

    def _embed(self, texts: Sequence[str], method: str, prompt: str | None) -> Vectors:
        encode = getattr(self._loaded(), method)
        options = {} if prompt is None else {"prompt": prompt}

        def embed(filled: list[str]) -> Vectors:
            try:
                vectors: Vectors = encode(
                    filled, batch_size=self._batch_size, show_progress_bar=False, convert_to_numpy=True, **options
                )
            except (RuntimeError, ValueError) as error:
                raise EmbedderError(
                    f"{self._source} failed on {len(filled)} texts ({error}). Check the model, or pass another "
                    "--embedder."
                ) from error
            return vectors

        return unit_rows(embed_filled(texts, embed, lambda: self.dimension, batch_size=max(1, len(texts))))

    def _loaded(self) -> Any:
        with self._loading:
            if self._model is None:
                self._model = _load(self._source, self._device)
            return self._model


def _load(source: str, device: str | None) -> Any:
    from sentence_transformers import SentenceTransformer

    folder = Path(source).expanduser()
    try:
        return SentenceTransformer(str(folder) if folder.is_dir() else source, device=device, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise EmbedderError(
            f"the embedding model {source!r} cannot be loaded ({reason_of(error)}). A model that is named is "
            "downloaded from the hub at first use. On a machine without a network, pass a folder."
        ) from error
