"""The embedder that ships with the package: one vector a WordPiece token, summed. numpy and `tokenizers`, no torch.

The vectors are distilled from all-MiniLM-L6-v2 and already carry each token's weight (`weights/README.md` says how).
Word order is lost and a rare name is a bag of pieces, so alone it retrieves worse than a transformer. It takes
microseconds and no download, and in a multi-step search together with BM25 the gap is small.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from context_agent.errors import EmbedderError
from context_agent.retrieval.embedders import Vectors, unit_rows
from context_agent.tokens import well_formed

SHIPPED = Path(__file__).parent / "weights"
WEIGHTS_FILE, TOKENIZER_FILE = "static-minilm.safetensors", "tokenizer.json"
VALUES, SCALES = "values", "scales"
"""Tensors of the weights file: bytes of shape (vocabulary, d), and the factor of each row."""
_BATCH = 256
"""Texts tokenized at once, which bounds memory."""
_PIECE = 65_536
"""Characters of one text tokenized at once: a text of megabytes would otherwise take a hundred times its size."""


@dataclass(frozen=True, slots=True)
class StaticWeights:
    """A token table and the tokenizer that indexes it. `vectors` has shape (vocabulary, d), weights included."""

    name: str
    vectors: NDArray[np.float32]
    tokenizer: Tokenizer


_LOADED: dict[Path, StaticWeights] = {}
_LOADING = threading.Lock()


def load_weights(folder: Path = SHIPPED) -> StaticWeights:
    """The weights in a folder, read once per process. Raises `EmbedderError` when a file is missing or damaged."""
    with _LOADING:
        if folder not in _LOADED:
            _LOADED[folder] = _read(folder)
        return _LOADED[folder]


def _read(folder: Path) -> StaticWeights:
    try:
        with safe_open(folder / WEIGHTS_FILE, framework="numpy") as file:
            metadata = file.metadata() or {}
            vectors = file.get_tensor(VALUES) * file.get_tensor(SCALES)[:, None]
        tokenizer = Tokenizer.from_str((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    except (OSError, SafetensorError, ValueError) as error:
        raise EmbedderError(f"the static embedding in {folder} cannot be read: {error}") from error
    except Exception as error:  # `tokenizers` raises bare exceptions on a damaged file
        raise EmbedderError(f"the tokenizer in {folder} cannot be read: {error}") from error
    if vectors.ndim != 2 or len(vectors) != tokenizer.get_vocab_size():
        raise EmbedderError(f"the static embedding in {folder} does not match its tokenizer: shape {vectors.shape}")
    return StaticWeights(name=metadata.get("name", folder.name), vectors=vectors, tokenizer=tokenizer)


class StaticEmbedder:
    """An `Embedder` over a token table. A text without a known token gets the zero vector.

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
        return int(load_weights(self._folder).vectors.shape[1])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (n, d), each of length 1 or 0."""
        weights = load_weights(self._folder)
        sums = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            _add_tokens(weights, texts[start : start + _BATCH], sums[start : start + _BATCH])
        return unit_rows(sums)

    def embed_query(self, text: str) -> Vectors:
        """Vector of the text, shape (d,), of length 1 or 0. Queries and documents are embedded alike."""
        vector: Vectors = self.embed_documents([text])[0]
        return vector


def _add_tokens(weights: StaticWeights, texts: Sequence[str], sums: Vectors) -> None:
    """Adds the vectors of each text's tokens to its row of `sums`."""
    rows, pieces = zip(*_pieces(texts), strict=True)
    encodings = weights.tokenizer.encode_batch_fast(list(pieces), add_special_tokens=False)
    for row, encoding in zip(rows, encodings, strict=True):
        if ids := encoding.ids:
            sums[row] += weights.vectors.take(ids, axis=0).sum(axis=0)


def _pieces(texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each text with its row, a long text in pieces, cut at whitespace if possible."""
    for row, text in enumerate(texts):
        start = 0
        while len(text) - start > _PIECE:
            end = text.rfind(" ", start + 1, start + _PIECE)
            end = end if end > 0 else start + _PIECE
            yield row, well_formed(text[start:end])
            start = end
        yield row, well_formed(text[start:] if start else text)
