"""The token table that ships with the package: a vector for each WordPiece token, which are summed for a text.

It needs numpy and `tokenizers`, but not torch. Independent layers use it: the static embedder, and the pruning of
conversations.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from context_agent._support.shipped_models import TOKENIZER_FILE as SHIPPED_TOKENIZER
from context_agent.errors import DataError
from context_agent.text.normalization import well_formed

SHIPPED = SHIPPED_TOKENIZER.parent
WEIGHTS_FILE, TOKENIZER_FILE = "static-minilm.safetensors", "tokenizer.json"
VALUES, SCALES = "values", "scales"
"""Names of the tensors in the weights file: int8 values, shape (vocabulary, d), and a factor for each row."""
_BATCH = 256
"""The number of texts tokenized at a time, which bounds memory."""
_PIECE = 65_536
"""The number of characters of one text tokenized at a time.

Otherwise a very long text would take a hundred times its size.
"""


@dataclass(frozen=True, slots=True)
class StaticWeights:
    """A token table and its tokenizer.

    The vector of a token is its row of `values` times its factor in `scales`. The table stays in bytes, because as
    floats it would be most of a small process's memory.

    Attributes:
        name: The name of the weights.
        values: The rows, shape (vocabulary, d).
        scales: The factors, shape (vocabulary, 1). They include the weights of the tokens.
        tokenizer: The tokenizer whose ids are the rows.
    """

    name: str
    values: NDArray[np.int8]
    scales: NDArray[np.float32]
    tokenizer: Tokenizer

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return int(self.values.shape[1])

    def vectors(self, ids: NDArray[np.integer[Any]] | Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors of the tokens with these ids, shape (n_ids, d)."""
        return self.values.take(ids, axis=0) * self.scales.take(ids, axis=0)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's tokens."""
        found: list[list[int]] = [[] for _ in texts]
        for start in range(0, len(texts), _BATCH):
            for row, encoded in self._encoded(texts[start : start + _BATCH]):
                found[start + row] += encoded
        return found

    def _encoded(self, texts: Sequence[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield the ids of the tokens of each piece of a text, with the text's row."""
        rows, pieces = zip(*_pieces(texts), strict=True)
        encodings = self.tokenizer.encode_batch_fast(list(pieces), add_special_tokens=False)
        for row, encoding in zip(rows, encodings, strict=True):
            yield row, encoding.ids

    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the sum of the vectors of each text's tokens, shape (n_texts, d).

        A text without a known token has a row of zeros.
        """
        sums = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            for row, ids in self._encoded(texts[start : start + _BATCH]):
                if ids:
                    sums[start + row] += self.vectors(ids).sum(axis=0)
        return sums


_LOADED: dict[Path, StaticWeights] = {}
_LOADING = threading.Lock()


def load_weights(folder: Path = SHIPPED) -> StaticWeights:
    """Return the weights in a folder, which are read once per process.

    Raises:
        DataError: If a file is missing or damaged.
    """
    with _LOADING:
        if folder not in _LOADED:
            _LOADED[folder] = _read(folder)
        return _LOADED[folder]


def _read(folder: Path) -> StaticWeights:
    try:
        with safe_open(folder / WEIGHTS_FILE, framework="numpy") as file:
            metadata = file.metadata() or {}
            values, scales = file.get_tensor(VALUES), file.get_tensor(SCALES)[:, None]
        tokenizer = Tokenizer.from_str((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(
            f"the static embedding in {folder} cannot be read ({error}). Reinstall context-agent."
        ) from error
    except Exception as error:  # `tokenizers` raises bare exceptions on a damaged file
        raise DataError(f"the tokenizer in {folder} cannot be read ({error}). Reinstall context-agent.") from error
    if values.ndim != 2 or not len(values) == len(scales) == tokenizer.get_vocab_size():
        raise DataError(
            f"the static embedding in {folder} has vectors of shape {values.shape}, but its tokenizer has "
            f"{tokenizer.get_vocab_size():,} tokens. Use both files of the same model."
        )
    return StaticWeights(metadata.get("name", folder.name), values, scales, tokenizer)


def _pieces(texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield each text with its row. A long text is cut into pieces, at spaces if possible."""
    for row, text in enumerate(texts):
        start = 0
        while len(text) - start > _PIECE:
            end = text.rfind(" ", start + 1, start + _PIECE)
            end = end if end > 0 else start + _PIECE
            yield row, well_formed(text[start:end])
            start = end
        yield row, well_formed(text[start:] if start else text)
