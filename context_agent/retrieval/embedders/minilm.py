"""all-MiniLM-L6-v2, which ships with the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from context_agent._support.onnx import OnnxModel
from context_agent._support.shipped_models import MINILM_FILE, MINILM_FORMAT, TOKENIZER_FILE
from context_agent.retrieval.embedders import Vectors, unit_rows


class MiniLMEmbedder:
    """An `Embedder` with all-MiniLM-L6-v2. Vectors have 384 dimensions, and only the first 256 word pieces of a text
    count.

    The model is a transformer of 6 layers and 22 million weights (sentence-transformers, Apache License 2.0) in 8 bits.
    `weights/README.md` says how `scripts/build_minilm.py` makes the file, and how close its vectors are to those of the
    full model. A text without a known word piece gets the zero vector.

    Args:
        file: A model written by `scripts/build_minilm.py`. Defaults to the one that ships with the package. It is
            loaded at first use.

    Raises:
        ConfigError: From every method, if the file is missing or damaged.
    """

    __slots__ = ("_model",)

    def __init__(self, file: Path = MINILM_FILE) -> None:
        self._model = OnnxModel(file, TOKENIZER_FILE, format=MINILM_FORMAT)

    def __repr__(self) -> str:
        return f"MiniLMEmbedder({self._model!r})"

    @property
    def name(self) -> str:
        """The name, such as `minilm-384@1a2b3c4d`. The part after `@` is a digest of the weights and the vocabulary."""
        return self._model.name

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return self._model.width

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, shape (n, 384), each of length 1 or 0."""
        return unit_rows(self._model.encode(texts))

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of the text, shape (384,), of length 1 or 0. Queries are embedded like documents."""
        vector: Vectors = self.embed_documents([text])[0]
        return vector
