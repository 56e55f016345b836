"""The word pieces of passages with their static vectors, and how well passages cover the meaning of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from context_agent._support.text_cache import TextCache
from context_agent._support.token_table import load_weights
from context_agent.pruning.blocks import Passage
from context_agent.pruning.units import units
from context_agent.pruning.words import unit_rows

MAX_TASK_PIECES = 32
"""Maximum number of word pieces of a task that passages are compared with. Those with the longest vectors are taken."""
BLOCK_PIECES = 32_768
"""The number of word pieces whose vectors are in memory at a time."""
EXACT_COSINE = 0.99
"""The cosine from which two word pieces count as the same."""
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextPieces:
    """The word pieces of a passage.

    Attributes:
        ids: The ids of the pieces, shape (n_pieces,). The label comes first, then the units, each after a piece of
            padding.
        units: The index of the first piece of each unit, shape (n_units,).
        vector: The sum of the pieces' vectors, shape (d,).
    """

    ids: NDArray[np.uint16]
    units: Integers
    vector: Floats


PIECES = TextCache[TextPieces](8_192)


def pieces_of(passages: Sequence[Passage]) -> list[TextPieces]:
    """Return the word pieces of each passage."""
    keys = [f"{passage.form}\0{passage.label}\0{passage.text}" for passage in passages]
    by_key = dict(zip(keys, passages, strict=True))
    return PIECES.values(keys, lambda missing: _computed([by_key[key] for key in missing]))


def _computed(passages: Sequence[Passage]) -> list[TextPieces]:
    weights = load_weights()
    split = [[passage.label, *units(passage)] for passage in passages]
    ids = iter(weights.ids([part for parts in split for part in parts]))
    found = []
    for parts in split:
        by_part = [next(ids) for _ in parts]
        # A piece of padding before each part, so that none is empty.
        own = np.fromiter(chain.from_iterable((0, *part) for part in by_part), dtype=np.uint16)
        starts = np.cumsum([0, *(len(part) + 1 for part in by_part[:-1])])
        found.append(TextPieces(own, starts[1:], _vector_sum(own)))
    return found


def _vector_sum(ids: NDArray[np.uint16]) -> Floats:
    """Return the sum of the vectors of these pieces, shape (d,). A block of them is in memory at a time."""
    weights = load_weights()
    total = np.zeros(weights.dimension, dtype=np.float32)
    for start in range(0, len(ids), BLOCK_PIECES):
        total += weights.vectors(ids[start : start + BLOCK_PIECES]).sum(axis=0, dtype=np.float32)
    return total


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well passages cover the word pieces of a task. Each number is a share of the weight of these pieces.

    Attributes:
        soft: The sum of the squared cosines of each piece with the most similar one in the passage, shape
            (n_passages,).
        exact: The share of the pieces that the passage has, shape (n_passages,).
        by_unit: The soft coverage of each unit with its label, shape (n_units,).
        starts: The index of the first unit of each passage, shape (n_passages,).
    """

    soft: Floats
    exact: Floats
    by_unit: Floats
    starts: Integers

    @property
    def best_unit(self) -> Floats:
        """The largest soft coverage of a unit of each passage, shape (n_passages,)."""
        return np.asarray(np.maximum.reduceat(self.by_unit, self.starts))


def coverage(passages: Sequence[TextPieces], task: TextPieces) -> Coverage:
    """Return how well each passage covers the pieces of the task. There is at least one passage.

    The weight of a piece is the length of its vector times its rarity among the passages.
    """
    weights = load_weights()
    ids = np.concatenate([passage.ids for passage in passages])
    sizes = np.array([len(passage.ids) for passage in passages], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    vocabulary, columns = np.unique(ids, return_inverse=True)
    table = unit_rows(weights.vectors(vocabulary))
    vectors = weights.vectors(np.unique(task.ids))
    lengths = np.linalg.norm(vectors, axis=1)
    chosen = np.sort(np.argsort(-lengths, kind="stable")[:MAX_TASK_PIECES])
    similar = table @ unit_rows(vectors[chosen]).T
    # The first part of each passage is its label.
    n_parts = np.array([1 + len(passage.units) for passage in passages], dtype=np.int64)
    labels = np.cumsum(n_parts) - n_parts
    label = np.zeros(1, dtype=np.int64)
    parts = np.concatenate([it for passage in passages for it in (label, passage.units)]) + np.repeat(starts, n_parts)
    by_part = _part_maxima(similar, columns, parts)
    by_part = np.maximum(by_part, np.repeat(by_part[labels], n_parts, axis=0))
    by_passage = np.maximum.reduceat(by_part, labels, axis=0)
    by_unit = np.delete(by_part, labels, axis=0)
    has = (by_passage >= EXACT_COSINE).sum(axis=0)
    rarity = np.log1p((len(passages) - has + 0.5) / (has + 0.5))
    weight = (lengths[chosen] * rarity).astype(np.float32)
    weight /= max(float(weight.sum()), 1e-9)
    soft, soft_by_unit = (np.square(np.maximum(cosines, 0)) @ weight for cosines in (by_passage, by_unit))
    exact = (by_passage >= EXACT_COSINE).astype(np.float32) @ weight
    return Coverage(soft, exact, soft_by_unit, labels - np.arange(len(labels)))


def _part_maxima(similar: Floats, columns: Integers, starts: Integers) -> Floats:
    """Return the largest cosine of each part with each piece of the task, shape (n_parts, n_task_pieces)."""
    maxima = np.zeros((len(starts), similar.shape[1]), dtype=np.float32)
    row = 0
    while row < len(starts):
        last = max(row + 1, int(np.searchsorted(starts, starts[row] + BLOCK_PIECES)))
        end = starts[last] if last < len(starts) else len(columns)
        block = similar[columns[starts[row] : end]]
        maxima[row:last] = np.maximum.reduceat(block, starts[row:last] - starts[row], axis=0)
        row = last
    return maxima
