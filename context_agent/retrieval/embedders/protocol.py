"""What retrieval needs from an embedding model, and the two small duties every embedder shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Texts to unit vectors, so that a dot product is a cosine. Safe to call from several threads at once.

    A text without content (empty, whitespace, no known token) may get the zero vector, whose cosine with everything
    is 0; every vector is finite.
    """

    @property
    def name(self) -> str:
        """Stable identity, written in an index's manifest: two embedders of one name give the same vectors."""

    @property
    def dimension(self) -> int:
        """Length of each vector. May ask the model, and so raise `EmbedderError`."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts to be found, shape (n, d), L2-normalised. Raises `EmbedderError`."""

    def embed_query(self, text: str) -> Vectors:
        """Vector of a text to search by, shape (d,), L2-normalised. Raises `EmbedderError`."""


def unit_rows(rows: Vectors) -> Vectors:
    """Rows scaled to length 1, shape kept. A row of zeros stays zero; one that is not finite becomes zero."""
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    clean = np.where(finite, rows, 0.0)
    # A row of huge values would overflow in its square: scaled by its largest value first.
    largest = np.abs(clean).max(axis=1, keepdims=True, initial=0.0)
    clean = clean / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(clean, axis=1, keepdims=True)
    return np.asarray(clean / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def well_formed(text: str) -> str:
    """The text with each lone surrogate replaced by `?`, so that it can be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def has_content(text: str) -> bool:
    """Whether there is anything but whitespace to embed."""
    return bool(text) and not text.isspace()
