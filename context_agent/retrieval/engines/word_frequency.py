"""Estimates of how common a word is in general, for an engine that does not report its own counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from context_agent._support.token_table import load_weights

PASSAGE_WORDS = 100
"""The number of words in a typical passage."""
_MOST_FREQUENT_WORD = "the"
"""The most frequent word. Special tokens and single characters precede it in the vocabulary."""
_CHARACTER_RANK = 500
"""The rank of a single character. The vocabulary sorts single characters by their code, not by frequency."""


def estimated_frequency(terms: Sequence[str], passages: int) -> NDArray[np.int64]:
    """Estimate how many of the passages contain each term.

    The vocabulary of the tokenizer that ships with the package is sorted by frequency, so a word's position is its
    rank. By Zipf's law, the word of rank r has a share of 1 / (r * ln(V)) of a text with V different words. If the
    tokenizer splits a word into pieces, the word is rarer than all words that are one token.

    Args:
        terms: The terms.
        passages: The number of passages, which have `PASSAGE_WORDS` words each.

    Returns:
        The number of passages with each term, shape (n_terms,).
    """
    return np.array([round(passages * _share(term)) for term in terms], dtype=np.int64)


@lru_cache(maxsize=65_536)
def _share(term: str) -> float:
    """Return the share of passages that contain the term. If the term has neither a letter nor a digit, return 0."""
    tokenizer = load_weights().tokenizer
    first, size = tokenizer.encode(_MOST_FREQUENT_WORD, add_special_tokens=False).ids[0], tokenizer.get_vocab_size()
    tokens = tokenizer.encode(term, add_special_tokens=False).ids
    if not tokens or not any(map(str.isalnum, term)):
        return 0.0
    rank = size * len(tokens)
    if len(tokens) == 1:
        rank = tokens[0] - first + 1 if tokens[0] >= first else _CHARACTER_RANK
    return float(-np.expm1(-PASSAGE_WORDS / (rank * np.log(size))))
