"""Embedders that run in this process: the two that ship with the package, and any model of sentence-transformers.

Those that ship need numpy, `tokenizers` and onnxruntime, no torch and no download. sentence-transformers and torch are
imported at first use.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from context_agent._support.onnx import MINILM_FILE, MINILM_FORMAT, TOKENIZER_FILE, OnnxModel
from context_agent._support.token_table import SHIPPED, load_weights
from context_agent.errors import EmbedderError, MissingExtraError
from context_agent.retrieval.embedders import Vectors, embed_filled, unit_rows


class MiniLMEmbedder:
    """An `Embedder` over all-MiniLM-L6-v2: 384 dimensions, the first 256 word pieces of a text.

    A transformer of 6 layers and 22 million weights (sentence-transformers, Apache License 2.0) in 8 bits.
    `weights/README.md` says how `scripts/build_minilm.py` makes the file and how near its vectors are to those of the
    full model.

    `file` holds a model written by `scripts/build_minilm.py`; by default the shipped one, loaded at first use. A text
    without a known word piece gets the zero vector. Every method raises `ConfigError` for a file that is missing or
    damaged.
    """

    __slots__ = ("_model",)

    def __init__(self, file: Path = MINILM_FILE) -> None:
        self._model = OnnxModel(file, TOKENIZER_FILE, format=MINILM_FORMAT)

    def __repr__(self) -> str:
        return f"MiniLMEmbedder({self._model!r})"

    @property
    def name(self) -> str:
        """E.g. `minilm-384@1a2b3c4d`; the part after `@` is a digest of the weights and the vocabulary."""
        return self._model.name

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return self._model.width

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (n, 384), each of length 1 or 0."""
        return unit_rows(self._model.encode(texts))

    def embed_query(self, text: str) -> Vectors:
        """Vector of the text, shape (384,), of length 1 or 0. Queries and documents are embedded alike."""
        vector: Vectors = self.embed_documents([text])[0]
        return vector


class StaticEmbedder:
    """An `Embedder` that sums the vectors of a text's tokens. A text without a known token gets the zero vector.

    The vectors are distilled from all-MiniLM-L6-v2 and already carry each token's weight (`weights/README.md` says
    how). Word order is lost and a rare name is a bag of pieces, so alone it retrieves worse than a transformer. It
    takes microseconds, and in a multi-step search together with BM25 the gap is small.

    `folder` holds weights written by `scripts/build_static_embedding.py`; by default the shipped weights are used.
    They are loaded at first use.
    """

    __slots__ = ("_folder",)

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or SHIPPED).absolute()

    def __repr__(self) -> str:
        return f"StaticEmbedder({str(self._folder)!r})"

    @property
    def name(self) -> str:
        """E.g. `static-minilm-380@1a2b3c4d`; the part after `@` is a digest of the weights."""
        return load_weights(self._folder).name

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return load_weights(self._folder).dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (n, d), each of length 1 or 0."""
        return unit_rows(load_weights(self._folder).sums(texts))

    def embed_query(self, text: str) -> Vectors:
        """Vector of the text, shape (d,), of length 1 or 0. Queries and documents are embedded alike."""
        vector: Vectors = self.embed_documents([text])[0]
        return vector


class SentenceTransformerEmbedder:
    """An `Embedder` over a sentence-transformers model: a name on its hub (downloaded at first use) or a folder.

    A model's own prompts for queries and documents are used by default; `""` turns them off. Code in a model's folder
    or repository is refused, not run. `device` is torch's (`cpu`, `cuda:0`); by default the library chooses. Raises
    `MissingExtraError` at construction.
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
        """The model's name, or its folder's, with a digest of prompts that are not the model's own."""
        folder = Path(self._source).expanduser()
        label = f"sentence-transformers:{folder.resolve().name if folder.is_dir() else self._source}"
        if self._prompts == (None, None):
            return label
        return f"{label}+{hashlib.sha256(repr(self._prompts).encode()).hexdigest()[:8]}"

    @property
    def dimension(self) -> int:
        """Length of each vector; loads the model."""
        return int(self._loaded().get_embedding_dimension())

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (n, d). A text longer than the model's window is cut by the model."""
        return self._embed(texts, "encode_document", self._prompts[1])

    def embed_query(self, text: str) -> Vectors:
        """Vector of the query, shape (d,), with the model's prompt for queries if it has one."""
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
                raise EmbedderError(f"{self._source} failed on {len(filled)} texts: {error}") from error
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
            f"the embedding model {source!r} cannot be loaded: {error}. A name is looked up on the hub of "
            "sentence-transformers and downloaded at first use; on a machine without a network, name a folder."
        ) from error
