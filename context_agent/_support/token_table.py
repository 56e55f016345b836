"""The token table that ships with the package: a vector for each WordPiece token, which are summed for a text.

It needs numpy and `tokenizers`, but not torch. Independent layers use it: the static embedder, and the pruning of
conversations.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from context_agent._support.shipped_models import TOKENIZER_FILE as SHIPPED_TOKENIZER
from context_agent.errors import DataError, reason_of
from context_agent.text.normalization import well_formed

SHIPPED_FOLDER = SHIPPED_TOKENIZER.parent
WEIGHTS_FILE, TOKENIZER_FILE = "static-minilm.safetensors", "tokenizer.json"
VALUES, SCALES = "values", "scales"
"""Names of the tensors in the weights file: int8 values, shape (vocabulary, d), and a factor for each row."""
_BATCH = 256
"""The number of texts tokenized at a time, which bounds memory."""
_PIECE = 65_536
"""The number of characters of one text tokenized at a time.

Otherwise a very long text would take a hundred times its size.
"""
_OTHER = re.compile(r"[^\t\n\r -~]|\[(?:PAD|UNK|CLS|SEP|MASK)\]")
"""A character outside printable ASCII, or a special token. The tokenizer reads a text with one of them as a whole."""
_WORD = re.compile(r"[a-z0-9]++|[^\sa-z0-9]")
"""A word of other texts, in lower case. The tokenizer reads each word alone."""
_MAX_WORDS = 32_768
"""Maximum number of words whose tokens are remembered. They take a few megabytes."""
_LONGEST_WORD = 100
"""Maximum number of characters of a word that is remembered. The tokenizer divides no longer one into tokens."""


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
    _words: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return int(self.values.shape[1])

    def vectors(self, ids: NDArray[np.integer[Any]] | Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors of the tokens with these ids, shape (n_ids, d)."""
        return self.values.take(ids, axis=0) * self.scales.take(ids, axis=0)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's tokens.

        The tokens of words in printable ASCII are remembered, because most words of a text occur again.
        """
        found: list[list[int]] = [[] for _ in texts]
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            others = [row for row, text in enumerate(batch) if len(text) > _PIECE or _OTHER.search(text)]
            for number, encoded in self._encoded([batch[row] for row in others]) if others else ():
                found[start + others[number]] += encoded
            by_row = {row: _WORD.findall(batch[row].lower()) for row in {*range(len(batch))}.difference(others)}
            tokens = self._tokens_of(set(chain.from_iterable(by_row.values())))
            for row, words in by_row.items():
                found[start + row] += chain.from_iterable(map(tokens.__getitem__, words))
        return found

    def _tokens_of(self, words: AbstractSet[str]) -> dict[str, list[int]]:
        """Return the ids of the tokens of each word in lower case."""
        tokens = {word: known for word in words if (known := self._words.get(word)) is not None}
        if missing := [word for word in words if word not in tokens]:
            new: dict[str, list[int]] = {word: [] for word in missing}
            encoding = self.tokenizer.encode(" ".join(missing), add_special_tokens=False)
            for token, number in zip(encoding.ids, encoding.word_ids, strict=True):
                if number is not None:
                    new[missing[number]].append(token)
            tokens |= new
            if len(self._words) + len(new) > _MAX_WORDS:
                self._words.clear()
            self._words.update((word, ids) for word, ids in new.items() if len(word) <= _LONGEST_WORD)
        return tokens

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


def load_weights(folder: Path = SHIPPED_FOLDER) -> StaticWeights:
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
            f"the static embedding in {folder} cannot be read ({reason_of(error, inside=folder)}). Reinstall "
            "context-agent."
        ) from error
    except Exception as error:  # `tokenizers` raises bare exceptions on a damaged file
        raise DataError(
            f"the tokenizer in {folder} cannot be read ({reason_of(error)}). Reinstall context-agent."
        ) from error
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
