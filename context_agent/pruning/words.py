"""The words of a conversation's passages, and comparisons of passages by BM25, rare words and resemblance."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from context_agent._support.text_cache import TextCache
from context_agent.pruning.blocks import Passage
from context_agent.text.normalization import vowel_signs, without_marks, without_silent
from context_agent.text.scripts import SPACED

Scores = NDArray[np.float64]
"""A number for each passage, shape (n_passages,). Passages with higher scores stay."""

STEM_LETTERS = 6
"""The number of letters of a word that are compared, in any language."""
SHORTEST_PLURAL = 3
"""Maximum number of letters of a word that keeps an `s` at its end. Longer words lose it."""
NAMING_LETTERS = 3
"""Minimum number of letters of a word that may name something."""
BM25_K1, BM25_B = 1.2, 0.75
_ASCII_TERM = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""A word, a part of an identifier in camel or snake case, or a number."""


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    word = word.lower()
    if len(word) > SHORTEST_PLURAL and word.endswith("s") and word[-2] not in "siu":
        word = word[:-1]
    return word[:STEM_LETTERS]


@lru_cache(maxsize=1 << 16)
def _word_id(word: str) -> int:
    return term_id(_stem(word))


def terms(text: str) -> list[str]:
    """Return the words of a text in the form in which they are compared."""
    return [*map(_stem, _written_terms(text))]


def _written_terms(text: str) -> list[str]:
    """Return the words of a text in their case, without accents.

    In scripts without spaces, each character is a word.
    """
    if text.isascii():
        return _ASCII_TERM.findall(text)
    return _term().findall(SPACED.sub(lambda part: without_marks(part[0]), without_silent(text)))


@cache
def _term() -> re.Pattern[str]:
    character = r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    return re.compile(rf"{_ASCII_TERM.pattern}|{character}|(?:[^\W\d_A-Za-z][{vowel_signs()}]*)++")


@lru_cache(maxsize=1 << 16)
def term_id(term: str) -> int:
    """Return a number of 32 bits for a term. It is the same in every process.

    The number is odd if and only if the term has at least `NAMING_LETTERS` letters.
    """
    return zlib.crc32(term.encode(errors="surrogatepass")) & ~1 | (len(term) >= NAMING_LETTERS)


def is_naming(number: int) -> bool:
    """Return True if the word with this number has at least `NAMING_LETTERS` letters."""
    return number % 2 == 1


def _term_ids(text: str) -> NDArray[np.uint32]:
    words = _written_terms(text)
    return np.fromiter(map(_word_id, words), dtype=np.uint32, count=len(words))


TERM_IDS = TextCache[NDArray[np.uint32]](16_384)


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows scaled to length 1. A row of zeros does not change."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-9), dtype=np.float32)


def labeled(passage: Passage) -> str:
    """Return the text of a passage with its label before it."""
    return f"{passage.label} {passage.text}"


@dataclass(frozen=True, slots=True)
class Novelty:
    """How much of each passage occurs in other passages of the conversation. Each array has shape (n_passages,).

    Attributes:
        rarity: The mean inverse document frequency of the passage's words.
        unique: The share of its words that no other passage has.
        paired: The share of its words that exactly one other passage has.
        words: The number of its different words.
    """

    rarity: Scores
    unique: Scores
    paired: Scores
    words: Scores


class PassageWords:
    """The words of a conversation's passages. A word is rare if few of these passages have it.

    Words are represented by the numbers of `term_id`.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        ids = TERM_IDS.values([*map(labeled, passages)], lambda texts: [*map(_term_ids, texts)])
        sizes = np.array([len(row) for row in ids], dtype=np.int64)
        rows = np.repeat(np.arange(len(ids), dtype=np.uint64), sizes)
        keys = (rows << np.uint64(32)) | np.concatenate([*ids, np.zeros(0, np.uint32)]).astype(np.uint64)
        keys, self._counts = np.unique(keys, return_counts=True)
        self._rows = (keys >> np.uint64(32)).astype(np.int64)
        numbers = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        self._vocabulary, self._columns, self._frequency = np.unique(numbers, return_inverse=True, return_counts=True)
        self._starts = np.searchsorted(self._rows, np.arange(len(ids) + 1))
        self.size = len(ids)
        average = max(1.0, float(sizes.mean()) if len(ids) else 1.0)
        norms = BM25_K1 * (1 - BM25_B + BM25_B * sizes / average)
        self._saturation = self._counts * (BM25_K1 + 1) / (self._counts + norms[self._rows])
        # The inverse document frequency of each word (Robertson & Zaragoza, 2009), shape (n_words,).
        self._rarity = np.log1p((self.size - self._frequency + 0.5) / (self._frequency + 0.5))

    def weights(self, query: Mapping[int, float]) -> Scores:
        """Return the weight of each word for a query, shape (n_words,).

        It is the word's weight in the query times its rarity.
        """
        weights = np.zeros(len(self._vocabulary))
        columns, values = self._found(query)
        weights[columns] = values
        return weights * self._rarity

    def term_weights(self, query: Mapping[int, float]) -> dict[int, float]:
        """Return the weights of the words for a query by word, leaving out words with weight 0."""
        weights = self.weights(query)
        columns = np.flatnonzero(weights)
        return dict(zip(self._vocabulary[columns].tolist(), weights[columns].tolist(), strict=True))

    def _found(self, query: Mapping[int, float]) -> tuple[NDArray[np.int64], Scores]:
        """Return the columns of the query's words that some passage has, and their weights in the query."""
        wanted = np.fromiter(query, dtype=np.uint32, count=len(query))
        values = np.fromiter(query.values(), dtype=np.float64, count=len(query))
        if not len(self._vocabulary):
            return np.zeros(0, np.int64), np.zeros(0)
        columns = np.minimum(np.searchsorted(self._vocabulary, wanted), len(self._vocabulary) - 1)
        has = self._vocabulary[columns] == wanted
        return columns[has], values[has]

    def scores(self, query: Mapping[int, float]) -> Scores:
        """Return the BM25 score of each passage for a query of weighted words, shape (n_passages,)."""
        return self._summed(self.weights(query)[self._columns] * self._saturation)

    def coverage(self, query: Mapping[int, float]) -> Scores:
        """Return the share of the query's weight that each passage's words have, shape (n_passages,), from 0 to 1.

        Words that no passage has are left out of the weight.
        """
        weights = self.weights(query)
        return self._summed(weights[self._columns]) / max(1e-9, float(weights.sum()))

    def _summed(self, values: Scores) -> Scores:
        sums = np.bincount(self._rows, weights=values, minlength=self.size)[: self.size]
        return sums.astype(np.float64, copy=False)

    def novelty(self) -> Novelty:
        """Return how much of each passage occurs in other passages."""
        sizes = np.diff(self._starts)
        words = np.maximum(sizes, 1)
        is_paired = (self._frequency == 2) & (self._vocabulary % 2 == 1)
        columns = (self._rarity, (self._frequency == 1).astype(np.float64), is_paired.astype(np.float64))
        rarity, unique, paired = (self._summed(values[self._columns]) / words for values in columns)
        return Novelty(rarity, unique, paired, sizes.astype(np.float64))

    def rare_terms(self, row: int) -> list[int]:
        """Return the passage's words that occur in at least two passages, and in at most one passage in eight.

        Words of fewer than `NAMING_LETTERS` letters are left out.
        """
        most = max(2, self.size // 8)
        columns = self._columns[self._starts[row] : self._starts[row + 1]]
        numbers, frequency = self._vocabulary[columns], self._frequency[columns]
        found: list[int] = numbers[(frequency >= 2) & (frequency <= most) & (numbers % 2 == 1)].tolist()
        return found

    def resemblance(self, rows: Sequence[int]) -> Scores:
        """Return the resemblance of each passage to these rows, shape (n_passages,), from 0 to 1.

        It is the cosine of the passage with the nearest row by their words. Each word is weighted by its rarity.
        """
        squares = self._rarity**2
        norms = np.sqrt(np.maximum(self._summed(squares[self._columns]), 1e-12))
        nearest = np.zeros(self.size)
        for row in rows:
            shared = np.zeros(len(self._vocabulary))
            columns = self._columns[self._starts[row] : self._starts[row + 1]]
            shared[columns] = squares[columns]
            nearest = np.maximum(nearest, self._summed(shared[self._columns]) / (norms * norms[row]))
        return nearest


def query_of(weighted: Iterable[tuple[str, float]]) -> dict[int, float]:
    """Return each word of the texts with the weight of its text.

    If a word occurs in several texts, the last text's weight counts.
    """
    query: dict[int, float] = {}
    for text, weight in weighted:
        query |= dict.fromkeys(map(term_id, terms(text)), weight)
    return query
